"""Flash attention on CUDA cores: q, k, v of any float dtype, arithmetic in float32.

`masks` is () or a tensor that broadcasts to the scores' shape (batch, heads, queries, keys); see `mask`.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.attention.host import check_attention_operands, check_head_dim, to_4d, view_4d
from workbench.kernels.attention.mask import broadcast_mask, mask_form, mask_score, score_scale, view_mask
from workbench.kernels.host import call
from workbench.kernels.static import Many, Static, bind


@cute.jit
def load_tile(cfg: Static, gX: cute.Tensor, sX: cute.Tensor, first, tidx):
    """Load rows of gX (rows, dim) from row `first` on into sX as float32; elements past either extent become zeros."""
    rows, width = sX.shape
    for at in range(tidx, rows * width, cfg.threads):
        i, j = at // width, at % width
        value = cutlass.Float32(0.0)
        if first + i < gX.shape[0] and j < gX.shape[1]:
            value = gX[first + i, j].to(cutlass.Float32)
        sX[i, j] = value


@cute.jit
def multiply_scores(cfg: Static, rS, sQ, sK, head_dim, x, y):
    """Compute this thread's elements of S = Q @ K^T."""
    rS.fill(0.0)
    for e in range(head_dim):
        for i in cutlass.range_constexpr(cfg.rows_per_thread):
            left = sQ[y * cfg.rows_per_thread + i, e]
            for j in cutlass.range_constexpr(cfg.columns_per_thread):
                rS[i, j] += left * sK[x + 16 * j, e]


@cute.jit
def mask_row(cfg: Static, rS, gM: cute.Tensor, i: cutlass.Constexpr, query, first_key, scale, x):
    """Scale row `i` of this thread's scores and apply the mask gM (queries, keys)."""
    row = cutlass.min(query, gM.shape[0] - 1)
    for j in cutlass.range_constexpr(cfg.columns_per_thread):
        value = gM[row, cutlass.min(first_key + x + 16 * j, gM.shape[1] - 1)]
        rS[i, j] = mask_score(cfg, rS[i, j] * scale, value, 1.0, cfg.mask.fill)


@cute.jit
def update_row(cfg: Static, rS, rO, sP, row_max, row_sum, i: cutlass.Constexpr, query, first_key, keys, scale, x, y):
    """Apply one online-softmax step to row `i` of this thread: write P to sP, update max and sum, rescale O."""
    top = row_max[i]
    for j in cutlass.range_constexpr(cfg.columns_per_thread):
        key = first_key + x + 16 * j
        visible = key < keys
        if cutlass.const_expr(cfg.causal):
            visible = key < keys and key <= query
        rS[i, j] = rS[i, j] * scale if visible else -cutlass.Float32.inf
        top = cute.arch.fmax(top, rS[i, j])
    for step in cutlass.range_constexpr(4):
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 8 >> step))
    base = cutlass.Float32(0.0) if top == -cutlass.Float32.inf else top  # all keys of this row are masked so far
    rescale = cute.math.exp(row_max[i] - base, fastmath=True)
    row_max[i] = top
    row_sum[i] = row_sum[i] * rescale
    for j in cutlass.range_constexpr(cfg.columns_per_thread):
        weight = cute.math.exp(rS[i, j] - base, fastmath=True)
        row_sum[i] += weight
        sP[y * cfg.rows_per_thread + i, x + 16 * j] = weight
    for j in cutlass.range_constexpr(cute.size(rO, mode=[1])):
        rO[i, j] = rO[i, j] * rescale


@cute.jit
def multiply_output(cfg: Static, rO, sP, sV, x, y):
    """Accumulate this thread's elements of O += P @ V."""
    for e in range(cfg.tile_n):
        for i in cutlass.range_constexpr(cfg.rows_per_thread):
            left = sP[y * cfg.rows_per_thread + i, e]
            for j in cutlass.range_constexpr(cute.size(rO, mode=[1])):
                rO[i, j] += left * sV[e, x + 16 * j]


@cute.jit
def store_output(cfg: Static, rO, row_sum, mO: cute.Tensor, coord, shape, x, y):
    """Divide this thread's elements of O by their row sums and store them, predicated on `shape`.

    `coord` is (query tile, head, batch), `shape` is (queries, head dimension).
    """
    tile, head, batch = coord
    queries, head_dim = shape
    for i in cutlass.range_constexpr(cfg.rows_per_thread):
        row = tile * cfg.tile_m + y * cfg.rows_per_thread + i
        for step in cutlass.range_constexpr(4):
            row_sum[i] += cute.arch.shuffle_sync_bfly(row_sum[i], 8 >> step)
        if cutlass.const_expr(cfg.mask is not None and cfg.mask.empty == "zero"):
            row_sum[i] = cutlass.Float32(1.0) if row_sum[i] == 0.0 else row_sum[i]
        for j in cutlass.range_constexpr(cute.size(rO, mode=[1])):
            if row < queries and x + 16 * j < head_dim:
                mO[batch, head, row, x + 16 * j] = (rO[i, j] / row_sum[i]).to(mO.element_type)


@cute.kernel
def attention_kernel(
    cfg: Static,
    mQ: cute.Tensor,
    mK: cute.Tensor,
    mV: cute.Tensor,
    masks: Many[cute.Tensor],
    mO: cute.Tensor,
    scale: cutlass.Float32,
    width: cutlass.Constexpr,
):
    """Compute one query tile with online softmax over blocks of keys."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    # one-dimensional grid over tiles, heads and batches: its y and z extents are limited to 65535
    tiles_m, heads = (mQ.shape[2] + cfg.tile_m - 1) // cfg.tile_m, mQ.shape[1]
    tile, head, batch = bidx % tiles_m, bidx // tiles_m % heads, bidx // tiles_m // heads
    x, y = tidx % 16, tidx // 16
    smem = cutlass.memory.SmemAllocator()
    # rows are padded by one element against bank conflicts; sKV holds K and V in turn
    padded_q = cute.make_layout((cfg.tile_m, width + 1), stride=(width + 1, 1))
    padded_kv = cute.make_layout((cfg.tile_n, width + 1), stride=(width + 1, 1))
    padded_p = cute.make_layout((cfg.tile_m, cfg.tile_n + 1), stride=(cfg.tile_n + 1, 1))
    sQ = smem.allocate_tensor(cutlass.Float32, padded_q, 16)
    sKV = smem.allocate_tensor(cutlass.Float32, padded_kv, 16)
    sP = smem.allocate_tensor(cutlass.Float32, padded_p, 16)
    queries, keys, head_dim = mQ.shape[2], mK.shape[2], mQ.shape[3]
    kv_head = head // (mQ.shape[1] // mK.shape[1])  # grouped-query attention: several heads of q share one of k and v
    gK, gV = mK[batch, kv_head, None, None], mV[batch, kv_head, None, None]
    own_masks = tuple(mask[batch, head, None, None] for mask in masks)
    rS = cute.make_rmem_tensor(cute.make_layout((cfg.rows_per_thread, cfg.columns_per_thread)), cutlass.Float32)
    rO = cute.make_rmem_tensor(cute.make_layout((cfg.rows_per_thread, width // 16)), cutlass.Float32)
    row_max = cute.make_rmem_tensor(cfg.rows_per_thread, cutlass.Float32)
    row_sum = cute.make_rmem_tensor(cfg.rows_per_thread, cutlass.Float32)
    rO.fill(0.0)
    row_sum.fill(0.0)
    row_max.fill(-cutlass.Float32.inf)
    load_tile(cfg, mQ[batch, head, None, None], sQ, tile * cfg.tile_m, tidx)
    for i in range(tidx, cfg.tile_m, cfg.threads):
        sP[i, cfg.tile_n] = cutlass.Float32(0.0)  # the padding: the compiler may load one element past the row
    num_tiles_n = (keys + cfg.tile_n - 1) // cfg.tile_n
    if cutlass.const_expr(cfg.causal):
        num_tiles_n = cutlass.min(num_tiles_n, ((tile + 1) * cfg.tile_m + cfg.tile_n - 1) // cfg.tile_n)
    for step in range(num_tiles_n):
        cute.arch.sync_threads()
        load_tile(cfg, gK, sKV, step * cfg.tile_n, tidx)
        cute.arch.sync_threads()
        multiply_scores(cfg, rS, sQ, sKV, head_dim, x, y)
        cute.arch.sync_threads()
        load_tile(cfg, gV, sKV, step * cfg.tile_n, tidx)
        for i in cutlass.range_constexpr(cfg.rows_per_thread):
            query = tile * cfg.tile_m + y * cfg.rows_per_thread + i
            first_key = step * cfg.tile_n
            for gM in own_masks:
                mask_row(cfg, rS, gM, i, query, first_key, scale, x)
            update_row(cfg, rS, rO, sP, row_max, row_sum, i, query, first_key, keys, score_scale(cfg, scale), x, y)
        cute.arch.sync_threads()
        multiply_output(cfg, rO, sP, sKV, x, y)
    store_output(cfg, rO, row_sum, mO, (tile, head, batch), (queries, head_dim), x, y)


@cute.jit
def attention(
    cfg: Static,
    mQ: cute.Tensor,
    mK: cute.Tensor,
    mV: cute.Tensor,
    masks: Many[cute.Tensor],
    mO: cute.Tensor,
    scale: cutlass.Float32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    """mQ, mO (batch, heads, queries, dim), mK, mV (batch, key heads, keys, dim).

    `width` is dim, rounded up to a multiple of 16.
    """
    num_tiles = ((mQ.shape[2] + cfg.tile_m - 1) // cfg.tile_m) * mQ.shape[1] * mQ.shape[0]
    attention_kernel(cfg, mQ, mK, mV, masks, mO, scale, width).launch(
        grid=[num_tiles, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


def attention_simt(cfg: Static, names: Static, q, k, v, masks: Many):
    """Return softmax(scale * q @ k^T) @ v, of q's shape and dtype; any float dtype, head dimension at most 256."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    q4, k4, v4, o4 = to_4d(q), to_4d(k), to_4d(v), to_4d(out)
    check_attention_operands(names, q4, k4, v4)
    if out.numel() == 0 or k.numel() == 0:
        return out.zero_()  # no keys: the sum over them is zero
    scale = q.shape[-1] ** -0.5 if cfg.scale is None else cfg.scale
    check_head_dim(q4, None, "any dtype")
    width = -(-q4.shape[3] // 16) * 16
    masks = tuple(broadcast_mask(cfg, names, mask, (*q.shape[:-1], k.shape[-2])) for mask in masks)
    call(
        bind(attention, cfg),
        (q4.dtype, width, *(mask_form(mask) for mask in masks)),
        (view_4d(q4), view_4d(k4), view_4d(v4), tuple(view_mask(mask) for mask in masks), view_4d(o4), scale),
        (width,),
    )
    return out
