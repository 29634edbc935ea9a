"""Convolution by patches: x (n, c, d, h, w) -> y (n, k, z, p, q) by mma.sync on TF32, with no copy in front.

cp.async fills stages with the patch under a box of positions, a few channels at a time, and with the fragments of the
filters. Row m of a fragment of A is a position, k is a tap and a channel, and their sum is a place in the patch: one
element of the patch serves every tap that meets it.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.conv.patch.epilogue import find_places, load_vectors, store_sums
from workbench.kernels.conv.patch.mainloop import find_spots, multiply_channels
from workbench.kernels.static import Many, Static


@cute.jit
def find_tile(work: cutlass.Int32, tiles_n: cutlass.Int32, phases: cutlass.Int32, tiles: cute.IntTuple):
    """Return (image, box along each extent, pair of phases, tile of filters) of a work index."""
    rest, tile = divide(work, tiles_n)
    rest, phase = divide(rest, phases)
    rest, tile2 = divide(rest, tiles[2])
    rest, tile1 = divide(rest, tiles[1])
    image, tile0 = divide(rest, tiles[0])
    return image, (tile0, tile1, tile2), phase, tile


@cute.jit
def prepare_channels(
    cfg: Static,
    sX: cute.Tensor,
    sOffsets: cute.Tensor,
    entries: cute.Tensor,
    begin: cutlass.Int32,
    end: cutlass.Int32,
    shape: cutlass.Constexpr,
):
    """Copy the places of k in the patch to shared memory, and fill each stage's channel of zeros."""
    tidx, _, _ = cute.arch.thread_idx()
    _, _, pitch, channels, zeros, stages = shape
    for step in cutlass.range_constexpr((cute.size(sOffsets) + cfg.threads - 1) // cfg.threads):
        i = tidx + cfg.threads * step
        if i < (end - begin) * 8:
            sOffsets[i] = entries[begin * 8 + i, 0]
    if cutlass.const_expr(zeros):
        for stage in cutlass.range_constexpr(stages):
            for step in cutlass.range_constexpr((pitch + cfg.threads - 1) // cfg.threads):
                i = tidx + cfg.threads * step
                if i < pitch:
                    sX[channels * pitch + i, stage] = cutlass.Float32(0.0)


@cute.kernel
def patch_conv_kernel(
    cfg: Static,
    mX: cute.Tensor,
    mB: cute.Tensor,
    entries: cute.Tensor,
    ranges: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    tiles: cute.IntTuple,
    low: cute.IntTuple,
    sizes: cute.IntTuple,
    tiled_mma: cute.TiledMma,
    shape: cutlass.Constexpr,
    steps: cutlass.Constexpr,
    scales: cutlass.Constexpr,
    blocks: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
):
    """Compute a box of positions for a tile of filters: STAGES - 1 groups of channels arrive while one is multiplied.

    `shape` is (box, patch, elements of a channel in shared memory, channels of a stage, whether a channel of zeros
    follows them, stages); `steps` and `scales` are the distances of neighbouring positions in x and y.
    """
    tidx, _, _ = cute.arch.thread_idx()
    work, _, _ = cute.arch.block_idx()
    box, patch, pitch, channels_of_stage, zeros, stages = shape
    smem = cutlass.memory.SmemAllocator()
    sX = smem.allocate_tensor(cutlass.Float32, cute.make_layout(((channels_of_stage + zeros) * pitch, stages)), 16)
    sB = smem.allocate_tensor(cutlass.Float32, cute.make_layout((blocks * 8 * cfg.tile_n, stages)), 16)
    sOffsets = smem.allocate_tensor(cutlass.Int32, cute.make_layout(blocks * 8), 16)
    sources = tuple(
        smem.allocate_tensor(x.element_type, cute.make_layout(cfg.tile_n), 16) if read.along == "n" else x
        for x, read in zip(operands, cfg.reads, strict=True)
    )
    channels, filters, groups, _ = sizes
    tiles_n = (filters + cfg.tile_n - 1) // cfg.tile_n
    image, place, phase, tile = find_tile(work, tiles_n * groups, ranges.shape[0], tiles)
    group, tile_n = divide(tile, tiles_n)
    own_filters = (tile_n * cfg.tile_n, group, filters)
    if cutlass.const_expr(len(operands) > 0):
        load_vectors(cfg, operands, sources, own_filters)
    corner = tuple(place[axis] * box[axis] for axis in range(3))  # first position of the box
    begin, end = ranges[phase, 0], ranges[phase, cfg.phases]
    bounds = tuple(ranges[phase, e] - begin for e in range(cfg.phases + 1))
    prepare_channels(cfg, sX, sOffsets, entries, begin, end, shape)
    rSpots = cute.make_rmem_tensor((patch[0] * patch[1] * patch[2] + cfg.threads - 1) // cfg.threads, cutlass.Int64)
    origin = tuple(corner[axis] * steps[axis] + low[axis] for axis in range(3))
    rReads = cute.make_rmem_tensor(cute.size(rSpots), cutlass.Int32)
    find_spots(cfg, mX, rSpots, rReads, origin, patch)
    first_row = tidx // 32 * (16 * cfg.row_blocks) + tidx % 32 // 4
    line, b2 = divide(first_row, box[2])
    b0, b1 = divide(line, box[1])
    first_place = (b0 * steps[0] * patch[1] + b1 * steps[1]) * patch[2] + b2 * steps[2]
    shape_c = tiled_mma.partition_shape_C((16 * cfg.row_blocks, cfg.tile_n))
    accs = tuple(cute.make_rmem_tensor(shape_c, cutlass.Float32) for _ in range(cfg.phases))
    base = cutlass.Int64(image) * mX.stride[0] + cutlass.Int64(group * channels) * mX.stride[1]
    depth = cutlass.Int64(entries.shape[0]) * cfg.tile_n  # elements of B for a tile of filters and a stage
    factors = (tile * depth + begin * (8 * cfg.tile_n), tiles_n * groups * depth)
    multiply_channels(
        cfg,
        tiled_mma,
        accs,
        mX,
        mB,
        sX,
        sB,
        sOffsets,
        (rSpots, rReads),
        first_place,
        bounds,
        (base, channels),
        factors,
        shape,
        steps,
    )
    places = cute.make_rmem_tensor(2 * cfg.row_blocks * cfg.phases, cutlass.Int64)
    remainders = (ranges[phase, cfg.phases + 1], ranges[phase, cfg.phases + 2])
    find_places(cfg, mY, places, image, corner, remainders, first_row, box, scales)
    store_sums(cfg, accs, places, sources, mY, own_filters, pairs)


@cute.jit
def patch_conv(
    cfg: Static,
    mX: cute.Tensor,
    mB: cute.Tensor,
    entries: cute.Tensor,
    ranges: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    tiles: cute.IntTuple,
    low: cute.IntTuple,
    sizes: cute.IntTuple,
    stream: cuda.CUstream,
    shape: cutlass.Constexpr,
    steps: cutlass.Constexpr,
    scales: cutlass.Constexpr,
    blocks: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
):
    """x (n, c, d, h, w) any strides, B packed, y (n, k, z, p, q); CTAs that share a patch are neighbours."""
    tiled_mma = cute.make_tiled_mma(cute.nvgpu.warp.MmaTF32Op((16, 8, 8)), cute.make_layout((1, 1, 1)))
    _, filters, groups, _ = sizes
    tiles_n = (filters + cfg.tile_n - 1) // cfg.tile_n * groups
    works = mY.shape[0] * tiles[0] * tiles[1] * tiles[2] * ranges.shape[0] * tiles_n
    patch_conv_kernel(
        cfg,
        mX,
        mB,
        entries,
        ranges,
        operands,
        mY,
        tiles,
        low,
        sizes,
        tiled_mma,
        shape,
        steps,
        scales,
        blocks,
        pairs,
    ).launch(grid=[works, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
