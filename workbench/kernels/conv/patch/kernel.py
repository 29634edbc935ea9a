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
from workbench.kernels.gemm.async_tiles import copy_async
from workbench.kernels.static import Many, Static


@cute.jit
def find_spots(
    cfg: Static, mX: cute.Tensor, rSpots: cute.Tensor, rReads: cute.Tensor, origin: tuple, patch: cutlass.Constexpr
):
    """Find the offsets in one channel of x that this thread copies, and the bytes: none where there is no input."""
    tidx, _, _ = cute.arch.thread_idx()
    for i in cutlass.range_constexpr(cute.size(rSpots)):
        line, right = divide(tidx + cfg.threads * i, patch[2])
        down, below = divide(line, patch[1])
        d, h, w = origin[0] + down, origin[1] + below, origin[2] + right
        inside = (d >= 0) & (d < mX.shape[2]) & (h >= 0) & (h < mX.shape[3]) & (w >= 0) & (w < mX.shape[4])
        inside = inside & (down < patch[0])
        offset = cutlass.Int64(d) * mX.stride[2] + cutlass.Int64(h) * mX.stride[3] + cutlass.Int64(w) * mX.stride[4]
        rSpots[i] = cutlass.select_(inside, offset, cutlass.Int64(0))
        rReads[i] = cutlass.select_(inside, cutlass.Int32(4), cutlass.Int32(0))


@cute.jit
def load_stage(
    cfg: Static,
    mX: cute.Tensor,
    mB: cute.Tensor,
    sX: cute.Tensor,
    sB: cute.Tensor,
    rSpots: cute.Tensor,
    rReads: cute.Tensor,
    where: tuple,
    filters: tuple,
    stage: cutlass.Int32,
    shape: cutlass.Constexpr,
):
    """Start copying the patch of some channels and their filters to a stage.

    `where` is (offset of the image's first channel of the group, first channel, channels of the group), `filters` is
    (offset in B, elements).
    """
    _, patch, pitch, channels, _, _ = shape
    tidx, _, _ = cute.arch.thread_idx()
    base, first, count = where
    size = patch[0] * patch[1] * patch[2]
    for c in cutlass.range_constexpr(channels):
        source = mX.iterator + base + cutlass.Int64(first + c) * mX.stride[1]
        for i in cutlass.range_constexpr(cute.size(rSpots)):
            spot = tidx + cfg.threads * i
            if spot < size:
                read = cutlass.select_(first + c < count, rReads[i], cutlass.Int32(0))
                target = sX.iterator + cute.crd2idx((c * pitch + spot, stage), sX.layout)
                copy_async(target, source + rSpots[i], read, 4)
    begin, elements = filters
    for at in cutlass.range(tidx * 4, elements, cfg.threads * 4, unroll=2):
        target = sB.iterator + cute.assume(cute.crd2idx((at, stage), sB.layout), divby=4)
        copy_async(target, mB.iterator + cute.assume(begin + at, divby=4), 16, 16)


def find_row_shift(row, box, patch, steps):
    """Return how far in the patch a row of a warp's tile lies from its first: extents of a box are powers of two."""
    line, b2 = row // box[2], row % box[2]
    return (line // box[1] * steps[0] * patch[1] + line % box[1] * steps[1]) * patch[2] + b2 * steps[2]


@cute.jit
def multiply_blocks(
    cfg: Static,
    tiled_mma: cute.TiledMma,
    acc: cute.Tensor,
    sX: cute.Tensor,
    sB: cute.Tensor,
    sOffsets: cute.Tensor,
    first: cutlass.Int32,
    begin: cutlass.Int32,
    end: cutlass.Int32,
    stage: cutlass.Int32,
    box: cutlass.Constexpr,
    patch: cutlass.Constexpr,
    steps: cutlass.Constexpr,
):
    """Multiply the blocks of k of one phase: gather fragments of A from the patch, rounded to TF32, and add.

    `first` is the place of the thread's first row in the patch.
    """
    tidx, _, _ = cute.arch.thread_idx()
    lane = tidx % 32
    rA = cute.make_rmem_tensor(tiled_mma.partition_shape_A((16 * cfg.row_blocks, 8)), cutlass.TFloat32)
    rB = cute.make_rmem_tensor(tiled_mma.partition_shape_B((cfg.tile_n, 8)), cutlass.TFloat32)
    rVector = cute.make_rmem_tensor(4, cutlass.TFloat32)
    for block in cutlass.range(begin, end, unroll=1):
        for half in cutlass.range_constexpr(2):
            at = cute.crd2idx((sOffsets[block * 8 + lane % 4 + 4 * half] + first, stage), sX.layout)
            column = cute.make_tensor(sX.iterator + at, cute.make_layout(1 << 20))
            for i in cutlass.range_constexpr(2 * cfg.row_blocks):
                shift = find_row_shift(8 * i, box, patch, steps)
                rA[i % 2 + 2 * half, i // 2, 0] = column[shift].to(cutlass.TFloat32)
        for pair in cutlass.range_constexpr(cfg.tile_n // 16):
            at = cute.crd2idx((((block * (cfg.tile_n // 16) + pair) * 32 + lane) * 4, stage), sB.layout)
            source = cute.make_tensor(sB.iterator + cute.assume(at, divby=4), cute.make_layout(4))
            cute.autovec_copy(cute.recast_tensor(source, cutlass.TFloat32), rVector)
            for e in cutlass.range_constexpr(4):
                rB[e % 2, 2 * pair + e // 2, 0] = rVector[e]
        cute.gemm(tiled_mma, acc, rA[None, None, 0], rB[None, None, 0], acc)


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
    follows them, stages); `steps` and `scales` are the
    distances of neighbouring positions in x and y.
    """
    tidx, _, _ = cute.arch.thread_idx()
    work, _, _ = cute.arch.block_idx()
    box, patch, pitch, channels_of_stage, zeros, stages = shape
    smem = cutlass.memory.SmemAllocator()
    layout_x = cute.make_layout(((channels_of_stage + zeros) * pitch, stages))
    layout_b = cute.make_layout((blocks * 8 * cfg.tile_n, stages))
    sX = smem.allocate_tensor(cutlass.Float32, layout_x, 16)
    sB = smem.allocate_tensor(cutlass.Float32, layout_b, 16)
    sOffsets = smem.allocate_tensor(cutlass.Int32, cute.make_layout(blocks * 8), 16)
    vectors = tuple(
        smem.allocate_tensor(x.element_type, cute.make_layout(cfg.tile_n if read.along == "n" else 1), 16)
        for x, read in zip(operands, cfg.reads, strict=True)
    )
    channels, filters, groups, _ = sizes
    tiles_n = (filters + cfg.tile_n - 1) // cfg.tile_n
    rest, tile = divide(work, tiles_n * groups)
    rest, phase = divide(rest, ranges.shape[0])
    rest, tile2 = divide(rest, tiles[2])
    rest, tile1 = divide(rest, tiles[1])
    image, tile0 = divide(rest, tiles[0])
    group, tile_n = divide(tile, tiles_n)
    if cutlass.const_expr(len(operands) > 0):
        load_vectors(cfg, operands, vectors, (tile_n * cfg.tile_n, group, filters))
    corner = (tile0 * box[0], tile1 * box[1], tile2 * box[2])  # first position of the box
    begin, end = ranges[phase, 0], ranges[phase, cfg.phases]
    bounds = tuple(ranges[phase, e] - begin for e in range(cfg.phases + 1))
    for i in cutlass.range(tidx, (end - begin) * 8, cfg.threads, unroll=1):
        sOffsets[i] = entries[begin * 8 + i, 0]
    if cutlass.const_expr(zeros):
        for stage in cutlass.range_constexpr(stages):
            for i in cutlass.range(tidx, pitch, cfg.threads, unroll=1):
                sX[channels_of_stage * pitch + i, stage] = cutlass.Float32(0.0)
    rSpots = cute.make_rmem_tensor((patch[0] * patch[1] * patch[2] + cfg.threads - 1) // cfg.threads, cutlass.Int64)
    origin = tuple(corner[axis] * steps[axis] + low[axis] for axis in range(3))
    rReads = cute.make_rmem_tensor(cute.size(rSpots), cutlass.Int32)
    find_spots(cfg, mX, rSpots, rReads, origin, patch)
    rows = 2 * cfg.row_blocks
    first_row = tidx // 32 * (16 * cfg.row_blocks) + tidx % 32 // 4
    line, b2 = divide(first_row, box[2])
    b0, b1 = divide(line, box[1])
    first_place = (b0 * steps[0] * patch[1] + b1 * steps[1]) * patch[2] + b2 * steps[2]
    accs = tuple(
        cute.make_rmem_tensor(tiled_mma.partition_shape_C((16 * cfg.row_blocks, cfg.tile_n)), cutlass.Float32)
        for _ in range(cfg.phases)
    )
    for acc in accs:
        acc.fill(0.0)
    base = cutlass.Int64(image) * mX.stride[0] + cutlass.Int64(group * channels) * mX.stride[1]
    all_blocks = cutlass.Int64(entries.shape[0] // 8)
    elements = (end - begin) * (8 * cfg.tile_n)
    chunks = (channels + channels_of_stage - 1) // channels_of_stage
    for ahead in cutlass.range_constexpr(cfg.stages - 1):
        if ahead < chunks:
            where = (base, cutlass.Int32(ahead * channels_of_stage), channels)
            offset = ((ahead * groups * tiles_n + tile) * all_blocks + begin) * (8 * cfg.tile_n)
            load_stage(cfg, mX, mB, sX, sB, rSpots, rReads, where, (offset, elements), cutlass.Int32(ahead), shape)
        cute.arch.cp_async_commit_group()
    for chunk in range(chunks):
        cute.arch.cp_async_wait_group(cfg.stages - 2)
        # after the barrier the stage is visible to all threads, and the stage to be filled next is free
        cute.arch.sync_threads()
        ahead = chunk + cfg.stages - 1
        if ahead < chunks:
            where = (base, ahead * channels_of_stage, channels)
            offset = ((ahead * groups * tiles_n + tile) * all_blocks + begin) * (8 * cfg.tile_n)
            load_stage(cfg, mX, mB, sX, sB, rSpots, rReads, where, (offset, elements), ahead % cfg.stages, shape)
        cute.arch.cp_async_commit_group()
        for e in cutlass.range_constexpr(cfg.phases):
            multiply_blocks(
                cfg,
                tiled_mma,
                accs[e],
                sX,
                sB,
                sOffsets,
                first_place,
                bounds[e],
                bounds[e + 1],
                chunk % cfg.stages,
                box,
                patch,
                steps,
            )
    places = cute.make_rmem_tensor(rows * cfg.phases, cutlass.Int64)
    remainders = (ranges[phase, cfg.phases + 1], ranges[phase, cfg.phases + 2])
    find_places(cfg, mY, places, image, corner, remainders, first_row, box, scales)
    store_sums(cfg, accs, places, operands, vectors, mY, (tile_n * cfg.tile_n, group, filters), pairs)


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
