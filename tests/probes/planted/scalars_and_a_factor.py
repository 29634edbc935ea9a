"""A polynomial. Slow: a thread loads and stores 4 bytes; all lanes of a warp read one constant."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, half: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    value = x[i]  # planted
    constant = half[0]
    r = cutlass.Float32(1.0)
    for _ in cutlass.range_constexpr(64):
        r = r * value + constant
    y[i] = r  # planted


@cute.jit
def launch(x: cute.Tensor, half: cute.Tensor, y: cute.Tensor):
    kernel(x, half, y).launch(grid=[cute.size(x) // THREADS, 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y, half = torch.empty_like(x), torch.full((1,), 0.5, dtype=x.dtype, device=x.device)
        launch(*(from_dlpack(tensor.view(-1)).mark_layout_dynamic() for tensor in (x, half, y)))
        return y
