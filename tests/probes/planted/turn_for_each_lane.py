"""A polynomial. Slow: each lane has its turn, and the branch becomes a choice: all lanes do all turns."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    value = x[i]
    r = cutlass.Float32(1.0)
    for turn in cutlass.range(32, unroll=1):
        if thread % 32 == turn:
            for _ in cutlass.range_constexpr(64):
                r = r * value + 0.5  # planted
    y[i] = r


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[cute.size(x) // THREADS, 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1)).mark_layout_dynamic() for tensor in (x, y)))
        return y
