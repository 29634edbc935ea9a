"""Twice a matrix, by way of shared memory. Slow: a thread takes 32 words in a row, so that a warp hits one bank."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS, RUN = 128, 32


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    first = block * THREADS * RUN // 4
    kept = cutlass.memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((4, THREADS * RUN // 4), stride=(1, 4)), 16
    )
    words = cute.make_tensor(kept.iterator, cute.make_layout(THREADS * RUN))
    for turn in cutlass.range_constexpr(RUN // 4):
        at = turn * THREADS + thread
        kept[None, at].store(x[None, first + at].load())
    cute.arch.sync_threads()
    for each in range(RUN):
        words[thread * RUN + each] = words[thread * RUN + each] * 2.0  # planted
    cute.arch.sync_threads()
    for turn in cutlass.range_constexpr(RUN // 4):
        at = turn * THREADS + thread
        y[None, first + at].store(kept[None, at].load())


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    fours = cute.make_layout((4, cute.size(x) // 4), stride=(1, 4))
    kernel(cute.make_tensor(x.iterator, fours), cute.make_tensor(y.iterator, fours)).launch(
        grid=[cute.size(x) // (THREADS * RUN), 1, 1], block=[THREADS, 1, 1]
    )


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1), assumed_align=16).mark_layout_dynamic() for tensor in (x, y)))
        return y
