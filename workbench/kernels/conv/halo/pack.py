"""Packing for convolutions with halos: x -> A (chunks, positions, 16 bytes), w -> B (filter tiles, stages, 16 bytes).

A holds the padding as zeros. TF32 is rounded here: bulk copies move bytes as they are.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Static

PACK_THREADS = 128


@cute.jit
def put_operand(cfg: Static, target: cute.Tensor, place: cutlass.Constexpr, value):
    """Put a value into registers: rounded to TF32, or as it lies in memory."""
    if cutlass.const_expr(cfg.mma == "tf32"):
        cute.recast_tensor(target, cutlass.Int32)[place] = cute.arch.cvt_f32_tf32(value)
    else:
        target[place] = value


@cute.kernel
def pack_halo_kernel(
    cfg: Static,
    mX: cute.Tensor,
    mA: cute.Tensor,
    sizes: cute.IntTuple,
    grid: cutlass.Constexpr,
    width: cutlass.Constexpr,
    origins: cutlass.Constexpr,
    chunks: cutlass.Constexpr,
    whole: cutlass.Constexpr,
):
    """Copy `chunks` chunks of one position per thread: reads run along the lines, writes are vectors of 16 bytes.

    The threads of a line begin where a sector of the input does. `sizes` is (images, channels, positions of A), `grid`
    and `width` are those of the plan; `whole`: whether the channels fill all chunks.
    """
    tidx, _, _ = cute.arch.thread_idx()
    block, group, _ = cute.arch.block_idx()
    images, channels, positions = sizes
    strips, depth, lines, columns = grid
    across = find_threads_of_line(cfg, columns)
    line, thread = divide(block * PACK_THREADS + tidx, across)
    rest, t1 = divide(line, lines)
    rest, t0 = divide(rest, depth)
    image, strip = divide(rest, strips)
    d, h, w0 = t0 + origins[0], t1 + origins[1], strip * width + origins[2]
    t2 = thread - (w0 & (cfg.sector - 1))
    w = w0 + t2
    inside = (image < images) & (d >= 0) & (d < mX.shape[2]) & (h >= 0) & (h < mX.shape[3])
    inside = inside & (w >= 0) & (w < mX.shape[4])
    first = group * (chunks * cfg.chunk)
    offset = cutlass.Int64(image) * mX.stride[0] + cutlass.Int64(first) * mX.stride[1]
    offset = (
        offset + cutlass.Int64(d) * mX.stride[2] + cutlass.Int64(h) * mX.stride[3] + cutlass.Int64(w) * mX.stride[4]
    )
    position = line * columns + t2
    target = (cutlass.Int64(group * chunks) * positions + position) * cfg.chunk
    values = cute.make_rmem_tensor(chunks * cfg.chunk, mX.element_type)
    values.fill(0.0)
    if (t2 >= 0) & (t2 < columns) & (position < positions):
        if inside:
            for e in cutlass.range_constexpr(chunks * cfg.chunk):
                if cutlass.const_expr(not whole):
                    if first + e < channels:
                        values[e] = cute.make_tensor(mX.iterator + offset, cute.make_layout(1))[0]
                else:
                    values[e] = cute.make_tensor(mX.iterator + offset, cute.make_layout(1))[0]
                offset += mX.stride[1]
        rVector = cute.make_rmem_tensor(cfg.chunk, mA.element_type)
        for chunk in cutlass.range_constexpr(chunks):
            for e in cutlass.range_constexpr(cfg.chunk):
                put_operand(cfg, rVector, e, values[chunk * cfg.chunk + e])
            at = cute.assume(target, divby=cfg.chunk)
            cute.autovec_copy(rVector, cute.make_tensor(mA.iterator + at, cute.make_layout(cfg.chunk)))
            target += cutlass.Int64(positions) * cfg.chunk


def find_threads_of_line(cfg: Static, columns):
    """Return the threads of a line: whole sectors of the input, wherever in a sector it begins."""
    return -(-(columns + cfg.sector - 1) // cfg.sector) * cfg.sector


@cute.jit
def pack_halo(
    cfg: Static,
    mX: cute.Tensor,
    mA: cute.Tensor,
    sizes: cute.IntTuple,
    groups: cutlass.Int32,
    stream: cuda.CUstream,
    grid: cutlass.Constexpr,
    width: cutlass.Constexpr,
    origins: cutlass.Constexpr,
    chunks: cutlass.Constexpr,
    whole: cutlass.Constexpr,
):
    """x (n, c, d, h, w), any strides -> A, flat; `groups` times `chunks` chunks."""
    threads = (sizes[2] + grid[3] - 1) // grid[3] * find_threads_of_line(cfg, grid[3])
    pack_halo_kernel(cfg, mX, mA, sizes, grid, width, origins, chunks, whole).launch(
        grid=[(threads + PACK_THREADS - 1) // PACK_THREADS, groups, 1], block=[PACK_THREADS, 1, 1], stream=stream
    )


@cute.kernel
def pack_taps_kernel(cfg: Static, mW: cute.Tensor, mB: cute.Tensor, sizes: cute.IntTuple, taps: cutlass.Constexpr):
    """Compute one element of B per thread; `sizes` is (channels, filters, groups of channels)."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = bidx * PACK_THREADS + tidx
    channels, filters, blocks = sizes
    steps, inner = taps
    if at < mB.shape[0]:
        rest, place = divide(at, cfg.chunk)
        rest, own = divide(rest, cfg.tile_n)
        rest, chunk = divide(rest, cfg.tile_k // cfg.chunk)
        rest, tap = divide(rest, inner)
        rest, block = divide(rest, blocks)
        tile, step = divide(rest, steps)
        k, c = tile * cfg.tile_n + own, block * cfg.tile_k + chunk * cfg.chunk + place
        value = mW.element_type(0.0)
        if (c < channels) & (k < filters):
            if cutlass.const_expr(cfg.transposed):  # from the filter's end on
                value = mW[c, k, steps * inner - 1 - step * inner - tap]
            else:
                value = mW[k, c, step * inner + tap]
        operand = cute.make_rmem_tensor(1, mB.element_type)
        put_operand(cfg, operand, 0, value)
        mB[at] = operand[0]


@cute.jit
def pack_taps(
    cfg: Static,
    mW: cute.Tensor,
    mB: cute.Tensor,
    sizes: cute.IntTuple,
    stream: cuda.CUstream,
    taps: cutlass.Constexpr,
):
    """w in torch's layout, its taps flattened to one extent -> B, flat: what each stage loads lies together."""
    pack_taps_kernel(cfg, mW, mB, sizes, taps).launch(
        grid=[(mB.shape[0] + PACK_THREADS - 1) // PACK_THREADS, 1, 1], block=[PACK_THREADS, 1, 1], stream=stream
    )
