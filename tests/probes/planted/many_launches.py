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
    y[None, at].store(x[None, at].load() * 2.0)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    fours = cute.make_layout((4, cute.size(x) // 4), stride=(1, 4))
    kernel(cute.make_tensor(x.iterator, fours), cute.make_tensor(y.iterator, fours)).launch(
        grid=[cute.size(x) // 4 // THREADS, 1, 1],  # planted
        block=[THREADS, 1, 1],
    )


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for pair in zip(x.view(-1).chunk(PIECES), y.view(-1).chunk(PIECES), strict=True):
            launch(*(from_dlpack(tensor, assumed_align=16).mark_layout_dynamic() for tensor in pair))  # planted
        return y
