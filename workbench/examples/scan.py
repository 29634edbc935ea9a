"""Inclusive prefix sums along the last axis, in one pass over memory: decoupled look-back (Merrill and Garland, 2016).

A row is cut into tiles of THREADS x PER_THREAD elements, one per CTA; every element is read once and written once. A CTA

1. draws a ticket: tiles are numbered in the order in which CTAs start, so that a tile's predecessors are always running or done, and waiting for
   them cannot deadlock whatever the hardware's schedule;
2. loads its tile, 16 bytes per thread and access, neighbouring threads at neighbouring addresses (coalesced), and keeps it in registers;
3. scans it: each thread its own vector, each warp by 5 shuffles per vector, the warps through shared memory;
4. publishes its total, looks back for the sum of all tiles before it, and publishes its prefix;
5. adds the sum before it to its registers and stores them, coalesced as the loads.

Look-back is one warp's work: lane i reads the status of the (i+1)-th tile before, 32 tiles at a time, until one has its whole prefix. A status is
one 64-bit word, state in the upper half and value in the lower: written and read at once, state and value cannot be torn apart, so that no fence is needed.

int32 is exact (modulo 2**32). In float32 the last bits depend on how far each look-back went, and so may differ from run to run.

    python -m workbench.examples.scan --rows 33 --columns 10001
"""

import argparse
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from workbench.examples.launching import flat, launch, require, same_place, vector_width

THREADS = 256
WARPS = THREADS // 32
PER_THREAD = 16
TILE = THREADS * PER_THREAD
TOTAL, PREFIX = 1, 2  # what a status holds: the tile's own total, or the sum of everything up to its end; 0 is nothing yet


@cute.jit
def publish(place: Any, state: cutlass.Constexpr, value: Any) -> None:
    """Store state and value as one word that the whole GPU sees."""
    cute.arch.store(place, cutlass.Int64(cutlass.Uint64(state << 32) | cutlass.Uint64(value.bitcast(cutlass.Uint32))), sem="relaxed", scope="gpu")


@cute.jit
def look_back(status: cute.Tensor, first: Any, tile: Any, kind: cutlass.Constexpr) -> Any:
    """The sum of the row's tiles before `tile`, whose statuses begin at `first`; called by one whole warp, every lane gets the sum."""
    lane = cute.arch.lane_idx()
    before = kind(0)
    last = tile - 1  # the nearest tile that is not in the sum yet
    looking = cutlass.Boolean(True)
    while looking:
        mine = last - lane
        word = cutlass.Int64(PREFIX << 32)  # before the row there is nothing, and it is complete
        if mine >= 0:
            word = cute.arch.load(status.iterator + (first + mine), cutlass.Int64, sem="relaxed", scope="gpu")
        while cute.arch.vote_any_sync(word < (TOTAL << 32)):
            if mine >= 0:
                word = cute.arch.load(status.iterator + (first + mine), cutlass.Int64, sem="relaxed", scope="gpu")
        complete = cute.arch.vote_ballot_sync(word >= (PREFIX << 32))
        value = cutlass.Uint32(word & 0xFFFFFFFF).bitcast(kind)
        if complete != 0:
            nearest = cute.arch.popc((complete & -complete) - 1)  # lanes below the lowest set bit
            if lane > nearest:
                value = kind(0)
        for step in cutlass.range_constexpr(5):
            value += cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
        before += value
        last -= 32
        looking = complete == 0
    return before


@cute.jit
def scan_warp(kept: cute.Tensor, width: cutlass.Constexpr, kind: cutlass.Constexpr) -> Any:
    """Scan a warp's part of the tile in place, kept (width, vectors): vector v of lane l holds elements (v*32 + l)*width and following. Returns the warp's total."""
    lane = cute.arch.lane_idx()
    carry = kind(0)
    for v in cutlass.range_constexpr(PER_THREAD // width):
        for e in cutlass.range_constexpr(1, width):
            kept[e, v] += kept[e - 1, v]
        running = kept[width - 1, v]
        for step in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(running, offset=1 << step)
            if lane >= 1 << step:
                running += below
        before = cute.arch.shuffle_sync_up(running, offset=1)
        if lane == 0:
            before = kind(0)
        for e in cutlass.range_constexpr(width):
            kept[e, v] += carry + before
        carry += cute.arch.shuffle_sync(running, 31)
    return carry


@cute.kernel
def scan_kernel(x: cute.Tensor, y: cute.Tensor, status: cute.Tensor, ticket: cute.Tensor, columns: cutlass.Int32, tiles: cutlass.Int32, width: cutlass.Constexpr) -> None:
    """x, y (rows * columns); status (rows * tiles) and ticket (1) hold zeros."""
    thread, _, _ = cute.arch.thread_idx()
    warp, lane, kind = thread // 32, thread % 32, x.element_type
    memory = cutlass.memory.SmemAllocator()
    drawn = memory.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    totals = memory.allocate_tensor(kind, cute.make_layout(WARPS), 16)
    earlier = memory.allocate_tensor(kind, cute.make_layout(1), 16)
    if thread == 0:
        drawn[0] = cute.arch.atomic_add(ticket.iterator, cutlass.Int32(1), sem="relaxed", scope="gpu")
    cute.arch.sync_threads()
    number = drawn[0]
    row = number // tiles
    tile = number - row * tiles

    vectors = columns // width  # of a row
    first = tile * (TILE // width) + warp * (32 * PER_THREAD // width) + lane
    from_x, to_y = cute.zipped_divide(x, (width,)), cute.zipped_divide(y, (width,))
    start = cutlass.Int64(row) * vectors
    kept = cute.make_rmem_tensor(cute.make_layout((width, PER_THREAD // width)), kind)
    kept.fill(0)
    for v in cutlass.range_constexpr(PER_THREAD // width):
        if first + v * 32 < vectors:
            cute.autovec_copy(from_x[None, start + first + v * 32], kept[None, v])
    total = scan_warp(kept, width, kind)
    if lane == 0:
        totals[warp] = total
    cute.arch.sync_threads()
    before = kind(0)
    total = kind(0)
    for w in cutlass.range_constexpr(WARPS):
        if w == warp:
            before = total
        total += totals[w]
    if warp == 0:
        sum_before = kind(0)
        place = status.iterator + number
        if tile > 0:
            if lane == 0:
                publish(place, TOTAL, total)
            sum_before = look_back(status, row * tiles, tile, kind)
        if lane == 0:
            publish(place, PREFIX, sum_before + total)
            earlier[0] = sum_before
    cute.arch.sync_threads()
    before += earlier[0]
    for v in cutlass.range_constexpr(PER_THREAD // width):
        for e in cutlass.range_constexpr(width):
            kept[e, v] += before
        if first + v * 32 < vectors:
            cute.autovec_copy(kept[None, v], to_y[None, start + first + v * 32])


@cute.jit
def scan_host(
    x: cute.Tensor, y: cute.Tensor, status: cute.Tensor, ticket: cute.Tensor, columns: cutlass.Int32, tiles: cutlass.Int32, ctas: cutlass.Int32, stream: CUstream, width: cutlass.Constexpr
) -> None:
    """One CTA per tile."""
    scan_kernel(x, y, status, ticket, columns, tiles, width).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


def scan(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Inclusive prefix sums of x (..., columns), int32 or float32, contiguous, along the last axis; written to `out` if given, of x's shape and type."""
    require(x.dtype in (torch.int32, torch.float32), f"scan takes int32 and float32, not {x.dtype}")
    require(x.dim() > 0, "scan needs at least one axis")
    y = torch.empty_like(x) if out is None else out
    require(y.shape == x.shape and y.dtype == x.dtype, f"out must have shape {tuple(x.shape)} and type {x.dtype}")
    same_place(x, y)
    if x.numel() == 0:
        return y
    columns = x.shape[-1]
    tiles = -(-columns // TILE)
    ctas = x.numel() // columns * tiles
    require(ctas < 2**31, "scan takes at most 2**31 - 1 tiles")
    scratch = torch.zeros(ctas + 1, dtype=torch.int64, device=x.device)  # one memset for statuses and ticket
    width = vector_width(columns, x, y)
    align = width * x.element_size()
    launch(
        scan_host, (flat(x, align), flat(y, align), flat(scratch[1:], 8), flat(scratch[:1].view(torch.int32), 8)),
        (cutlass.Int32(columns), cutlass.Int32(tiles), cutlass.Int32(ctas)), (width,), key=(x.dtype,),
    )  # fmt: skip
    return y


def main(arguments: list[str] | None = None) -> None:
    """Scan random integers and floats, check against torch."""
    parser = argparse.ArgumentParser(description="inclusive prefix sums")
    parser.add_argument("--rows", type=int, default=33)
    parser.add_argument("--columns", type=int, default=10001)
    options = parser.parse_args(arguments)
    x = torch.randint(-1000, 1000, (options.rows, options.columns), dtype=torch.int32, device="cuda")
    exact = torch.cumsum(x, -1, dtype=torch.int32)
    print("int32   equal:", same := torch.equal(scan(x), exact))
    assert same
    error = (scan(x.float()) - exact).abs().max().item()  # integers below 2**24 in float32: exact too
    print("float32 largest error:", error)
    assert error == 0


if __name__ == "__main__":
    main()
