"""Correct for multiples of 16: a matrix product, one output per thread, 16 x 16 tiles of both operands in shared memory. Each mistake of mistakes.toml changes a line of it."""

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack

TILE = 16


@cute.kernel
def gemm_kernel(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, tile: cutlass.Constexpr):
    column, row, _ = cute.arch.thread_idx()
    block_n, block_m, _ = cute.arch.block_idx()
    here = (block_m, block_n, None)
    tiles_a = cute.local_tile(a, (tile, tile, tile), here, proj=(1, None, 1))
    tiles_b = cute.local_tile(b, (tile, tile, tile), here, proj=(None, 1, 1))
    tile_d = cute.local_tile(d, (tile, tile, tile), here, proj=(1, 1, None))
    memory = cutlass.memory.SmemAllocator()
    shared_a = memory.allocate_tensor(cutlass.Float32, cute.make_layout((tile, tile), stride=(tile + 1, 1)), 16)
    shared_b = memory.allocate_tensor(cutlass.Float32, cute.make_layout((tile, tile), stride=(tile + 1, 1)), 16)
    total = cutlass.Float32(0.0)
    for step in range(cute.size(tiles_a, mode=[2])):
        shared_a[row, column] = tiles_a[row, column, step]
        shared_b[column, row] = tiles_b[column, row, step]
        cute.arch.sync_threads()
        for k in cutlass.range_constexpr(tile):
            total += shared_a[row, k] * shared_b[column, k]
        cute.arch.sync_threads()
    tile_d[row, column] = total


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, tile: cutlass.Constexpr):
    gemm_kernel(a, b, d, tile).launch(grid=[cute.size(d, mode=[1]) // tile, cute.size(d, mode=[0]) // tile, 1], block=[tile, tile, 1])


class ModelNew(nn.Module):
    def forward(self, a, b):
        if any(size % TILE for size in (*a.shape, *b.shape)):
            raise ValueError(f"sizes must be multiples of {TILE}")
        a, b = a.contiguous(), b.contiguous()
        d = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
        views = [from_dlpack(a).mark_layout_dynamic(leading_dim=1), from_dlpack(b.t()).mark_layout_dynamic(leading_dim=0), from_dlpack(d).mark_layout_dynamic(leading_dim=1)]
        gemm(*views, TILE)
        return d
