"""Epilogue of an implicit GEMM: accumulators -> shared memory -> y (n, k, z, p, q), coalesced along the positions.

With a reduction over the filters y has one channel; a tile then holds all filters.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.epilogue import combine, identity
from workbench.kernels.static import Many, Static


def allocate_results(cfg: Static, smem, warpgroups):
    """Allocate the epilogue buffers (filters, positions, warpgroups) in shared memory.

    Rows are padded by 16 bytes against bank conflicts.
    """
    stride = (cfg.rows + 4, 1, cfg.store_n * (cfg.rows + 4))
    layout = cute.make_layout((cfg.store_n, cfg.rows, warpgroups), stride=stride)
    return smem.allocate_tensor(cutlass.Float32, layout, 16)


@cute.jit
def find_outputs(
    cfg: Static,
    mY: cute.Tensor,
    addresses: cute.Tensor,
    first: cutlass.Int32,
    grid: cute.IntTuple,
    scale: cute.IntTuple,
    phases: cute.Tensor,
    phase: cutlass.Int32,
):
    """Compute the addresses, in y's first channel, of this thread's outputs from row `first` on.

    -1 marks rows that have no output.
    """
    images, grid0, grid1, grid2 = grid
    for i in cutlass.range_constexpr(cfg.rows // 32):
        line, t2 = divide(first + 32 * i, grid2)
        slab, t1 = divide(line, grid1)
        n, t0 = divide(slab, grid0)
        z = t0 * scale[0] + phases[phase, 2]
        p = t1 * scale[1] + phases[phase, 3]
        q = t2 * scale[2] + phases[phase, 4]
        inside = (n < images) & (z >= 0) & (z < mY.shape[2]) & (p >= 0) & (p < mY.shape[3])
        inside = inside & (q >= 0) & (q < mY.shape[4])
        offset = cutlass.Int64(n) * mY.stride[0] + (z * mY.shape[3] + p) * mY.shape[4] + q
        address = mY.iterator.toint() + offset * (mY.element_type.width // 8)
        addresses[i] = cutlass.select_(inside, address, cutlass.Int64(-1))


def find_fragment(cfg: Static, j, e):
    """Return the index among a thread's accumulators of element `e` of epilogue subtile `j`."""
    if cutlass.const_expr(cfg.warpgroup_mma):
        return (e % 2, e // 2 % 2, e // 4 % (cfg.store_n // 8) + j * (cfg.store_n // 8)), e // (cfg.store_n // 2), 0
    return (e % 2, e // 2 % 2), e // 4 % (cfg.rows // 32), 2 * j + e // (cfg.rows // 8)


@cute.jit
def load_operands(
    cfg: Static,
    operands: Many,
    fragments: Many,
    mY: cute.Tensor,
    addresses: cute.Tensor,
    channel: cutlass.Int32,
    channel_bytes: cutlass.Int64,
):
    """Load the epilogue operands of one channel; tensors of y's shape are read at the offsets of y."""
    for x, fragment, read in zip(operands, fragments, cfg.reads, strict=True):
        if cutlass.const_expr(read.along == "n"):
            fragment[0] = x[channel]
        else:
            for i in cutlass.range_constexpr(cfg.rows // 32):
                if addresses[i] >= 0:
                    offset = (addresses[i] + channel_bytes - mY.iterator.toint()) // (mY.element_type.width // 8)
                    fragment[i] = cute.make_tensor(x.iterator + offset, cute.make_layout(1))[0]


@cute.jit
def store_tile(
    cfg: Static,
    acc: cute.Tensor,
    tCcC: cute.Tensor,
    sC: cute.Tensor,
    rC: cute.Tensor,
    addresses: cute.Tensor,
    operands: Many,
    fragments: Many,
    mY: cute.Tensor,
    where: tuple,
    warps: tuple,
):
    """Apply the epilogue to a warpgroup's tile and store it through shared memory, one subtile of filters at a time;
    with a reduction, combine the filters of each position instead.

    `where` is (first filter of the tile in its block, block, filters of a block), `warps` is (warpgroup, warp, lane).
    """
    n0, block, filters = where
    if cutlass.const_expr(cfg.reduction):
        found = cute.make_rmem_tensor(cfg.rows // 32, cutlass.Float32)
        found.fill(identity(cfg.reduction))
    warpgroup, warp_idx, lane = warps
    channel = block * filters + n0 + warp_idx % 4
    element_bytes = mY.element_type.width // 8
    channel_bytes = cutlass.Int64(channel) * mY.stride[1] * element_bytes
    step_bytes = cutlass.Int64(4) * mY.stride[1] * element_bytes
    for j in cutlass.range_constexpr(cfg.tile_n // cfg.store_n):
        cute.arch.barrier(barrier_id=1 + warpgroup, number_of_threads=128)
        for e in cutlass.range_constexpr(cfg.rows * cfg.store_n // 128):
            at = find_fragment(cfg, j, e)
            sC[tCcC[at][1] - j * cfg.store_n, tCcC[at][0], warpgroup] = acc[at]
        cute.arch.barrier(barrier_id=1 + warpgroup, number_of_threads=128)
        for step in cutlass.range_constexpr(cfg.store_n // 4):
            for i in cutlass.range_constexpr(cfg.rows // 32):
                rC[i] = sC[step * 4 + warp_idx % 4, lane % 32 + 32 * i, warpgroup]
            if channel < (block + 1) * filters:
                if cutlass.const_expr(len(operands) > 0):
                    load_operands(cfg, operands, fragments, mY, addresses, channel, channel_bytes)
                for i in cutlass.range_constexpr(cfg.rows // 32):
                    total = rC[i]
                    if cutlass.const_expr(cfg.epilogue is not None):
                        total = cfg.epilogue(total, fragments, i)
                    if cutlass.const_expr(cfg.reduction):
                        found[i] = combine(cfg.reduction, found[i], total)
                    elif addresses[i] >= 0:
                        store_result(mY, addresses[i] + channel_bytes, total)
            channel += 4
            channel_bytes += step_bytes
    if cutlass.const_expr(cfg.reduction):
        store_reduced(cfg, found, sC, addresses, mY, filters, warps)


@cute.jit
def store_result(mY: cute.Tensor, address: cutlass.Int64, total: cutlass.Float32):
    """Store one element of y at an address."""
    pointer = cute.make_ptr(mY.element_type, address, cute.AddressSpace.gmem)
    target = cute.make_tensor(pointer, cute.make_layout(1))
    target[0] = total.to(mY.element_type)


@cute.jit
def store_reduced(
    cfg: Static,
    found: cute.Tensor,
    sC: cute.Tensor,
    addresses: cute.Tensor,
    mY: cute.Tensor,
    filters: cutlass.Int32,
    warps: tuple,
):
    """Combine what the four warps of a warpgroup found for its positions, each of its own filters; one warp stores."""
    warpgroup, warp_idx, lane = warps
    cute.arch.barrier(barrier_id=1 + warpgroup, number_of_threads=128)
    for i in cutlass.range_constexpr(cfg.rows // 32):
        sC[warp_idx % 4, lane % 32 + 32 * i, warpgroup] = found[i]
    cute.arch.barrier(barrier_id=1 + warpgroup, number_of_threads=128)
    if warp_idx % 4 == 0:
        for i in cutlass.range_constexpr(cfg.rows // 32):
            total = found[i]
            for other in cutlass.range_constexpr(1, 4):
                total = combine(cfg.reduction, total, sC[other, lane % 32 + 32 * i, warpgroup])
            if cutlass.const_expr(cfg.reduction == "mean"):
                total = total / filters
            if cutlass.const_expr(cfg.finish is not None):
                total = cfg.finish(total)
            if addresses[i] >= 0:
                store_result(mY, addresses[i], total)
