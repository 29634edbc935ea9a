"""Scan along the last axis with one CTA per row, tile by tile."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.scan.tile import (
    combine,
    load_tile,
    make_scratch,
    scan_warp,
    store_tile,
    store_tile_with_total,
)
from workbench.kernels.static import Many, Static, dtype


@cute.kernel
def scan_kernel(
    cfg: Static, inputs: Many[cute.Tensor], y: cute.Tensor, columns: cutlass.Int32, width: cutlass.Constexpr
):
    """Scan one row; the next tile is loaded while this one is scanned."""
    tidx, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    warp, lane = tidx // 32, tidx % 32
    smem = cutlass.memory.SmemAllocator()
    # totals are double-buffered, so one barrier per tile is enough
    totals_layout = cute.make_layout((2, cfg.warps), stride=(cfg.warps, 1))
    totals = smem.allocate_tensor(dtype(cfg.accumulator), totals_layout, 16)
    if cutlass.const_expr(cfg.append_total):
        scratch = make_scratch(cfg, smem, width)
    vectors = columns // width  # of a row
    start = cutlass.Int64(row) * vectors
    if cutlass.const_expr(cfg.append_total):
        target = cutlass.Int64(row) * (columns + 1)  # where the row starts in y
    first = warp * (32 * cfg.per_thread // width) + lane
    layout = cute.make_layout((width, cfg.per_thread // width))
    ahead = cute.make_rmem_tensor(layout, dtype(cfg.accumulator))
    values = cute.make_rmem_tensor(layout, dtype(cfg.accumulator))
    prefixes = cute.make_rmem_tensor(cfg.per_thread // width, dtype(cfg.accumulator))
    ahead.fill(cfg.identity)
    load_tile(cfg, inputs, ahead, start, first, vectors, width)
    carry = dtype(cfg.accumulator)(cfg.identity)
    for tile in range((vectors + cfg.tile // width - 1) // (cfg.tile // width)):
        values.store(ahead.load())
        load_tile(cfg, inputs, ahead, start, first + cfg.tile // width, vectors, width)
        total = scan_warp(cfg, values, prefixes, width)
        if lane == 0:
            totals[tile % 2, warp] = total
        earlier = dtype(cfg.accumulator)(cfg.identity)
        cute.arch.sync_threads()
        for w in cutlass.range_constexpr(cfg.warps):
            if w == warp:
                earlier = carry
            total = totals[tile % 2, w]
            carry = combine(cfg, carry, total)
        if cutlass.const_expr(cfg.append_total):
            own = scratch[None, None, warp]
            store_tile_with_total(cfg, y, values, prefixes, earlier, first, vectors, target, own, width)
        else:
            store_tile(cfg, y, values, prefixes, earlier, start, first, vectors, width)
        first += cfg.tile // width


@cute.jit
def scan_rows(
    cfg: Static,
    inputs: Many[cute.Tensor],
    y: cute.Tensor,
    columns: cutlass.Int32,
    rows: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    """Inputs (rows * columns), y of the same size, or (rows * (columns + 1)) with totals.

    `width`: elements per access.
    """
    scan_kernel(cfg, inputs, y, columns, width).launch(grid=[rows, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
