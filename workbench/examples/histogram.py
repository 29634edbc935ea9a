"""Histogram of integers: how often each of 0 .. bins - 1 occurs; private tables in shared memory, merged by atomics.

Counting straight into global memory would send every element through L2's atomic units, and equal values would queue at
one address. Here each CTA counts into its own table in shared memory, and adds the table to the result once, at the
end: bins atomics instead of one per element.

Within a CTA, lanes of a warp that meet in one bin would still queue. So the table has up to 32 copies, interleaved:
copy c of bin b is word b * copies + c, and lane l counts in copy l % copies. With 32 copies a lane has the bank of its
own number to itself: no two lanes of a warp ever meet, in a bank or in a bin, however skewed the values. Large tables
have fewer copies (bins * copies is at most 16384 words where that is possible), and rely on values being spread.

Elements are read once, 16 bytes per thread and access with UNROLL accesses in flight, by a grid of as many CTAs as the
SMs hold at a time. Integer sums do not depend on the order, so the result is exact and the same in every run. Values
outside 0 .. bins - 1 are not counted.

    python -m workbench.examples.histogram --count 1000003 --bins 1000
"""

import argparse
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from workbench.examples.launching import flat, launch, processors, require, same_place

THREADS = 512
UNROLL = 4  # 16-byte loads in flight per thread
TABLE_WORDS = 16384  # 64 KB: three CTAs on an SM with 228 KB
MOST_BINS = 32768
SHARED_PER_SM = 196_608  # bytes that tables may take of an SM


@cute.jit
def count_into(table: cute.Tensor, value: Any, bins: Any, copies: cutlass.Constexpr) -> None:
    """Count one value in this lane's copy."""
    if (value >= 0) & (value < bins):
        place = value.to(cutlass.Int32) * copies + cute.arch.lane_idx() % copies
        cute.arch.atomic_add(table.iterator + place, cutlass.Int32(1), sem="relaxed", scope="cta")


@cute.kernel
def histogram_kernel(
    x: cute.Tensor,
    counts: cute.Tensor,
    count: cutlass.Int64,
    bins: cutlass.Int32,
    capacity: cutlass.Constexpr,
    copies: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """x (count), counts (bins) with zeros; capacity is bins rounded up to a power of two."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    memory = cutlass.memory.SmemAllocator()
    table = memory.allocate_tensor(cutlass.Int32, cute.make_layout(capacity * copies), 16)
    for i in range(thread, capacity * copies, THREADS):
        table[i] = 0
    cute.arch.sync_threads()

    pieces = cute.zipped_divide(x, (width,))
    loaded = cute.make_rmem_tensor(cute.make_layout((width, UNROLL)), x.element_type)
    vectors = count // width
    stride = cutlass.Int64(blocks) * THREADS
    at = cutlass.Int64(block) * THREADS + thread
    while at + (UNROLL - 1) * stride < vectors:
        for u in cutlass.range_constexpr(UNROLL):
            cute.autovec_copy(pieces[None, at + u * stride], loaded[None, u])
        for u in cutlass.range_constexpr(UNROLL):
            for e in cutlass.range_constexpr(width):
                count_into(table, wide(loaded[e, u]), bins, copies)
        at += UNROLL * stride
    while at < vectors:
        cute.autovec_copy(pieces[None, at], loaded[None, 0])
        for e in cutlass.range_constexpr(width):
            count_into(table, wide(loaded[e, 0]), bins, copies)
        at += stride
    tail = vectors * width + thread  # fewer than `width` elements are left
    if (block == 0) & (tail < count):
        count_into(table, wide(x[tail]), bins, copies)
    cute.arch.sync_threads()

    for one in range(thread, bins, THREADS):
        total = cutlass.Int32(0)
        for c in cutlass.range_constexpr(copies):
            total += table[
                one * copies + (c + thread // (32 // copies)) % copies
            ]  # threads whose bins share banks begin at different copies: no conflict
        if total != 0:
            cute.arch.atomic_add(counts.iterator + one, total, sem="relaxed", scope="gpu")


@cute.jit
def wide(value: Any) -> Any:
    """At least 32 bits, so that it can be compared and multiplied."""
    result = value
    if cutlass.const_expr(value.dtype.width < 32):
        result = value.to(cutlass.Int32)
    return result


@cute.jit
def histogram_host(
    x: cute.Tensor,
    counts: cute.Tensor,
    count: cutlass.Int64,
    bins: cutlass.Int32,
    blocks: cutlass.Int32,
    stream: CUstream,
    capacity: cutlass.Constexpr,
    copies: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """Launch over `blocks` CTAs."""
    histogram_kernel(x, counts, count, bins, capacity, copies, width).launch(
        grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream
    )


def histogram(x: torch.Tensor, bins: int) -> torch.Tensor:
    """Count how often each of 0 to bins - 1 occurs in x; returns int32 (bins,).

    x is contiguous uint8, int32 or int64 of any shape with fewer than 2**31 elements; bins at most 32768. ValueError
    otherwise.
    """
    require(
        x.dtype in (torch.uint8, torch.int32, torch.int64), f"histogram takes uint8, int32 and int64, not {x.dtype}"
    )
    require(0 < bins <= MOST_BINS, f"bins must be from 1 to {MOST_BINS}, not {bins}")
    require(x.numel() < 2**31, "a count could exceed int32: x must have fewer than 2**31 elements")
    same_place(x)
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    if x.numel() == 0:
        return counts
    capacity = 1 << (bins - 1).bit_length()
    copies = max(1, min(32, TABLE_WORDS // capacity))
    width = 16 // x.element_size()
    while x.data_ptr() % (width * x.element_size()):
        width //= 2
    resident = max(1, min(4, SHARED_PER_SM // (4 * capacity * copies)))
    blocks = min(processors(x.device) * resident, -(-x.numel() // (width * THREADS)))
    sizes = (cutlass.Int64(x.numel()), cutlass.Int32(bins), cutlass.Int32(blocks))
    launch(
        histogram_host,
        (flat(x, width * x.element_size()), flat(counts, 4)),
        sizes,
        (capacity, copies, width),
        key=(x.dtype,),
    )
    return counts


def main(arguments: list[str] | None = None) -> None:
    """Count random values, check against torch.bincount."""
    parser = argparse.ArgumentParser(description="histogram")
    parser.add_argument("--count", type=int, default=1_000_003)
    parser.add_argument("--bins", type=int, default=1000)
    options = parser.parse_args(arguments)
    for dtype in (torch.uint8, torch.int32, torch.int64):
        x = torch.randint(
            0, min(options.bins, 256 if dtype == torch.uint8 else options.bins), (options.count,), device="cuda"
        ).to(dtype)
        same = torch.equal(histogram(x, options.bins).long(), torch.bincount(x, minlength=options.bins))
        print(f"{dtype}: equal {same}")
        assert same


if __name__ == "__main__":
    main()
