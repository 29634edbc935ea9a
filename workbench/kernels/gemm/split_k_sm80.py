"""Split-K matrix product on sm_80 tensor cores, multistage, for few output tiles and a large k.

Partial sums are added in one of two ways. By atomics, each CTA adds its tile to a float32 result. In order, each CTA
writes its tile to a workspace and increments the tile's semaphore; the last CTA adds the slices in order, so results
are bitwise reproducible, and resets the semaphore to 0.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.gemm.async_tiles import (
    add_sums,
    load_tile,
    make_tiled_mma,
    multiply_stage,
    partition_product,
    store_sums,
)
from workbench.kernels.gemm.sm80 import smem_layout
from workbench.kernels.static import Static, dtype


@cute.jit
def add_slices(cfg: Static, tCrC: cute.Tensor, partials: cute.Tensor, semaphores: cute.Tensor):
    """Publish this CTA's partial tile; return True in the tile's last CTA, whose accumulators then hold the total."""
    thread, _, _ = cute.arch.thread_idx()
    block_n, block_m, split = cute.arch.block_idx()
    blocks_n, blocks_m, splits = cute.arch.grid_dim()
    tile = block_m * blocks_n + block_n
    vectors = cute.size(tCrC) // 4
    sums = cute.make_tensor(tCrC.iterator, cute.make_layout((4, vectors)))
    slots = cute.zipped_divide(partials, (4,))  # (split, tile, vector of the thread, thread)
    slot = (cutlass.Int64(split) * (blocks_m * blocks_n) + tile) * (vectors * cfg.threads) + thread
    for v in cutlass.range_constexpr(vectors):
        cute.autovec_copy(sums[None, v], slots[None, slot + v * cfg.threads])
    smem = cutlass.memory.SmemAllocator()
    turn = smem.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    cute.arch.sync_threads()  # every thread's part is written
    if thread == 0:
        turn[0] = cute.arch.atomic_add(semaphores.iterator + tile, cutlass.Int32(1), sem="acq_rel", scope="gpu")
    cute.arch.sync_threads()
    last = turn[0] == splits - 1
    if last:
        if thread == 0:
            semaphores[tile] = 0
        loaded = cute.make_rmem_tensor(cute.make_layout((4, vectors)), cutlass.Float32)
        tCrC.fill(0.0)
        for s in range(splits):
            slot = (cutlass.Int64(s) * (blocks_m * blocks_n) + tile) * (vectors * cfg.threads) + thread
            for v in cutlass.range_constexpr(vectors):
                cute.autovec_copy(slots[None, slot + v * cfg.threads], loaded[None, v])
            for v in cutlass.range_constexpr(vectors):
                for e in cutlass.range_constexpr(4):
                    sums[e, v] += loaded[e, v]
    return last


@cute.kernel
def split_k_kernel(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mD: cute.Tensor,
    partials: cute.Tensor,
    semaphores: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    per_split: cutlass.Int32,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    tiled_mma: cute.TiledMma,
    is_split: cutlass.Constexpr,
    along_k: cutlass.Constexpr,
    widths: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
):
    """a (m, k), b (n, k), d (m * n); each CTA multiplies `per_split` tiles of k."""
    block_n, block_m, split = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    sA = smem.allocate_tensor(dtype(cfg.element), layout_a, 128)
    sB = smem.allocate_tensor(dtype(cfg.element), layout_b, 128)
    m0, n0 = block_m * cfg.tile_m, block_n * cfg.tile_n
    product = partition_product(cfg, tiled_mma, sA, sB, along_k[0], along_k[1])
    first = split * per_split
    end = min(first + per_split, (k + cfg.tile_k - 1) // cfg.tile_k)
    for ahead in cutlass.range(cfg.stages - 1, unroll=1):
        if first + ahead < end:
            k0 = (first + ahead) * cfg.tile_k
            load_tile(cfg, mA, sA, ahead, (m0, k0), (m, k), cfg.tile_m, along_k[0], widths[0])
            load_tile(cfg, mB, sB, ahead, (n0, k0), (n, k), cfg.tile_n, along_k[1], widths[1])
        cute.arch.cp_async_commit_group()
    for k_tile in range(first, end):
        cute.arch.cp_async_wait_group(cfg.stages - 2)
        # after the barrier the k tile is visible to all threads, and the stage to be filled next is free
        cute.arch.sync_threads()
        ahead = k_tile + cfg.stages - 1
        if ahead < end:
            stage, k0 = (ahead - first) % cfg.stages, ahead * cfg.tile_k
            load_tile(cfg, mA, sA, stage, (m0, k0), (m, k), cfg.tile_m, along_k[0], widths[0])
            load_tile(cfg, mB, sB, stage, (n0, k0), (n, k), cfg.tile_n, along_k[1], widths[1])
        cute.arch.cp_async_commit_group()
        multiply_stage(product, (k_tile - first) % cfg.stages)
    _, tCrC, tCcC, _, _ = product
    if cutlass.const_expr(cfg.atomic):
        add_sums(tCrC, tCcC, mD, (m0, n0), (m, n))
    elif cutlass.const_expr(is_split):
        if add_slices(cfg, tCrC, partials, semaphores):
            store_sums(tCrC, tCcC, mD, (m0, n0), (m, n), pairs)
    else:
        store_sums(tCrC, tCcC, mD, (m0, n0), (m, n), pairs)


@cute.jit
def launch_split_k(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mD: cute.Tensor,
    partials: cute.Tensor,
    semaphores: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    per_split: cutlass.Int32,
    splits: cutlass.Int32,
    stream: cuda.CUstream,
    is_split: cutlass.Constexpr,
    along_k: cutlass.Constexpr,
    widths: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
):
    """Launch over (tiles of n, tiles of m, splits); `along_k`, `widths`: of a and of b."""
    layout_a = smem_layout(cfg, cfg.tile_m, along_k[0])
    layout_b = smem_layout(cfg, cfg.tile_n, along_k[1])
    split_k_kernel(
        cfg,
        mA,
        mB,
        mD,
        partials,
        semaphores,
        m,
        n,
        k,
        per_split,
        layout_a,
        layout_b,
        make_tiled_mma(cfg),
        is_split,
        along_k,
        widths,
        pairs,
    ).launch(
        grid=[(n + cfg.tile_n - 1) // cfg.tile_n, (m + cfg.tile_m - 1) // cfg.tile_m, splits],
        block=[cfg.threads, 1, 1],
        stream=stream,
    )
