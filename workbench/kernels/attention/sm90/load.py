"""Producer of Hopper attention: one warp loads Q once per tile, and K and V block by block, by TMA."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline

from workbench.kernels.attention.sm90.scheduler import key_blocks, tile_coord
from workbench.kernels.static import Static


def make_pipeline(cfg: Static, barriers, stages, tx_bytes):
    """Return a TMA pipeline with `tx_bytes` bytes per stage, which every MMA warp releases."""
    return pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * cfg.mma_warpgroups),
        tx_count=tx_bytes,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        defer_sync=True,
    )


@cute.jit
def load_tiles(cfg: Static, tma_atoms, sources, targets, pipelines, work, tile_n: cutlass.Constexpr):
    """Run the producer loop: load Q, K and V of this CTA's tiles, key blocks from the last to the first.

    `tma_atoms`, `sources` (tQgQ ...), `targets` (tQsQ ...) and `pipelines` are those of Q, K and V. `work` is (first
    tile, CTAs, tiles, heads of a section, queries, keys, heads, heads per key head, batch).
    """
    tma_q, tma_k, tma_v = tma_atoms
    tQgQ, tKgK, tVgV = sources
    tQsQ, tKsK, tVsV = targets
    pipeline_q, pipeline_k, pipeline_v = pipelines
    first_tile, ctas, num_tiles, section, queries, keys, heads, share, batch = work
    q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
    k_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, cfg.stages)
    v_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, cfg.stages)
    for index in cutlass.range(first_tile, num_tiles, ctas, unroll=1):
        tile, head, entry = tile_coord(cfg, index, section, queries, heads, batch)
        count, _ = key_blocks(cfg, tile, keys, tile_n)
        pipeline_q.producer_acquire(q_state)
        q_barrier = pipeline_q.producer_get_barrier(q_state)
        cute.copy(tma_q, tQgQ[None, tile, head, entry], tQsQ[None, 0], tma_bar_ptr=q_barrier)
        q_state.advance()
        for step in cutlass.range(count, unroll=1):
            block = count - 1 - step
            pipeline_k.producer_acquire(k_state)
            k_barrier = pipeline_k.producer_get_barrier(k_state)
            cute.copy(tma_k, tKgK[None, block, head // share, entry], tKsK[None, k_state.index], tma_bar_ptr=k_barrier)
            k_state.advance()
            pipeline_v.producer_acquire(v_state)
            v_barrier = pipeline_v.producer_get_barrier(v_state)
            cute.copy(tma_v, tVgV[None, block, head // share, entry], tVsV[None, v_state.index], tma_bar_ptr=v_barrier)
            v_state.advance()
