"""The k largest elements of each row with their indices: keys of 64 bits, sorted across the lanes of warps.

A key has the value's bits, mapped so that they compare as integers, above the complement of the element's index. Each
warp keeps its best keys in registers: register b of lane l is number 32 * b + l. Elements that beat the k-th best are
packed into a queue in shared memory; 32 of them are sorted by a bitonic network and merged into the list.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static

LOWEST = -(2**63)  # below every key


@cute.jit
def order_bits(value: cutlass.Numeric):
    """Bits of a float32 as an integer that compares as the number does: NaN above all, -0 as 0."""
    number = value.to(cutlass.Float32) + cutlass.Float32(0.0)  # makes 0 of -0
    raw = number.bitcast(cutlass.Int32)
    raw = raw ^ ((raw >> 31) & 0x7FFFFFFF)
    if number != number:  # noqa: PLR0124, RUF100
        raw = cutlass.Int32(0x7FFFFFFF)
    return raw


@cute.jit
def exchange(key: cutlass.Int64, distance: cutlass.Constexpr, keep_larger: cutlass.Boolean):
    """Compare with the lane at `distance` (a power of two), and keep the larger key or the smaller."""
    other = cute.arch.shuffle_sync_bfly(key, offset=distance)
    if (other > key) == keep_larger:
        key = other
    return key


@cute.jit
def merge_bitonic(key: cutlass.Int64):
    """Sort a bitonic sequence across the lanes, largest first."""
    lane = cute.arch.lane_idx()
    for step in cutlass.range_constexpr(5):
        key = exchange(key, 16 >> step, (lane & (16 >> step)) == 0)
    return key


@cute.jit
def sort_lanes(key: cutlass.Int64):
    """Sort 32 keys across the lanes, largest first."""
    lane = cute.arch.lane_idx()
    for size in cutlass.range_constexpr(1, 5):
        for step in cutlass.range_constexpr(size):
            distance = 1 << (size - 1 - step)
            key = exchange(key, distance, ((lane & distance) == 0) == ((lane & (1 << size)) == 0))
    return merge_bitonic(key)


@cute.jit
def merge_into(best: cute.Tensor, key: cutlass.Int64, blocks: cutlass.Constexpr):
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
    cfg: Static,
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
):
    """x (rows * columns), values and indices (rows * k); `warps` share a row, whose list has 32 * blocks >= k keys."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp, lane = cute.arch.make_warp_uniform(thread // 32), thread % 32
    smem = cutlass.memory.SmemAllocator()
    # keys that wait, and one vector of every lane
    queues = smem.allocate_tensor(cutlass.Int64, cute.make_layout((32 + 32 * width, warps * rows_per_cta)), 16)
    lists = smem.allocate_tensor(cutlass.Int64, cute.make_layout((32, blocks, warps)), 16)
    row = block * rows_per_cta + warp // warps
    best = cute.make_rmem_tensor(cute.make_layout(blocks), cutlass.Int64)
    best.fill(LOWEST)
    if row < rows:
        scan_row(cfg, x, queues[None, warp], best, cutlass.Int64(row), warp % warps, columns, k, blocks, warps, width)
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
    cfg: Static,
    x: cute.Tensor,
    queue: cute.Tensor,
    best: cute.Tensor,
    row: cutlass.Int64,
    warp: cutlass.Int32,
    columns: cutlass.Int32,
    k: cutlass.Int32,
    blocks: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Collect the largest keys of this warp's part of the row in `best`."""
    lane = cute.arch.lane_idx()
    vectors = columns // width
    pieces = cute.zipped_divide(x, (width,))
    loaded = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type)
    waiting = cutlass.Int32(0)  # keys in the queue
    bar = cutlass.Int64(LOWEST)  # the k-th best key
    for start in range(warp * 32, vectors, warps * 32 * cfg.unroll):
        for u in cutlass.range_constexpr(cfg.unroll):
            part = start + u * (warps * 32) + lane
            if part < vectors:
                cute.autovec_copy(pieces[None, row * vectors + part], loaded[None, u])
        for u in cutlass.range_constexpr(cfg.unroll):
            part = start + u * (warps * 32) + lane
            inside = part < vectors
            largest = order_bits(loaded[0, u])
            for e in cutlass.range_constexpr(1, width):
                largest = cutlass.max(largest, order_bits(loaded[e, u]))
            if cute.arch.vote_any_sync(inside & (largest >= (bar >> 32).to(cutlass.Int32))):
                for e in cutlass.range_constexpr(width):
                    bits = cutlass.Int64(order_bits(loaded[e, u])) << 32
                    key = bits | (cutlass.Int64(0xFFFFFFFF) - (part * width + e))
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
    lists: cute.Tensor,
    best: cute.Tensor,
    warp: cutlass.Int32,
    blocks: cutlass.Constexpr,
    warps: cutlass.Constexpr,
):
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
def launch_top_k(
    cfg: Static,
    x: cute.Tensor,
    values: cute.Tensor,
    indices: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    k: cutlass.Int32,
    stream: cuda.CUstream,
    blocks: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    rows_per_cta: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """A CTA for every `rows_per_cta` rows."""
    top_k_kernel(cfg, x, values, indices, rows, columns, k, blocks, warps, rows_per_cta, width).launch(
        grid=[(rows + rows_per_cta - 1) // rows_per_cta, 1, 1], block=[32 * warps * rows_per_cta, 1, 1], stream=stream
    )
