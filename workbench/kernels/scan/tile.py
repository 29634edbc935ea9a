"""One tile of a row: load it to registers, scan it within each warp, store it combined with its prefix.

A tile has THREADS x PER_THREAD elements. Vector v of a thread is vector `first` + 32 v of the row, so that neighbouring
threads access neighbouring addresses; `vectors` is the number of vectors of a row.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Many, Static, dtype


def add_exponentials(a, b):
    """Return log(exp(a) + exp(b)); of equal infinities, whose difference is NaN, it is the same infinity."""
    largest = cute.arch.fmax(a, b, nan=True)
    below = cutlass.select_(a == b, cutlass.Float32(0.0), cute.arch.fmin(a, b, nan=True) - largest)
    return largest + cute.math.log1p(cute.math.exp(below, fastmath=True))


def combine(cfg: Static, a, b):
    """Combine two values; `a` precedes `b`."""
    if cfg.op == "max":
        return cute.arch.fmax(a, b, nan=True)
    if cfg.op == "min":
        return cute.arch.fmin(a, b, nan=True)
    if cfg.op == "logsumexp":
        return add_exponentials(a, b)
    return a * b if cfg.op == "prod" else a + b


@cute.jit
def load_fragment(x: cute.Tensor, vector, width: cutlass.Constexpr):
    """Load one vector of x to registers."""
    fragment = cute.make_rmem_tensor(cute.make_layout(width), x.element_type)
    cute.autovec_copy(cute.zipped_divide(x, (width,))[None, vector], fragment)
    return fragment


@cute.jit
def load_tile(
    cfg: Static, inputs: Many[cute.Tensor], values: cute.Tensor, start, first, vectors, width: cutlass.Constexpr
):
    """Load this thread's elements of a tile to `values`; elements past the row's end are left unchanged."""
    for v in cutlass.range_constexpr(cfg.per_thread // width):
        place = vectors - 1 - (first + v * 32) if cutlass.const_expr(cfg.reverse) else first + v * 32
        if first + v * 32 < vectors:
            fragments = tuple(load_fragment(x, start + place, width) for x in inputs)
            for e in cutlass.range_constexpr(width):
                elements = tuple(fragment[e].to(dtype(cfg.accumulator)) for fragment in fragments)
                value = elements[0] if cutlass.const_expr(cfg.value is None) else cfg.value(*elements)
                if cutlass.const_expr(cfg.reverse):
                    values[width - 1 - e, v] = value
                else:
                    values[e, v] = value


@cute.jit
def scan_warp(cfg: Static, values: cute.Tensor, prefixes: cute.Tensor, width: cutlass.Constexpr):
    """Scan each vector in place and the vectors of the warp, exclusively, into `prefixes`; return the warp's total.

    Vector v of lane l is number v * 32 + l of the warp's part of the tile.
    """
    lane = cute.arch.lane_idx()
    carry = dtype(cfg.accumulator)(cfg.identity)
    for v in cutlass.range_constexpr(cfg.per_thread // width):
        for e in cutlass.range_constexpr(1, width):
            values[e, v] = combine(cfg, values[e - 1, v], values[e, v])
        running = values[width - 1, v]
        for step in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(running, offset=1 << step)
            if lane >= 1 << step:
                running = combine(cfg, below, running)
        earlier = cute.arch.shuffle_sync_up(running, offset=1)
        if lane == 0:
            earlier = dtype(cfg.accumulator)(cfg.identity)
        prefixes[v] = combine(cfg, carry, earlier)
        last = cute.arch.shuffle_sync(running, 31)
        carry = combine(cfg, carry, last)
    return carry


@cute.jit
def store_tile(
    cfg: Static,
    y: cute.Tensor,
    values: cute.Tensor,
    prefixes: cute.Tensor,
    earlier,
    start,
    first,
    vectors,
    width: cutlass.Constexpr,
):
    """Combine this thread's elements with their prefix and store them to y."""
    stored = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)
    for v in cutlass.range_constexpr(cfg.per_thread // width):
        place = vectors - 1 - (first + v * 32) if cutlass.const_expr(cfg.reverse) else first + v * 32
        offset = combine(cfg, earlier, prefixes[v])
        if first + v * 32 < vectors:
            if cutlass.const_expr(cfg.exclusive and cfg.reverse):
                stored[width - 1] = offset.to(y.element_type)  # exclusive
            elif cutlass.const_expr(cfg.exclusive):
                stored[0] = offset.to(y.element_type)  # exclusive
            for e in cutlass.range_constexpr(width - 1 if cutlass.const_expr(cfg.exclusive) else width):
                result = combine(cfg, offset, values[e, v]).to(y.element_type)
                if cutlass.const_expr(cfg.exclusive and cfg.reverse):
                    stored[width - 2 - e] = result
                elif cutlass.const_expr(cfg.exclusive):
                    stored[e + 1] = result
                elif cutlass.const_expr(cfg.reverse):
                    stored[width - 1 - e] = result
                else:
                    stored[e] = result
            cute.autovec_copy(stored, cute.zipped_divide(y, (width,))[None, start + place])


def make_scratch(cfg: Static, smem, width):
    """Allocate shared memory (element, lane, warp), padded against bank conflicts, for unaligned stores of a warp."""
    layout = cute.make_layout((width, 32, cfg.warps), stride=(33, 1, 33 * width))
    return smem.allocate_tensor(dtype(cfg.accumulator), layout, 16)


@cute.jit
def store_tile_with_total(
    cfg: Static,
    y: cute.Tensor,
    values: cute.Tensor,
    prefixes: cute.Tensor,
    earlier,
    first,
    vectors,
    target,
    scratch: cute.Tensor,
    width: cutlass.Constexpr,
):
    """Store this thread's exclusive scan to y from `target` on, and the row's total after its last element.

    A row of y has one more element than a row of x, so its vectors are unaligned. They are transposed through shared
    memory, so that neighbouring threads store neighbouring elements.
    """
    for v in cutlass.range_constexpr(cfg.per_thread // width):
        offset = combine(cfg, earlier, prefixes[v])
        lane = cute.arch.lane_idx()
        scratch[0, lane] = offset
        for e in cutlass.range_constexpr(width - 1):
            scratch[e + 1, lane] = combine(cfg, offset, values[e, v])
        cute.arch.sync_warp()
        for e in cutlass.range_constexpr(width):
            at = e * 32 + lane
            if first - lane + v * 32 + at // width < vectors:
                y[target + (first - lane + v * 32) * width + at] = scratch[at % width, at // width].to(y.element_type)
        cute.arch.sync_warp()
        value = values[width - 1, v]
        if first + v * 32 == vectors - 1:
            y[target + vectors * width] = combine(cfg, offset, value).to(y.element_type)
