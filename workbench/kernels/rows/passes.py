"""A pass over rows, or over columns: a thread's vectors -> what they come to, or the elements of the result.

Broadcast tensors are loaded like the others, several vectors at a time, unless x is a matrix: then each vector of
theirs is loaded where it is used.
"""

import cutlass
from cutlass import cute

from workbench.kernels.rows.vectors import (
    absorb_columns,
    absorb_vectors,
    column_scalars,
    find_end,
    load_vectors,
    spread_columns,
    write_vectors,
)
from workbench.kernels.static import Many, Static


@cute.jit
def reduce_pass(
    cfg: Static,
    level: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    extents: Many,
    kept: Many,
    values: Many,
    begin,
    bounds,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """What a thread's vectors come to, for columns each column's; vectors in `kept` are in registers already."""
    early = () if cfg.is_matrix else repeated
    late = repeated if cfg.is_matrix else ()
    state = level.start()
    if cutlass.const_expr(cfg.layout == "columns"):
        state = spread_columns(level.state, state, width)
    if cutlass.const_expr(cfg.is_kept):
        fragments = kept
        if cutlass.const_expr(len(early) > 0):
            others = load_vectors(cfg, level.repeated, (), early, extents, begin, bounds, origin, width, turns, ways)
            fragments = (*kept, *others)
        if cutlass.const_expr(cfg.layout == "columns"):
            absorb_columns(cfg, level, state, fragments, values, begin, bounds, width, turns)
        else:
            state = absorb_vectors(cfg, level, state, fragments, late, values, begin, bounds, width, turns)
    else:
        for first in range(begin, find_end(cfg, bounds), cfg.step * turns):
            fragments = load_vectors(
                cfg,
                () if cfg.is_matrix else level.repeated,
                inputs,
                early,
                extents,
                first,
                bounds,
                origin,
                width,
                turns,
                ways,
            )
            if cutlass.const_expr(cfg.layout == "columns"):
                absorb_columns(cfg, level, state, fragments, values, first, bounds, width, turns)
            else:
                state = absorb_vectors(cfg, level, state, fragments, late, values, first, bounds, width, turns)
    return state


@cute.jit
def write_pass(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    y: cute.Tensor,
    extents: Many,
    kept: Many,
    values: Many,
    begin,
    bounds,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Write a result with an element for each of a row's, or of the columns'."""
    early = () if cfg.is_matrix else repeated
    late = repeated if cfg.is_matrix else ()
    if cutlass.const_expr(cfg.is_kept):
        fragments = kept
        if cutlass.const_expr(len(early) > 0):
            others = load_vectors(
                cfg, cfg.result.repeated, (), early, extents, begin, bounds, origin, width, turns, ways
            )
            fragments = (*kept, *others)
        write_vectors(cfg, y, fragments, late, values, begin, bounds, origin, width, turns)
    else:
        for first in range(begin, find_end(cfg, bounds), cfg.step * turns):
            fragments = load_vectors(
                cfg,
                () if cfg.is_matrix else cfg.result.repeated,
                inputs,
                early,
                extents,
                first,
                bounds,
                origin,
                width,
                turns,
                ways,
            )
            write_vectors(cfg, y, fragments, late, values, first, bounds, origin, width, turns)


@cute.jit
def reduce_level(
    cfg: Static,
    level: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    extents: Many,
    kept: Many,
    known: Many,
    begin,
    bounds,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Choose what a level reads of all tensors and of the values that are known, and reduce that."""
    given = known
    if cutlass.const_expr(level.scalars is not None):
        if cutlass.const_expr(cfg.layout == "columns"):
            scalars = column_scalars(level, tuple(known[n] for n in level.scalar_reads), width)
        else:
            scalars = level.scalars(*(known[n] for n in level.scalar_reads))
        given = (*known, *scalars)
    return reduce_pass(
        cfg,
        level,
        tuple(inputs[n] for n in level.inputs if not cfg.is_kept),
        tuple(repeated[n] for n in level.repeated),
        tuple(extents[n] for n in level.repeated if not cfg.is_matrix),
        tuple(kept[n] for n in level.inputs if cfg.is_kept),
        tuple(given[n] for n in level.reads),
        begin,
        bounds,
        origin,
        width,
        turns,
        ways,
    )


@cute.jit
def write_result(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    y: cute.Tensor,
    extents: Many,
    kept: Many,
    known: Many,
    begin,
    bounds,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Choose what the result reads of all tensors and of the values that are known, and write it."""
    given = known
    if cutlass.const_expr(cfg.result.scalars is not None):
        if cutlass.const_expr(cfg.layout == "columns"):
            scalars = column_scalars(cfg.result, tuple(known[n] for n in cfg.result.scalar_reads), width)
        else:
            scalars = cfg.result.scalars(*(known[n] for n in cfg.result.scalar_reads))
        given = (*known, *scalars)
    write_pass(
        cfg,
        tuple(inputs[n] for n in cfg.result.inputs if not cfg.is_kept),
        tuple(repeated[n] for n in cfg.result.repeated),
        y,
        tuple(extents[n] for n in cfg.result.repeated if not cfg.is_matrix),
        tuple(kept[n] for n in cfg.result.inputs if cfg.is_kept),
        tuple(given[n] for n in cfg.result.reads),
        begin,
        bounds,
        origin,
        width,
        turns,
        ways,
    )
