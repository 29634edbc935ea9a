"""The k largest elements of each row, with their indices, largest first.

Of equal elements the one with the lowest index comes first.

An element and its index become one 64-bit key: the value's bits, mapped so that they compare as integers, above the
complement of the index. Keys are all different, so one comparison decides everything, ties too, and the result does not
depend on the order in which elements are met.

Each warp keeps the best keys seen so far sorted across its lanes: `blocks` registers per lane, register b of lane l
being number 32*b + l. It streams through its part of the row, 16 bytes per lane and access (coalesced), and compares
with the k-th best so far. Few elements pass: of random data about k * ln(n / k). Those that do are packed into a queue
in shared memory with a ballot (a lane's place is the number of passing lanes below it); whenever 32 are there, they are
sorted by a bitonic network of shuffles and merged into the list, which raises the bar for all that follow.

A row is the work of one warp if it is short, of 8 or 32 if it is long; then the warps' lists are merged pairwise
through shared memory, in log2(warps) rounds.

    python -m workbench.examples.top_k --rows 9 --columns 5001 --k 20
"""

import argparse
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from workbench.examples.launching import flat, launch, require, same_place, vector_width

UNROLL = 4  # 16-byte loads in flight per lane
LOWEST = -(2**63)  # below every key


@cute.jit
def ordered(value: Any) -> Any:
    """Bits of a float32 as an integer that compares as the number does: NaN above all, -0 as 0."""
    number = value.to(cutlass.Float32) + cutlass.Float32(0.0)  # makes 0 of -0
    raw = number.bitcast(cutlass.Int32)
    raw = raw ^ ((raw >> 31) & 0x7FFFFFFF)
    if number != number:
        raw = cutlass.Int32(0x7FFFFFFF)
    return raw


@cute.jit
def exchange(key: Any, distance: cutlass.Constexpr, keep_larger: Any) -> Any:
    """Compare with the lane at `distance` (a power of two), and keep the larger key or the smaller."""
    other = cute.arch.shuffle_sync_bfly(key, offset=distance)
    if (other > key) == keep_larger:
        key = other
    return key


@cute.jit
def merge_bitonic(key: Any) -> Any:
    """Sort a bitonic sequence across the lanes, largest first."""
    lane = cute.arch.lane_idx()
    for step in cutlass.range_constexpr(5):
        key = exchange(key, 16 >> step, (lane & (16 >> step)) == 0)
    return key


@cute.jit
def sort_lanes(key: Any) -> Any:
    """Sort 32 keys across the lanes, largest first."""
    lane = cute.arch.lane_idx()
    for size in cutlass.range_constexpr(1, 5):
        for step in cutlass.range_constexpr(size):
            distance = 1 << (size - 1 - step)
            key = exchange(key, distance, ((lane & distance) == 0) == ((lane & (1 << size)) == 0))
    return merge_bitonic(key)


@cute.jit
def merge_into(best: cute.Tensor, key: Any, blocks: cutlass.Constexpr) -> None:
    """Merge 32 keys, sorted across the lanes, into the list; the smallest 32 of all drop out."""
    lane = cute.arch.lane_idx()
    for step in cutlass.range_constexpr(blocks):
        b = blocks - 1 - step
        mirrored = cute.arch.shuffle_sync(key, 31 - lane)
        larger, smaller = best[b], mirrored
        if mirrored > larger:
            larger, smaller = mirrored, best[b]
        if cutlass.const_expr(step > 0):
            best[b + 1] = merge_bitonic(smaller)
        key = merge_bitonic(larger)
    best[0] = key


@cute.kernel
def top_k_kernel(
    x: cute.Tensor,
    values: cute.Tensor,
    indices: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    k: cutlass.Int32,
    blocks: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    rows_per_cta: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """x (rows * columns), values and indices (rows * k); `warps` share a row, whose list has 32 * blocks >= k keys."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp, lane = cute.arch.make_warp_uniform(thread // 32), thread % 32
    memory = cutlass.memory.SmemAllocator()
    queues = memory.allocate_tensor(
        cutlass.Int64, cute.make_layout((32 + 32 * width, warps * rows_per_cta)), 16
    )  # keys that wait, and one vector of every lane
    lists = memory.allocate_tensor(cutlass.Int64, cute.make_layout((32, blocks, warps)), 16)
    row = block * rows_per_cta + warp // warps
    best = cute.make_rmem_tensor(cute.make_layout(blocks), cutlass.Int64)
    best.fill(LOWEST)
    if row < rows:
        scan_row(x, queues[None, warp], best, cutlass.Int64(row), warp % warps, columns, k, blocks, warps, width)
    if cutlass.const_expr(warps > 1):
        merge_warps(lists, best, warp, blocks, warps)
    if row < rows and warp % warps == 0:
        for b in cutlass.range_constexpr(blocks):
            at = b * 32 + lane
            if at < k:
                index = cutlass.Int64(0xFFFFFFFF) - (best[b] & 0xFFFFFFFF)
                values[cutlass.Int64(row) * k + at] = x[cutlass.Int64(row) * columns + index]
                indices[cutlass.Int64(row) * k + at] = index


@cute.jit
def scan_row(
    x: cute.Tensor,
    queue: cute.Tensor,
    best: cute.Tensor,
    row: Any,
    warp: Any,
    columns: Any,
    k: Any,
    blocks: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """Leave the best keys of this warp's part of the row in `best`."""
    lane = cute.arch.lane_idx()
    vectors = columns // width
    pieces = cute.zipped_divide(x, (width,))
    loaded = cute.make_rmem_tensor(cute.make_layout((width, UNROLL)), x.element_type)
    waiting = cutlass.Int32(0)  # keys in the queue
    bar = cutlass.Int64(LOWEST)  # the k-th best key
    for start in range(warp * 32, vectors, warps * 32 * UNROLL):
        for u in cutlass.range_constexpr(UNROLL):
            part = start + u * (warps * 32) + lane
            if part < vectors:
                cute.autovec_copy(pieces[None, row * vectors + part], loaded[None, u])
        for u in cutlass.range_constexpr(UNROLL):
            part = start + u * (warps * 32) + lane
            inside = part < vectors
            largest = ordered(loaded[0, u])
            for e in cutlass.range_constexpr(1, width):
                largest = cutlass.max(largest, ordered(loaded[e, u]))
            if cute.arch.vote_any_sync(inside & (largest >= (bar >> 32).to(cutlass.Int32))):
                for e in cutlass.range_constexpr(width):
                    key = (cutlass.Int64(ordered(loaded[e, u])) << 32) | (
                        cutlass.Int64(0xFFFFFFFF) - (part * width + e)
                    )
                    passes = inside & (key > bar)
                    lanes = cute.arch.vote_ballot_sync(passes)
                    if passes:
                        queue[waiting + cute.arch.popc(lanes & ((1 << lane) - 1))] = key
                    waiting += cute.arch.popc(lanes)
                cute.arch.sync_warp()
                while waiting >= 32:
                    waiting -= 32
                    merge_into(best, sort_lanes(queue[waiting + lane]), blocks)
                    bar = cute.arch.shuffle_sync(best[blocks - 1], (k - 1) % 32)
                cute.arch.sync_warp()
    if waiting > 0:
        key = queue[lane] if lane < waiting else cutlass.Int64(LOWEST)
        merge_into(best, sort_lanes(key), blocks)


@cute.jit
def merge_warps(
    lists: cute.Tensor, best: cute.Tensor, warp: Any, blocks: cutlass.Constexpr, warps: cutlass.Constexpr
) -> None:
    """Merge the lists of all warps of the CTA into warp 0's.

    In each round, the upper half of the warps that are left gives its lists to the lower half.
    """
    lane = cute.arch.lane_idx()
    left = warps
    while left > 1:
        left //= 2
        if (warp >= left) & (warp < 2 * left):
            for b in cutlass.range_constexpr(blocks):
                lists[lane, b, warp] = best[b]
        cute.arch.sync_threads()
        if warp < left:
            for b in cutlass.range_constexpr(blocks):
                merge_into(best, lists[lane, b, warp + left], blocks)


@cute.jit
def top_k_host(
    x: cute.Tensor,
    values: cute.Tensor,
    indices: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    k: cutlass.Int32,
    stream: CUstream,
    blocks: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    rows_per_cta: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """A CTA for every `rows_per_cta` rows."""
    top_k_kernel(x, values, indices, rows, columns, k, blocks, warps, rows_per_cta, width).launch(
        grid=[(rows + rows_per_cta - 1) // rows_per_cta, 1, 1], block=[32 * warps * rows_per_cta, 1, 1], stream=stream
    )


def top_k(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of each row of x, largest first: (values, int64 indices), both (..., k).

    x (..., columns) is contiguous float32, float16 or bfloat16.

    1 <= k <= 128 and k <= columns. Of equal elements the one with the lowest index comes first; NaN counts as larger
    than everything.
    """
    require(
        x.dtype in (torch.float32, torch.float16, torch.bfloat16),
        f"top_k takes float32, float16 and bfloat16, not {x.dtype}",
    )
    require(x.dim() > 0, "top_k needs at least one axis")
    columns = x.shape[-1]
    require(1 <= k <= min(128, columns), f"k must be from 1 to {min(128, columns)}, not {k}")
    same_place(x)
    values = torch.empty((*x.shape[:-1], k), dtype=x.dtype, device=x.device)
    indices = torch.empty((*x.shape[:-1], k), dtype=torch.int64, device=x.device)
    rows = x.numel() // columns
    if rows == 0:
        return values, indices
    width = vector_width(columns, x)
    warps = 1 if columns <= 2048 else 8 if columns <= 32768 else 32
    tensors = (flat(x, width * x.element_size()), flat(values, values.element_size()), flat(indices, 8))
    launch(
        top_k_host,
        tensors,
        (cutlass.Int32(rows), cutlass.Int32(columns), cutlass.Int32(k)),
        (-(-k // 32), warps, 4 if warps == 1 else 1, width),
        key=(x.dtype,),
    )
    return values, indices


def main(arguments: list[str] | None = None) -> None:
    """The largest of random rows, with many ties, checked against a stable sort."""
    parser = argparse.ArgumentParser(description="top k of each row")
    parser.add_argument("--rows", type=int, default=9)
    parser.add_argument("--columns", type=int, default=5001)
    parser.add_argument("--k", type=int, default=20)
    options = parser.parse_args(arguments)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randint(-100, 100, (options.rows, options.columns), device="cuda").to(dtype)
        sorted_values, sorted_indices = torch.sort(x, dim=-1, descending=True, stable=True)
        values, indices = top_k(x, options.k)
        same = torch.equal(values, sorted_values[:, : options.k]), torch.equal(indices, sorted_indices[:, : options.k])
        print(f"{dtype}: values equal {same[0]}, indices equal {same[1]}")
        assert all(same)


if __name__ == "__main__":
    main()
