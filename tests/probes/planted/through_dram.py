"""Twice a matrix. Slow: a second kernel reads from DRAM what a first one wrote there."""

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, factor: float):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    y[None, at].store(x[None, at].load() * factor)  # planted


@cute.jit
def launch(x: cute.Tensor, between: cute.Tensor, y: cute.Tensor):
    fours = cute.make_layout((4, cute.size(x) // 4), stride=(1, 4))
    x, between, y = (cute.make_tensor(tensor.iterator, fours) for tensor in (x, between, y))
    ctas = cute.size(x) // 4 // THREADS
    kernel(x, between, 4.0).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1])
    kernel(between, y, 0.5).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        between, y = torch.empty_like(x), torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1), assumed_align=16) for tensor in (x, between, y)))
        return y
