"""Split reduction of long columns: the kernels that compute partial results, and that write one value per element."""

import cutlass
from cutlass import cute

from workbench.kernels.rows.column_reduce import merge_columns, share_columns
from workbench.kernels.rows.passes import reduce_pass, write_pass
from workbench.kernels.rows.vectors import column_scalars
from workbench.kernels.static import Many, Static, dtype


@cute.jit
def load_values(done: Many[cute.Tensor], first, inside, width: cutlass.Constexpr):
    """Load the results of earlier passes for each of a thread's columns."""
    fragments = tuple(cute.make_rmem_tensor(cute.make_layout(width), values.element_type) for values in done)
    if inside:
        for e in cutlass.range_constexpr(width):
            for fragment, values in zip(fragments, done, strict=True):
                fragment[e] = values[first + e]
    return fragments


@cute.kernel
def partial_columns_kernel(
    step: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    done: Many[cute.Tensor],
    results: Many[cute.Tensor],
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    parts: cutlass.Int32,
    batches: cutlass.Int32,
    extents: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Reduce a part of the rows of some columns per CTA; x is (batches, rows, columns)."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    vectors = columns // width
    ctas = (vectors + step.cfg.lanes - 1) // step.cfg.lanes
    piece = bidx // ctas  # batch * parts + part
    batch = piece // parts
    lane = tidx % step.cfg.lanes
    group = tidx // step.cfg.lanes
    column = bidx % ctas * step.cfg.lanes + lane  # in vectors
    inside = column < vectors
    share = (rows + parts - 1) // parts
    begin = piece % parts * share
    end = cutlass.min(begin + share, rows)
    memory = ()
    if cutlass.const_expr(step.cfg.split > 1):
        smem = cutlass.memory.SmemAllocator()
        memory = tuple(
            smem.allocate_tensor(dtype(slot.kind), cute.make_layout((width, step.cfg.lanes, step.cfg.split)), 16)
            for slot in step.memory
        )
    origin = batch, rows, vectors, column
    known = ()
    if cutlass.const_expr(len(done) > 0):
        known = load_values(done, (batch * vectors + column) * width, inside, width)
    if cutlass.const_expr(step.level.scalars is not None):
        scalars = column_scalars(step.level, tuple(known[n] for n in step.level.scalar_reads), width)
        known = (*known, *scalars)
    state = reduce_pass(
        step.cfg,
        step.level,
        inputs,
        repeated,
        extents,
        (),
        tuple(known[n] for n in step.level.reads),
        begin + group,
        end,
        origin,
        width,
        turns,
        ways,
    )
    if cutlass.const_expr(step.cfg.split > 1):
        share_columns(state, memory, lane, group, width)
        for other in cutlass.range_constexpr(1, step.cfg.split):
            if group == 0:
                merge_columns(step.level, state, memory, lane, other, width)
    if inside & (group == 0):
        for e in cutlass.range_constexpr(width):
            for values, part in zip(results, state, strict=True):
                values[(piece * vectors + column) * width + e] = part[e]


@cute.kernel
def apply_columns_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    done: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    parts: cutlass.Int32,
    batches: cutlass.Int32,
    extents: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Write a part of the rows of some columns per CTA; `done` are the results of the reductions."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    vectors = columns // width
    ctas = (vectors + cfg.lanes - 1) // cfg.lanes
    number = batches * parts * ctas - 1 - bidx  # from the end: what was read last is still in the L2 cache
    piece = number // ctas  # batch * parts + part
    batch = piece // parts
    column = number % ctas * cfg.lanes + tidx % cfg.lanes  # in vectors
    share = (rows + parts - 1) // parts
    begin = piece % parts * share
    end = cutlass.min(begin + share, rows)
    known = load_values(done, (batch * vectors + column) * width, column < vectors, width)
    if cutlass.const_expr(cfg.result.scalars is not None):
        scalars = column_scalars(cfg.result, tuple(known[n] for n in cfg.result.scalar_reads), width)
        known = (*known, *scalars)
    values = tuple(known[n] for n in cfg.result.reads)
    origin = batch, rows, vectors, column
    first = begin + tidx // cfg.lanes
    write_pass(cfg, inputs, repeated, y, extents, (), values, first, end, origin, width, turns, ways)
