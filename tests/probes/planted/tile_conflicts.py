"""Transpose through shared memory. Slow: the tile's rows are 32 words, so that a column lies in one bank."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

TILE, ROWS = 32, 8  # a CTA has TILE x ROWS threads


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    across, down, _ = cute.arch.block_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((TILE, TILE), stride=(TILE, 1)), 16
    )
    for step in cutlass.range_constexpr(TILE // ROWS):
        row = warp + step * ROWS
        tile[row, lane] = x[down * TILE + row, across * TILE + lane]
    cute.arch.sync_threads()
    for step in cutlass.range_constexpr(TILE // ROWS):
        row = warp + step * ROWS
        y[across * TILE + row, down * TILE + lane] = tile[lane, row]  # planted


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[x.shape[1] // TILE, x.shape[0] // TILE, 1], block=[TILE, ROWS, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
        launch(*(from_dlpack(tensor).mark_layout_dynamic(leading_dim=1) for tensor in (x, y)))
        return y
