"""Consumers of the Hopper convolution: MMA warpgroups multiply tiles by wgmma and store the outputs."""

import cutlass
import cutlass.cute as cute
from cutlass import pipeline
from cutlass.cute.nvgpu import warpgroup

from workbench.kernels.conv.epilogue import find_outputs, store_tile
from workbench.kernels.conv.indexing import find_work_tile
from workbench.kernels.static import Many, Static


@cute.jit
def multiply_tiles(
    cfg: Static,
    tiled_mma: cute.TiledMma,
    acc: cute.Tensor,
    tCrA: cute.Tensor,
    tCrB: cute.Tensor,
    mainloop_pipeline: pipeline.PipelineTmaAsync,
    read_state: pipeline.PipelineState,
    release_state: pipeline.PipelineState,
    num_k_tiles: cutlass.Int32,
):
    """Run the mainloop of one output tile; the last wgmma group is still in flight on return."""
    mainloop_pipeline.consumer_wait(read_state)
    warpgroup.fence()
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
    for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
        coord = (None, None, k_block, read_state.index)
        cute.gemm(tiled_mma, acc, tCrA[coord], tCrB[coord], acc)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    read_state.advance()
    for _ in cutlass.range(1, num_k_tiles, unroll=1):
        mainloop_pipeline.consumer_wait(read_state)
        for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            coord = (None, None, k_block, read_state.index)
            cute.gemm(tiled_mma, acc, tCrA[coord], tCrB[coord], acc)
        warpgroup.commit_group()
        # the previous wgmma group is complete: release its stage
        warpgroup.wait_group(1)
        mainloop_pipeline.consumer_release(release_state)
        read_state.advance()
        release_state.advance()
    return read_state, release_state


@cute.jit
def skip_tile(
    read_state: pipeline.PipelineState,
    release_state: pipeline.PipelineState,
    phases: cute.Tensor,
    work: cutlass.Int32,
    tiles: tuple,
    k_tiles_per_tap: cutlass.Int32,
):
    """Advance the pipeline states past the stages of the other warpgroup's tile."""
    tiles_m, tiles_n = tiles
    _, _, phase, _ = find_work_tile(work, tiles_n, phases.shape[0], tiles_m)
    read_state.advance(phases[phase, 1] * k_tiles_per_tap)
    release_state.advance(phases[phase, 1] * k_tiles_per_tap)
    return read_state, release_state


@cute.jit
def compute_tiles(
    cfg: Static,
    tiled_mma: cute.TiledMma,
    buffers: tuple,
    phases: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    pipelines: tuple,
    works: tuple,
    tiles: tuple,
    sizes: tuple,
    indices: tuple,
):
    """Run the consumer loop of one MMA warpgroup: for each work tile the mainloop, then the epilogue.

    `buffers` is (sA, sB, sC), `works` is (first, end, step) of the work indices, `tiles` the grid of tiles along m and
    n.
    """
    sA, sB, sC = buffers
    mainloop_pipeline = pipelines[0]
    first_work, num_works, work_stride = works
    tiles_m, tiles_n = tiles
    grid, scale, (depth, filters, _) = sizes
    cta_rank, warp_idx, tidx = indices
    warpgroup_idx = warp_idx // 4 - 1
    lane = tidx % 128
    if cutlass.const_expr(not cfg.pingpong):  # rows of this warpgroup
        sA = cute.local_tile(sA, (cfg.rows, cfg.tile_k, cfg.stages), (warpgroup_idx, 0, 0))
    thr_mma = tiled_mma.get_slice(0)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
    acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((cfg.rows, cfg.tile_n)), cutlass.Float32)
    tCcC = tiled_mma.get_slice(lane).partition_C(cute.make_identity_tensor((cfg.rows, cfg.tile_n)))
    addresses = cute.make_rmem_tensor(cfg.rows // 32, cutlass.Int64)
    rC = cute.make_rmem_tensor(cfg.rows // 32, cutlass.Float32)
    fragments = tuple(
        cute.make_rmem_tensor(1 if read.along == "n" else cfg.rows // 32, x.element_type)
        for x, read in zip(operands, cfg.reads, strict=True)
    )
    for fragment in fragments:
        fragment.fill(0.0)
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    k_tiles_per_tap = depth // cfg.tile_k
    first, stride = first_work, work_stride
    if cutlass.const_expr(cfg.pingpong):
        turn_barriers = pipelines[1]
        turn = cutlass.Int32(0)
        if warpgroup_idx == 1:  # warpgroup 0 computes the first tile and may start at once
            read_state, release_state = skip_tile(read_state, release_state, phases, first_work, tiles, k_tiles_per_tap)
            cute.arch.mbarrier_arrive(turn_barriers)
        first, stride = first_work + warpgroup_idx * work_stride, cfg.warpgroups * work_stride
    for work in cutlass.range(first, num_works, stride, unroll=1):
        tile_m, tile_n, phase, block = find_work_tile(work, tiles_n, phases.shape[0], tiles_m)
        num_k_tiles = phases[phase, 1] * k_tiles_per_tap
        if cutlass.const_expr(cfg.pingpong):
            cute.arch.mbarrier_wait(turn_barriers + warpgroup_idx, turn)
            turn = 1 - turn
        read_state, release_state = multiply_tiles(
            cfg, tiled_mma, acc, tCrA, tCrB, mainloop_pipeline, read_state, release_state, num_k_tiles
        )
        if cutlass.const_expr(cfg.pingpong):
            cute.arch.mbarrier_arrive(turn_barriers + 1 - warpgroup_idx)
        # compute the output addresses while the last wgmma group runs
        m0 = (tile_m * cfg.cluster + cta_rank) * cfg.tile_m
        if cutlass.const_expr(not cfg.pingpong):
            m0 += warpgroup_idx * cfg.rows
        n0 = tile_n * cfg.tile_n
        find_outputs(cfg, mY, addresses, m0 + lane % 32, grid, scale, phases, phase)
        warpgroup.wait_group(0)
        mainloop_pipeline.consumer_release(release_state)
        release_state.advance()
        if cutlass.const_expr(cfg.pingpong):
            next_work = work + work_stride
            read_state, release_state = skip_tile(read_state, release_state, phases, next_work, tiles, k_tiles_per_tap)
        where, warps = (n0, block, filters), (warpgroup_idx, warp_idx, lane)
        store_tile(cfg, acc, tCcC, sC, rC, addresses, operands, fragments, mY, where, warps)
