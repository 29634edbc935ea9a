"""The main loops of a Hopper product: one warp loads tiles of a and b through TMA, warpgroups multiply them."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup

from workbench.kernels.gemm.sm90.scheduler import find_tile, item_range, split_range
from workbench.kernels.static import Static


@cute.jit
def load_tiles(cfg: Static, mainloop_pipeline, load_a, load_b, schedule, num_k_tiles, cta_m, cta_n, cta_k):
    """Load the k tiles of every work item, also ahead of the output tile at hand; `load_a`: (atom, gA, sA)."""
    # CTAs along n need the same tile of a, those along m the same of b: each loads a part and sends it to all
    copy_a = partition_load(load_a, cta_n, cfg.cluster_n)
    copy_b = partition_load(load_b, cta_m, cfg.cluster_m)
    mask_a, mask_b = multicast_masks(cfg, cta_m, cta_n)
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, cfg.stages)
    first, last, step = item_range(cfg, schedule)
    for item in cutlass.range(first, last, step, unroll=1):
        _, tile_m, tile_n, batch, k_first, k_count = find_tile(cfg, schedule, item, num_k_tiles)
        tile_m = tile_m * cfg.cluster_m + cta_m
        tile_n = tile_n * cfg.cluster_n + cta_n
        if cutlass.const_expr(cfg.in_cluster):
            k_first, k_count = split_range(cfg, cta_k, num_k_tiles)
        elif cutlass.const_expr(cfg.split_k > 1):
            k_first, k_count = split_range(cfg, batch % cfg.split_k, num_k_tiles)
        k_last = k_first + k_count
        if cutlass.const_expr(cfg.split_k > 1 and not cfg.in_cluster):
            batch = batch // cfg.split_k
        producer_state = load_k_tiles(
            mainloop_pipeline,
            producer_state,
            copy_a,
            copy_b,
            (tile_m, batch, mask_a),
            (tile_n, batch, mask_b),
            k_first,
            k_last,
        )
    mainloop_pipeline.producer_tail(producer_state)


def partition_load(load, cta, sharers):
    """(atom, tiles in global memory, stages in shared memory) as this CTA copies its part of a tile."""
    atom, gX, sX = load
    tXsX, tXgX = cpasync.tma_partition(
        atom, cta, cute.make_layout(sharers), cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2)
    )
    return atom, tXgX, tXsX


def multicast_masks(cfg: Static, cta_m, cta_n):
    """(a, b): the CTAs of the cluster that get what this one loads; None where that is this one alone."""
    if cutlass.const_expr(cfg.cluster_n > 1):
        row = cutlass.Int16(sum(1 << (i * cfg.cluster_m) for i in range(cfg.cluster_n)))
        mask_a = row << cutlass.Int16(cta_m)
    else:
        mask_a = None
    if cutlass.const_expr(cfg.cluster_m > 1):
        mask_b = cutlass.Int16((1 << cfg.cluster_m) - 1) << cutlass.Int16(cta_n * cfg.cluster_m)
    else:
        mask_b = None
    return mask_a, mask_b


@cute.jit
def load_k_tiles(mainloop_pipeline, producer_state, copy_a, copy_b, at_a, at_b, k_first, k_last):
    """Load the k tiles of one output tile into the next stages.

    `at_a`, `at_b`: tile and batch of the operand, and the CTAs of the cluster that get what this one loads.
    """
    tma_a, tAgA, tAsA = copy_a
    tma_b, tBgB, tBsB = copy_b
    tile_a, batch_a, mask_a = at_a
    tile_b, batch_b, mask_b = at_b
    for k_tile in cutlass.range(k_first, k_last, unroll=1):
        mainloop_pipeline.producer_acquire(producer_state)
        full_barrier = mainloop_pipeline.producer_get_barrier(producer_state)
        cute.copy(
            tma_a,
            tAgA[None, tile_a, k_tile, batch_a],
            tAsA[None, producer_state.index],
            tma_bar_ptr=full_barrier,
            mcast_mask=mask_a,
        )
        cute.copy(
            tma_b,
            tBgB[None, tile_b, k_tile, batch_b],
            tBsB[None, producer_state.index],
            tma_bar_ptr=full_barrier,
            mcast_mask=mask_b,
        )
        mainloop_pipeline.producer_commit(producer_state)
        producer_state.advance()
    return producer_state


@cute.jit
def mainloop(
    cfg: Static, tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, release_state, num_k_tiles
):
    """Multiply the k tiles of one output tile; the last wgmma is still in flight afterwards."""
    tCrA, tCrB = fragments
    mainloop_pipeline.consumer_wait(read_state)
    warpgroup.fence()
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
    for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
        at = (None, None, k_block, read_state.index)
        cute.gemm(tiled_mma, accumulators, tCrA[at], tCrB[at], accumulators)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    read_state.advance()
    for _ in cutlass.range(1, num_k_tiles, unroll=1):
        mainloop_pipeline.consumer_wait(read_state)
        for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            at = (None, None, k_block, read_state.index)
            cute.gemm(tiled_mma, accumulators, tCrA[at], tCrB[at], accumulators)
        warpgroup.commit_group()
        warpgroup.wait_group(1)  # the multiplication before this one is done: its stage can be filled again
        mainloop_pipeline.consumer_release(release_state)
        read_state.advance()
        release_state.advance()
    return read_state, release_state


@cute.jit
def finish_mainloop(mainloop_pipeline, release_state):
    """Wait for the last wgmma and release its stage."""
    warpgroup.wait_group(0)
    mainloop_pipeline.consumer_release(release_state)
    release_state.advance()
    return release_state


@cute.jit
def mainloop_registers(cfg: Static, tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, num_k_tiles):
    """Multiply with wgmma's first operand in registers: it may lie in either way in shared memory."""
    tCsA, tCrA, tCrB = fragments
    accumulators.fill(0.0)
    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    for _ in cutlass.range(num_k_tiles, unroll=1):
        mainloop_pipeline.consumer_wait(read_state)
        for e in cutlass.range_constexpr(cute.size(tCrA)):
            tCrA[e] = tCsA[None, None, None, read_state.index][e]
        warpgroup.fence()
        for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            b_block = tCrB[None, None, k_block, read_state.index]
            cute.gemm(tiled_mma, accumulators, tCrA[None, None, k_block], b_block, accumulators)
        warpgroup.commit_group()
        warpgroup.wait_group(0)  # the other warpgroup multiplies while this one waits and reads
        mainloop_pipeline.consumer_release(read_state)
        read_state.advance()
    return read_state


@cute.jit
def start_states(cfg: Static, order_barriers, warp_group, num_k_tiles):
    """(read, release): where a warpgroup that multiplies begins in the pipeline."""
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    if cutlass.const_expr(cfg.is_pingpong):  # noqa: SIM102 (one is for the compiler, one for the device)
        if warp_group == 1:
            # the first tile belongs to the other warpgroup, which may start at once
            read_state.advance(num_k_tiles)
            release_state.advance(num_k_tiles)
            cute.arch.mbarrier_arrive(order_barriers)
    return read_state, release_state


@cute.jit
def multiply(
    cfg: Static, tiled_mma, accumulators, fragments, mainloop_pipeline, states, k_count, order_barriers, warp_group
):
    """The sums of one output tile; returns the states (read, release) of the pipeline."""
    read_state, release_state = states
    if cutlass.const_expr(cfg.a_in_registers):
        read_state = mainloop_registers(cfg, tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, k_count)
    else:
        read_state, release_state = mainloop(
            cfg, tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, release_state, k_count
        )
        if cutlass.const_expr(cfg.is_pingpong):
            # the other warpgroup may multiply now
            cute.arch.mbarrier_arrive(order_barriers + 1 - warp_group)
        release_state = finish_mainloop(mainloop_pipeline, release_state)
        if cutlass.const_expr(cfg.is_pingpong):
            # the stages in between hold the other warpgroup's tile
            read_state.advance(k_count)
            release_state.advance(k_count)
    return read_state, release_state
