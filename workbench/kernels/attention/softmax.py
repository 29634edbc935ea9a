"""softmax(scale * row) in place on scores in global memory, between the two products of unfused attention."""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def reduce_max(value, scratch, threads: cutlass.Constexpr):
    """Return the maximum over the `threads` threads of a row."""
    tidx, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(5):
        value = cute.arch.fmax(value, cute.arch.shuffle_sync_bfly(value, 16 >> step))
    if cutlass.const_expr(threads > 32):
        if tidx % 32 == 0:
            scratch[tidx // 32, 0] = value
        cute.arch.sync_threads()
        for warp in cutlass.range_constexpr(threads // 32):
            value = cute.arch.fmax(value, scratch[warp, 0])
    return value


@cute.jit
def reduce_sum(value, scratch, threads: cutlass.Constexpr):
    """Return the sum over the `threads` threads of a row."""
    tidx, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(5):
        value += cute.arch.shuffle_sync_bfly(value, 16 >> step)
    if cutlass.const_expr(threads > 32):
        if tidx % 32 == 0:
            scratch[tidx // 32, 1] = value
        cute.arch.sync_threads()
        value = cutlass.Float32(0.0)
        for warp in cutlass.range_constexpr(threads // 32):
            value += scratch[warp, 1]
    return value


@cute.kernel
def softmax_kernel(
    cfg: Static,
    scores: cute.Tensor,
    scale: cutlass.Float32,
    rows: cutlass.Int32,
    queries: cutlass.Int32,
    keys: cutlass.Int32,
    threads: cutlass.Constexpr,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Compute one row per `threads` threads, which hold it in registers: `turns` vectors of `width` elements each."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    scratch = smem.allocate_tensor(cutlass.Float32, cute.make_layout((32, 2)), 16)
    row = bidx * (256 // threads) + tidx // threads if cutlass.const_expr(threads == 32) else bidx
    lane = tidx % threads
    vectors = keys // width
    loaded = cute.make_rmem_tensor(cute.make_layout((width, turns)), scores.element_type)
    values = cute.make_rmem_tensor(cute.make_layout((width, turns)), cutlass.Float32)
    values.fill(-cutlass.Float32.inf)
    pieces = cute.zipped_divide(scores, (width,))
    start = cutlass.Int64(row) * vectors
    visible = keys
    if cutlass.const_expr(cfg.causal):
        visible = cutlass.min(keys, row % queries + 1)
    if row < rows:
        for turn in cutlass.range_constexpr(turns):
            if turn * threads + lane < vectors:
                cute.autovec_copy(pieces[None, start + turn * threads + lane], loaded[None, turn])
        for turn in cutlass.range_constexpr(turns):
            for e in cutlass.range_constexpr(width):
                if (turn * threads + lane) * width + e < visible:
                    values[e, turn] = loaded[e, turn].to(cutlass.Float32) * scale
    top = reduce_max(values.load().reduce(cute.ReductionOp.MAX, -cutlass.Float32.inf, 0), scratch, threads)
    values.store(cute.math.exp2((values.load() - top) * math.log2(math.e), fastmath=True))
    total = reduce_sum(values.load().reduce(cute.ReductionOp.ADD, 0.0, 0), scratch, threads)
    values.store(values.load() * (1.0 / total))
    loaded.store(values.load().to(loaded.element_type))
    if row < rows:
        for turn in cutlass.range_constexpr(turns):
            if turn * threads + lane < vectors:
                cute.autovec_copy(loaded[None, turn], pieces[None, start + turn * threads + lane])


@cute.jit
def softmax(
    cfg: Static,
    scores: cute.Tensor,
    scale: cutlass.Float32,
    rows: cutlass.Int32,
    queries: cutlass.Int32,
    keys: cutlass.Int32,
    stream: cuda.CUstream,
    threads: cutlass.Constexpr,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """scores (rows * keys), flat; row r belongs to query r % queries.

    With 32 threads per row a CTA computes 8 rows, otherwise one.
    """
    ctas = (rows + 7) // 8 if cutlass.const_expr(threads == 32) else rows
    block = 256 if cutlass.const_expr(threads == 32) else threads
    softmax_kernel(cfg, scores, scale, rows, queries, keys, threads, width, turns).launch(
        grid=[ctas, 1, 1], block=[block, 1, 1], stream=stream
    )
