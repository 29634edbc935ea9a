"""Products of groups of rows in one persistent Hopper kernel, as a mixture of experts needs them.

a (rows, k) holds the groups one after the other, b (groups, k, n) a matrix for each, offsets (groups) one past each
group's last row; d (rows, n). Every group may have any number of rows, none too; offsets must not decrease, nor go
beyond the rows. Where they are in the host's memory they are looked at; reading a GPU's would wait for it, so the kernel takes
what is out of range as 0 or the last row, and a group that ends before it starts as none: nothing is read or written
outside of the matrices, but the rows of such groups are wrong or not written. How many tiles there are is only known on
the device: each CTA counts them and walks over its share, so the host never waits. One descriptor serves all groups,
since TMA may start at any row; a tile that reaches past its group's end reads rows of the next group, and its threads
store only the rows that are its own. Rows after the last group's end are not written.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.gemm.sm90.epilogue import (
    convert_subtile,
    make_smem_copy,
    make_store,
    partition_store,
    wait_for_buffer,
)
from workbench.kernels.gemm.sm90.host import check_axes, check_product, pad_k, result_view, takes_tma_store
from workbench.kernels.gemm.sm90.mainloop import load_k_tiles, multicast_masks, multiply, partition_load
from workbench.kernels.gemm.sm90.mma import batch_last, make_fragments, make_loads, make_pipeline
from workbench.kernels.gemm.sm90.pack import operands_of, resident
from workbench.kernels.host import INDICES, call, expect, expect_ends
from workbench.kernels.static import Static, bind, dtype, torch_dtype


@cute.jit
def group_end(offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32):
    """One past the last row of a group, within the matrix whatever the offset is."""
    return cutlass.min(cutlass.max(offsets[group], 0), rows)


@cute.jit
def group_start(offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32):
    """The first row of a group."""
    start = cutlass.Int32(0)
    if group > 0:
        start = group_end(offsets, group - 1, rows)
    return start


@cute.jit
def group_tiles(cfg: Static, offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """How many output tiles a group is, in clusters."""
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
    """(group, tiles before it) of an output tile, searched from `group` on."""
    tiles = group_tiles(cfg, offsets, group, rows, columns)
    while tile >= before + tiles:
        before += tiles
        group += 1
        tiles = group_tiles(cfg, offsets, group, rows, columns)
    return group, before


@cute.jit
def tile_in_group(cfg: Static, offsets, tile, group, before, rows, columns, cta_m, cta_n):
    """(m, n) of a CTA's tile in its group."""
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
    """Persistent CTAs: one warp loads tiles through TMA, also ahead of the tile at hand; warpgroups multiply them."""
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
        # what the kernel before this one wrote can be read from here on; the next one may start
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
    """Load the k tiles of every output tile of this cluster, group after group."""
    m, columns, num_tiles, cluster, num_clusters, num_k_tiles = schedule
    tma_a, _, sA = load_a
    # CTAs along n need the same tile of a, those along m the same of b: each loads a part and sends it to all
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
    """What a warpgroup that multiplies does: sums of a tile, epilogue, store, group after group."""
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
    """A warpgroup's part of an output tile into d, its rows before `end` only."""
    tiled_copy_r2s, tRS_rAcc, tRS_rD, tRS_sD = smem_copy
    tma_d, tma_mD, mD = store
    m0, n0, _ = at
    n = mD.shape[1]
    # the rows of the next group start where this one's end: only whole tiles can leave through TMA
    whole = cutlass.Boolean(False)
    if cutlass.const_expr(tma_d is not None):
        whole = m0 + cfg.warpgroup_m <= end
    for i in cutlass.range_constexpr(cfg.warpgroup_m // 64):
        for j in cutlass.range_constexpr(cfg.tile_n // cfg.store_n):
            # 64 rows and STORE_N columns at a time: registers, shared memory, global memory
            buffer = warp_group * cfg.buffers + (i * (cfg.tile_n // cfg.store_n) + j) % cfg.buffers
            row, column = m0 + 64 * i, n0 + cfg.store_n * j
            convert_subtile(cfg, tRS_rAcc, tRS_rD, (), (), tCcC, i, j, at, mD.shape)
            if cutlass.const_expr(tma_d is not None):
                wait_for_buffer(warp_idx, 0)  # what was in this buffer has left
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
    """a (1, rows, k), b (groups, n, k), offsets (groups), d (1, rows, n); `max_clusters` run at once."""
    tiled_mma, a_smem_layout, b_smem_layout, tma_a, tma_mA, tma_b, tma_mB = make_loads(cfg, mA, mB)
    mD = batch_last(mD)
    d_smem_layout, tma_d, tma_mD = make_store(cfg, mD, by_tma)
    m, n, _ = mD.shape
    rows = (m + cfg.tile_m * cfg.cluster_m - 1) // (cfg.tile_m * cfg.cluster_m) + offsets.shape[0]  # at most
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
    """Multiply each group of rows of a by its matrix of b; `offsets` (groups): one past each group's last row."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, (b.shape[0],))
    expect(names["offsets"], offsets, (b.shape[0],), INDICES)
    expect_ends(names["offsets"], offsets, m)
    d = torch.empty(m, n, dtype=torch_dtype(cfg.result), device=a.device)
    if d.numel() == 0:
        return d
    if k == 0:  # nothing is added up: as if it were one product of zeros
        a, b = pad_k(cfg, a, b)
    ends = offsets.detach().to(torch.int32)
    (left, left_along_k), (right, right_along_k) = operands_of(cfg, a, b)
    d3 = d.unsqueeze(0)
    by_tma = takes_tma_store(cfg, d3)
    call(
        bind(launch_ggemm, cfg),
        (by_tma, left_along_k, right_along_k),
        (left, right, from_dlpack(ends).mark_layout_dynamic(), result_view(cfg, d3, by_tma)),
        (by_tma, resident(cfg)),
    )
    return d
