"""Epilogue of a convolution by patches: each thread stores the sums that it holds, as they lie in the fragments.

Eight lanes hold neighbouring positions of a filter, which fill a sector. With two phases along the last extent a lane
holds two neighbouring outputs, which it stores at once where they are aligned.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Many, Static


@cute.jit
def find_places(
    cfg: Static,
    mY: cute.Tensor,
    places: cute.Tensor,
    image: cutlass.Int32,
    corner: tuple,
    remainders: tuple,
    first_row: cutlass.Int32,
    box: cutlass.Constexpr,
    scales: cutlass.Constexpr,
):
    """Find the offsets of this thread's outputs in y's first channel, -1 where there is no output."""
    for i in cutlass.range_constexpr(cute.size(places) // cfg.phases):
        line, b2 = divide(first_row + 8 * i, box[2])
        b0, b1 = divide(line, box[1])
        z, p = (corner[0] + b0) * scales[0] + remainders[0], (corner[1] + b1) * scales[1] + remainders[1]
        for e in cutlass.range_constexpr(cfg.phases):
            q = (corner[2] + b2) * scales[2] + e
            inside = (z < mY.shape[2]) & (p < mY.shape[3]) & (q < mY.shape[4])
            offset = cutlass.Int64(image) * mY.stride[0] + (z * mY.shape[3] + p) * mY.shape[4] + q
            places[i * cfg.phases + e] = cutlass.select_(inside, offset, cutlass.Int64(-1))


@cute.jit
def load_vectors(cfg: Static, operands: Many, sources: Many, where: tuple):
    """Copy what the epilogue reads along the filters to shared memory, where a wait for it is short."""
    tidx, _, _ = cute.arch.thread_idx()
    first, group, filters = where
    for x, source, read in zip(operands, sources, cfg.reads, strict=True):
        if cutlass.const_expr(read.along == "n"):
            for own in cutlass.range(tidx, cutlass.min(filters - first, cfg.tile_n), cfg.threads, unroll=1):
                source[own] = x[group * filters + first + own]


@cute.jit
def load_fragments(
    cfg: Static,
    sources: Many,
    fragments: Many,
    places: cute.Tensor,
    own: cutlass.Int32,
    shift: cutlass.Int64,
):
    """Load the epilogue operands of one channel; tensors of y's shape are read at the offsets of y."""
    for source, fragment, read in zip(sources, fragments, cfg.reads, strict=True):
        if cutlass.const_expr(read.along == "n"):
            fragment[0] = source[own]
        else:
            for i in cutlass.range_constexpr(cute.size(places)):
                if places[i] >= 0:
                    fragment[i] = cute.make_tensor(source.iterator + places[i] + shift, cute.make_layout(1))[0]


@cute.jit
def store_sums(
    cfg: Static,
    accs: tuple,
    places: cute.Tensor,
    sources: Many,
    mY: cute.Tensor,
    where: tuple,
    pairs: cutlass.Constexpr,
):
    """Apply the epilogue and store; `where` is (first filter of the tile in its group, group, filters of a group)."""
    tidx, _, _ = cute.arch.thread_idx()
    first, group, filters = where
    fragments = tuple(
        cute.make_rmem_tensor(1 if read.along == "n" else cute.size(places), source.element_type)
        for source, read in zip(sources, cfg.reads, strict=True)
    )
    for fragment in fragments:
        fragment.fill(0.0)
    rOut = cute.make_rmem_tensor(cute.size(places), mY.element_type)
    for column in cutlass.range_constexpr(cfg.tile_n // 4):
        own = column // 2 * 8 + tidx % 4 * 2 + column % 2
        if first + own < filters:
            shift = cutlass.Int64(group * filters + first + own) * mY.stride[1]
            if cutlass.const_expr(len(sources) > 0):
                load_fragments(cfg, sources, fragments, places, own, shift)
            for i in cutlass.range_constexpr(cute.size(places)):
                row, e = i // cfg.phases, i % cfg.phases
                total = accs[e][column % 2 + row % 2 * 2, row // 2, column // 2]
                if cutlass.const_expr(cfg.epilogue is not None):
                    total = cfg.epilogue(total, fragments, i)
                rOut[i] = total.to(mY.element_type)
            store_channel(cfg, rOut, places, mY, shift, pairs)


@cute.jit
def store_channel(
    cfg: Static,
    rOut: cute.Tensor,
    places: cute.Tensor,
    mY: cute.Tensor,
    shift: cutlass.Int64,
    pairs: cutlass.Constexpr,
):
    """Store the outputs of one channel, two neighbours at once with `pairs`."""
    width = 2 if cutlass.const_expr(pairs) else 1
    rVector = cute.make_rmem_tensor(width, mY.element_type)
    for i in cutlass.range_constexpr(0, cute.size(places), width):
        if places[i] >= 0:
            for e in cutlass.range_constexpr(width):
                rVector[e] = rOut[i + e]
            at = cute.assume(places[i] + shift, divby=width)
            cute.autovec_copy(rVector, cute.make_tensor(mY.iterator + at, cute.make_layout(width)))
