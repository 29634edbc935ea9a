"""One pass over rows or columns: reduce a thread's vectors, or write the elements of the result.

Broadcast tensors are loaded like the others, several vectors at a time, unless x is a matrix: then each vector of
theirs is loaded where it is used.
"""

import cutlass
from cutlass import cute

from workbench.kernels.rows.vectors import (
    absorb_columns,
    absorb_vectors,
    column_scalars,
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
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Return the state of a thread after it has read its vectors; those in `kept` are already in registers."""
    early = () if cfg.is_matrix else repeated
    late = repeated if cfg.is_matrix else ()
    state = level.start()
    if cutlass.const_expr(cfg.layout == "columns"):
        state = spread_columns(level.state, state, width)
    if cutlass.const_expr(cfg.is_kept):
        fragments = kept
        if cutlass.const_expr(len(early) > 0):
            others = load_vectors(cfg, level.repeated, (), early, extents, begin, end, origin, width, turns, ways)
            fragments = (*kept, *others)
        if cutlass.const_expr(cfg.layout == "columns"):
            absorb_columns(cfg, level, state, fragments, values, begin, end, origin, width, turns)
        else:
            state = absorb_vectors(cfg, level, state, fragments, late, values, begin, end, width, turns)
    else:
        for first in range(begin, end, cfg.step * turns):
            fragments = load_vectors(
                cfg,
                () if cfg.is_matrix else level.repeated,
                inputs,
                early,
                extents,
                first,
                end,
                origin,
                width,
                turns,
                ways,
            )
            if cutlass.const_expr(cfg.layout == "columns"):
                absorb_columns(cfg, level, state, fragments, values, first, end, origin, width, turns)
            else:
                state = absorb_vectors(cfg, level, state, fragments, late, values, first, end, width, turns)
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
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Write a result that has one value per element."""
    early = () if cfg.is_matrix else repeated
    late = repeated if cfg.is_matrix else ()
    if cutlass.const_expr(cfg.is_kept):
        fragments = kept
        if cutlass.const_expr(len(early) > 0):
            others = load_vectors(cfg, cfg.result.repeated, (), early, extents, begin, end, origin, width, turns, ways)
            fragments = (*kept, *others)
        write_vectors(cfg, y, fragments, late, values, begin, end, origin, width, turns)
    else:
        for first in range(begin, end, cfg.step * turns):
            fragments = load_vectors(
                cfg,
                () if cfg.is_matrix else cfg.result.repeated,
                inputs,
                early,
                extents,
                first,
                end,
                origin,
                width,
                turns,
                ways,
            )
            write_vectors(cfg, y, fragments, late, values, first, end, origin, width, turns)


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
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Select the tensors and known values that a level reads, and reduce them."""
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
        end,
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
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Select the tensors and known values that the result reads, and write it."""
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
        end,
        origin,
        width,
        turns,
        ways,
    )
