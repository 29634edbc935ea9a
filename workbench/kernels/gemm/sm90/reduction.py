"""Hopper GEMM with a reduction over rows or columns: each tile stores partial results, a second kernel combines them.

a (batch, m, k), b (batch, n, k) -> partial (parts, batch, m or n) -> d (batch, m or n).
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.epilogue import combine, identity
from workbench.kernels.gemm.sm90.epilogue import apply_epilogue, load_operand, make_operand_fragment, prefetch_operands
from workbench.kernels.gemm.sm90.kernel import grid_clusters, make_schedule, workspace_clusters
from workbench.kernels.gemm.sm90.mainloop import load_tiles, multiply, start_states
from workbench.kernels.gemm.sm90.mma import make_fragments, make_loads, make_pipeline
from workbench.kernels.gemm.sm90.scheduler import count_tiles, find_tile, work_range
from workbench.kernels.gemm.sm90.stream_k import fixup_tile, store_partial_sums
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
    partial: cute.Tensor,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
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
    mainloop_pipeline = make_pipeline(cfg, barriers)
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    m, n, batches = mA.shape[0], mB.shape[0], mA.shape[2]
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
        multiply_and_reduce(
            cfg,
            tiled_mma,
            (sA, sB),
            mainloop_pipeline,
            order_barriers,
            operands,
            workspace,
            partial,
            schedule,
            num_k_tiles,
            (m, n),
            (cta_m, cta_n),
            tidx,
            warp_idx,
        )


@cute.jit
def multiply_and_reduce(
    cfg: Static,
    tiled_mma,
    smem,
    mainloop_pipeline,
    order_barriers,
    operands: Many,
    workspace: Many,
    partial,
    schedule,
    num_k_tiles,
    shape,
    ctas,
    tidx,
    warp_idx,
):
    """Run the consumer loop of one MMA warpgroup: for each output tile the mainloop, the epilogue and the reduction.

    `smem` is (sA, sB), `shape` is (m, n), `ctas` is the CTA's (m, n) in the cluster.
    """
    sA, sB = smem
    cta_m, cta_n = ctas
    warp_group, lane = warp_idx // 4 - 1, tidx % 128
    fragments, accumulators, tCcC = make_fragments(cfg, tiled_mma, sA, sB, warp_group, lane)
    read_state, release_state = start_states(cfg, order_barriers, warp_group, num_k_tiles)
    if cutlass.const_expr(cfg.is_pingpong):
        order_phase = cutlass.Int32(0)
    matrices = tuple(operand for operand, read in zip(operands, cfg.tile_reads, strict=True) if read.along == "both")
    operand_fragments = tuple(make_operand_fragment(cfg, matrix) for matrix in matrices)
    first, last, step = work_range(cfg, schedule)
    if cutlass.const_expr(cfg.is_pingpong):
        first, step = first + warp_group * step, cfg.mma_warpgroups * step
    for item in cutlass.range(first, last, step, unroll=1):
        tile, tile_m, tile_n, batch, k_first, k_count = find_tile(cfg, schedule, item, num_k_tiles)
        m0 = (tile_m * cfg.cluster_m + cta_m) * cfg.tile_m
        if cutlass.const_expr(not cfg.is_pingpong):
            m0 = m0 + warp_group * cfg.warpgroup_m
        n0 = (tile_n * cfg.cluster_n + cta_n) * cfg.tile_n
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
                reduce_tile(cfg, accumulators, tCcC, operands, operand_fragments, partial, shape, at, warp_idx, lane)
        else:
            reduce_tile(cfg, accumulators, tCcC, operands, operand_fragments, partial, shape, at, warp_idx, lane)


@cute.jit
def reduce_tile(cfg: Static, accumulators, tCcC, operands: Many, fragments: Many, partial, shape, at, warp_idx, lane):
    """Apply the epilogue to a warpgroup's part of an output tile and reduce its rows or columns into `partial`."""
    vectors = tuple(operand for operand, read in zip(operands, cfg.tile_reads, strict=True) if read.along != "both")
    matrices = tuple(operand for operand, read in zip(operands, cfg.tile_reads, strict=True) if read.along == "both")
    if cutlass.const_expr(cfg.reduces_kernel_rows):
        reduce_rows(cfg, accumulators, tCcC, vectors, matrices, fragments, partial, shape, at, lane)
    else:
        reduce_columns(cfg, accumulators, tCcC, vectors, matrices, fragments, partial, shape, at, warp_idx, lane)


@cute.jit
def tile_value(
    cfg: Static,
    accumulators,
    vectors: Many,
    slices: Many,
    tCcC,
    i: cutlass.Constexpr,
    j: cutlass.Constexpr,
    e,
    at,
    shape,
):
    """Return (one accumulator after the epilogue, its (row, column) in the tile)."""
    place = tCcC[j * (cfg.store_n // 2) + e, i, 0]
    total = accumulators[j * (cfg.store_n // 2) + e, i, 0]
    if cutlass.const_expr(cfg.has_tile_epilogue):
        total = apply_epilogue(cfg, total, vectors, slices, e, at, place, shape)
    return total, place


@cute.jit
def reduce_rows(
    cfg: Static, accumulators, tCcC, vectors: Many, matrices: Many, fragments: Many, partial, shape, at, lane
):
    """Reduce each row of the warpgroup's part of the tile to one value in `partial`."""
    m, n = shape
    m0, n0, batch = at
    for i in cutlass.range_constexpr(cfg.warpgroup_m // 64):
        found = cute.make_rmem_tensor(cute.make_layout(2), cutlass.Float32)  # partial results of this thread's two rows
        found.fill(identity(cfg.reduction))
        for j in cutlass.range_constexpr(cfg.tile_n // cfg.store_n):
            subtile = i * (cfg.tile_n // cfg.store_n) + j
            if cutlass.const_expr(cfg.reads_matrices):
                prefetch_operands(cfg, fragments, matrices, tCcC, subtile, True, at)
            slices = tuple(fragment[None, subtile % 2] for fragment in fragments)
            for e in cutlass.range_constexpr(cfg.store_n // 2):
                total, place = tile_value(cfg, accumulators, vectors, slices, tCcC, i, j, e, at, shape)
                total = total if n0 + place[1] < n else identity(cfg.reduction)
                found[e // 2 % 2] = combine(cfg.reduction, found[e // 2 % 2], total)
        for h in cutlass.range_constexpr(2):
            value = found[h]
            for step in cutlass.range_constexpr(2):
                other = cute.arch.shuffle_sync_bfly(value, offset=1 << step)  # four threads share a row
                value = combine(cfg.reduction, value, other)
            row = m0 + tCcC[2 * h, i, 0][0]
            if lane % 4 == 0 and row < m and n0 < n:
                partial[n0 // cfg.tile_n, batch, row] = value


@cute.jit
def reduce_columns(
    cfg: Static, accumulators, tCcC, vectors: Many, matrices: Many, fragments: Many, partial, shape, at, warp_idx, lane
):
    """Reduce each column of a warp's part of the tile to one value in `partial`."""
    m, n = shape
    m0, n0, batch = at
    for j in cutlass.range_constexpr(cfg.tile_n // cfg.store_n):
        # partial results of this thread's columns
        found = cute.make_rmem_tensor(cute.make_layout(cfg.store_n // 4), cutlass.Float32)
        found.fill(identity(cfg.reduction))
        for i in cutlass.range_constexpr(cfg.warpgroup_m // 64):
            subtile = j * (cfg.warpgroup_m // 64) + i
            if cutlass.const_expr(cfg.reads_matrices):
                prefetch_operands(cfg, fragments, matrices, tCcC, subtile, False, at)
            slices = tuple(fragment[None, subtile % 2] for fragment in fragments)
            for e in cutlass.range_constexpr(cfg.store_n // 2):
                total, place = tile_value(cfg, accumulators, vectors, slices, tCcC, i, j, e, at, shape)
                total = total if m0 + place[0] < m else identity(cfg.reduction)
                found[e // 4 * 2 + e % 2] = combine(cfg.reduction, found[e // 4 * 2 + e % 2], total)
        for h in cutlass.range_constexpr(cfg.store_n // 4):
            value = found[h]
            for step in cutlass.range_constexpr(2, 5):
                other = cute.arch.shuffle_sync_bfly(value, offset=1 << step)  # eight threads share a column
                value = combine(cfg.reduction, value, other)
            column = n0 + tCcC[j * (cfg.store_n // 2) + h // 2 * 4 + h % 2, 0, 0][1]
            part = m0 // cfg.warpgroup_m * 4 + warp_idx % 4
            if lane % 32 < 4 and column < n and part < partial.shape[0]:
                partial[part, batch, column] = value


@cute.jit
def launch_gemm_reduce(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    workspace: Many[cute.Tensor],
    partial: cute.Tensor,
    stream: cuda.CUstream,
    max_clusters: cutlass.Constexpr,
):
    """a (batch, m, k), b (batch, n, k) -> partial (parts, batch, m or n)."""
    if cutlass.const_expr(cfg.stream_k):
        max_clusters = workspace_clusters(cfg, *workspace)
    tiled_mma, a_smem_layout, b_smem_layout, tma_a, tma_mA, tma_b, tma_mB = make_loads(cfg, mA, mB)
    batches, m, k = mA.shape
    clusters = grid_clusters(cfg, m, mB.shape[1], batches, k, max_clusters)
    gemm_kernel(
        cfg,
        tma_a,
        tma_mA,
        tma_b,
        tma_mB,
        operands,
        workspace,
        partial,
        tiled_mma,
        a_smem_layout,
        b_smem_layout,
    ).launch(
        grid=[cfg.cluster_m, cfg.cluster_n, clusters],
        block=[cfg.threads, 1, 1],
        cluster=[cfg.cluster_m, cfg.cluster_n, 1],
        stream=stream,
        use_pdl=cfg.pdl,
    )


@cute.kernel
def finish_kernel(cfg: Static, partial: cute.Tensor, mD: cute.Tensor, extent: cutlass.Int32):
    """Combine the parts of 32 results per CTA: eight warps each take every eighth part, then one warp combines them.

    The order is fixed, so results are bitwise reproducible.
    """
    tidx, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks = (mD.shape[1] + 31) // 32
    block, batch = cta % blocks, cta // blocks  # one-dimensional grid: its y and z extents are limited to 65535
    smem = cutlass.memory.SmemAllocator()
    found = smem.allocate_tensor(cutlass.Float32, cute.make_layout((8, 32), stride=(32, 1)), 16)
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    parts, _, length = partial.shape
    lane, at = tidx % 32, block * 32 + tidx % 32
    total = identity(cfg.reduction)
    if at < length:
        for part in cutlass.range(tidx // 32, parts, 8, unroll=4):
            total = combine(cfg.reduction, total, partial[part, batch, at])
    found[tidx // 32, lane] = total
    cute.arch.sync_threads()
    if tidx < 32 and at < length:
        for other in cutlass.range_constexpr(1, 8):
            total = combine(cfg.reduction, total, found[other, lane])
        if cutlass.const_expr(cfg.reduction == "mean"):
            total = total / extent
        if cutlass.const_expr(cfg.finish is not None):
            total = cfg.finish(total)
        mD[batch, at] = total.to(mD.element_type)


@cute.jit
def launch_finish(cfg: Static, partial: cute.Tensor, mD: cute.Tensor, extent: cutlass.Int32, stream: cuda.CUstream):
    """partial (parts, batch, length) -> d (batch, length); `extent` is the divisor of a mean."""
    finish_kernel(cfg, partial, mD, extent).launch(
        grid=[((mD.shape[1] + 31) // 32) * mD.shape[0], 1, 1], block=[256, 1, 1], stream=stream, use_pdl=cfg.pdl
    )
