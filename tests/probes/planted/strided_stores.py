"""Transpose. Slow: it reads rows and writes columns, so that each store of a warp touches 32 sectors."""

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, row, _ = cute.arch.block_idx()
    column = block * THREADS + thread
    value = x[row, column]
    y[column, row] = value  # planted


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[x.shape[1] // THREADS, x.shape[0], 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
        launch(*(from_dlpack(tensor).mark_layout_dynamic(leading_dim=1) for tensor in (x, y)))
        return y
