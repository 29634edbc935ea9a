"""Sum of each row. Slow: the warps meet after each of their loads, though none reads what another wrote."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 512


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // 32), 16)
    total = cutlass.Float32(0.0)
    for at in cutlass.range(thread, x.shape[2], THREADS, unroll=1):
        total += x[row, None, at].load().reduce(cute.ReductionOp.ADD, 0.0, reduction_profile=0)
        cute.arch.sync_threads()  # planted
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << step)
    if thread % 32 == 0:
        memory[thread // 32] = total
    cute.arch.sync_threads()
    if thread == 0:
        total = cutlass.Float32(0.0)
        for warp in cutlass.range_constexpr(THREADS // 32):
            total += memory[warp]
        y[row] = total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    rows, columns = x.shape
    fours = cute.make_layout((rows, 4, columns // 4), stride=(columns, 1, 4))
    kernel(cute.make_tensor(x.iterator, fours), y).launch(grid=[rows, 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        launch(from_dlpack(x, assumed_align=16), from_dlpack(y))
        return y
