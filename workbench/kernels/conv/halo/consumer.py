"""Consumers of the convolution with halos: MMA warpgroups multiply all taps of a stage by wgmma and store the outputs.

Shared memory holds no swizzle: a row of 16 bytes for each position or filter, chunk after chunk (K-major interleaved).
So the operand of a tap is that of the first one, a few rows on.
"""

import cutlass
import cutlass.cute as cute
from cutlass import pipeline
from cutlass.cute.nvgpu import warpgroup

from workbench.kernels.conv.epilogue import store_tile
from workbench.kernels.conv.halo.tiles import find_halo_tile
from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Many, Static


@cute.jit
def find_addresses(
    cfg: Static,
    mY: cute.Tensor,
    addresses: cute.Tensor,
    first: cutlass.Int32,
    images: cutlass.Int32,
    plan: cutlass.Constexpr,
):
    """Compute the addresses, in y's first channel, of this thread's outputs from position `first` on; -1: none."""
    strips, depth, lines, columns = plan.grid
    for i in cutlass.range_constexpr(cfg.rows // 32):
        rest, t2 = divide(first + 32 * i, columns)
        rest, p = divide(rest, lines)
        rest, z = divide(rest, depth)
        n, strip = divide(rest, strips)
        q = strip * plan.width + t2
        inside = (n < images) & (z < plan.outputs[0]) & (p < plan.outputs[1])
        inside = inside & (t2 < plan.width) & (q < plan.outputs[2])
        offset = cutlass.Int64(n) * mY.stride[0] + (z * plan.outputs[1] + p) * plan.outputs[2] + q
        address = mY.iterator.toint() + offset * (mY.element_type.width // 8)
        addresses[i] = cutlass.select_(inside, address, cutlass.Int64(-1))


def make_operands(cfg: Static, tiled_mma, sA, sB, first_row, plan):
    """Return the wgmma operands (MMA, rows, k, taps, stages) of A from `first_row` of the tile on, and of B."""
    chunks = cfg.tile_k // cfg.chunk
    (columns, column_step), (lines, line_step) = plan.inner
    depth = (cfg.chunk, chunks)
    a_layout = cute.make_layout(
        (cfg.rows, depth, (columns, lines), plan.stages),
        stride=(
            cfg.chunk,
            (1, plan.patch * cfg.chunk),
            (column_step * cfg.chunk, line_step * cfg.chunk),
            plan.patch * cfg.tile_k,
        ),
    )
    b_layout = cute.make_layout(
        (cfg.tile_n, depth, plan.taps, plan.stages),
        stride=(cfg.chunk, (1, cfg.tile_n * cfg.chunk), cfg.tile_n * cfg.tile_k, plan.taps * cfg.tile_n * cfg.tile_k),
    )
    thr_mma = tiled_mma.get_slice(0)
    a = cute.make_tensor(sA.iterator + first_row * cfg.chunk, a_layout)
    b = cute.make_tensor(sB.iterator, b_layout)
    return tiled_mma.make_fragment_A(thr_mma.partition_A(a)), tiled_mma.make_fragment_B(thr_mma.partition_B(b))


@cute.jit
def multiply_stage(
    tiled_mma: cute.TiledMma, acc: cute.Tensor, tCrA: cute.Tensor, tCrB: cute.Tensor, stage: cutlass.Int32
):
    """Issue the products of all taps of a stage as one wgmma group."""
    for tap in cutlass.range_constexpr(cute.size(tCrA, mode=[3])):
        for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            coord = (None, None, k_block, tap, stage)
            cute.gemm(tiled_mma, acc, tCrA[coord], tCrB[coord], acc)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()


@cute.jit
def multiply_halos(
    tiled_mma: cute.TiledMma,
    acc: cute.Tensor,
    tCrA: cute.Tensor,
    tCrB: cute.Tensor,
    mainloop_pipeline: pipeline.PipelineTmaAsync,
    read_state: pipeline.PipelineState,
    release_state: pipeline.PipelineState,
    steps: cutlass.Int32,
):
    """Run the mainloop of one output tile; the last wgmma group is still in flight on return."""
    mainloop_pipeline.consumer_wait(read_state)
    warpgroup.fence()
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
    multiply_stage(tiled_mma, acc, tCrA, tCrB, read_state.index)
    read_state.advance()
    for _ in cutlass.range(1, steps, unroll=1):
        mainloop_pipeline.consumer_wait(read_state)
        multiply_stage(tiled_mma, acc, tCrA, tCrB, read_state.index)
        warpgroup.wait_group(1)  # the previous wgmma group is complete: release its stage
        mainloop_pipeline.consumer_release(release_state)
        read_state.advance()
        release_state.advance()
    return read_state, release_state


@cute.jit
def compute_halos(
    cfg: Static,
    tiled_mma: cute.TiledMma,
    buffers: tuple,
    operands: Many,
    mY: cute.Tensor,
    pipelines: tuple,
    works: tuple,
    sizes: tuple,
    indices: tuple,
    plan: cutlass.Constexpr,
):
    """Run the consumer loop of one MMA warpgroup: for each work tile the mainloop, then the epilogue.

    `sizes` is (images, filters, tiles of filters, stages that a tile takes).
    """
    sA, sB, sC = buffers
    mainloop_pipeline = pipelines[0]
    first_work, num_works, work_stride = works
    images, filters, tiles_n, steps = sizes
    warp_idx, tidx = indices
    warpgroup_idx, lane = warp_idx // 4 - 1, tidx % 128
    first_row = 0 if cutlass.const_expr(cfg.pingpong) else warpgroup_idx * cfg.rows
    tCrA, tCrB = make_operands(cfg, tiled_mma, sA, sB, first_row, plan)
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
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, plan.stages)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, plan.stages)
    first, stride = first_work, work_stride
    if cutlass.const_expr(cfg.pingpong):
        turn_barriers = pipelines[1]
        turn = cutlass.Int32(0)
        if warpgroup_idx == 1:  # warpgroup 0 computes the first tile and may start at once
            read_state.advance(steps)
            release_state.advance(steps)
            cute.arch.mbarrier_arrive(turn_barriers)
        first, stride = first_work + warpgroup_idx * work_stride, 2 * work_stride
    for work in cutlass.range(first, num_works, stride, unroll=1):
        tile_m, tile_n = find_halo_tile(cfg, work, num_works, tiles_n, plan)
        if cutlass.const_expr(cfg.pingpong):
            cute.arch.mbarrier_wait(turn_barriers + warpgroup_idx, turn)
            turn = 1 - turn
        read_state, release_state = multiply_halos(
            tiled_mma, acc, tCrA, tCrB, mainloop_pipeline, read_state, release_state, steps
        )
        if cutlass.const_expr(cfg.pingpong):
            cute.arch.mbarrier_arrive(turn_barriers + 1 - warpgroup_idx)
        # compute the output addresses while the last wgmma group runs
        find_addresses(cfg, mY, addresses, tile_m * cfg.tile_m + first_row + lane % 32, images, plan)
        warpgroup.wait_group(0)
        mainloop_pipeline.consumer_release(release_state)
        release_state.advance()
        if cutlass.const_expr(cfg.pingpong):  # the next tile is the other warpgroup's
            read_state.advance(steps)
            release_state.advance(steps)
        where, warps = (tile_n * cfg.tile_n, 0, filters), (warpgroup_idx, warp_idx, lane)
        store_tile(cfg, acc, tCcC, sC, rC, addresses, operands, fragments, mY, where, warps)
