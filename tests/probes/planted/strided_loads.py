"""Twice a matrix. Slow: a thread takes 32 consecutive elements, so that the lanes of a warp are 128 bytes apart."""

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS, RUN = 256, 32


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    first = (block * THREADS + thread) * RUN
    for at in range(RUN):
        y[first + at] = x[first + at] * 2.0  # planted


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[x.shape[0] // (THREADS * RUN), 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1)).mark_layout_dynamic() for tensor in (x, y)))
        return y
