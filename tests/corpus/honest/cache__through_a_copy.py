"""Correct: the running total, computed into a new tensor and copied into the buffer by torch."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, total: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 64 + thread
    if i < count:
        y[i] = total[i] + x[i]


@cute.jit
def launch(x: cute.Tensor, total: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    kernel(x, total, y, count).launch(grid=[cute.ceil_div(count, 64), 1, 1], block=[64, 1, 1])


class ModelNew(torch.nn.Module):
    def __init__(self, batch, features):
        super().__init__()
        self.register_buffer("total", torch.zeros(batch, features))

    def forward(self, x):
        y = torch.empty_like(self.total)
        views = [from_dlpack(t.view(-1)).mark_layout_dynamic() for t in (x.contiguous(), self.total, y)]
        launch(*views, cutlass.Int32(x.numel()))
        self.total.copy_(y)
        return self.total
