"""Split reductions of long rows and columns: per pass, one kernel for partial results and one that combines them.

Partial results are combined in a fixed order. If the result has one value per element, a last kernel writes it from
the end of the tensor to its start, because what was read last is still in the L2 cache.
"""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.broadcast import hoist_row_element
from workbench.kernels.rows.block_reduce import all_reduce
from workbench.kernels.rows.passes import reduce_pass
from workbench.kernels.rows.two_pass_columns import apply_columns_kernel, partial_columns_kernel
from workbench.kernels.rows.vectors import load_vectors, write_vectors
from workbench.kernels.static import Many, Static, dtype


def find_origin(cfg: Static, lengths: Many, rows, row, vectors, width):
    """Return the origin of a row, as `find_vector` takes it."""
    if cutlass.const_expr(cfg.layout == "segments"):
        return rows, row, lengths[0] // width
    return row, vectors


@cute.kernel
def partial_kernel(
    step: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    done: Many[cute.Tensor],
    results: Many[cute.Tensor],
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    parts: cutlass.Int32,
    lengths: Many[cutlass.Int32],
    extents: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Reduce a part of a row per CTA; `done` are the results of earlier passes, `lengths` the extent of a segment."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    row = bidx // parts
    vectors = columns // width
    origin = find_origin(step.cfg, lengths, rows, row, vectors, width)
    share = (vectors + parts - 1) // parts
    begin = bidx % parts * share
    end = cutlass.min(begin + share, vectors)
    known = tuple(values[row] for values in done)
    held = tuple(
        hoist_row_element(b, extent, row, ways[n])
        for n, b, extent in zip(step.level.repeated, repeated, extents, strict=True)
    )
    memory = ()
    if cutlass.const_expr(step.cfg.warps > 1):
        smem = cutlass.memory.SmemAllocator()
        memory = tuple(
            smem.allocate_tensor(dtype(slot.kind), cute.make_layout(step.cfg.warps), 16) for slot in step.memory
        )
    if cutlass.const_expr(step.level.scalars is not None):
        scalars = step.level.scalars(*(known[n] for n in step.level.scalar_reads))
        known = (*known, *scalars)
    state = reduce_pass(
        step.cfg,
        step.level,
        inputs,
        repeated,
        held,
        (),
        tuple(known[n] for n in step.level.reads),
        begin + tidx,
        end,
        origin,
        width,
        turns,
        ways,
    )
    state = all_reduce(step.cfg.warps, 1, step.level.merge, state, memory, tidx)
    if tidx == 0:
        for values, value in zip(results, state, strict=True):
            values[bidx] = value


@cute.jit
def launch_partial(
    step: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    done: Many[cute.Tensor],
    results: Many[cute.Tensor],
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    parts: cutlass.Int32,
    lengths: Many[cutlass.Int32],
    inners: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    extents = tuple((inner, size) for inner, size in zip(inners, sizes, strict=True))
    if cutlass.const_expr(step.cfg.layout == "columns"):
        ctas = lengths[0] * parts * ((columns // width + step.cfg.lanes - 1) // step.cfg.lanes)
        partial_columns_kernel(
            step, inputs, repeated, done, results, rows, columns, parts, lengths[0], extents, width, turns, ways
        ).launch(grid=[ctas, 1, 1], block=[step.cfg.threads, 1, 1], stream=stream)
    else:
        partial_kernel(
            step, inputs, repeated, done, results, rows, columns, parts, lengths, extents, width, turns, ways
        ).launch(grid=[rows * parts, 1, 1], block=[step.cfg.threads, 1, 1], stream=stream)


@cute.kernel
def finish_kernel(
    step: Static,
    states: Many[cute.Tensor],
    done: Many[cute.Tensor],
    outputs: Many[cute.Tensor],
    results: cutlass.Int32,
    parts: cutlass.Int32,
    inner: cutlass.Int32,
    count: cutlass.Float32,
):
    """Combine the partial results of each result, which are `inner` elements apart."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    memory = ()
    if cutlass.const_expr(step.end_threads > 32):
        row = bidx
        lane = tidx
        smem = cutlass.memory.SmemAllocator()
        memory = tuple(
            smem.allocate_tensor(dtype(slot.kind), cute.make_layout(step.end_warps), 16) for slot in step.memory
        )
    else:
        row = bidx * step.end_results + tidx // 32
        lane = tidx % 32
    if row < results:
        state = step.level.start()
        for part in range(lane, parts, step.end_threads):
            place = (row // inner * parts + part) * inner + row % inner
            others = tuple(values[place] for values in states)
            state = step.level.merge(*state, *others)
        state = all_reduce(step.end_warps, 1, step.level.merge, state, memory, tidx)
        if cutlass.const_expr(step.level.is_counted):
            values = step.level.finish(*state, count)
        elif cutlass.const_expr(step.level.finish is not None):
            values = step.level.finish(*state)
        else:
            values = state
        if cutlass.const_expr(step.is_last):
            earlier = tuple(output[row] for output in done)
            known = (*earlier, *values)
            (y,) = outputs
            if lane == 0:
                y[row] = step.cfg.result.expression(*(known[n] for n in step.cfg.result.reads)).to(y.element_type)
        elif lane == 0:
            for output, value in zip(outputs, values, strict=True):
                output[row] = value


@cute.jit
def launch_finish(
    step: Static,
    states: Many[cute.Tensor],
    done: Many[cute.Tensor],
    outputs: Many[cute.Tensor],
    results: cutlass.Int32,
    parts: cutlass.Int32,
    inner: cutlass.Int32,
    count: cutlass.Float32,
    stream: cuda.CUstream,
):
    if cutlass.const_expr(step.end_threads > 32):
        ctas = results
    else:
        ctas = (results + (step.end_results - 1)) // step.end_results
    finish_kernel(step, states, done, outputs, results, parts, inner, count).launch(
        grid=[ctas, 1, 1], block=[step.end_cta, 1, 1], stream=stream
    )


@cute.kernel
def apply_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    done: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    parts: cutlass.Int32,
    lengths: Many[cutlass.Int32],
    extents: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Write a chunk of a row's result per CTA; neighbouring CTAs write neighbouring chunks."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    chunk = rows * parts - 1 - bidx  # from the end: what was read last is still in the L2 cache
    row = chunk // parts
    vectors = columns // width
    origin = find_origin(cfg, lengths, rows, row, vectors, width)
    first = chunk % parts * (cfg.threads * turns) + tidx
    fragments = load_vectors(cfg, (), inputs, (), (), first, vectors, origin, width, turns, ())
    known = tuple(values[row] for values in done)
    if cutlass.const_expr(cfg.result.scalars is not None):
        scalars = cfg.result.scalars(*(known[n] for n in cfg.result.scalar_reads))
        known = (*known, *scalars)
    if cutlass.const_expr(len(repeated) > 0):
        held = tuple(
            hoist_row_element(b, extent, row, ways[n])
            for n, b, extent in zip(cfg.result.repeated, repeated, extents, strict=True)
        )
        others = load_vectors(cfg, cfg.result.repeated, (), repeated, held, first, vectors, origin, width, turns, ways)
        fragments = (*fragments, *others)
    values = tuple(known[n] for n in cfg.result.reads)
    write_vectors(cfg, y, fragments, (), values, first, vectors, origin, width, turns)


@cute.jit
def launch_apply(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    done: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    parts: cutlass.Int32,
    lengths: Many[cutlass.Int32],
    inners: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    extents = tuple((inner, size) for inner, size in zip(inners, sizes, strict=True))
    if cutlass.const_expr(cfg.layout == "columns"):
        ctas = lengths[0] * parts * ((columns // width + cfg.lanes - 1) // cfg.lanes)
        apply_columns_kernel(
            cfg, inputs, repeated, done, y, rows, columns, parts, lengths[0], extents, width, turns, ways
        ).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
    else:
        apply_kernel(cfg, inputs, repeated, done, y, rows, columns, parts, lengths, extents, width, turns, ways).launch(
            grid=[rows * parts, 1, 1], block=[cfg.threads, 1, 1], stream=stream
        )
