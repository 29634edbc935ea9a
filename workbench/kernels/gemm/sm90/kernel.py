"""Warp-specialised persistent GEMM for Hopper: a (batch, m, k), b (batch, n, k) -> d (batch, m, n) with an epilogue."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.gemm.sm90.epilogue import (
    load_operand,
    make_operand_fragment,
    make_smem_copy,
    make_store,
    partition_store,
    store_tile,
    wait_for_buffer,
)
from workbench.kernels.gemm.sm90.mainloop import load_tiles, multiply, start_states
from workbench.kernels.gemm.sm90.mma import batch_last, make_fragments, make_loads, make_pipeline
from workbench.kernels.gemm.sm90.scheduler import count_tiles, find_tile, split_range, work_range
from workbench.kernels.gemm.sm90.stream_k import fixup_tile, store_partial_sums, stream_k_share
from workbench.kernels.static import Many, Static, dtype


@cute.kernel
def gemm_kernel(
    cfg: Static,
    tma_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_b: cute.CopyAtom,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    workspace: Many[cute.Tensor],
    tma_d: cute.CopyAtom,
    tma_mD: cute.Tensor,
    mD: cute.Tensor,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
    d_smem_layout: cute.ComposedLayout,
):
    """Persistent warp-specialised GEMM: one producer warp issues TMA loads, the MMA warpgroups consume them.

    The producer runs ahead of the consumers, also into the k tiles of the next output tile.
    """
    tidx, _, _ = cute.arch.thread_idx()
    cta_m, cta_n, cluster = cute.arch.block_idx()
    _, _, num_clusters = cute.arch.grid_dim()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp_idx == 0:
        cpasync.prefetch_descriptor(tma_a)
        cpasync.prefetch_descriptor(tma_b)
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, cfg.stages * 2)
    if cutlass.const_expr(cfg.is_pingpong):
        order_barriers = smem.allocate_array(cutlass.Int64, cfg.mma_warpgroups)  # ping-pong: whose turn the mainloop is
        if tidx < cfg.mma_warpgroups:
            cute.arch.mbarrier_init(order_barriers + tidx, 128)
    else:
        order_barriers = None
    sA = smem.allocate_tensor(dtype(cfg.element), a_smem_layout.outer, 1024, swizzle=a_smem_layout.inner)
    sB = smem.allocate_tensor(dtype(cfg.element), b_smem_layout.outer, 1024, swizzle=b_smem_layout.inner)
    sD = smem.allocate_tensor(dtype(cfg.kernel_result), d_smem_layout.outer, 1024, swizzle=d_smem_layout.inner)
    mainloop_pipeline = make_pipeline(cfg, barriers)
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    m, n, batches = mD.shape
    rows, columns = count_tiles(cfg, m, n)
    num_tiles = rows * columns * batches
    gA = cute.local_tile(mA, (cfg.tile_m, cfg.tile_k), (None, None, None))
    gB = cute.local_tile(mB, (cfg.tile_n, cfg.tile_k), (None, None, None))
    num_k_tiles = cute.size(gA, mode=[3])
    schedule = make_schedule(cfg, rows, columns, num_tiles, cluster, num_clusters, num_k_tiles)
    if warp_idx < 4:
        if cutlass.const_expr(cfg.moves_registers):
            cute.arch.setmaxregister_decrease(40)
        if warp_idx == 0:
            load_a, load_b = (tma_a, gA, sA), (tma_b, gB, sB)
            load_tiles(cfg, mainloop_pipeline, load_a, load_b, schedule, num_k_tiles, cta_m, cta_n, None)
    else:
        if cutlass.const_expr(cfg.moves_registers):
            cute.arch.setmaxregister_increase(232)
        multiply_and_store(
            cfg,
            tiled_mma,
            (sA, sB, sD),
            mainloop_pipeline,
            order_barriers,
            operands,
            workspace,
            (tma_d, tma_mD, mD),
            schedule,
            num_k_tiles,
            (cta_m, cta_n),
            tidx,
            warp_idx,
        )


def make_schedule(cfg: Static, rows, columns, num_tiles, cluster, num_clusters, num_k_tiles):
    """Return the tile schedule of this cluster, as `work_range` and `find_tile` take it."""
    if cutlass.const_expr(cfg.stream_k):
        share = stream_k_share(cfg, cluster, num_clusters, num_tiles, num_k_tiles)
        return rows, columns, cluster, num_clusters, *share
    return rows, columns, num_tiles, cluster, num_clusters


@cute.jit
def multiply_and_store(
    cfg: Static,
    tiled_mma,
    smem,
    mainloop_pipeline,
    order_barriers,
    operands: Many,
    workspace: Many,
    store,
    schedule,
    num_k_tiles,
    ctas,
    tidx,
    warp_idx,
):
    """Run the consumer loop of one MMA warpgroup: for each output tile the mainloop, then the epilogue.

    `smem` is (sA, sB, sD), `store` is (TMA atom or None, its tensor, d), `ctas` is the CTA's (m, n) in the cluster.
    """
    sA, sB, sD = smem
    tma_d, tma_mD, mD = store
    cta_m, cta_n = ctas
    warp_group, lane = warp_idx // 4 - 1, tidx % 128
    fragments, accumulators, tCcC = make_fragments(cfg, tiled_mma, sA, sB, warp_group, lane)
    read_state, release_state = start_states(cfg, order_barriers, warp_group, num_k_tiles)
    if cutlass.const_expr(cfg.is_pingpong):
        order_phase = cutlass.Int32(0)
    smem_copy = make_smem_copy(cfg, tiled_mma, accumulators, sD, lane)
    matrices = tuple(operand for operand, read in zip(operands, cfg.tile_reads, strict=True) if read.along == "both")
    operand_fragments = tuple(make_operand_fragment(cfg, matrix) for matrix in matrices)
    tma_copy = None
    if cutlass.const_expr(tma_d is not None):
        tma_copy = (tma_d, *partition_store(cfg, tma_d, tma_mD, sD))
    output = (smem_copy, tma_copy, sD, mD)
    first, last, step = work_range(cfg, schedule)
    if cutlass.const_expr(cfg.is_pingpong):
        first, step = first + warp_group * step, cfg.mma_warpgroups * step
    for item in cutlass.range(first, last, step, unroll=1):
        tile, tile_m, tile_n, batch, k_first, k_count = find_tile(cfg, schedule, item, num_k_tiles)
        m0 = (tile_m * cfg.cluster_m + cta_m) * cfg.tile_m
        if cutlass.const_expr(not cfg.is_pingpong):
            m0 = m0 + warp_group * cfg.warpgroup_m
        n0 = (tile_n * cfg.cluster_n + cta_n) * cfg.tile_n
        if cutlass.const_expr(cfg.split_k > 1):
            _, k_count = split_range(cfg, batch % cfg.split_k, num_k_tiles)
        at = (m0, n0, batch)
        for fragment, matrix in zip(operand_fragments, matrices, strict=True):
            load_operand(cfg, fragment[None, 0], matrix, tCcC, 0, 0, at)
        if cutlass.const_expr(cfg.is_pingpong):
            cute.arch.mbarrier_wait(order_barriers + warp_group, order_phase)
            order_phase = 1 - order_phase
        read_state, release_state = multiply(
            cfg,
            tiled_mma,
            accumulators,
            fragments,
            mainloop_pipeline,
            (read_state, release_state),
            k_count,
            order_barriers,
            warp_group,
        )
        if cutlass.const_expr(cfg.stream_k):
            rank = cta_n * cfg.cluster_m + cta_m
            if k_first + k_count < num_k_tiles:
                # another cluster has the last k tiles of this output tile and finishes it
                cta = schedule[2] * (cfg.cluster_m * cfg.cluster_n) + rank
                store_partial_sums(cfg, accumulators, *workspace, cta, warp_group, lane)
            else:
                fixup_tile(cfg, accumulators, schedule, tile, k_first, num_k_tiles, rank, warp_group, lane, *workspace)
                store_tile(cfg, output, tCcC, operands, operand_fragments, at, warp_idx, warp_group, lane)
        else:
            store_tile(cfg, output, tCcC, operands, operand_fragments, at, warp_idx, warp_group, lane)
    if cutlass.const_expr(tma_copy is not None):
        wait_for_buffer(warp_idx, 0)


def grid_clusters(cfg: Static, m, n, batches, k, max_clusters):
    """Return the number of clusters to launch; at most `max_clusters` are resident at once."""
    rows, columns = count_tiles(cfg, m, n)
    num_tiles = rows * columns * batches
    if cutlass.const_expr(cfg.stream_k):
        k_tiles = cutlass.min((k + cfg.tile_k - 1) // cfg.tile_k // cfg.min_k_tiles, cfg.max_peers)
        return cutlass.min(max_clusters, cutlass.max(num_tiles, cutlass.min(num_tiles, max_clusters) * k_tiles))
    return cutlass.min(num_tiles, max_clusters)


@cute.jit
def launch_gemm(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    workspace: Many[cute.Tensor],
    mD: cute.Tensor,
    stream: cuda.CUstream,
    by_tma: cutlass.Constexpr,
    max_clusters: cutlass.Constexpr,
):
    """a (batch, m, k), b (batch, n, k), d (batch, m, n); `max_clusters`: clusters that are resident at once."""
    k = mA.shape[2]
    if cutlass.const_expr(cfg.stream_k):
        # a run-time value here, so that one compilation serves any number of clusters
        max_clusters = workspace_clusters(cfg, *workspace)
    tiled_mma, a_smem_layout, b_smem_layout, tma_a, mA, tma_b, mB = make_loads(cfg, mA, mB)
    mD = batch_last(mD)
    d_smem_layout, tma_d, tma_mD = make_store(cfg, mD, by_tma)
    m, n, batches = mD.shape
    gemm_kernel(
        cfg,
        tma_a,
        mA,
        tma_b,
        mB,
        operands,
        workspace,
        tma_d,
        tma_mD,
        mD,
        tiled_mma,
        a_smem_layout,
        b_smem_layout,
        d_smem_layout,
    ).launch(
        grid=[cfg.cluster_m, cfg.cluster_n, grid_clusters(cfg, m, n, batches, k, max_clusters)],
        block=[cfg.threads, 1, 1],
        cluster=[cfg.cluster_m, cfg.cluster_n, 1],
        stream=stream,
        use_pdl=cfg.pdl,
    )


def workspace_clusters(cfg: Static, partials, flags):
    """Return how many clusters have space in a stream-K workspace."""
    return cute.size(flags) // (cfg.mma_warpgroups * cfg.cluster_m * cfg.cluster_n)
