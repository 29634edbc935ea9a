"""Twice a matrix. Slow: lane n of a warp adds up its factor in 4 * n + 1 parts."""

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
    turns = thread % 32 * 4 + 1
    scale, part = cutlass.Float32(0.0), 2.0 / cutlass.Float32(turns)
    for _ in range(turns):
        scale += part  # planted
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
