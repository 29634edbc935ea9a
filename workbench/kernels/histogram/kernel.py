"""Counts of integers: private tables in shared memory, added to the result by atomics.

A table has `copies` interleaved copies: copy c of bin b is word b * copies + c, and lane l counts in copy l % copies.
With 32 copies no two lanes of a warp meet in a bank or in a bin.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def widen(value: cutlass.Numeric):
    """At least 32 bits, so that it can be compared and multiplied."""
    result = value
    if cutlass.const_expr(value.dtype.width < 32):
        result = value.to(cutlass.Int32)
    return result


@cute.jit
def count_value(table: cute.Tensor, value: cutlass.Numeric, bins: cutlass.Int32, copies: cutlass.Constexpr):
    """Count one value in this lane's copy; values outside of 0 to bins - 1 are not counted."""
    if (value >= 0) & (value < bins):
        place = value.to(cutlass.Int32) * copies + cute.arch.lane_idx() % copies
        cute.arch.atomic_add(table.iterator + place, cutlass.Int32(1), sem="relaxed", scope="cta")


@cute.jit
def count_elements(
    cfg: Static,
    x: cute.Tensor,
    table: cute.Tensor,
    block: cutlass.Int32,
    blocks: cutlass.Int32,
    count: cutlass.Int64,
    bins: cutlass.Int32,
    copies: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Count the share of CTA `block` of `blocks`, `width` elements per access and `unroll` accesses in flight."""
    thread, _, _ = cute.arch.thread_idx()
    pieces = cute.zipped_divide(x, (width,))
    loaded = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type)
    vectors = count // width
    stride = cutlass.Int64(blocks) * cfg.threads
    at = cutlass.Int64(block) * cfg.threads + thread
    while at + (cfg.unroll - 1) * stride < vectors:
        for u in cutlass.range_constexpr(cfg.unroll):
            cute.autovec_copy(pieces[None, at + u * stride], loaded[None, u])
        for u in cutlass.range_constexpr(cfg.unroll):
            for e in cutlass.range_constexpr(width):
                count_value(table, widen(loaded[e, u]), bins, copies)
        at += cfg.unroll * stride
    while at < vectors:
        cute.autovec_copy(pieces[None, at], loaded[None, 0])
        for e in cutlass.range_constexpr(width):
            count_value(table, widen(loaded[e, 0]), bins, copies)
        at += stride
    tail = vectors * width + thread  # fewer than `width` elements are left
    if (block == 0) & (tail < count):
        count_value(table, widen(x[tail]), bins, copies)


@cute.kernel
def histogram_kernel(
    cfg: Static,
    x: cute.Tensor,
    counts: cute.Tensor,
    count: cutlass.Int64,
    bins: cutlass.Int32,
    capacity: cutlass.Constexpr,
    copies: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """x (count), counts (bins) with zeros; capacity is bins rounded up to a power of two."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    smem = cutlass.memory.SmemAllocator()
    table = smem.allocate_tensor(cutlass.Int32, cute.make_layout(capacity * copies), 16)
    for i in range(thread, capacity * copies, cfg.threads):
        table[i] = 0
    cute.arch.sync_threads()
    count_elements(cfg, x, table, block, blocks, count, bins, copies, width)
    cute.arch.sync_threads()
    for one in range(thread, bins, cfg.threads):
        total = cutlass.Int32(0)
        for c in cutlass.range_constexpr(copies):
            # threads whose bins share banks begin at different copies: no conflict
            total += table[one * copies + (c + thread // (32 // copies)) % copies]
        if total != 0:
            cute.arch.atomic_add(counts.iterator + one, total, sem="relaxed", scope="gpu")


@cute.jit
def launch_histogram(
    cfg: Static,
    x: cute.Tensor,
    counts: cute.Tensor,
    count: cutlass.Int64,
    bins: cutlass.Int32,
    blocks: cutlass.Int32,
    stream: cuda.CUstream,
    capacity: cutlass.Constexpr,
    copies: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Launch over `blocks` CTAs."""
    histogram_kernel(cfg, x, counts, count, bins, capacity, copies, width).launch(
        grid=[blocks, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
