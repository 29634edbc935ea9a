"""Loads, accumulation and stores of a thread's vectors of a row or of neighbouring columns.

`part` is the index of a vector along the reduced axis. `origin` locates the row: for rows the index of its first
vector or, in split reductions, (row, vectors per row); for segments (rows, row, vectors per segment); for columns
(batch, rows, vectors per row, column). `end` is one past the last vector.
"""

import cutlass
from cutlass import cute

from workbench.kernels.broadcast import load_broadcast
from workbench.kernels.static import Many, Static, dtype


def as_vectors(tensor, width: cutlass.Constexpr):
    """Return a flat tensor viewed as (vectors, width)."""
    layout = cute.make_layout((cute.size(tensor) // width, width), stride=(width, 1))
    return cute.make_tensor(tensor.iterator, layout)


def find_vector(cfg: Static, part, origin):
    """Return the index in the tensor of vector `part` of a row."""
    if cutlass.const_expr(cfg.layout == "columns"):
        batch, rows, vectors, column = origin
        return (batch * rows + part) * vectors + column
    if cutlass.const_expr(cfg.layout == "segments"):
        rows, row, segment = origin
        return (part // segment * rows + row) * segment + part % segment
    if cutlass.const_expr(cfg.parts > 1):
        row, vectors = origin
        return row * vectors + part
    return origin + part


def has_column(origin):
    """Return whether the thread has a column; the last CTA may have more threads than columns."""
    _, _, vectors, column = origin
    return column < vectors


@cute.jit
def load_vectors(
    cfg: Static,
    reads: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    extents: Many,
    first,
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Load a thread's next `turns` vectors of each tensor into registers."""
    tensors = (*inputs, *repeated)
    fragments = tuple(cute.make_rmem_tensor(cute.make_layout((width, turns)), x.element_type) for x in tensors)
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * cfg.step
        is_mine = part < end
        if cutlass.const_expr(cfg.layout == "columns"):
            is_mine = has_column(origin) & is_mine
        if is_mine:
            i = find_vector(cfg, part, origin)
            for x, fragment in zip(inputs, fragments[: len(inputs)], strict=True):
                cute.autovec_copy(x[i, None], fragment[None, turn])
            for n, b, fragment, extent in zip(reads, repeated, fragments[len(inputs) :], extents, strict=True):
                load_broadcast(b, fragment[None, turn], i, extent, width, ways[n])
    return fragments


@cute.jit
def apply_prologue(cfg: Static, fragments: Many, first, end, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    """Return what passes over a row in registers read of the loaded vectors."""
    result = cute.make_rmem_tensor(cute.make_layout((width, turns)), cutlass.Float32)
    for turn in cutlass.range_constexpr(turns):
        if first + turn * cfg.step < end:
            for e in cutlass.range_constexpr(width):
                elements = tuple(fragment[e, turn].to(cutlass.Float32) for fragment in fragments)
                result[e, turn] = cfg.prologue.expression(*elements)
    return result


@cute.jit
def load_row(tensors: Many[cute.Tensor], part, width: cutlass.Constexpr):
    """Load vector `part` of tensors that have one element per column."""
    fragments = tuple(cute.make_rmem_tensor(cute.make_layout(width), b.element_type) for b in tensors)
    for b, fragment in zip(tensors, fragments, strict=True):
        cute.autovec_copy(b[part, None], fragment)
    return fragments


@cute.jit
def absorb_vectors(
    cfg: Static,
    level: Static,
    state: Many,
    fragments: Many,
    repeated: Many[cute.Tensor],
    values: Many,
    first,
    end,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Accumulate the loaded vectors of a row into the thread's state."""
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * cfg.step
        if part < end:
            if cutlass.const_expr(len(repeated) > 0):
                others = load_row(repeated, part, width)
            for e in cutlass.range_constexpr(width):
                elements = tuple(fragment[e, turn].to(cutlass.Float32) for fragment in fragments)
                if cutlass.const_expr(len(repeated) > 0):
                    factors = tuple(other[e].to(cutlass.Float32) for other in others)
                    elements = (*elements, *factors)
                if cutlass.const_expr(level.is_numbered):
                    state = level.absorb(*state, *elements, *values, part * width + e)
                else:
                    state = level.absorb(*state, *elements, *values)
    return state


@cute.jit
def absorb_columns(
    cfg: Static,
    level: Static,
    accumulators: Many,
    fragments: Many,
    values: Many,
    first,
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Accumulate the loaded vectors; each column has its own accumulators."""
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * cfg.step
        if has_column(origin) & (part < end):
            for e in cutlass.range_constexpr(width):
                elements = tuple(fragment[e, turn].to(cutlass.Float32) for fragment in fragments)
                column = tuple(value[e] for value in values)
                before = tuple(accumulator[e] for accumulator in accumulators)
                if cutlass.const_expr(level.is_numbered):
                    state = level.absorb(*before, *elements, *column, part)
                else:
                    state = level.absorb(*before, *elements, *column)
                for accumulator, value in zip(accumulators, state, strict=True):
                    accumulator[e] = value


@cute.jit
def write_vectors(
    cfg: Static,
    y: cute.Tensor,
    fragments: Many,
    repeated: Many[cute.Tensor],
    values: Many,
    first,
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Compute the elements of the result from the loaded vectors and the row's values, and store them."""
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * cfg.step
        is_mine = part < end
        if cutlass.const_expr(cfg.layout == "columns"):
            is_mine = has_column(origin) & is_mine
        if is_mine:
            if cutlass.const_expr(len(repeated) > 0):
                others = load_row(repeated, part, width)
            result = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)
            for e in cutlass.range_constexpr(width):
                elements = tuple(fragment[e, turn].to(cutlass.Float32) for fragment in fragments)
                if cutlass.const_expr(len(repeated) > 0):
                    factors = tuple(other[e].to(cutlass.Float32) for other in others)
                    elements = (*elements, *factors)
                if cutlass.const_expr(cfg.layout == "columns"):
                    column = tuple(value[e] for value in values)
                    result[e] = cfg.result.expression(*elements, *column).to(y.element_type)
                else:
                    result[e] = cfg.result.expression(*elements, *values).to(y.element_type)
            cute.autovec_copy(result, y[find_vector(cfg, part, origin), None])


@cute.jit
def spread_columns(slots: Static, values: Many, width: cutlass.Constexpr):
    """Return registers with a copy of each value for each of `width` columns."""
    fragments = tuple(cute.make_rmem_tensor(cute.make_layout(width), dtype(slot.kind)) for slot in slots)
    for e in cutlass.range_constexpr(width):
        for fragment, value in zip(fragments, values, strict=True):
            fragment[e] = value
    return fragments


@cute.jit
def column_scalars(reads: Static, known: Many, width: cutlass.Constexpr):
    """Compute the scalars of each column that a pass needs."""
    fragments = tuple(cute.make_rmem_tensor(cute.make_layout(width), dtype(slot.kind)) for slot in reads.scalar_slots)
    for e in cutlass.range_constexpr(width):
        column = tuple(value[e] for value in known)
        scalars = reads.scalars(*column)
        for fragment, value in zip(fragments, scalars, strict=True):
            fragment[e] = value
    return fragments
