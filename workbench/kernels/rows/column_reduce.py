"""Strided axes: every thread has a vector of neighbouring columns, and groups of threads share their rows."""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.rows.vectors import (
    absorb_columns,
    column_scalars,
    load_vectors,
    spread_columns,
    write_vectors,
)
from workbench.kernels.static import Many, Static, dtype


@cute.jit
def reduce_columns(
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
    """What a thread's part of its columns comes to, for each column; vectors in `kept` are in registers already."""
    starts = level.start()
    state = spread_columns(level.state, starts, width)
    if cutlass.const_expr(cfg.is_kept):
        fragments = kept
        if cutlass.const_expr(len(repeated) > 0):
            others = load_vectors(cfg, level.repeated, (), repeated, extents, begin, bounds, origin, width, turns, ways)
            fragments = (*kept, *others)
        absorb_columns(cfg, level, state, fragments, values, begin, bounds, width, turns)
    else:
        _, end = bounds
        for first in range(begin, end, cfg.step * turns):
            fragments = load_vectors(
                cfg, level.repeated, inputs, repeated, extents, first, bounds, origin, width, turns, ways
            )
            absorb_columns(cfg, level, state, fragments, values, first, bounds, width, turns)
    return state


@cute.jit
def share_columns(state: Many, memory: Many[cute.Tensor], lane, group, width: cutlass.Constexpr):
    """Leave a thread's part of its columns in shared memory."""
    for e in cutlass.range_constexpr(width):
        for part, scratch in zip(state, memory, strict=True):
            scratch[e, lane, group] = part[e]
    cute.arch.sync_threads()


@cute.jit
def merge_columns(level: Static, state: Many, memory: Many[cute.Tensor], lane, other, width: cutlass.Constexpr):
    """Merge what another group has of the same columns."""
    for e in cutlass.range_constexpr(width):
        mine = tuple(part[e] for part in state)
        theirs = tuple(scratch[e, lane, other] for scratch in memory)
        merged = level.merge(*mine, *theirs)
        for part, value in zip(state, merged, strict=True):
            part[e] = value


@cute.jit
def combine_groups(
    cfg: Static, level: Static, state: Many, memory: Many[cute.Tensor], lane, group, width: cutlass.Constexpr
):
    """Combine what the groups have of their columns; every group gets the result."""
    share_columns(state, memory, lane, group, width)
    for e in cutlass.range_constexpr(width):
        for part, scratch in zip(state, memory, strict=True):
            part[e] = scratch[e, lane, 0]
    for other in cutlass.range_constexpr(1, cfg.split):
        merge_columns(level, state, memory, lane, other, width)


@cute.jit
def finish_columns(level: Static, state: Many, rows, width: cutlass.Constexpr):
    """The values of the reductions of each column."""
    if cutlass.const_expr(level.finish is None):
        values = state
    else:
        values = tuple(cute.make_rmem_tensor(cute.make_layout(width), dtype(slot.kind)) for slot in level.values)
        for e in cutlass.range_constexpr(width):
            parts = tuple(part[e] for part in state)
            if cutlass.const_expr(level.is_counted):
                made = level.finish(*parts, rows)
            else:
                made = level.finish(*parts)
            for fragment, value in zip(values, made, strict=True):
                fragment[e] = value
    return values


@cute.kernel
def column_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    batches: cutlass.Int32,
    extents: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Reduce the columns of x (batches, rows, columns), given as (vectors, width), pass by pass."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    vectors = columns // width
    ctas = (vectors + cfg.lanes - 1) // cfg.lanes  # of a batch
    batch = bidx // ctas
    lane = tidx % cfg.lanes
    group = tidx // cfg.lanes
    column = bidx % ctas * cfg.lanes + lane  # in vectors
    inside = column < vectors
    memory = ()
    if cutlass.const_expr(cfg.split > 1):
        smem = cutlass.memory.SmemAllocator()
        memory = tuple(
            smem.allocate_tensor(dtype(slot.kind), cute.make_layout((width, cfg.lanes, cfg.split)), 16)
            for slot in cfg.memory
        )
    bounds = inside, rows
    origin = batch, rows, vectors, column
    kept = ()
    if cutlass.const_expr(cfg.is_kept):  # the thread's vectors stay in registers
        kept = load_vectors(cfg, (), inputs, (), (), group, bounds, origin, width, turns, ())
    known = ()
    for level in cfg.levels:
        given = known
        if cutlass.const_expr(level.scalars is not None):
            scalars = column_scalars(level, tuple(known[n] for n in level.scalar_reads), width)
            given = (*known, *scalars)
        state = reduce_columns(
            cfg,
            level,
            tuple(inputs[n] for n in level.inputs if not cfg.is_kept),
            tuple(repeated[n] for n in level.repeated),
            tuple(extents[n] for n in level.repeated),
            tuple(kept[n] for n in level.inputs if cfg.is_kept),
            tuple(given[n] for n in level.reads),
            group,
            bounds,
            origin,
            width,
            turns,
            ways,
        )
        if cutlass.const_expr(cfg.split > 1):
            combine_groups(cfg, level, state, tuple(memory[n] for n in level.slots), lane, group, width)
        values = finish_columns(level, state, rows, width)
        known = (*known, *values)
    if cutlass.const_expr(cfg.result.scalars is not None):
        scalars = column_scalars(cfg.result, tuple(known[n] for n in cfg.result.scalar_reads), width)
        known = (*known, *scalars)
    if cutlass.const_expr(cfg.result.is_whole):
        write_columns(
            cfg,
            tuple(inputs[n] for n in cfg.result.inputs if not cfg.is_kept),
            tuple(repeated[n] for n in cfg.result.repeated),
            y,
            tuple(extents[n] for n in cfg.result.repeated),
            tuple(kept[n] for n in cfg.result.inputs if cfg.is_kept),
            tuple(known[n] for n in cfg.result.reads),
            group,
            bounds,
            origin,
            width,
            turns,
            ways,
        )
    elif inside & (group == 0):
        store_column_values(cfg, y, tuple(known[n] for n in cfg.result.reads), batch * vectors + column, width)


@cute.jit
def write_columns(
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
    """Write a result with an element for each of the columns'."""
    reads = cfg.result.repeated
    if cutlass.const_expr(cfg.is_kept):
        fragments = kept
        if cutlass.const_expr(len(repeated) > 0):
            others = load_vectors(cfg, reads, (), repeated, extents, begin, bounds, origin, width, turns, ways)
            fragments = (*kept, *others)
        write_vectors(cfg, y, fragments, values, begin, bounds, origin, width, turns)
    else:
        _, end = bounds
        for first in range(begin, end, cfg.step * turns):
            fragments = load_vectors(cfg, reads, inputs, repeated, extents, first, bounds, origin, width, turns, ways)
            write_vectors(cfg, y, fragments, values, first, bounds, origin, width, turns)


@cute.jit
def store_column_values(cfg: Static, y: cute.Tensor, values: Many, i, width: cutlass.Constexpr):
    """Store one value for each of a thread's columns."""
    result = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)
    for e in cutlass.range_constexpr(width):
        column = tuple(value[e] for value in values)
        result[e] = cfg.result.expression(*column).to(y.element_type)
    cute.autovec_copy(result, y[i, None])


@cute.jit
def launch_columns(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    batches: cutlass.Int32,
    extents: Many,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    ctas = batches * ((columns // width + cfg.lanes - 1) // cfg.lanes)
    column_kernel(cfg, inputs, repeated, y, rows, columns, batches, extents, width, turns, ways).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
