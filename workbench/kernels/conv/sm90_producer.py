"""Producer of the Hopper convolution: one warp loads tiles of A and B by TMA."""

import cutlass
import cutlass.cute as cute
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.conv.indexing import find_work_tile
from workbench.kernels.static import Static


@cute.jit
def load_taps(
    cfg: Static,
    load_a: tuple,
    load_b: tuple,
    taps: cute.Tensor,
    mainloop_pipeline: pipeline.PipelineTmaAsync,
    producer_state: pipeline.PipelineState,
    origin: tuple,
    tap_range: tuple,
    channel_range: tuple,
):
    """Load the A and B tiles of a range of channels of all taps; return the producer state.

    `origin` is (m0, n0, block, columns of a tap, CTA rank).
    """
    tma_atom_a, mA, sA = load_a
    tma_atom_b, mB, sB = load_b
    m0, n0, block, depth, cta_rank = origin
    first, count = tap_range
    begin, end = channel_range
    for tap in cutlass.range(first, first + count, unroll=1):
        row = m0 + taps[tap, 0]
        for channel in cutlass.range(begin, end, cfg.tile_k, unroll=1):
            gA = cute.local_tile(
                cute.domain_offset((row, block * depth + channel), mA), (cfg.tile_m, cfg.tile_k), (0, 0)
            )
            gB = cute.local_tile(cute.domain_offset((n0, tap * depth + channel), mB), (cfg.tile_n, cfg.tile_k), (0, 0))
            tAsA, tAgA = cpasync.tma_partition(
                tma_atom_a, 0, cute.make_layout(1), cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
            )
            tBsB, tBgB = cpasync.tma_partition(
                tma_atom_b,
                cta_rank,
                cute.make_layout(cfg.cluster),
                cute.group_modes(sB, 0, 2),
                cute.group_modes(gB, 0, 2),
            )
            mainloop_pipeline.producer_acquire(producer_state)
            barrier = mainloop_pipeline.producer_get_barrier(producer_state)
            cute.copy(tma_atom_a, tAgA, tAsA[None, producer_state.index], tma_bar_ptr=barrier)
            if cutlass.const_expr(cfg.cluster > 1):
                mask = cutlass.Int16((1 << cfg.cluster) - 1)
                cute.copy(tma_atom_b, tBgB, tBsB[None, producer_state.index], tma_bar_ptr=barrier, mcast_mask=mask)
            else:
                cute.copy(tma_atom_b, tBgB, tBsB[None, producer_state.index], tma_bar_ptr=barrier)
            mainloop_pipeline.producer_commit(producer_state)
            producer_state.advance()
    return producer_state


@cute.jit
def load_tiles(
    cfg: Static,
    load_a: tuple,
    load_b: tuple,
    taps: cute.Tensor,
    phases: cute.Tensor,
    mainloop_pipeline: pipeline.PipelineTmaAsync,
    works: tuple,
    tiles: tuple,
    sizes: cute.IntTuple,
    cta_rank: cutlass.Int32,
):
    """Run the producer loop: load the k tiles of every work tile of this CTA, as far ahead as stages are free."""
    first_work, num_works, work_stride = works
    tiles_m, tiles_n = tiles
    depth, filters, _ = sizes
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, cfg.stages)
    for work in cutlass.range(first_work, num_works, work_stride, unroll=1):
        tile_m, tile_n, phase, block = find_work_tile(work, tiles_n, phases.shape[0], tiles_m)
        m0 = (tile_m * cfg.cluster + cta_rank) * cfg.tile_m
        n0 = block * filters + tile_n * cfg.tile_n
        origin, tap_range = (m0, n0, block, depth, cta_rank), (phases[phase, 0], phases[phase, 1])
        if cutlass.const_expr(cfg.split):
            # the products with a remainder come first, for all taps; `small` is about where upper * upper begins
            small = depth * 2 // 3 // cfg.tile_k * cfg.tile_k
            producer_state = load_taps(
                cfg, load_a, load_b, taps, mainloop_pipeline, producer_state, origin, tap_range, (0, small)
            )
            producer_state = load_taps(
                cfg, load_a, load_b, taps, mainloop_pipeline, producer_state, origin, tap_range, (small, depth)
            )
        else:
            producer_state = load_taps(
                cfg, load_a, load_b, taps, mainloop_pipeline, producer_state, origin, tap_range, (0, depth)
            )
    mainloop_pipeline.producer_tail(producer_state)
