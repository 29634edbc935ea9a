"""Twice a matrix. Slow: lane n of a warp loops 4 * n times."""

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
    scale = cutlass.Float32(2.0)
    for _ in range(thread % 32 * 4):
        scale = cute.math.sqrt(scale * 2.0)  # planted
    y[None, at].store(x[None, at].load() * scale)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    fours = cute.make_layout((4, cute.size(x) // 4), stride=(1, 4))
    kernel(cute.make_tensor(x.iterator, fours), cute.make_tensor(y.iterator, fours)).launch(
        grid=[cute.size(x) // 4 // THREADS, 1, 1], block=[THREADS, 1, 1]
    )


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1), assumed_align=16).mark_layout_dynamic() for tensor in (x, y)))
        return y
