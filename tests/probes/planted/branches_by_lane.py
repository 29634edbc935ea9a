"""Twice a matrix. Slow: each lane of a warp adds 2 / n of its element n times, n from 1 to 32."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    turns = thread % 32 + 1
    part = x[at] * 2.0 / cutlass.Float32(turns)
    total = cutlass.Float32(0.0)
    for _ in range(turns):
        total = cute.math.sqrt(total * total) + part  # planted
    y[at] = total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[x.shape[0] // THREADS, 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1)).mark_layout_dynamic() for tensor in (x, y)))
        return y
