"""Sum, maximum or minimum of all elements in one launch: the CTA that finishes last combines the CTAs' results.

Thread 0 of a CTA writes the CTA's partial result, and then counts the CTA with acquire-release order: whoever counts
last sees all partial results, and combines them in the order of their CTAs. The counter is left at 0.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def combine(cfg: Static, a: cutlass.Numeric, b: cutlass.Numeric):
    """a op b."""
    result = a + b
    if cutlass.const_expr(cfg.op == "max"):
        result = cutlass.max(a, b)
    if cutlass.const_expr(cfg.op == "min"):
        result = cutlass.min(a, b)
    return result


@cute.jit
def reduce_cta(cfg: Static, value: cutlass.Numeric, scratch: cute.Tensor):
    """Combine the threads' values: each warp by shuffles, then warp 0 the warps. Thread 0 has the result."""
    thread, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(5):
        value = combine(cfg, value, cute.arch.shuffle_sync_bfly(value, offset=16 >> step))
    if thread % 32 == 0:
        scratch[thread // 32] = value
    cute.arch.sync_threads()
    value = scratch[thread % cfg.warps]
    for step in cutlass.range_constexpr(cfg.warp_steps):
        value = combine(cfg, value, cute.arch.shuffle_sync_bfly(value, offset=cfg.warps >> (step + 1)))
    return value


@cute.jit
def reduce_elements(
    cfg: Static,
    x: cute.Tensor,
    kind: cutlass.Constexpr,
    start: cutlass.Numeric,
    count: cutlass.Int64,
    width: cutlass.Constexpr,
):
    """This thread's share of x, of all threads of the grid, combined as `kind`."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    value = start
    vectors = count // width
    pieces = cute.zipped_divide(x, (width,))
    loaded = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type)
    stride = cutlass.Int64(blocks) * cfg.threads
    at = cutlass.Int64(block) * cfg.threads + thread
    while at + (cfg.unroll - 1) * stride < vectors:
        for u in cutlass.range_constexpr(cfg.unroll):
            cute.autovec_copy(pieces[None, at + u * stride], loaded[None, u])
        for u in cutlass.range_constexpr(cfg.unroll):
            for e in cutlass.range_constexpr(width):
                value = combine(cfg, value, loaded[e, u].to(kind))
        at += cfg.unroll * stride
    while at < vectors:
        cute.autovec_copy(pieces[None, at], loaded[None, 0])
        for e in cutlass.range_constexpr(width):
            value = combine(cfg, value, loaded[e, 0].to(kind))
        at += stride
    tail = vectors * width + thread  # fewer than `width` elements are left
    if (block == 0) & (tail < count):
        value = combine(cfg, value, x[tail].to(kind))
    return value


@cute.kernel
def reduce_all_kernel(
    cfg: Static,
    x: cute.Tensor,
    partials: cute.Tensor,
    result: cute.Tensor,
    counter: cute.Tensor,
    count: cutlass.Int64,
    start: cutlass.Numeric,
    width: cutlass.Constexpr,
):
    """x (count), partials (CTAs), result (1), counter with 0 in its first word before and after."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    kind = partials.element_type
    smem = cutlass.memory.SmemAllocator()
    scratch = smem.allocate_tensor(kind, cute.make_layout(cfg.warps), 16)
    last = smem.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    value = reduce_elements(cfg, x, kind, start, count, width)
    value = reduce_cta(cfg, value, scratch)
    if thread == 0:
        partials[block] = value
        # releases the partial result, and acquires everybody's
        last[0] = cute.arch.atomic_add(counter.iterator, cutlass.Int32(1), sem="acq_rel", scope="gpu")
    cute.arch.sync_threads()
    if last[0] == blocks - 1:
        total = start
        for i in range(thread, blocks, cfg.threads):
            total = combine(cfg, total, partials[i])
        cute.arch.sync_threads()  # scratch is used again
        total = reduce_cta(cfg, total, scratch)
        if thread == 0:
            result[0] = total.to(result.element_type)
            counter[0] = 0


@cute.jit
def launch_reduce_all(
    cfg: Static,
    x: cute.Tensor,
    partials: cute.Tensor,
    result: cute.Tensor,
    counter: cute.Tensor,
    count: cutlass.Int64,
    start: cutlass.Numeric,
    blocks: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    """Launch over `blocks` CTAs."""
    reduce_all_kernel(cfg, x, partials, result, counter, count, start, width).launch(
        grid=[blocks, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
