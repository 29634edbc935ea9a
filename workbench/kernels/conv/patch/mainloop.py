"""Mainloop of a convolution by patches: cp.async fills stages, and warps gather fragments from the oldest one."""

import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.gemm.async_tiles import copy_async
from workbench.kernels.static import Static


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
    for i in cutlass.range_constexpr((cute.size(sB, mode=[0]) // 4 + cfg.threads - 1) // cfg.threads):
        at = (tidx + cfg.threads * i) * 4
        if at < elements:
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
    """Multiply the blocks of k of one phase: gather fragments of A from the patch as TF32, without a cvt, and add.

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


@cute.jit
def multiply_channels(
    cfg: Static,
    tiled_mma: cute.TiledMma,
    accs: tuple,
    mX: cute.Tensor,
    mB: cute.Tensor,
    sX: cute.Tensor,
    sB: cute.Tensor,
    sOffsets: cute.Tensor,
    spots: tuple,
    first_place: cutlass.Int32,
    bounds: tuple,
    inputs: tuple,
    filters: tuple,
    shape: cutlass.Constexpr,
    steps: cutlass.Constexpr,
):
    """Multiply all channels, a stage at a time; `bounds` are the first blocks of the phases, and the end.

    `inputs` is (offset of the image's first channel of the group, channels of the group), `filters` is (offset in B,
    elements from one stage to the next).
    """
    box, patch, _, channels_of_stage, _, _ = shape
    rSpots, rReads = spots
    base, channels = inputs
    offset, step = filters
    for acc in accs:
        acc.fill(0.0)
    elements = bounds[cfg.phases] * (8 * cfg.tile_n)
    chunks = (channels + channels_of_stage - 1) // channels_of_stage
    for ahead in cutlass.range_constexpr(cfg.stages - 1):
        if ahead < chunks:
            where, source = (
                (base, cutlass.Int32(ahead * channels_of_stage), channels),
                (offset + ahead * step, elements),
            )
            load_stage(cfg, mX, mB, sX, sB, rSpots, rReads, where, source, cutlass.Int32(ahead), shape)
        cute.arch.cp_async_commit_group()
    for chunk in range(chunks):
        cute.arch.cp_async_wait_group(cfg.stages - 2)
        # after the barrier the stage is visible to all threads, and the stage to be filled next is free
        cute.arch.sync_threads()
        ahead = chunk + cfg.stages - 1
        if ahead < chunks:
            where, source = (base, ahead * channels_of_stage, channels), (offset + ahead * step, elements)
            load_stage(cfg, mX, mB, sX, sB, rSpots, rReads, where, source, ahead % cfg.stages, shape)
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
