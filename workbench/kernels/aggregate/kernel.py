"""The kernel of aggregate: y[r] = sum, mean or max of x[indices[e]] for e from indptr[r] to indptr[r + 1].

Tensors are (vectors, width). A thread has one vector of columns of one row, and takes every SPLIT-th neighbour. It
loads UNROLL neighbours' vectors before it adds the first, so that as many are in flight. The groups of a row put their
parts together in a fixed order, by shuffles inside a warp, otherwise in shared memory; there are no atomics, so the
same input gives the same bits. An index out of range becomes an unmapped address, so a GPU and the emulator report an
error.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.gather.kernel import checked_offset
from workbench.kernels.scalars import choose
from workbench.kernels.static import Many, Static


def combine(cfg: Static, total, value):
    """Return the reduction of two values; NaN stays."""
    if cutlass.const_expr(cfg.op == "max"):
        return cute.arch.fmax(total, value, nan=True)
    return total + value


@cute.jit
def add_neighbours(
    cfg: Static,
    x: cute.Tensor,
    indices: cute.Tensor,
    weights: Many[cute.Tensor],
    heads: Many[cutlass.Int32],
    totals,
    first,
    end,
    column,
    extent,
    vectors,
    width: cutlass.Constexpr,
    is_whole: cutlass.Constexpr,
):
    """Take in a thread's next UNROLL neighbours from number `first` on; all are loaded before the first is used.

    `is_whole`: all of them are before `end`.
    """
    parts = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type)
    factors = tuple(cute.make_rmem_tensor(cfg.unroll, weight.element_type) for weight in weights)
    for turn in cutlass.range_constexpr(cfg.unroll):
        at = first + turn * cfg.split
        if is_whole or at < end:
            number = cutlass.Int64(indices[at])
            cute.autovec_copy(x[checked_offset(number * vectors + column, number, extent), None], parts[None, turn])
            for weight, factor, count in zip(weights, factors, heads, strict=True):
                factor[turn] = weight[cutlass.Int64(at) * count + column * count // vectors]
    for turn in cutlass.range_constexpr(cfg.unroll):
        if is_whole or first + turn * cfg.split < end:
            for e in cutlass.range_constexpr(width):
                value = parts[e, turn].to(cutlass.Float32)
                for factor in factors:
                    value = value * factor[turn].to(cutlass.Float32)
                totals[e] = combine(cfg, totals[e], value)


@cute.jit
def combine_groups(cfg: Static, totals, tidx, width: cutlass.Constexpr):
    """Combine the totals of the groups that share a row, in a fixed order; those of the first group are the result."""
    if cutlass.const_expr(cfg.in_warp):
        for halving in cutlass.range_constexpr(cfg.halvings):
            for e in cutlass.range_constexpr(width):
                other = cute.arch.shuffle_sync_bfly(totals[e], offset=cfg.group // 2 >> halving)
                totals[e] = combine(cfg, totals[e], other)
    else:
        smem = cutlass.memory.SmemAllocator()
        shared = smem.allocate_tensor(cutlass.Float32, cute.make_layout((cfg.threads, width)), 16)
        for e in cutlass.range_constexpr(width):
            shared[tidx, e] = totals[e]
        cute.arch.sync_threads()
        if tidx % cfg.group < cfg.tile:
            for other in cutlass.range_constexpr(1, cfg.split):
                for e in cutlass.range_constexpr(width):
                    totals[e] = combine(cfg, totals[e], shared[tidx + other * cfg.tile, e])


def finish(cfg: Static, total, count):
    """Return the result of a row with `count` neighbours."""
    if cutlass.const_expr(cfg.op == "mean"):
        total = total / cutlass.Float32(count)
    if cutlass.const_expr(cfg.op != "sum" and cfg.empty == "zero"):
        total = choose(count > 0, total, cutlass.Float32(0.0))
    return total


@cute.kernel
def aggregate_kernel(
    cfg: Static,
    x: cute.Tensor,
    indptr: cute.Tensor,
    indices: cute.Tensor,
    weights: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    extent: cutlass.Int32,
    vectors: cutlass.Int32,
    heads: Many[cutlass.Int32],
    width: cutlass.Constexpr,
):
    """Reduce ROWS rows of a CTA over TILE vectors of columns."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, tile, _ = cute.arch.block_idx()
    row = bidx * cfg.rows + tidx // cfg.group
    column = tile * cfg.tile + tidx % cfg.tile
    is_mine = (row < rows) & (column < vectors)
    begin, end = cutlass.Int32(0), cutlass.Int32(0)
    if is_mine:
        begin, end = cutlass.Int32(indptr[row]), cutlass.Int32(indptr[row + 1])
    first = begin + tidx % cfg.group // cfg.tile
    totals = cute.make_rmem_tensor(width, cutlass.Float32)
    totals.fill(cfg.identity)
    whole = first + cutlass.max(end - first, 0) // cfg.step * cfg.step
    for at in range(first, whole, cfg.step):
        add_neighbours(cfg, x, indices, weights, heads, totals, at, end, column, extent, vectors, width, True)
    if whole < end:
        add_neighbours(cfg, x, indices, weights, heads, totals, whole, end, column, extent, vectors, width, False)
    if cutlass.const_expr(cfg.split > 1):
        combine_groups(cfg, totals, tidx, width)
    if is_mine & (tidx % cfg.group < cfg.tile):
        result = cute.make_rmem_tensor(width, y.element_type)
        for e in cutlass.range_constexpr(width):
            result[e] = finish(cfg, totals[e], end - begin).to(y.element_type)
        cute.autovec_copy(result, y[cutlass.Int64(row) * vectors + column, None])
