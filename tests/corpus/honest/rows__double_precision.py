"""Correct: row sums by one thread a row in float64."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * 32 + thread
    if row < x.shape[0]:
        total = cutlass.Float64(0.0)
        for c in range(x.shape[1]):
            total += x[row, c].to(cutlass.Float64)
        y[row] = total.to(cutlass.Float32)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[cute.ceil_div(x.shape[0], 32), 1, 1], block=[32, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        launch(from_dlpack(x).mark_layout_dynamic(leading_dim=1), from_dlpack(y).mark_layout_dynamic())
        return y
