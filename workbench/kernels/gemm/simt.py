"""Matrix products and distances on CUDA cores: one output per thread, or shared-memory tiles with several per thread.

Operands are a (batch, m, k), b (batch, k, n) and d (batch, m, n), with any strides.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Many, Static


def tile_coord(cfg: Static, m, n):
    """Return (tile along n, tile along m, batch) of this CTA.

    The grid is one-dimensional, because its y and z extents are limited to 65535.
    """
    bidx, _, _ = cute.arch.block_idx()
    tiles_n, tiles_m = (n + cfg.tile_n - 1) // cfg.tile_n, (m + cfg.tile_m - 1) // cfg.tile_m
    return bidx % tiles_n, bidx // tiles_n % tiles_m, bidx // tiles_n // tiles_m


def accumulate(cfg: Static, total, a, b):
    """Add an element of k to a distance of a row of a and a column of b: l2 (squared), l1, or linf, the largest."""
    away = a - b
    if cfg.metric == "l2":
        return total + away * away
    size = cute.arch.fmax(away, -away, nan=True)  # |a - b|
    if cfg.metric == "l1":
        return total + size
    return cute.arch.fmax(total, size)  # without NaN, as torch.cdist


@cute.kernel
def naive_kernel(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
):
    """Compute one output per thread; neighbouring threads compute neighbouring columns."""
    tidx, _, _ = cute.arch.thread_idx()
    tile_n, tile_m, batch = tile_coord(cfg, m, n)
    column = tile_n * cfg.tile_n + tidx % cfg.tile_n
    row = tile_m * cfg.tile_m + tidx // cfg.tile_n
    if row < m:  # noqa: SIM102
        if column < n:
            total = cutlass.Float32(0.0)
            for i in range(k):
                if cutlass.const_expr(cfg.metric == "inner"):
                    total += mA[batch, row, i].to(cutlass.Float32) * mB[batch, i, column].to(cutlass.Float32)
                else:
                    a, b = mA[batch, row, i].to(cutlass.Float32), mB[batch, i, column].to(cutlass.Float32)
                    total = accumulate(cfg, total, a, b)
            if cutlass.const_expr(cfg.epilogue is not None):
                total = cfg.epilogue(total, operands, batch, row, column)
            mD[batch, row, column] = total.to(mD.element_type)


@cute.jit
def load_tile_a(cfg: Static, mA, sA, batch, tile_m, k0, m, k):
    """Load a (tile_m, tile_k) tile of a into shared memory; elements past the matrix become zeros."""
    tidx, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(cfg.tile_m * cfg.tile_k // cfg.threads):
        at = step * cfg.threads + tidx
        i, j = (at // cfg.tile_k, at % cfg.tile_k) if cfg.a_by_rows else (at % cfg.tile_m, at // cfg.tile_m)
        value = cutlass.Float32(0.0)
        if tile_m * cfg.tile_m + i < m:  # noqa: SIM102
            if k0 + j < k:
                value = mA[batch, tile_m * cfg.tile_m + i, k0 + j].to(cutlass.Float32)
        sA[i, j] = value.to(sA.element_type)


@cute.jit
def load_tile_b(cfg: Static, mB, sB, batch, k0, tile_n, k, n):
    """Load a (tile_n, tile_k) tile of b, transposed, into shared memory; elements past the matrix become zeros."""
    tidx, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(cfg.tile_k * cfg.tile_n // cfg.threads):
        at = step * cfg.threads + tidx
        i, j = (at // cfg.tile_n, at % cfg.tile_n) if cfg.b_by_rows else (at % cfg.tile_k, at // cfg.tile_k)
        value = cutlass.Float32(0.0)
        if k0 + i < k:  # noqa: SIM102
            if tile_n * cfg.tile_n + j < n:
                value = mB[batch, k0 + i, tile_n * cfg.tile_n + j].to(cutlass.Float32)
        sB[j, i] = value.to(sB.element_type)


@cute.kernel
def tiled_kernel(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
):
    """Stage tiles of a and b through shared memory; each thread accumulates its outputs in registers."""
    tidx, _, _ = cute.arch.thread_idx()
    tile_n, tile_m, batch = tile_coord(cfg, m, n)
    smem = cutlass.memory.SmemAllocator()
    # rows are padded by one element against bank conflicts
    layout_a = cute.make_layout((cfg.tile_m, cfg.tile_k), stride=(cfg.tile_k + 1, 1))
    layout_b = cute.make_layout((cfg.tile_n, cfg.tile_k), stride=(1, cfg.tile_n + 1))
    sA = smem.allocate_tensor(cutlass.Float32, layout_a, 16)
    sB = smem.allocate_tensor(cutlass.Float32, layout_b, 16)
    tCrC = cute.make_rmem_tensor(cute.make_layout((cfg.per_m, cfg.per_n)), cutlass.Float32)
    tCrC.fill(0.0)
    thread_m = tidx // cfg.threads_n
    thread_n = tidx % cfg.threads_n
    for k0 in range(0, k, cfg.tile_k):
        load_tile_a(cfg, mA, sA, batch, tile_m, k0, m, k)
        load_tile_b(cfg, mB, sB, batch, k0, tile_n, k, n)
        cute.arch.sync_threads()
        for inner in cutlass.range_constexpr(cfg.tile_k):
            for p in cutlass.range_constexpr(cfg.per_m):
                a = sA[thread_m + p * (cfg.tile_m // cfg.per_m), inner]
                for q in cutlass.range_constexpr(cfg.per_n):
                    if cutlass.const_expr(cfg.metric == "inner"):
                        tCrC[p, q] += a * sB[thread_n + q * cfg.threads_n, inner]
                    else:
                        b = sB[thread_n + q * cfg.threads_n, inner]
                        tCrC[p, q] = accumulate(cfg, tCrC[p, q], a, b)
        cute.arch.sync_threads()
    for p in cutlass.range_constexpr(cfg.per_m):
        for q in cutlass.range_constexpr(cfg.per_n):
            row = tile_m * cfg.tile_m + thread_m + p * (cfg.tile_m // cfg.per_m)
            column = tile_n * cfg.tile_n + thread_n + q * cfg.threads_n
            if row < m:  # noqa: SIM102
                if column < n:
                    total = tCrC[p, q]
                    if cutlass.const_expr(cfg.epilogue is not None):
                        total = cfg.epilogue(total, operands, batch, row, column)
                    mD[batch, row, column] = total.to(mD.element_type)
