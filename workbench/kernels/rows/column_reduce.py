"""Reduction along a strided axis: each thread has a vector of neighbouring columns; thread groups split the rows."""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.rows.passes import reduce_level, write_result
from workbench.kernels.rows.vectors import load_vectors
from workbench.kernels.static import Many, Static, dtype


@cute.jit
def share_columns(state: Many, memory: Many[cute.Tensor], lane, group, width: cutlass.Constexpr):
    """Store a thread's partial results of its columns to shared memory."""
    for e in cutlass.range_constexpr(width):
        for part, scratch in zip(state, memory, strict=True):
            scratch[e, lane, group] = part[e]
    cute.arch.sync_threads()


@cute.jit
def merge_columns(level: Static, state: Many, memory: Many[cute.Tensor], lane, other, width: cutlass.Constexpr):
    """Merge the partial results of another thread group for the same columns."""
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
    """Combine the partial results of all thread groups; return the result in every thread."""
    share_columns(state, memory, lane, group, width)
    for e in cutlass.range_constexpr(width):
        for part, scratch in zip(state, memory, strict=True):
            part[e] = scratch[e, lane, 0]
    for other in cutlass.range_constexpr(1, cfg.split):
        merge_columns(level, state, memory, lane, other, width)


@cute.jit
def finish_columns(level: Static, state: Many, rows, width: cutlass.Constexpr):
    """Return the results of the reductions of each column."""
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
    """Reduce the columns of x (batches, rows, columns), which is given as (vectors, width)."""
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
    origin = batch, rows, vectors, column
    if cutlass.const_expr(cfg.split == 1 and turns == 1):
        if inside:
            reduce_columns(cfg, inputs, repeated, y, extents, memory, lane, group, inside, origin, width, turns, ways)
    else:  # threads meet at barriers, or unrolled loads have a test each: without, they were measured slower
        reduce_columns(cfg, inputs, repeated, y, extents, memory, lane, group, inside, origin, width, turns, ways)


@cute.jit
def reduce_columns(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    y: cute.Tensor,
    extents: Many,
    memory: Many[cute.Tensor],
    lane,
    group,
    inside,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Reduce a thread's columns and write the result."""
    batch, rows, vectors, column = origin
    kept = ()
    if cutlass.const_expr(cfg.is_kept):  # the thread's vectors stay in registers
        kept = load_vectors(cfg, (), inputs, (), (), group, rows, origin, width, turns, ())
    known = reduce_levels(cfg, inputs, repeated, extents, kept, memory, lane, group, origin, width, turns, ways)
    if cutlass.const_expr(cfg.result.is_whole):
        write_result(cfg, inputs, repeated, y, extents, kept, known, group, rows, origin, width, turns, ways)
    elif inside & (group == 0):
        store_column_values(cfg, y, tuple(known[n] for n in cfg.result.reads), batch * vectors + column, width)


@cute.jit
def reduce_levels(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    extents: Many,
    kept: Many,
    memory: Many[cute.Tensor],
    lane,
    group,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Return the results of the columns' reductions, one pass after another."""
    _, rows, _, _ = origin
    known = ()
    for level in cfg.levels:
        state = reduce_level(
            cfg, level, inputs, repeated, extents, kept, known, group, rows, origin, width, turns, ways
        )
        if cutlass.const_expr(cfg.split > 1):
            combine_groups(cfg, level, state, tuple(memory[n] for n in level.slots), lane, group, width)
        values = finish_columns(level, state, rows, width)
        known = (*known, *values)
    return known


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
    inners: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    ctas = batches * ((columns // width + cfg.lanes - 1) // cfg.lanes)
    extents = tuple((inner, size) for inner, size in zip(inners, sizes, strict=True))
    column_kernel(cfg, inputs, repeated, y, rows, columns, batches, extents, width, turns, ways).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
