"""Flash attention on Hopper: persistent, warp-specialised, TMA loads, wgmma, ping-pong between MMA warpgroups.

Any head dimension up to 256: tiles are rounded up to a multiple of 64 columns, which TMA fills with zeros. If TMA
cannot store the rows of the result, the threads store them. `masks` is () or a tensor (batch, heads, queries, keys).
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.tensor_utils import LayoutEnum

from workbench.kernels.attention.mask import head_mask
from workbench.kernels.attention.online_softmax import normalize, store_rows
from workbench.kernels.attention.sm90.epilogue import store_tile, wait_for_stores
from workbench.kernels.attention.sm90.load import load_tiles, make_pipeline
from workbench.kernels.attention.sm90.mainloop import first_step, last_step, next_step, pass_turn, wait_for_turn
from workbench.kernels.attention.sm90.scheduler import key_blocks, tile_coord
from workbench.kernels.static import Many, Static, dtype


def keys_per_step(cfg: Static, width):
    """Return the keys of one step for a tile of this width."""
    return (128 if width <= 128 else 64) if cfg.tile_n is None else cfg.tile_n


def fits_output(cfg: Static, width):
    """Return whether an O tile fits into shared memory beside the Q, K and V tiles."""
    loaded = (cfg.tile_m + 2 * cfg.stages * keys_per_step(cfg, width)) * width * 2
    return loaded + cfg.tile_m * width * 2 + 2048 <= cfg.smem_bytes


@cute.jit
def partition(tma_atom, sX, gX):
    """Return (shared memory stages, global tiles) of sX and gX, partitioned for TMA loads."""
    return cpasync.tma_partition(
        tma_atom, 0, cute.make_layout(1), cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2)
    )


@cute.jit
def make_fragments(cfg: Static, mma_qk, mma_pv, shared, group, tile_n: cutlass.Constexpr, width: cutlass.Constexpr):
    """Return (tSrQ, tSrK, tOrV, tSrS, tOrP, tOrO) of a warpgroup; `shared` is (sQ, sK, sV)."""
    sQ, sK, sV = shared
    thr_mma_qk, thr_mma_pv = mma_qk.get_slice(group * 128), mma_pv.get_slice(group * 128)
    tSrQ = mma_qk.make_fragment_A(thr_mma_qk.partition_A(sQ))
    tSrK = mma_qk.make_fragment_B(thr_mma_qk.partition_B(sK))
    tOrV = mma_pv.make_fragment_B(thr_mma_pv.partition_B(sV))
    tSrS = cute.make_rmem_tensor(mma_qk.partition_shape_C((cfg.tile_m, tile_n)), cutlass.Float32)
    tOrP = cute.make_rmem_tensor(mma_pv.partition_shape_A((cfg.tile_m, tile_n)), dtype(cfg.element))
    tOrO = cute.make_rmem_tensor(mma_pv.partition_shape_C((cfg.tile_m, width)), cutlass.Float32)
    return tSrQ, tSrK, tOrV, tSrS, tOrP, tOrO


@cute.jit
def multiply_tiles(
    cfg: Static,
    tiled_mmas,
    shared,
    output,
    masks: Many,
    pipelines,
    work,
    scale,
    tidx,
    warp_idx,
    width: cutlass.Constexpr,
    by_tma: cutlass.Constexpr,
):
    """Run the consumer loop of one MMA warpgroup: mainloop and epilogue of each query tile of this CTA.

    Key blocks are processed from the last to the first: the masked ones first, then the others in a loop without masks.
    `tiled_mmas` is (first k block of Q @ K^T, Q @ K^T, P @ V, P @ V of one warpgroup), `shared` is (sQ, sK, sV, sO),
    `output` is (TMA atom, TMA tensor, tensor for the threads) of O, `work` is as in `load_tiles`.
    """
    mma_qk_first, mma_qk, mma_pv, mma_pv_group = tiled_mmas
    sQ, sK, sV, sO = shared
    tma_o, mO, mO_rows = output
    pipeline_q, pipeline_k, pipeline_v = pipelines
    pipelines_kv = pipeline_k, pipeline_v
    first_tile, ctas, num_tiles, section, queries, keys, heads, _, batch = work
    tile_n = keys_per_step(cfg, width)
    group = warp_idx // 4 - 1
    fragments = make_fragments(cfg, mma_qk, mma_pv, (sQ, sK, sV), group, tile_n, width)
    tOrO = fragments[5]
    # softmax state of this thread's two rows
    row_max, row_sum = cute.make_rmem_tensor(2, cutlass.Float32), cute.make_rmem_tensor(2, cutlass.Float32)
    q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
    k_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    v_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    mma_qk_first.set(warpgroup.Field.ACCUMULATE, False)
    mma_qk.set(warpgroup.Field.ACCUMULATE, True)
    mma_pv.set(warpgroup.Field.ACCUMULATE, True)
    scale_log2 = scale * math.log2(math.e)
    lane = tidx % 32
    # first of this thread's two rows in the CTA's tile; the second is 8 rows below
    row_in_tile = group * 64 + warp_idx % 4 * 16 + lane // 4
    mmas = mma_qk_first, mma_qk, mma_pv
    softmax = row_max, row_sum, scale_log2
    if group == cfg.mma_warpgroups - 1:
        pass_turn(cfg, group)  # warpgroup 0 issues first
    for index in cutlass.range(first_tile, num_tiles, ctas, unroll=1):
        tile, head, entry = tile_coord(cfg, index, section, queries, heads, batch)
        count, masked = key_blocks(cfg, tile, keys, tile_n)
        row = tile * cfg.tile_m + row_in_tile
        pipeline_q.consumer_wait(q_state)
        last_block = row, lane, count - 1
        own_masks = tuple(head_mask(mask, entry, head) for mask in masks)
        k_state = first_step(cfg, mmas, fragments, softmax, own_masks, pipeline_k, k_state, last_block, keys, tile_n)
        for step in cutlass.range(1, count - masked, unroll=1):
            coord = row, (count - 1 - step) * tile_n + lane % 4 * 2
            k_state, v_state = next_step(
                cfg, mmas, fragments, softmax, own_masks, pipelines_kv, (k_state, v_state), coord, keys, group, True
            )
        for step in cutlass.range(count - masked, count, unroll=1):
            coord = (row, 0)
            if cutlass.const_expr(cfg.mask is not None):
                coord = row, (count - 1 - step) * tile_n + lane % 4 * 2
            k_state, v_state = next_step(
                cfg, mmas, fragments, softmax, own_masks, pipelines_kv, (k_state, v_state), coord, keys, group, False
            )
        pipeline_q.consumer_release(q_state)
        q_state.advance()
        v_state = last_step(mmas, fragments, pipeline_v, v_state)
        normalize(cfg, tOrO, row_sum)
        if cutlass.const_expr(by_tma):
            store_tile(cfg, mma_pv_group, tOrO, tma_o, mO, sO, (tile, head, entry), group, tidx % 128, width)
        else:
            store_rows(tOrO, mO_rows[None, None, head, entry], row, lane % 4 * 2)
    if group == 0:
        wait_for_turn(group)  # consume the last arrival at the named barrier
    if cutlass.const_expr(by_tma):
        wait_for_stores(warp_idx)


@cute.kernel
def attention_kernel(
    cfg: Static,
    tma_q: cute.CopyAtom,
    mQ: cute.Tensor,
    tma_k: cute.CopyAtom,
    mK: cute.Tensor,
    tma_v: cute.CopyAtom,
    mV: cute.Tensor,
    tma_o: cute.CopyAtom,
    mO: cute.Tensor,
    mO_rows: cute.Tensor,
    masks: Many[cute.Tensor],
    scale: cutlass.Float32,
    section: cutlass.Int32,
    num_tiles: cutlass.Int32,
    mma_qk_first: cute.TiledMma,
    mma_qk: cute.TiledMma,
    mma_pv: cute.TiledMma,
    mma_pv_group: cute.TiledMma,
    q_layout: cute.ComposedLayout,
    k_layout: cute.ComposedLayout,
    v_layout: cute.ComposedLayout,
    o_layout: cute.ComposedLayout,
    width: cutlass.Constexpr,
    by_tma: cutlass.Constexpr,
):
    """Set up shared memory and pipelines, then run the producer warpgroup and the MMA warpgroups."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    ctas, _, _ = cute.arch.grid_dim()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tile_n = keys_per_step(cfg, width)
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, 2 + 4 * cfg.stages)
    sQ = smem.allocate_tensor(dtype(cfg.element), q_layout.outer, 1024, swizzle=q_layout.inner)
    sK = smem.allocate_tensor(dtype(cfg.element), k_layout.outer, 1024, swizzle=k_layout.inner)
    sV = smem.allocate_tensor(dtype(cfg.element), v_layout.outer, 1024, swizzle=v_layout.inner)
    sO = sQ
    if cutlass.const_expr(by_tma):
        sO = smem.allocate_tensor(dtype(cfg.element), o_layout.outer, 1024, swizzle=o_layout.inner)
    pipeline_q = make_pipeline(cfg, barriers, 1, cfg.tile_m * width * 2)
    pipeline_k = make_pipeline(cfg, barriers + 2, cfg.stages, tile_n * width * 2)
    pipeline_v = make_pipeline(cfg, barriers + 2 + 2 * cfg.stages, cfg.stages, tile_n * width * 2)
    pipeline.pipeline_init_arrive()
    pipeline.pipeline_init_wait()
    queries, heads, batch = mQ.shape[0], mQ.shape[2], mQ.shape[3]
    keys, share = mK.shape[0], heads // mK.shape[2]
    tQsQ, tQgQ = partition(tma_q, sQ, cute.local_tile(mQ, (cfg.tile_m, width), (None, 0, None, None)))
    tKsK, tKgK = partition(tma_k, sK, cute.local_tile(mK, (tile_n, width), (None, 0, None, None)))
    tVsV, tVgV = partition(tma_v, sV, cute.local_tile(mV, (width, tile_n), (0, None, None, None)))
    work = bidx, ctas, num_tiles, section, queries, keys, heads, share, batch
    pipelines = pipeline_q, pipeline_k, pipeline_v
    if warp_idx < 4:
        cute.arch.setmaxregister_decrease(cfg.load_registers)
        if warp_idx == 0:
            sources, targets = (tQgQ, tKgK, tVgV), (tQsQ, tKsK, tVsV)
            load_tiles(cfg, (tma_q, tma_k, tma_v), sources, targets, pipelines, work, tile_n)
    else:
        cute.arch.setmaxregister_increase(cfg.mma_registers)
        tiled_mmas = mma_qk_first, mma_qk, mma_pv, mma_pv_group
        shared, output = (sQ, sK, sV, sO), (tma_o, mO, mO_rows)
        multiply_tiles(cfg, tiled_mmas, shared, output, masks, pipelines, work, scale, tidx, warp_idx, width, by_tma)


def make_mmas(cfg: Static, tile_n, width):
    """Return the tiled MMAs: first k block of Q @ K^T, Q @ K^T, P @ V, and P @ V of one warpgroup."""
    element, k_major, mn_major = dtype(cfg.element), OperandMajorMode.K, OperandMajorMode.MN
    groups = (cfg.mma_warpgroups, 1, 1)
    mma_qk_first, mma_qk = [
        sm90.make_trivial_tiled_mma(element, element, k_major, k_major, cutlass.Float32, groups, tiler_mn=(64, tile_n))
        for _ in range(2)
    ]
    mma_pv, mma_pv_group = [
        sm90.make_trivial_tiled_mma(
            element,
            element,
            k_major,
            mn_major,
            cutlass.Float32,
            atoms,
            tiler_mn=(64, width),
            a_source=warpgroup.OperandSource.RMEM,
        )
        for atoms in (groups, (1, 1, 1))
    ]
    return mma_qk_first, mma_qk, mma_pv, mma_pv_group


@cute.jit
def attention(
    cfg: Static,
    mQ: cute.Tensor,
    mK: cute.Tensor,
    mV: cute.Tensor,
    masks: Many[cute.Tensor],
    mO: cute.Tensor,
    scale: cutlass.Float32,
    section: cutlass.Int32,
    ctas: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    by_tma: cutlass.Constexpr,
):
    """mQ, mO (queries, dim, heads, batch), mK (keys, dim, key heads, batch), mV (dim, keys, key heads, batch).

    `section`: heads that run at the same time. `width`: dim, rounded up to a multiple of 64. `by_tma`: whether TMA
    stores O.
    """
    element, tile_n = dtype(cfg.element), keys_per_step(cfg, width)
    mma_qk_first, mma_qk, mma_pv, mma_pv_group = make_mmas(cfg, tile_n, width)
    row_major, column_major = LayoutEnum.ROW_MAJOR, LayoutEnum.COL_MAJOR
    q_layout = sm90.make_smem_layout_a(row_major, (cfg.tile_m, tile_n, width), element, 1)
    k_layout = sm90.make_smem_layout_b(row_major, (cfg.tile_m, tile_n, width), element, cfg.stages)
    v_layout = sm90.make_smem_layout_b(column_major, (cfg.tile_m, width, tile_n), element, cfg.stages)
    o_layout = sm90.make_smem_layout_epi(element, row_major, (64, width), cfg.mma_warpgroups)
    load, one_stage = cpasync.CopyBulkTensorTileG2SOp(), (None, None, 0)
    tma_q, mQ_tma = cpasync.make_tiled_tma_atom(load, mQ, cute.slice_(q_layout, one_stage), (cfg.tile_m, width))
    tma_k, mK_tma = cpasync.make_tiled_tma_atom(load, mK, cute.slice_(k_layout, one_stage), (tile_n, width))
    tma_v, mV_tma = cpasync.make_tiled_tma_atom(load, mV, cute.slice_(v_layout, one_stage), (width, tile_n))
    tma_o, mO_tma = None, mO
    if cutlass.const_expr(by_tma):
        store = cpasync.CopyBulkTensorTileS2GOp()
        tma_o, mO_tma = cpasync.make_tiled_tma_atom(store, mO, cute.slice_(o_layout, one_stage), (64, width))
    num_tiles = cute.ceil_div(cute.size(mQ, mode=[0]), cfg.tile_m) * cute.size(mQ, mode=[2]) * cute.size(mQ, mode=[3])
    attention_kernel(
        cfg,
        tma_q,
        mQ_tma,
        tma_k,
        mK_tma,
        tma_v,
        mV_tma,
        tma_o,
        mO_tma,
        mO,
        masks,
        scale,
        section,
        num_tiles,
        mma_qk_first,
        mma_qk,
        mma_pv,
        mma_pv_group,
        q_layout,
        k_layout,
        v_layout,
        o_layout,
        width,
        by_tma,
    ).launch(
        grid=[cutlass.min(num_tiles, ctas), 1, 1],
        block=[128 + 128 * cfg.mma_warpgroups, 1, 1],
        stream=stream,
        min_blocks_per_mp=1,
    )
