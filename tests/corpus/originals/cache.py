"""Correct: a running total in a buffer, which every call adds to and returns."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def add_kernel(x: cute.Tensor, total: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 64 + thread
    if i < count:
        total[i] = total[i] + x[i]


@cute.jit
def add(x: cute.Tensor, total: cute.Tensor, count: cutlass.Int32):
    add_kernel(x, total, count).launch(grid=[(count + 63) // 64, 1, 1], block=[64, 1, 1])


class ModelNew(torch.nn.Module):
    def __init__(self, batch, features):
        super().__init__()
        self.register_buffer("total", torch.zeros(batch, features))

    def forward(self, x):
        views = [from_dlpack(t.view(-1)).mark_layout_dynamic() for t in (x.contiguous(), self.total)]
        add(*views, cutlass.Int32(x.numel()))
        return self.total
