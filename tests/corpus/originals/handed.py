"""Correct: the sum of each row by two warps; the second hands its part to the first through shared memory and a named barrier."""

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def sum_kernel(x: cute.Tensor, y: cute.Tensor, columns: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    scratch = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(1), 16)
    total = cutlass.Float32(0.0)
    for column in range(thread, columns, 64):
        total += x[row, column].to(cutlass.Float32)
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=16 >> step)
    if thread < 32:
        cute.arch.barrier(barrier_id=1, number_of_threads=64)
        if thread == 0:
            y[row] = (total + scratch[0]).to(y.element_type)
    else:
        if thread == 32:
            scratch[0] = total
        cute.arch.barrier_arrive(barrier_id=1, number_of_threads=64)


@cute.jit
def row_sum(x: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32):
    sum_kernel(x, y, columns).launch(grid=[rows, 1, 1], block=[64, 1, 1])


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        row_sum(from_dlpack(x).mark_layout_dynamic(leading_dim=1), from_dlpack(y).mark_layout_dynamic(), cutlass.Int32(x.shape[0]), cutlass.Int32(x.shape[1]))
        return y
