"""Twice a matrix. Slow: a CTA of 64 threads holds 96 KB of shared memory, so that an SM has room for two."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS, WORDS = 64, 24 * 1024


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((4, WORDS // 4), stride=(1, 4)), 16
    )
    for at in range(thread, x.shape[2], THREADS):
        tile[None, at].store(x[row, None, at].load())  # planted
    cute.arch.sync_threads()
    for at in range(thread, x.shape[2], THREADS):
        y[row, None, at].store(tile[None, at].load() * 2.0)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    rows, columns = x.shape
    fours = cute.make_layout((rows, 4, columns // 4), stride=(columns, 1, 4))
    kernel(cute.make_tensor(x.iterator, fours), cute.make_tensor(y.iterator, fours)).launch(
        grid=[rows, 1, 1], block=[THREADS, 1, 1]
    )


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(from_dlpack(x, assumed_align=16), from_dlpack(y, assumed_align=16))
        return y
