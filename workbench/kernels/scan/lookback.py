"""Scan along the last axis by decoupled look-back (Merrill and Garland, 2016), with one CTA per tile.

A CTA finds the prefix of its tile from the status words of the preceding tiles. In floating point the last bits depend
on how far each look-back went, so results may differ between runs.
"""

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

# states of a status word; 0: nothing published yet
TOTAL = 1  # the tile's own total is published
PREFIX = 2  # the inclusive prefix is published


@cute.jit
def publish(place, state: cutlass.Constexpr, value):
    """Store the state (upper half) and the value (lower half) as one 64-bit word, visible to the whole GPU.

    One store writes both, so no fence is needed.
    """
    word = cutlass.Int64(cutlass.Uint64(state << 32) | cutlass.Uint64(value.bitcast(cutlass.Uint32)))
    cute.arch.store(place, word, sem="relaxed", scope="gpu")


@cute.jit
def look_back(cfg: Static, status: cute.Tensor, first, tile):
    """Return the combined value of the row's tiles before `tile`; their status words begin at `first`.

    A whole warp calls it. It inspects 32 tiles at a time until one has published its inclusive prefix.
    """
    lane = cute.arch.lane_idx()
    found = dtype(cfg.accumulator)(cfg.identity)
    last = tile - 1  # the nearest tile not combined yet
    looking = cutlass.Boolean(True)
    while looking:
        own = last - lane
        word = cutlass.Int64(PREFIX << 32)  # lanes before the row's start count as complete
        if own >= 0:
            word = cute.arch.load(status.iterator + (first + own), cutlass.Int64, sem="relaxed", scope="gpu")
        while cute.arch.vote_any_sync(word < (TOTAL << 32)):
            if own >= 0:
                word = cute.arch.load(status.iterator + (first + own), cutlass.Int64, sem="relaxed", scope="gpu")
        complete = cute.arch.vote_ballot_sync(word >= (PREFIX << 32))
        value = cutlass.Uint32(word & 0xFFFFFFFF).bitcast(dtype(cfg.accumulator))
        if own < 0:
            value = dtype(cfg.accumulator)(cfg.identity)
        if complete != 0:
            nearest = cute.arch.popc((complete & -complete) - 1)  # lanes below the lowest set bit
            if lane > nearest:
                value = dtype(cfg.accumulator)(cfg.identity)
        for step in cutlass.range_constexpr(5):
            other = cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
            value = combine(cfg, value, other)
        found = combine(cfg, value, found)
        last -= 32
        looking = complete == 0
    return found


@cute.jit
def exchange(cfg: Static, status: cute.Tensor, found: cute.Tensor, number, first, tile, total, lane):
    """Publish the total of tile `number`, look back, publish its inclusive prefix; found[0] gets the exclusive one.

    A whole warp calls it. The tile is number `tile` of its row, whose status words begin at `first`.
    """
    before = dtype(cfg.accumulator)(cfg.identity)
    place = status.iterator + number
    if tile > 0:
        if lane == 0:
            publish(place, TOTAL, total)
        before = look_back(cfg, status, first, tile)
    if lane == 0:
        publish(place, PREFIX, combine(cfg, before, total))
        found[0] = before


@cute.kernel
def scan_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    y: cute.Tensor,
    status: cute.Tensor,
    ticket: cute.Tensor,
    columns: cutlass.Int32,
    tiles: cutlass.Int32,
    width: cutlass.Constexpr,
):
    """Scan one tile per CTA; status and ticket are zero at launch.

    A ticket numbers the tiles in the order in which CTAs start. All preceding tiles are therefore running or complete,
    and waiting for them cannot deadlock.
    """
    tidx, _, _ = cute.arch.thread_idx()
    warp, lane = tidx // 32, tidx % 32
    smem = cutlass.memory.SmemAllocator()
    drawn = smem.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    totals = smem.allocate_tensor(dtype(cfg.accumulator), cute.make_layout(cfg.warps), 16)
    found = smem.allocate_tensor(dtype(cfg.accumulator), cute.make_layout(1), 16)
    if cutlass.const_expr(cfg.append_total):
        scratch = make_scratch(cfg, smem, width)
    if tidx == 0:
        drawn[0] = cute.arch.atomic_add(ticket.iterator, cutlass.Int32(1), sem="relaxed", scope="gpu")
    cute.arch.sync_threads()
    number = drawn[0]
    row = number // tiles
    tile = number - row * tiles
    vectors = columns // width  # of a row
    start = cutlass.Int64(row) * vectors
    if cutlass.const_expr(cfg.append_total):
        target = cutlass.Int64(row) * (columns + 1)  # where the row starts in y
    first = tile * (cfg.tile // width) + warp * (32 * cfg.per_thread // width) + lane
    values = cute.make_rmem_tensor(cute.make_layout((width, cfg.per_thread // width)), dtype(cfg.accumulator))
    prefixes = cute.make_rmem_tensor(cfg.per_thread // width, dtype(cfg.accumulator))
    values.fill(cfg.identity)
    load_tile(cfg, inputs, values, start, first, vectors, width)
    total = scan_warp(cfg, values, prefixes, width)
    if lane == 0:
        totals[warp] = total
    carry = dtype(cfg.accumulator)(cfg.identity)
    earlier = dtype(cfg.accumulator)(cfg.identity)
    cute.arch.sync_threads()
    for w in cutlass.range_constexpr(cfg.warps):
        if w == warp:
            earlier = carry
        total = totals[w]
        carry = combine(cfg, carry, total)
    if warp == 0:
        exchange(cfg, status, found, number, row * tiles, tile, carry, lane)
    cute.arch.sync_threads()
    value = found[0]
    earlier = combine(cfg, value, earlier)
    if cutlass.const_expr(cfg.append_total):
        own = scratch[None, None, warp]
        store_tile_with_total(cfg, y, values, prefixes, earlier, first, vectors, target, own, width)
    else:
        store_tile(cfg, y, values, prefixes, earlier, start, first, vectors, width)


@cute.jit
def scan_lookback(
    cfg: Static,
    inputs: Many[cute.Tensor],
    y: cute.Tensor,
    status: cute.Tensor,
    ticket: cute.Tensor,
    columns: cutlass.Int32,
    tiles: cutlass.Int32,
    ctas: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    """Inputs (rows * columns), y of the same size, or (rows * (columns + 1)) with totals.

    `width`: elements per access. status (rows * tiles) int64 and ticket (1) int32 are zero at launch.
    """
    scan_kernel(cfg, inputs, y, status, ticket, columns, tiles, width).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
