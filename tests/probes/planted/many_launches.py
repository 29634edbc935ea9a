"""Twice a matrix. Slow: a launch for every few rows."""

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS, PIECES = 256, 64


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    cute.autovec_copy(x[None, at], y[None, at])
    for each in range(4):
        y[each, at] = x[each, at] * 2.0


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    quads = cute.make_layout((4, cute.size(x) // 4), stride=(1, 4))
    kernel(cute.make_tensor(x.iterator, quads), cute.make_tensor(y.iterator, quads)).launch(
        grid=[cute.size(x) // 4 // THREADS, 1, 1], block=[THREADS, 1, 1]
    )


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for one, other in zip(x.view(-1).chunk(PIECES), y.view(-1).chunk(PIECES), strict=True):
            launch(*(from_dlpack(tensor, assumed_align=16).mark_layout_dynamic() for tensor in (one, other)))  # planted
        return y
