"""Mainloops of the Hopper GEMM: a producer warp loads k tiles by TMA, MMA warpgroups multiply them by wgmma."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup

from workbench.kernels.gemm.sm90.scheduler import find_tile, split_range, work_range
from workbench.kernels.static import Static


@cute.jit
def load_tiles(cfg: Static, mainloop_pipeline, load_a, load_b, schedule, num_k_tiles, cta_m, cta_n, cta_k):
    """Run the producer loop: load the k tiles of every work tile of this cluster, as far ahead as stages are free.

    `load_a` and `load_b` are (TMA atom, global tiles, shared memory stages).
    """
    # CTAs along n share tiles of a, CTAs along m tiles of b: each loads a slice and multicasts it
    copy_a = partition_load(load_a, cta_n, cfg.cluster_n)
    copy_b = partition_load(load_b, cta_m, cfg.cluster_m)
    mask_a, mask_b = multicast_masks(cfg, cta_m, cta_n)
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, cfg.stages)
    first, last, step = work_range(cfg, schedule)
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
    """Return (TMA atom, global tiles, shared memory stages), partitioned for this CTA's slice of a multicast tile."""
    atom, gX, sX = load
    tXsX, tXgX = cpasync.tma_partition(
        atom, cta, cute.make_layout(sharers), cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2)
    )
    return atom, tXgX, tXsX


def multicast_masks(cfg: Static, cta_m, cta_n):
    """Return the TMA multicast masks of a and b: a bit per receiving CTA, or None without multicast."""
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
    """Load the k tiles [k_first, k_last) of one output tile into the next stages; return the producer state.

    `at_a` and `at_b` are (tile index, batch, multicast mask) of each operand.
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
    """Multiply the k tiles of one output tile with both wgmma operands in shared memory.

    The last wgmma group is still in flight on return, and its stage is not yet released.
    """
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
        warpgroup.wait_group(1)  # the previous wgmma group is complete: release its stage
        mainloop_pipeline.consumer_release(release_state)
        read_state.advance()
        release_state.advance()
    return read_state, release_state


@cute.jit
def finish_mainloop(mainloop_pipeline, release_state):
    """Wait for the last wgmma group and release its stage; return the release state."""
    warpgroup.wait_group(0)
    mainloop_pipeline.consumer_release(release_state)
    release_state.advance()
    return release_state


@cute.jit
def mainloop_registers(cfg: Static, tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, num_k_tiles):
    """Multiply the k tiles of one output tile with operand a in registers; return the read state.

    a may then be K-major or M-major in shared memory.
    """
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
        warpgroup.wait_group(0)  # the other warpgroup multiplies meanwhile
        mainloop_pipeline.consumer_release(read_state)
        read_state.advance()
    return read_state


@cute.jit
def start_states(cfg: Static, order_barriers, warp_group, num_k_tiles):
    """Return the initial (read, release) pipeline states of an MMA warpgroup.

    With ping-pong, warpgroup 1 skips the k tiles of the first output tile, which belongs to warpgroup 0.
    """
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    if cutlass.const_expr(cfg.is_pingpong):  # noqa: SIM102 (the outer test is static, the inner one dynamic)
        if warp_group == 1:
            # warpgroup 0 computes the first tile and may start at once
            read_state.advance(num_k_tiles)
            release_state.advance(num_k_tiles)
            cute.arch.mbarrier_arrive(order_barriers)
    return read_state, release_state


@cute.jit
def multiply(
    cfg: Static, tiled_mma, accumulators, fragments, mainloop_pipeline, states, k_count, order_barriers, warp_group
):
    """Run the mainloop of one output tile; return the (read, release) pipeline states."""
    read_state, release_state = states
    if cutlass.const_expr(cfg.a_in_registers):
        read_state = mainloop_registers(cfg, tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, k_count)
    else:
        read_state, release_state = mainloop(
            cfg, tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, release_state, k_count
        )
        if cutlass.const_expr(cfg.is_pingpong):
            # let the other warpgroup start its mainloop
            cute.arch.mbarrier_arrive(order_barriers + 1 - warp_group)
        release_state = finish_mainloop(mainloop_pipeline, release_state)
        if cutlass.const_expr(cfg.is_pingpong):
            # skip the stages of the other warpgroup's tile
            read_state.advance(k_count)
            release_state.advance(k_count)
    return read_state, release_state
