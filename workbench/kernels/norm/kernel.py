"""Residual add fused with RMSNorm or LayerNorm over the last axis; a row is read once and stays in registers.

total = x + residual is written too: it is the residual of the next layer. Statistics are float32 whatever the type, and
the order of summation is fixed. The variance is the mean of squared differences from the mean.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


def loads_early(cfg: Static, elements, threads):
    """Whether weights are loaded before the sums, and wait in registers.

    1024 threads with 64 registers each have too few for that.
    """
    return elements <= cfg.per_thread and threads < 1024


@cute.jit
def row_sum(value: cutlass.Float32, scratch: cute.Tensor, threads: cutlass.Constexpr):
    """Return the sum over the threads that share a row, in each of them; scratch has one word per warp."""
    thread, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(5):
        value += cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
    if cutlass.const_expr(threads > 32):
        warps = threads // 32
        if thread % 32 == 0:
            scratch[thread // 32] = value
        cute.arch.sync_threads()
        value = scratch[thread % warps]  # every warp sums the warps' sums for itself: no second barrier
        for step in cutlass.range_constexpr(int(math.log2(warps))):
            value += cute.arch.shuffle_sync_bfly(value, offset=warps >> (step + 1))
    return value


@cute.jit
def load_row(
    cfg: Static,
    x: cute.Tensor,
    residual: cute.Tensor,
    rX: cute.Tensor,
    rResidual: cute.Tensor,
    start: cutlass.Int64,
    vectors: cutlass.Int32,
    lane: cutlass.Int32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """Load this thread's vectors of a row of x, and of the residual, that begins at vector `start`."""
    for turn in cutlass.range_constexpr(turns):
        part = turn * threads + lane
        if part < vectors:
            cute.autovec_copy(cute.zipped_divide(x, (width,))[None, start + part], rX[None, turn])
            if cutlass.const_expr(cfg.adds_residual):
                cute.autovec_copy(cute.zipped_divide(residual, (width,))[None, start + part], rResidual[None, turn])


@cute.jit
def load_weights(
    cfg: Static,
    weight: cute.Tensor,
    bias: cute.Tensor,
    rWeight: cute.Tensor,
    rBias: cute.Tensor,
    vectors: cutlass.Int32,
    lane: cutlass.Int32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """The weights of this thread's columns; all rows share them, so they come from L1 or L2."""
    for turn in cutlass.range_constexpr(turns):
        part = turn * threads + lane
        if part < vectors:
            cute.autovec_copy(cute.zipped_divide(weight, (width,))[None, part], rWeight[None, turn])
            if cutlass.const_expr(cfg.is_layer):
                cute.autovec_copy(cute.zipped_divide(bias, (width,))[None, part], rBias[None, turn])


@cute.jit
def add_residual(
    total: cute.Tensor,
    rX: cute.Tensor,
    rResidual: cute.Tensor,
    start: cutlass.Int64,
    vectors: cutlass.Int32,
    lane: cutlass.Int32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """Add the residual to this thread's elements, rounded to their type, and store the sums."""
    for turn in cutlass.range_constexpr(turns):
        part = turn * threads + lane
        if part < vectors:
            for e in cutlass.range_constexpr(width):
                added = rX[e, turn].to(cutlass.Float32) + rResidual[e, turn].to(cutlass.Float32)
                rX[e, turn] = added.to(rX.element_type)
            cute.autovec_copy(rX[None, turn], cute.zipped_divide(total, (width,))[None, start + part])


@cute.jit
def row_statistics(
    cfg: Static,
    rX: cute.Tensor,
    scratch: cute.Tensor,
    columns: cutlass.Int32,
    vectors: cutlass.Int32,
    lane: cutlass.Int32,
    eps: cutlass.Float32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """(mean, or 0 for RMSNorm; the reciprocal of the standard deviation, or of the root of the mean square)."""
    mean = cutlass.Float32(0)
    if cutlass.const_expr(cfg.is_layer):
        for turn in cutlass.range_constexpr(turns):
            for e in cutlass.range_constexpr(width):
                mean += rX[e, turn].to(cutlass.Float32)
        mean = row_sum(mean, scratch[None, 0], threads) / columns
    square = cutlass.Float32(0)
    for turn in cutlass.range_constexpr(turns):
        if turn * threads + lane < vectors:  # what sticks out of the row is 0, but its distance to the mean is not
            for e in cutlass.range_constexpr(width):
                difference = rX[e, turn].to(cutlass.Float32) - mean
                square += difference * difference
    square = row_sum(square, scratch[None, 1], threads)
    return mean, cute.math.rsqrt(square / columns + eps)


@cute.jit
def store_row(
    cfg: Static,
    y: cute.Tensor,
    rX: cute.Tensor,
    rWeight: cute.Tensor,
    rBias: cute.Tensor,
    mean: cutlass.Float32,
    factor: cutlass.Float32,
    start: cutlass.Int64,
    vectors: cutlass.Int32,
    lane: cutlass.Int32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """Normalise, scale and shift this thread's elements, and store them."""
    for turn in cutlass.range_constexpr(turns):
        part = turn * threads + lane
        if part < vectors:
            for e in cutlass.range_constexpr(width):
                value = (rX[e, turn].to(cutlass.Float32) - mean) * factor * rWeight[e, turn].to(cutlass.Float32)
                if cutlass.const_expr(cfg.is_layer):
                    value += rBias[e, turn].to(cutlass.Float32)
                rX[e, turn] = value.to(rX.element_type)
            cute.autovec_copy(rX[None, turn], cute.zipped_divide(y, (width,))[None, start + part])


@cute.kernel
def norm_kernel(
    cfg: Static,
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    bias: cute.Tensor,
    total: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    eps: cutlass.Float32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    rows_per_cta: cutlass.Constexpr,
):
    """x, residual, total, y (rows * columns); weight, bias (columns).

    A thread holds `turns` vectors of `width` elements of a row, `threads` share a row.
    """
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    scratch = smem.allocate_tensor(cutlass.Float32, cute.make_layout((32, 2)), 16)
    row = block * rows_per_cta + thread // threads
    vectors = columns // width
    if row < rows:
        start = cutlass.Int64(row) * vectors
        shape = cute.make_layout((width, turns))
        rX, rResidual = cute.make_rmem_tensor(shape, x.element_type), cute.make_rmem_tensor(shape, x.element_type)
        rWeight = cute.make_rmem_tensor(shape, weight.element_type)
        rBias = cute.make_rmem_tensor(shape, weight.element_type)
        rX.fill(0)
        lane = thread % threads
        load_row(cfg, x, residual, rX, rResidual, start, vectors, lane, width, turns, threads)
        if cutlass.const_expr(loads_early(cfg, width * turns, threads)):
            load_weights(cfg, weight, bias, rWeight, rBias, vectors, lane, width, turns, threads)
        if cutlass.const_expr(cfg.adds_residual):
            add_residual(total, rX, rResidual, start, vectors, lane, width, turns, threads)
        mean, factor = row_statistics(cfg, rX, scratch, columns, vectors, lane, eps, width, turns, threads)
        if cutlass.const_expr(not loads_early(cfg, width * turns, threads)):
            load_weights(cfg, weight, bias, rWeight, rBias, vectors, lane, width, turns, threads)
        store_row(cfg, y, rX, rWeight, rBias, mean, factor, start, vectors, lane, width, turns, threads)


@cute.jit
def launch_norm(
    cfg: Static,
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    bias: cute.Tensor,
    total: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    eps: cutlass.Float32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    rows_per_cta: cutlass.Constexpr,
):
    """A CTA for every `rows_per_cta` rows."""
    norm_kernel(
        cfg, x, residual, weight, bias, total, y, rows, columns, eps, width, turns, threads, rows_per_cta
    ).launch(
        grid=[(rows + rows_per_cta - 1) // rows_per_cta, 1, 1], block=[threads * rows_per_cta, 1, 1], stream=stream
    )
