"""Twice a matrix. Slow: every vector's address is taken apart and put together again, bit by bit."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS, BITS = 256, 28


@cute.jit
def rebuilt(number, mask, step):
    """The number itself."""
    rest, place, shift = number, cutlass.Int32(0), cutlass.Int32(0)
    for _ in range(BITS):
        place = place | ((rest & mask) << shift)  # planted
        rest, shift = rest >> step, shift + step  # planted
    return place


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, mask: cutlass.Int32, step: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    y[None, rebuilt(at, mask, step)].store(x[None, rebuilt(at, mask, step + mask - 1)].load() * 2.0)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, mask: cutlass.Int32, step: cutlass.Int32):
    fours = cute.make_layout((4, cute.size(x) // 4), stride=(1, 4))
    kernel(cute.make_tensor(x.iterator, fours), cute.make_tensor(y.iterator, fours), mask, step).launch(
        grid=[cute.size(x) // 4 // THREADS, 1, 1], block=[THREADS, 1, 1]
    )


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1), assumed_align=16).mark_layout_dynamic() for tensor in (x, y)), 1, 1)
        return y
