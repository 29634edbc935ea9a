"""Grouped GEMM for Hopper: one persistent kernel multiplies groups of rows, as in a mixture of experts.

a (rows, k) holds the groups one after the other, b (groups, k, n) one matrix per group; offsets (groups) is one past
each group's last row; d is (rows, n). A group may have any number of rows, also none. Offsets must not decrease and
must not exceed the number of rows. The host checks them if they are in its memory; reading them from a GPU would
synchronise, so the kernel clamps them to [0, rows] and treats a group that ends before it starts as empty. Nothing is
then accessed outside the matrices, but the rows of such groups are wrong or not written.

Only the device knows the number of tiles: each CTA counts them and takes its part, so the host never waits. One TMA
descriptor serves all groups, since a TMA box may start at any row. A tile that reaches past its group loads rows of the
next group, and the threads store only the rows of its own group. Rows past the last group are not written.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import torch
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.gemm.sm90.epilogue import (
    convert_subtile,
    make_smem_copy,
    make_store,
    partition_store,
    wait_for_buffer,
)
from workbench.kernels.gemm.sm90.host import can_store_by_tma, check_axes, check_product, pad_k, result_view
from workbench.kernels.gemm.sm90.mainloop import load_k_tiles, multicast_masks, multiply, partition_load
from workbench.kernels.gemm.sm90.mma import batch_last, make_fragments, make_loads, make_pipeline
from workbench.kernels.gemm.sm90.pack import make_operands, max_active_clusters
from workbench.kernels.host import INDEX_DTYPES, DynamicTensor, call, check_group_ends, check_operand
from workbench.kernels.static import Static, bind, dtype, torch_dtype


@cute.jit
def group_end(offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32):
    """Return one past the last row of a group, clamped to the matrix."""
    return cutlass.min(cutlass.max(offsets[group], 0), rows)


@cute.jit
def group_start(offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32):
    """Return the first row of a group."""
    start = cutlass.Int32(0)
    if group > 0:
        start = group_end(offsets, group - 1, rows)
    return start


@cute.jit
def group_tiles(cfg: Static, offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """Return the number of output tiles of a group, in units of clusters."""
    own = cutlass.max(group_end(offsets, group, rows) - group_start(offsets, group, rows), 0)
    return (own + cfg.tile_m * cfg.cluster_m - 1) // (cfg.tile_m * cfg.cluster_m) * columns


@cute.jit
def find_group(
    cfg: Static,
    offsets: cute.Tensor,
    tile: cutlass.Int32,
    group: cutlass.Int32,
    before: cutlass.Int32,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
):
    """Return (group, number of tiles before it) of an output tile; the search starts at `group`."""
    tiles = group_tiles(cfg, offsets, group, rows, columns)
    while tile >= before + tiles:
        before += tiles
        group += 1
        tiles = group_tiles(cfg, offsets, group, rows, columns)
    return group, before


@cute.jit
def tile_in_group(cfg: Static, offsets, tile, group, before, rows, columns, cta_m, cta_n):
    """Return (m, n) of this CTA's tile within its group."""
    high = group_tiles(cfg, offsets, group, rows, columns) // columns
    return (tile - before) % high * cfg.cluster_m + cta_m, (tile - before) // high * cfg.cluster_n + cta_n


@cute.kernel
def gemm_kernel(
    cfg: Static,
    tma_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_b: cute.CopyAtom,
    mB: cute.Tensor,
    offsets: cute.Tensor,
    tma_d: cute.CopyAtom,
    tma_mD: cute.Tensor,
    mD: cute.Tensor,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
    d_smem_layout: cute.ComposedLayout,
):
    """Persistent warp-specialised grouped GEMM: one producer warp issues TMA loads, MMA warpgroups consume them.

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
    sA = smem.allocate_tensor(dtype(cfg.element), a_smem_layout.outer, 1024, swizzle=a_smem_layout.inner)
    sB = smem.allocate_tensor(dtype(cfg.element), b_smem_layout.outer, 1024, swizzle=b_smem_layout.inner)
    sD = smem.allocate_tensor(dtype(cfg.kernel_result), d_smem_layout.outer, 1024, swizzle=d_smem_layout.inner)
    mainloop_pipeline = make_pipeline(cfg, barriers)
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    m, n, _ = mD.shape
    columns = (n + cfg.tile_n * cfg.cluster_n - 1) // (cfg.tile_n * cfg.cluster_n)
    num_tiles = cutlass.Int32(0)
    for group in cutlass.range(offsets.shape[0], unroll=4):
        num_tiles += group_tiles(cfg, offsets, group, m, columns)
    gA = cute.local_tile(mA, (cfg.tile_m, cfg.tile_k), (None, None, None))
    gB = cute.local_tile(mB, (cfg.tile_n, cfg.tile_k), (None, None, None))
    num_k_tiles = cute.size(gA, mode=[3])
    schedule = (m, columns, num_tiles, cluster, num_clusters, num_k_tiles)
    if warp_idx < 4:
        if cutlass.const_expr(cfg.moves_registers):
            cute.arch.setmaxregister_decrease(40)
        if warp_idx == 0:
            load_a, load_b = (tma_a, gA, sA), (tma_b, gB, sB)
            load_groups(cfg, mainloop_pipeline, load_a, load_b, mA, offsets, schedule, cta_m, cta_n)
    else:
        if cutlass.const_expr(cfg.moves_registers):
            cute.arch.setmaxregister_increase(232)
        multiply_groups(
            cfg,
            tiled_mma,
            (sA, sB, sD),
            mainloop_pipeline,
            (tma_d, tma_mD, mD),
            offsets,
            schedule,
            (cta_m, cta_n),
            tidx,
            warp_idx,
        )


@cute.jit
def load_groups(cfg: Static, mainloop_pipeline, load_a, load_b, mA, offsets, schedule, cta_m, cta_n):
    """Run the producer loop: load the k tiles of every output tile of this cluster, group after group."""
    m, columns, num_tiles, cluster, num_clusters, num_k_tiles = schedule
    tma_a, _, sA = load_a
    # CTAs along n share tiles of a, CTAs along m tiles of b: each loads a slice and multicasts it
    _, _, tAsA = partition_load(load_a, cta_n, cfg.cluster_n)
    copy_b = partition_load(load_b, cta_m, cfg.cluster_m)
    mask_a, mask_b = multicast_masks(cfg, cta_m, cta_n)
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, cfg.stages)
    group, before = cutlass.Int32(0), cutlass.Int32(0)
    for tile in cutlass.range(cluster, num_tiles, num_clusters, unroll=1):
        group, before = find_group(cfg, offsets, tile, group, before, m, columns)
        tile_m, tile_n = tile_in_group(cfg, offsets, tile, group, before, m, columns, cta_m, cta_n)
        rows_a = cute.local_tile(
            cute.domain_offset((group_start(offsets, group, m), 0, 0), mA),
            (cfg.tile_m, cfg.tile_k),
            (None, None, None),
        )
        _, tAgA, _ = partition_load((tma_a, rows_a, sA), cta_n, cfg.cluster_n)
        producer_state = load_k_tiles(
            mainloop_pipeline,
            producer_state,
            (tma_a, tAgA, tAsA),
            copy_b,
            (tile_m, 0, mask_a),
            (tile_n, group, mask_b),
            0,
            num_k_tiles,
        )
    mainloop_pipeline.producer_tail(producer_state)


@cute.jit
def multiply_groups(cfg: Static, tiled_mma, smem, mainloop_pipeline, store, offsets, schedule, ctas, tidx, warp_idx):
    """Run the consumer loop of one MMA warpgroup over the output tiles of all groups.

    `smem` is (sA, sB, sD), `store` is (TMA atom or None, its tensor, d), `ctas` is the CTA's (m, n) in the cluster.
    """
    m, columns, num_tiles, cluster, num_clusters, num_k_tiles = schedule
    sA, sB, sD = smem
    warp_group, lane = warp_idx // 4 - 1, tidx % 128
    fragments, accumulators, tCcC = make_fragments(cfg, tiled_mma, sA, sB, warp_group, lane)
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    smem_copy = make_smem_copy(cfg, tiled_mma, accumulators, sD, lane)
    group, before = cutlass.Int32(0), cutlass.Int32(0)
    for tile in cutlass.range(cluster, num_tiles, num_clusters, unroll=1):
        group, before = find_group(cfg, offsets, tile, group, before, m, columns)
        tile_m, tile_n = tile_in_group(cfg, offsets, tile, group, before, m, columns, ctas[0], ctas[1])
        m0 = group_start(offsets, group, m) + tile_m * cfg.tile_m + warp_group * cfg.warpgroup_m
        n0 = tile_n * cfg.tile_n
        end = group_end(offsets, group, m)
        read_state, release_state = multiply(
            cfg,
            tiled_mma,
            accumulators,
            fragments,
            mainloop_pipeline,
            (read_state, release_state),
            num_k_tiles,
            None,
            warp_group,
        )
        store_group_tile(cfg, smem_copy, store, sD, tCcC, (m0, n0, 0), end, warp_idx, warp_group, lane)
    if cutlass.const_expr(store[0] is not None):
        wait_for_buffer(warp_idx, 0)


@cute.jit
def store_group_tile(cfg: Static, smem_copy, store, sD, tCcC, at, end, warp_idx, warp_group, lane):
    """Store a warpgroup's part of an output tile to d, predicated on the rows before `end`."""
    tiled_copy_r2s, tRS_rAcc, tRS_rD, tRS_sD = smem_copy
    tma_d, tma_mD, mD = store
    m0, n0, _ = at
    n = mD.shape[1]
    # the next group's rows follow directly, so TMA may store only tiles that lie entirely in this group
    whole = cutlass.Boolean(False)
    if cutlass.const_expr(tma_d is not None):
        whole = m0 + cfg.warpgroup_m <= end
    for i in cutlass.range_constexpr(cfg.warpgroup_m // 64):
        for j in cutlass.range_constexpr(cfg.tile_n // cfg.store_n):
            # one 64 x STORE_N subtile at a time: registers, shared memory, global memory
            buffer = warp_group * cfg.buffers + (i * (cfg.tile_n // cfg.store_n) + j) % cfg.buffers
            row, column = m0 + 64 * i, n0 + cfg.store_n * j
            convert_subtile(cfg, tRS_rAcc, tRS_rD, (), (), tCcC, i, j, at, mD.shape)
            if cutlass.const_expr(tma_d is not None):
                wait_for_buffer(warp_idx, 0)  # the previous store has read this buffer
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            cute.copy(tiled_copy_r2s, tRS_rD, tRS_sD[None, None, None, buffer])
            if cutlass.const_expr(tma_d is not None):
                cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            if cutlass.const_expr(tma_d is not None):
                rows_d = cute.domain_offset((m0, 0, 0), tma_mD)
                bSG_sD, bSG_gD = partition_store(cfg, tma_d, rows_d, sD)
                if whole and warp_idx % 4 == 0:
                    with cute.arch.elect_one():
                        cute.copy(tma_d, bSG_sD[None, buffer], bSG_gD[None, i, column // cfg.store_n, 0])
                        cute.arch.cp_async_bulk_commit_group()
            if not whole:
                for e in cutlass.range(lane, 64 * cfg.store_n, 128, unroll=4):
                    if row + e // cfg.store_n < end and column + e % cfg.store_n < n:
                        value = sD[e // cfg.store_n, e % cfg.store_n, buffer]
                        mD[row + e // cfg.store_n, column + e % cfg.store_n, 0] = value


@cute.jit
def launch_ggemm(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    offsets: cute.Tensor,
    mD: cute.Tensor,
    stream: cuda.CUstream,
    by_tma: cutlass.Constexpr,
    max_clusters: cutlass.Constexpr,
):
    """a (1, rows, k), b (groups, n, k), offsets (groups), d (1, rows, n); `max_clusters` are resident at once."""
    tiled_mma, a_smem_layout, b_smem_layout, tma_a, tma_mA, tma_b, tma_mB = make_loads(cfg, mA, mB)
    mD = batch_last(mD)
    d_smem_layout, tma_d, tma_mD = make_store(cfg, mD, by_tma)
    m, n, _ = mD.shape
    rows = (m + cfg.tile_m * cfg.cluster_m - 1) // (cfg.tile_m * cfg.cluster_m) + offsets.shape[0]  # upper bound
    num_tiles = rows * ((n + cfg.tile_n * cfg.cluster_n - 1) // (cfg.tile_n * cfg.cluster_n))
    gemm_kernel(
        cfg,
        tma_a,
        tma_mA,
        tma_b,
        tma_mB,
        offsets,
        tma_d,
        tma_mD,
        mD,
        tiled_mma,
        a_smem_layout,
        b_smem_layout,
        d_smem_layout,
    ).launch(
        grid=[cfg.cluster_m, cfg.cluster_n, cutlass.min(num_tiles, max_clusters)],
        block=[cfg.threads, 1, 1],
        cluster=[cfg.cluster_m, cfg.cluster_n, 1],
        stream=stream,
        use_pdl=cfg.pdl,
    )


def ggemm(cfg: Static, names: Static, a, b, offsets):
    """Return the product of each group of rows of a with its matrix of b; `offsets` (groups): end row of each group."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, (b.shape[0],))
    check_operand(names["offsets"], offsets, (b.shape[0],), INDEX_DTYPES)
    check_group_ends(names["offsets"], offsets, m)
    d = torch.empty(m, n, dtype=torch_dtype(cfg.result), device=a.device)
    if d.numel() == 0:
        return d
    if k == 0:  # an empty sum is zero: pad k with zeros
        a, b = pad_k(cfg, a, b)
    ends = offsets.detach().to(torch.int32).contiguous()
    (left, left_along_k), (right, right_along_k) = make_operands(cfg, a, b)
    d3 = d.unsqueeze(0)
    by_tma = can_store_by_tma(cfg, d3)
    call(
        bind(launch_ggemm, cfg),
        (by_tma, left_along_k, right_along_k),
        (left, right, DynamicTensor(ends), result_view(cfg, d3, by_tma)),
        (by_tma, max_active_clusters(cfg)),
    )
    return d
