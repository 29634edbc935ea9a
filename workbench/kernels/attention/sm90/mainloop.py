"""Mainloop of Hopper attention: the two products of a block of keys and the softmax between them.

S of the next block and O += P @ V of this block are issued together, and the softmax of S overlaps the computation of
O. Named barriers order the MMA warpgroups, so that one issues wgmma while another computes its softmax (ping-pong).

`own_masks` is () or the mask (queries, keys) of the tile's head.
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from workbench.kernels.attention.mask import apply_mask, score_scale
from workbench.kernels.attention.online_softmax import mask_scores, scale_rows, update_softmax
from workbench.kernels.static import Many, Static, dtype


@cute.jit
def wait_for_turn(group):
    """Wait until the previous warpgroup has issued its wgmma."""
    cute.arch.barrier(barrier_id=1 + group, number_of_threads=256)


@cute.jit
def pass_turn(cfg: Static, group):
    """Let the next warpgroup issue its wgmma."""
    cute.arch.barrier_arrive(barrier_id=1 + (group + 1) % cfg.mma_warpgroups, number_of_threads=256)


@cute.jit
def multiply_scores(tiled_mmas, fragments, stage):
    """Issue S = Q @ K^T as one wgmma group; its first k block overwrites S, the others accumulate."""
    mma_qk_first, mma_qk, _ = tiled_mmas
    tSrQ, tSrK, _, tSrS, _, _ = fragments
    for k_block in cutlass.range_constexpr(cute.size(tSrQ, mode=[2])):
        tiled_mma = mma_qk if k_block > 0 else mma_qk_first
        cute.gemm(tiled_mma, tSrS, tSrQ[None, None, k_block, 0], tSrK[None, None, k_block, stage], tSrS)
    warpgroup.commit_group()


@cute.jit
def multiply_output(tiled_mmas, fragments, stage):
    """Issue O += P @ V as one wgmma group."""
    _, _, mma_pv = tiled_mmas
    _, _, tOrV, _, tOrP, tOrO = fragments
    for k_block in cutlass.range_constexpr(cute.size(tOrP, mode=[2])):
        cute.gemm(mma_pv, tOrO, tOrP[None, None, k_block], tOrV[None, None, k_block, stage], tOrO)
    warpgroup.commit_group()


@cute.jit
def first_step(
    cfg: Static,
    tiled_mmas,
    fragments,
    softmax,
    own_masks: Many,
    pipeline_k,
    k_state,
    coord,
    keys,
    tile_n: cutlass.Constexpr,
):
    """Compute scores and softmax of the tile's last block of keys, with the mask. Return the state of K's pipeline.

    `coord` is (this thread's first row, lane, block index).
    """
    _, _, _, tSrS, tOrP, tOrO = fragments
    row_max, row_sum, scale_log2 = softmax
    row, lane, block = coord
    pipeline_k.consumer_wait(k_state)
    warpgroup.fence()
    multiply_scores(tiled_mmas, fragments, k_state.index)
    warpgroup.wait_group(0)
    pipeline_k.consumer_release(k_state)
    k_state.advance()
    tOrO.fill(0.0)
    row_sum.fill(0.0)
    row_max.fill(-cutlass.Float32.inf)
    for gM in own_masks:
        apply_mask(cfg, tSrS, (gM, row, block * tile_n + lane % 4 * 2), scale_log2, True)
    mask_scores(cfg, tSrS, row, block * tile_n + lane % 4 * 2, keys)
    update_softmax(tSrS, row_max, row_sum, score_scale(cfg, scale_log2), True)
    tOrP.store(tSrS.load().to(dtype(cfg.element)).reshape(tOrP.shape))
    return k_state


@cute.jit
def next_step(
    cfg: Static,
    tiled_mmas,
    fragments,
    softmax,
    own_masks: Many,
    pipelines,
    states,
    coord,
    keys,
    group,
    masked: cutlass.Constexpr,
):
    """Issue S of the next block and O of the previous block together. Return the states of the K and V pipelines.

    `coord` is (row, column) of this thread's first element.
    """
    _, _, _, tSrS, tOrP, tOrO = fragments
    row_max, row_sum, scale_log2 = softmax
    pipeline_k, pipeline_v = pipelines
    k_state, v_state = states
    row, column = coord
    pipeline_k.consumer_wait(k_state)
    wait_for_turn(group)
    warpgroup.fence()
    multiply_scores(tiled_mmas, fragments, k_state.index)
    pipeline_v.consumer_wait(v_state)
    multiply_output(tiled_mmas, fragments, v_state.index)
    pass_turn(cfg, group)
    warpgroup.wait_group(1)  # S is complete
    pipeline_k.consumer_release(k_state)
    for gM in own_masks:
        apply_mask(cfg, tSrS, (gM, row, column), scale_log2, masked)
    if cutlass.const_expr(masked):
        mask_scores(cfg, tSrS, row, column, keys)
    rescale = update_softmax(tSrS, row_max, row_sum, score_scale(cfg, scale_log2), masked or cfg.mask is not None)
    # never true: the test makes ptxas compute the exponentials before the wait, not after it
    if row_sum[0] + row_sum[1] < 0.0:
        cute.arch.sync_warp()
    warpgroup.wait_group(0)  # O is complete, and P may be overwritten
    pipeline_v.consumer_release(v_state)
    scale_rows(tOrO, rescale)
    tOrP.store(tSrS.load().to(dtype(cfg.element)).reshape(tOrP.shape))
    k_state.advance()
    v_state.advance()
    return k_state, v_state


@cute.jit
def last_step(tiled_mmas, fragments, pipeline_v, v_state):
    """Accumulate O of the last block. Return the state of V's pipeline."""
    pipeline_v.consumer_wait(v_state)
    warpgroup.fence()
    multiply_output(tiled_mmas, fragments, v_state.index)
    warpgroup.wait_group(0)
    pipeline_v.consumer_release(v_state)
    v_state.advance()
    return v_state
