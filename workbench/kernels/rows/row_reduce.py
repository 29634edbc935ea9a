"""Reduction of contiguous rows: threads of a warp, a CTA or a cluster share a row."""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.broadcast import hoist_row_element
from workbench.kernels.rows.block_reduce import all_reduce, all_reduce_online
from workbench.kernels.rows.passes import reduce_level, write_result
from workbench.kernels.rows.vectors import apply_prologue, as_vectors, load_vectors
from workbench.kernels.static import Many, Static, dtype


@cute.jit
def combine_row(cfg: Static, level: Static, state: Many, memory: Many[cute.Tensor], columns, tidx):
    """Combine the states of the threads of a row; return the results of its reductions."""
    if cutlass.const_expr(cfg.threads > 1):
        if cutlass.const_expr(level.is_online):
            state = all_reduce_online(cfg.warps, cfg.cluster, level, state, memory, tidx)
        else:
            state = all_reduce(cfg.warps, cfg.cluster, level.merge, state, memory, tidx)
    if cutlass.const_expr(level.is_counted):
        values = level.finish(*state, columns)
    elif cutlass.const_expr(level.finish is not None):
        values = level.finish(*state)
    else:
        values = state
    return values


def locate_row(cfg: Static, tidx, bidx):
    """Return (row of this thread, its index among the threads that share the row)."""
    if cutlass.const_expr(cfg.threads == 1):
        return bidx * cfg.rows_per_cta + tidx, 0
    if cutlass.const_expr(cfg.threads == 32):
        return bidx * cfg.rows_per_cta + tidx // 32, tidx % 32
    if cutlass.const_expr(cfg.cluster > 1):
        return bidx // cfg.cluster, bidx % cfg.cluster * cfg.threads + tidx
    return bidx, tidx


@cute.kernel
def row_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    extents: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Reduce each row and write its result, or all its values, (values, rows); tensors are (vectors, width)."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    row, lane = locate_row(cfg, tidx, bidx)
    memory = ()
    if cutlass.const_expr(cfg.is_combined):
        smem = cutlass.memory.SmemAllocator()
        memory = tuple(
            smem.allocate_tensor(dtype(slot.kind), cute.make_layout(cfg.memory_places), 16) for slot in cfg.memory
        )
    if row < rows:
        vectors = columns // width
        start = row * vectors
        if cutlass.const_expr(cfg.is_matrix):
            held = extents
        else:
            held = tuple(
                hoist_row_element(b, extent, row, ways[n])
                for n, (b, extent) in enumerate(zip(repeated, extents, strict=True))
            )
        kept = ()
        if cutlass.const_expr(cfg.is_kept):  # the thread's vectors of the row stay in registers
            kept = load_vectors(cfg, (), inputs, (), (), lane, vectors, start, width, turns, ())
            if cutlass.const_expr(cfg.prologue is not None):
                others = load_vectors(
                    cfg, cfg.prologue.repeated, (), repeated, held, lane, vectors, start, width, turns, ways
                )
                prologue = apply_prologue(cfg, (*kept, *others), lane, vectors, width, turns)
                kept = (prologue,)  # type: ignore[assignment]
        values = reduce_row(
            cfg, inputs, repeated, held, kept, memory, start, lane, columns, vectors, tidx, width, turns, ways
        )
        if cutlass.const_expr(cfg.result.is_whole):
            write_result(cfg, inputs, repeated, y, held, kept, values, lane, vectors, start, width, turns, ways)
        elif cutlass.const_expr(cfg.returns_values):
            if lane == 0:
                for n in cutlass.range_constexpr(len(values)):
                    y[n * rows + row] = values[n]
        elif lane == 0:
            y[row] = cfg.result.expression(*(values[n] for n in cfg.result.reads)).to(y.element_type)


@cute.jit
def reduce_row(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    extents: Many,
    kept: Many,
    memory: Many[cute.Tensor],
    start,
    lane,
    columns,
    vectors,
    tidx,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Return the results of a row's reductions, one pass after another."""
    known = ()
    for level in cfg.levels:
        state = reduce_level(
            cfg, level, inputs, repeated, extents, kept, known, lane, vectors, start, width, turns, ways
        )
        values = combine_row(cfg, level, state, tuple(memory[n] for n in level.slots), columns, tidx)
        known = (*known, *values)
    return known


@cute.jit
def launch_rows(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    inners: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    if cutlass.const_expr(cfg.threads <= 32):
        ctas = (rows + (cfg.rows_per_cta - 1)) // cfg.rows_per_cta
    elif cutlass.const_expr(cfg.cluster > 1):
        ctas = rows * cfg.cluster
    else:
        ctas = rows
    if cutlass.const_expr(cfg.is_matrix):  # whose tensors are flat
        inputs = tuple(as_vectors(x, width) for x in inputs)
        repeated = tuple(as_vectors(b, width) for b in repeated)
        if cutlass.const_expr(cfg.result.is_whole):
            y = as_vectors(y, width)
    extents = tuple((inner, size) for inner, size in zip(inners, sizes, strict=True))
    row_kernel(cfg, inputs, repeated, y, rows, columns, extents, width, turns, ways).launch(
        grid=[ctas, 1, 1],
        block=[cfg.cta_threads, 1, 1],
        cluster=[cfg.cluster, 1, 1] if cfg.cluster > 1 else None,
        stream=stream,
    )
