"""Packing for an implicit GEMM: x (n, c, d, h, w) -> A (positions, channels), w -> B (k, taps * channels).

A holds the padding as zeros; with a stride, inputs that lie a stride apart become neighbouring rows. For tf32x3 both
hold the channels three times.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.conv.tf32x3 import find_copy, split_tf32
from workbench.kernels.static import Static, dtype


@cute.jit
def load_channels(
    mX: cute.Tensor,
    rA: cute.Tensor,
    offset: cutlass.Int64,
    column: cutlass.Int32,
    channels: cutlass.Int32,
    inside: cutlass.Boolean,
    column_step: cutlass.Constexpr,
):
    """Load every `column_step`-th channel of one position, where the columns of A are the channels of x."""
    offset += cutlass.Int64(column) * mX.stride[1]
    for step in cutlass.range_constexpr(cute.size(rA)):
        value = mX.element_type(0.0)
        if inside & (column + step * column_step < channels):
            value = cute.make_tensor(mX.iterator + offset, cute.make_layout(1))[0]
        offset += column_step * mX.stride[1]
        rA[step] = value


@cute.jit
def load_mapped_channels(
    cfg: Static,
    mX: cute.Tensor,
    rA: cute.Tensor,
    offset: cutlass.Int64,
    column: cutlass.Int32,
    w: cutlass.Int32,
    inside: cutlass.Boolean,
    tap_stride: cutlass.Int32,
    sizes: cute.IntTuple,
    column_step: cutlass.Constexpr,
    one_to_one: cutlass.Constexpr,
    channels_per_tap: cutlass.Constexpr,
):
    """Load every `column_step`-th column of one position of A, where columns map to channels, taps or copies."""
    channels = sizes[0]
    for step in cutlass.range_constexpr(cute.size(rA)):
        value = mX.element_type(0.0)
        inner = column + step * column_step
        if cutlass.const_expr(not cfg.unfold):
            block, inner = (0, inner) if cutlass.const_expr(one_to_one) else divide(inner, sizes[1])
        if cutlass.const_expr(cfg.split):
            copy = find_copy(inner, channels)
            inner -= copy * channels
        if cutlass.const_expr(cfg.unfold):
            tap, c = inner // channels_per_tap, inner % channels_per_tap
        else:
            tap, c = 0, block * channels + inner
        w_tap = w + tap * tap_stride
        exists = copy < 3 if cutlass.const_expr(cfg.split) else inner < channels
        if inside & exists & (w_tap >= 0) & (w_tap < mX.shape[4]):
            at = offset + cutlass.Int64(c) * mX.stride[1] + tap * tap_stride * mX.stride[4]
            value = cute.make_tensor(mX.iterator + at, cute.make_layout(1))[0]
        if cutlass.const_expr(cfg.split):
            rA[step] = split_tf32(value, copy == 0)  # copies: rest, upper, upper
        else:
            rA[step] = value


@cute.jit
def write_channels(
    mA: cute.Tensor,
    sA: cute.Tensor,
    rVector: cute.Tensor,
    offset: cutlass.Int64,
    tidx: cutlass.Int32,
    first: cutlass.Int32,
    positions: cutlass.Int32,
):
    """Write a tile of shared memory to A from `offset` on, in 16-byte vectors along the channels.

    The tile starts at position `first` of a grid line of `positions` positions.
    """
    width = cute.size(rVector)
    vectors, across = sA.shape[0] // width, sA.shape[1]
    for step in cutlass.range_constexpr((across * vectors + 255) // 256):
        position, chunk = (tidx + 256 * step) // vectors, (tidx + 256 * step) % vectors
        if (position < across) & (first + position < positions):
            for e in cutlass.range_constexpr(width):
                rVector[e] = sA[chunk * width + e, position]
            at = cute.assume(offset + position * mA.shape[1] + chunk * width, divby=width)
            cute.autovec_copy(rVector, cute.make_tensor(mA.iterator + at, cute.make_layout(width)))


@cute.kernel
def pack_activations_kernel(
    cfg: Static,
    mX: cute.Tensor,
    mA: cute.Tensor,
    origins: cute.Tensor,
    grid: cute.IntTuple,
    steps: cute.IntTuple,
    tap_stride: cutlass.Int32,
    sizes: cute.IntTuple,
    tile_c: cutlass.Constexpr,
    tile_q: cutlass.Constexpr,
    one_to_one: cutlass.Constexpr,
    channels_per_tap: cutlass.Constexpr,
):
    """Transpose `tile_c` channels of `tile_q` positions: read along a grid line, write along the channels."""
    tidx, _, _ = cute.arch.thread_idx()
    segment, first1, first_slab = cute.arch.block_idx()
    _, grid_y, grid_z = cute.arch.grid_dim()
    width = 128 // dtype(cfg.stored).width  # elements per 16-byte vector
    at_once = 256 // tile_q  # channels that the CTA reads at once
    smem = cutlass.memory.SmemAllocator()
    sA = smem.allocate_tensor(dtype(cfg.stored), cute.make_layout((tile_c, tile_q), stride=(tile_q + 1, 1)), 16)
    images, grid0, grid1, grid2 = grid
    tiles = sizes[1] * sizes[2] // tile_c
    rA = cute.make_rmem_tensor(tile_c // at_once, dtype(cfg.stored))
    rVector = cute.make_rmem_tensor(width, dtype(cfg.stored))
    t2 = segment * tile_q + tidx % tile_q
    for slab in cutlass.range(first_slab, images * grid0 * origins.shape[0] * tiles, grid_z, unroll=1):
        rest, tile = divide(slab, tiles)
        plane, line0 = divide(rest, images * grid0)
        n, t0 = divide(line0, grid0)
        d = t0 * steps[0] + origins[plane, 0]
        w = t2 * steps[2] + origins[plane, 2]
        column = tile * tile_c + tidx // tile_q
        for t1 in cutlass.range(first1, grid1, grid_y, unroll=1):
            h = t1 * steps[1] + origins[plane, 1]
            inside = (d >= 0) & (d < mX.shape[2]) & (h >= 0) & (h < mX.shape[3])
            offset = cutlass.Int64(n) * mX.stride[0] + cutlass.Int64(d) * mX.stride[2]
            offset = offset + cutlass.Int64(h) * mX.stride[3] + cutlass.Int64(w) * mX.stride[4]
            if cutlass.const_expr(one_to_one and not cfg.split):
                inside = inside & (w >= 0) & (w < mX.shape[4])
                load_channels(mX, rA, offset, column, sizes[0], inside, at_once)
            else:
                load_mapped_channels(
                    cfg, mX, rA, offset, column, w, inside, tap_stride, sizes, at_once, one_to_one, channels_per_tap
                )
            for step in cutlass.range_constexpr(tile_c // at_once):
                sA[step * at_once + tidx // tile_q, tidx % tile_q] = rA[step]
            cute.arch.sync_threads()
            row = ((plane * images + n) * grid0 + t0) * grid1 + t1
            target = (cutlass.Int64(row) * grid2 + segment * tile_q) * mA.shape[1] + tile * tile_c
            write_channels(mA, sA, rVector, target, tidx, segment * tile_q, grid2)
            cute.arch.sync_threads()


@cute.jit
def pack_activations(
    cfg: Static,
    mX: cute.Tensor,
    mA: cute.Tensor,
    origins: cute.Tensor,
    grid: cute.IntTuple,
    steps: cute.IntTuple,
    tap_stride: cutlass.Int32,
    sizes: cute.IntTuple,
    stream: cuda.CUstream,
    tile_c: cutlass.Constexpr,
    tile_q: cutlass.Constexpr,
    one_to_one: cutlass.Constexpr,
    channels_per_tap: cutlass.Constexpr,
):
    """x (n, c, d, h, w), any strides -> A (positions, channels), with zeros where there is no input."""
    images, grid0, grid1, grid2 = grid
    slabs = images * grid0 * origins.shape[0] * (mA.shape[1] // tile_c)
    pack_activations_kernel(
        cfg, mX, mA, origins, grid, steps, tap_stride, sizes, tile_c, tile_q, one_to_one, channels_per_tap
    ).launch(
        grid=[(grid2 + tile_q - 1) // tile_q, cutlass.min(grid1, 65535), cutlass.min(slabs, 65535)],
        block=[256, 1, 1],
        stream=stream,
    )


@cute.jit
def read_filter(
    cfg: Static, mW: cute.Tensor, filters: cutlass.Int32, k: cutlass.Int32, c: cutlass.Int32, tap: cutlass.Int32
):
    """Return the filter element for an input channel, or zero if the channel is in another group."""
    value = mW.element_type(0.0)
    if cutlass.const_expr(cfg.transposed):
        group, _ = divide(c, mW.shape[0] // cfg.groups)
        group_of_filter, own = divide(k, mW.shape[1])
        if group == group_of_filter:
            value = mW[c, own, tap]
    else:
        group, own = divide(c, mW.shape[1])
        group_of_filter, _ = divide(k, filters // cfg.groups)
        if group == group_of_filter:
            value = mW[k, own, tap]
    return value


@cute.kernel
def pack_filters_kernel(cfg: Static, mW: cute.Tensor, mB: cute.Tensor, taps: cute.Tensor, sizes: cute.IntTuple):
    """Compute one element of B per thread: B[k, tap * depth + channel]."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    # filters and columns share grid x: y and z are limited to 65535
    k, column_block = divide(bidx, (mB.shape[1] + 127) // 128)
    column = column_block * 128 + tidx
    depth, channels, _ = sizes
    if column < mB.shape[1]:
        row, inner = divide(column, depth)
        if cutlass.const_expr(cfg.split):
            copy = find_copy(inner, channels)
            inner -= copy * channels
        tap = taps[row, 1]
        value = dtype(cfg.stored)(0.0)
        if (tap >= 0) & (copy < 3 if cutlass.const_expr(cfg.split) else inner < channels):
            if cutlass.const_expr(cfg.unfold):
                tap_w, c = divide(inner, mW.shape[1])
                value = mW[k, c, tap + tap_w]
            else:
                block, _ = divide(k, sizes[2])
                value = read_filter(cfg, mW, mB.shape[0], k, block * channels + inner, tap)
        if cutlass.const_expr(cfg.split):
            mB[k, column] = split_tf32(value, copy == 1)  # copies: upper, rest, upper
        else:
            mB[k, column] = value


@cute.jit
def pack_filters(
    cfg: Static, mW: cute.Tensor, mB: cute.Tensor, taps: cute.Tensor, sizes: cute.IntTuple, stream: cuda.CUstream
):
    """w in torch's layout, its taps flattened to one extent -> B (k, taps * channels)."""
    pack_filters_kernel(cfg, mW, mB, taps, sizes).launch(
        grid=[((mB.shape[1] + 127) // 128) * mB.shape[0], 1, 1], block=[128, 1, 1], stream=stream
    )
