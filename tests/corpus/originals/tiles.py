"""Correct: an fp16 matrix product on the tensor cores, one 32 x 32 tile per CTA."""

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def gemm_kernel(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32, tiled_mma: cute.TiledMma):
    thread, _, _ = cute.arch.thread_idx()
    block_n, block_m, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    tile_a = memory.allocate_tensor(cutlass.Float16, cute.make_layout((32, 16), stride=(24, 1)), 16)
    tile_b = memory.allocate_tensor(cutlass.Float16, cute.make_layout((32, 16), stride=(24, 1)), 16)
    mine = tiled_mma.get_slice(thread)
    shared_a, shared_b = mine.partition_A(tile_a), mine.partition_B(tile_b)
    part_a, part_b = tiled_mma.make_fragment_A(shared_a), tiled_mma.make_fragment_B(shared_b)
    totals = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((32, 32)))
    totals.fill(0.0)
    for start in range(0, k, 16):
        for step in cutlass.range_constexpr(4):
            at = step * 128 + thread
            i, j = at // 16, at % 16
            value_a = cutlass.Float16(0.0)
            value_b = cutlass.Float16(0.0)
            if start + j < k:
                if block_m * 32 + i < m:
                    value_a = a[block_m * 32 + i, start + j]
                if block_n * 32 + i < n:
                    value_b = b[start + j, block_n * 32 + i]
            tile_a[i, j] = value_a
            tile_b[i, j] = value_b
        cute.arch.sync_threads()
        cute.autovec_copy(shared_a, part_a)
        cute.autovec_copy(shared_b, part_b)
        cute.gemm(tiled_mma, totals, part_a, part_b, totals)
        cute.arch.sync_threads()
    where = mine.partition_C(cute.make_identity_tensor((32, 32)))
    for e in cutlass.range_constexpr(cute.size(totals)):
        row = block_m * 32 + where[e][0]
        column = block_n * 32 + where[e][1]
        if row < m and column < n:
            d[row, column] = totals[e].to(cutlass.Float16)


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32):
    operation = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    tiled_mma = cute.make_tiled_mma(operation, cute.make_layout((2, 2, 1)))
    gemm_kernel(a, b, d, m, n, k, tiled_mma).launch(grid=[(n + 31) // 32, (m + 31) // 32, 1], block=[128, 1, 1])


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        d = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
        views = [from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (a, b, d)]
        gemm(*views, cutlass.Int32(a.shape[0]), cutlass.Int32(b.shape[1]), cutlass.Int32(a.shape[1]))
        return d
