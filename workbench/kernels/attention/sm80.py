"""Flash attention with mma.sync: cp.async double-buffers K and V, and P stays in registers for the second product.

Operand layouts are those of PTX's mma.sync (m16n8k8 for TF32, m16n8k16 for 16-bit types). A TF32 operand A holds
columns t and t + 4 where an accumulator holds columns 2 t and 2 t + 1. V's keys are permuted to that order, so P needs
no shuffles between threads.

`masks` is () or a tensor that broadcasts to the scores' shape (batch, heads, queries, keys); see `mask`.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.attention.host import check_attention_operands, check_head_dim, to_4d, view_4d
from workbench.kernels.attention.mask import (
    apply_block_mask,
    broadcast_mask,
    head_mask,
    mask_form,
    score_scale,
    view_mask,
)
from workbench.kernels.attention.online_softmax import mask_scores, normalize, scale_rows, store_rows, update_softmax
from workbench.kernels.host import call
from workbench.kernels.static import Many, Static, bind, dtype, torch_dtype


def keys_per_step(cfg: Static, width):
    """Return the keys of one step: the most for which Q and two stages of K and V fit into shared memory."""
    keys = cfg.most_keys
    row_bytes = (width + cfg.pad) * dtype(cfg.stored).width // 8
    while (cfg.tile_m + 4 * keys) * row_bytes > cfg.smem_bytes and keys > 16:
        keys //= 2
    return keys


@cute.jit
def copy_tile(cfg: Static, gX: cute.Tensor, sX: cute.Tensor, first, tidx, vector: cutlass.Constexpr):
    """Start copying rows of gX (rows, dim) from row `first` on to sX; elements past either extent become zeros.

    `vector`: elements per access. Accesses of 4 bytes and more use cp.async.
    """
    rows, width = sX.shape
    element = dtype(cfg.stored)
    operation = cute.nvgpu.CopyUniversalOp()
    if cutlass.const_expr(vector * element.width == 128):
        operation = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=cute.nvgpu.cpasync.LoadCacheMode.GLOBAL)
    elif cutlass.const_expr(vector * element.width >= 32):
        operation = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=cute.nvgpu.cpasync.LoadCacheMode.ALWAYS)
    copy_atom = cute.make_copy_atom(operation, element, num_bits_per_copy=vector * element.width)
    access_bytes, fragment = vector * element.width // 8, cute.make_layout(vector)
    for at in cutlass.range(tidx, rows * width // vector, cfg.threads, unroll=4):
        i, j = at // (width // vector), at % (width // vector) * vector
        target = cute.make_tensor(cute.domain_offset((i, j), sX).iterator.align(access_bytes), fragment)
        if first + i < gX.shape[0] and j < gX.shape[1]:
            source = cute.domain_offset((first + i, j), gX).iterator.align(access_bytes)
            cute.copy(copy_atom, cute.make_tensor(source, fragment), target)
        else:
            target.fill(0.0)


@cute.jit
def load_fragment(cfg: Static, tXsX: cute.Tensor, tXrX: cute.Tensor):
    """Load a fragment from shared memory, rounded to the operand type of mma.sync."""
    for e in cutlass.range_constexpr(cute.size(tXrX)):
        tXrX[e] = tXsX[e].to(dtype(cfg.element))


@cute.jit
def convert_scores(cfg: Static, tSrS, tOrP):
    """Convert P from the accumulator layout of S to operand A of the second product."""
    for n in cutlass.range_constexpr(cute.size(tSrS, mode=[2])):
        for e in cutlass.range_constexpr(4):
            if cutlass.const_expr(cfg.element == "tf32"):
                tOrP[(e % 2, e // 2), 0, n] = tSrS[(e // 2, e % 2), 0, n].to(dtype(cfg.element))
            else:
                tOrP[(e % 2, e // 2, n % 2), 0, n // 2] = tSrS[(e % 2, e // 2), 0, n].to(dtype(cfg.element))


def transposed_layout(cfg: Static, tile_n, width):
    """Return the layout of V as (dim, keys, stage), its keys in the order of the accumulator's columns."""
    pitch = width + cfg.pad
    if cutlass.const_expr(cfg.element == "tf32"):
        shape, strides = (width, ((4, 2), tile_n // 8), 2), (1, ((2 * pitch, pitch), 8 * pitch), tile_n * pitch)
    else:
        shape, strides = (width, tile_n, 2), (1, pitch, tile_n * pitch)
    return cute.make_layout(shape, stride=strides)


@cute.kernel
def attention_kernel(
    cfg: Static,
    mQ: cute.Tensor,
    mK: cute.Tensor,
    mV: cute.Tensor,
    masks: Many[cute.Tensor],
    mO: cute.Tensor,
    scale: cutlass.Float32,
    tiled_mma: cute.TiledMma,
    width: cutlass.Constexpr,
    vector: cutlass.Constexpr,
):
    """Compute one query tile; cp.async loads the next block of keys while this one is multiplied."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    # one-dimensional grid over tiles, heads and batches: its y and z extents are limited to 65535
    tiles_m, heads = (mQ.shape[2] + cfg.tile_m - 1) // cfg.tile_m, mQ.shape[1]
    tile, head, batch = bidx % tiles_m, bidx // tiles_m % heads, bidx // tiles_m // heads
    tile_n = keys_per_step(cfg, width)
    smem = cutlass.memory.SmemAllocator()
    pitch = width + cfg.pad
    staged = cute.make_layout((tile_n, width, 2), stride=(pitch, 1, tile_n * pitch))
    sQ = smem.allocate_tensor(dtype(cfg.stored), cute.make_layout((cfg.tile_m, width), stride=(pitch, 1)), 16)
    sK = smem.allocate_tensor(dtype(cfg.stored), staged, 16)
    sV = smem.allocate_tensor(dtype(cfg.stored), staged, 16)
    sVt = cute.make_tensor(sV.iterator, transposed_layout(cfg, tile_n, width))
    keys = mK.shape[2]
    kv_head = head // (mQ.shape[1] // mK.shape[1])  # grouped-query attention: several heads of q share one of k and v
    gK, gV = mK[batch, kv_head, None, None], mV[batch, kv_head, None, None]
    own_masks = tuple(head_mask(mask, batch, head) for mask in masks)
    first_query = tile * cfg.tile_m
    num_tiles_n = (keys + tile_n - 1) // tile_n
    if cutlass.const_expr(cfg.causal):
        num_tiles_n = cutlass.min(num_tiles_n, (first_query + cfg.tile_m + tile_n - 1) // tile_n)
    copy_tile(cfg, mQ[batch, head, None, None], sQ, first_query, tidx, vector)
    copy_tile(cfg, gK, sK[None, None, 0], 0, tidx, vector)
    copy_tile(cfg, gV, sV[None, None, 0], 0, tidx, vector)
    cute.arch.cp_async_commit_group()
    thr_mma = tiled_mma.get_slice(tidx)
    tSsQ, tSsK, tOsVt = thr_mma.partition_A(sQ), thr_mma.partition_B(sK), thr_mma.partition_B(sVt)
    tSrQ = cute.make_rmem_tensor(tSsQ[None, None, 0].shape, dtype(cfg.element))
    tSrK = cute.make_rmem_tensor(tSsK[None, None, 0, 0].shape, dtype(cfg.element))
    tOrVt = cute.make_rmem_tensor(tOsVt[None, None, 0, 0].shape, dtype(cfg.element))
    tSrS = cute.make_rmem_tensor(tiled_mma.partition_shape_C((cfg.tile_m, tile_n)), cutlass.Float32)
    tOrP = cute.make_rmem_tensor(tiled_mma.partition_shape_A((cfg.tile_m, tile_n)), dtype(cfg.element))
    tOrO = cute.make_rmem_tensor(tiled_mma.partition_shape_C((cfg.tile_m, width)), cutlass.Float32)
    # softmax state of this thread's two rows
    row_max, row_sum = cute.make_rmem_tensor(2, cutlass.Float32), cute.make_rmem_tensor(2, cutlass.Float32)
    tOrO.fill(0.0)
    row_sum.fill(0.0)
    row_max.fill(-cutlass.Float32.inf)
    scale_log2 = scale * math.log2(math.e)
    lane = tidx % 32
    row = first_query + tidx // 32 * 16 + lane // 4
    for step in range(num_tiles_n):
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # this block is visible to all threads, and the previous one is free
        stage = step % 2
        if step + 1 < num_tiles_n:
            copy_tile(cfg, gK, sK[None, None, 1 - stage], (step + 1) * tile_n, tidx, vector)
            copy_tile(cfg, gV, sV[None, None, 1 - stage], (step + 1) * tile_n, tidx, vector)
        cute.arch.cp_async_commit_group()
        tSrS.fill(0.0)
        for k_block in cutlass.range_constexpr(cute.size(tSsQ, mode=[2])):
            load_fragment(cfg, tSsQ[None, None, k_block], tSrQ)
            load_fragment(cfg, tSsK[None, None, k_block, stage], tSrK)
            cute.gemm(tiled_mma, tSrS, tSrQ, tSrK, tSrS)
        for gM in own_masks:
            at = gM, row, step * tile_n + lane % 4 * 2
            apply_block_mask(cfg, tSrS, at, scale_log2, (step + 1) * tile_n > keys)
        if (step + 1) * tile_n > (cutlass.min(keys, first_query + 1) if cutlass.const_expr(cfg.causal) else keys):
            mask_scores(cfg, tSrS, row, step * tile_n + lane % 4 * 2, keys)
        rescale = update_softmax(tSrS, row_max, row_sum, score_scale(cfg, scale_log2), True)
        scale_rows(tOrO, rescale)
        convert_scores(cfg, tSrS, tOrP)
        for k_block in cutlass.range_constexpr(cute.size(tOrP, mode=[2])):
            load_fragment(cfg, tOsVt[None, None, k_block, stage], tOrVt)
            cute.gemm(tiled_mma, tOrO, tOrP[None, None, k_block], tOrVt, tOrO)
    normalize(cfg, tOrO, row_sum)
    store_rows(tOrO, mO[batch, head, None, None], row, lane % 4 * 2)


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
    vector: cutlass.Constexpr,
):
    """mQ, mO (batch, heads, queries, dim), mK, mV (batch, key heads, keys, dim).

    `width` is dim, rounded up to a multiple of 32; `vector` is the number of elements per access.
    """
    if cutlass.const_expr(cfg.element == "tf32"):
        operation = cute.nvgpu.warp.MmaTF32Op((16, 8, 8))
    else:
        operation = cute.nvgpu.warp.MmaF16BF16Op(dtype(cfg.element), cutlass.Float32, (16, 8, 16))
    tiled_mma = cute.make_tiled_mma(operation, cute.make_layout((cfg.warps, 1, 1)))
    num_tiles = ((mQ.shape[2] + cfg.tile_m - 1) // cfg.tile_m) * mQ.shape[1] * mQ.shape[0]
    attention_kernel(cfg, mQ, mK, mV, masks, mO, scale, tiled_mma, width, vector).launch(
        grid=[num_tiles, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


def access_width(*tensors):
    """Return the elements per access, at most 16 bytes, that all row addresses and lengths allow."""
    size = tensors[0].element_size()
    addresses = [tensor.data_ptr() for tensor in tensors]
    strides = [stride * size for tensor in tensors for stride in tensor.stride()[:3]]
    return math.gcd(16, *addresses, *strides, tensors[0].shape[3] * size) // size


def attention_sm80(cfg: Static, names: Static, q, k, v, masks: Many):
    """Return softmax(scale * q @ k^T) @ v, of q's shape and dtype.

    q, k and v have the configured element type and a head dimension of at most 256.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    q4, k4, v4, o4 = to_4d(q), to_4d(k), to_4d(v), to_4d(out)
    check_attention_operands(names, q4, k4, v4)
    if out.numel() == 0 or k.numel() == 0:
        return out.zero_()  # no keys: the sum over them is zero
    scale = q.shape[-1] ** -0.5 if cfg.scale is None else cfg.scale
    check_head_dim(q4, torch_dtype(cfg.element), torch_dtype(cfg.element))
    width = -(-q4.shape[3] // 32) * 32
    vector = access_width(q4, k4, v4)
    masks = tuple(broadcast_mask(cfg, names, mask, (*q.shape[:-1], k.shape[-2])) for mask in masks)
    call(
        bind(attention, cfg),
        (q4.dtype, width, vector, *(mask_form(mask) for mask in masks)),
        (view_4d(q4), view_4d(k4), view_4d(v4), tuple(view_mask(mask) for mask in masks), view_4d(o4), scale),
        (width, vector),
    )
    return out
