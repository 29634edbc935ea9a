"""The kernels of aggregate on the merge path: groups of threads have even shares of neighbours and ends of rows.

The ends of rows and the neighbours, in order, are one list of `rows + edges` items: a row's neighbours, then its end
(Merrill and Garland 2016). Group g takes items g * ITEMS to (g + 1) * ITEMS, so a row with many neighbours is shared by
many groups, and a group may have many rows. A row that begins and ends in one group is written by it. Of others, groups
keep the part of the row that ends in them (`head`) and of the row that goes on (`tail`); parts are put together in
order, in shared memory inside a CTA, and across CTAs by a second kernel. There are no atomics. A row r begins at item
indptr[r] + r, so the group of that item is known without a search.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.aggregate.kernel import combine, finish
from workbench.kernels.gather.kernel import checked_offset
from workbench.kernels.static import Many, Static


@cute.jit
def find_row(indptr: cute.Tensor, rows, edges, item):
    """Return how many rows end before an item of the merge path."""
    low, high = cutlass.max(item - edges, 0), cutlass.min(item, rows)
    while low < high:
        middle = (low + high) >> 1
        if cutlass.Int32(indptr[middle + 1]) < item - middle:
            low = middle + 1
        else:
            high = middle
    return low


@cute.jit
def write_row(cfg: Static, totals, y: cute.Tensor, row, vectors, column, count, width: cutlass.Constexpr):
    """Write a row with `count` neighbours."""
    result = cute.make_rmem_tensor(width, y.element_type)
    for e in cutlass.range_constexpr(width):
        result[e] = finish(cfg, totals[e], count).to(y.element_type)
    cute.autovec_copy(result, y[cutlass.Int64(row) * vectors + column, None])


@cute.jit
def end_row(
    cfg: Static,
    totals,
    head,
    y: cute.Tensor,
    row,
    begin,
    end,
    item,
    vectors,
    column,
    is_mine,
    width: cutlass.Constexpr,
):
    """Write a row of neighbours `begin` to `end`, or keep its part if it begins before `item`; start the next row."""
    if begin + row < item:
        for e in cutlass.range_constexpr(width):
            head[e] = totals[e]
    elif is_mine:
        write_row(cfg, totals, y, row, vectors, column, end - begin, width)
    totals.fill(cfg.identity)


@cute.jit
def add_parts(cfg: Static, totals, tails: cute.Tensor, first, end, tidx, width: cutlass.Constexpr):
    """Take in the tails of a CTA's groups from `first` to before `end`."""
    for group in range(first, end):
        for e in cutlass.range_constexpr(width):
            totals[e] = combine(cfg, totals[e], tails[group * cfg.tile + tidx % cfg.tile, e])


@cute.jit
def load_places(cfg: Static, indices: cute.Tensor, places: cute.Tensor, begin, end, extent, vectors, tidx):
    """Load a CTA's indices from number `begin` to before `end`, each once, as places in x."""
    for at in range(begin + tidx, end, cfg.threads):
        number = cutlass.Int64(indices[at])
        places[at - begin] = checked_offset(number * vectors, number, extent)
    cute.arch.sync_threads()


@cute.jit
def reduce_items(
    cfg: Static,
    x: cute.Tensor,
    indptr: cute.Tensor,
    weights: Many[cute.Tensor],
    heads: Many[cutlass.Int32],
    y: cute.Tensor,
    places: cute.Tensor,
    totals,
    head,
    base,
    first,
    end,
    row,
    last,
    item,
    rows,
    vectors,
    column,
    is_mine,
    width: cutlass.Constexpr,
):
    """Reduce neighbours `first` to `end` and write the rows before `last`; `totals` keep the part of row `last`.

    `base` is the neighbour of the first of `places`. Loads of a step are all issued before the first is used.
    """
    begin, row_end = cutlass.Int32(indptr[row]), cutlass.Int32(indptr[cutlass.min(row + 1, rows)])
    values = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type)
    factors = tuple(cute.make_rmem_tensor(cfg.unroll, weight.element_type) for weight in weights)
    for at in range(first, end, cfg.unroll):
        for turn in cutlass.range_constexpr(cfg.unroll):
            number = cutlass.min(at + turn, end - 1)
            cute.autovec_copy(x[places[number - base] + column, None], values[None, turn])
            for weight, factor, count in zip(weights, factors, heads, strict=True):
                factor[turn] = weight[cutlass.Int64(number) * count + column * count // vectors]
        for turn in cutlass.range_constexpr(cfg.unroll):
            if at + turn < end:
                while row < last and row_end <= at + turn:
                    end_row(cfg, totals, head, y, row, begin, row_end, item, vectors, column, is_mine, width)
                    row, begin = row + 1, row_end
                    row_end = cutlass.Int32(indptr[cutlass.min(row + 1, rows)])
                for e in cutlass.range_constexpr(width):
                    value = values[e, turn].to(cutlass.Float32)
                    for factor in factors:
                        value = value * factor[turn].to(cutlass.Float32)
                    totals[e] = combine(cfg, totals[e], value)
    while row < last:
        end_row(cfg, totals, head, y, row, begin, row_end, item, vectors, column, is_mine, width)
        row, begin = row + 1, row_end
        row_end = cutlass.Int32(indptr[cutlass.min(row + 1, rows)])


@cute.jit
def join_groups(
    cfg: Static,
    indptr: cute.Tensor,
    y: cute.Tensor,
    parts: cute.Tensor,
    tails: cute.Tensor,
    totals,
    head,
    row,
    last,
    vectors,
    column,
    is_mine,
    width: cutlass.Constexpr,
):
    """Put together parts of rows inside a CTA: of `row`, if it ends in this group, and of `last` after the last group.

    Parts of rows that other CTAs have too go to `parts`: of a CTA's first row, then of its last.
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    group, start = tidx // cfg.tile, bidx * cfg.span
    begin = cutlass.Int32(indptr[row])
    if row < last and begin + row < start + group * cfg.items:
        totals.fill(cfg.identity)
        origin = (begin + row) // cfg.items - bidx * cfg.rows
        add_parts(cfg, totals, tails, cutlass.max(origin, 0), group, tidx, width)
        for e in cutlass.range_constexpr(width):
            totals[e] = combine(cfg, totals[e], head[e])
        if is_mine:
            if begin + row >= start:
                count = cutlass.Int32(indptr[row + 1]) - begin
                write_row(cfg, totals, y, row, vectors, column, count, width)
            else:
                cute.autovec_copy(totals, parts[cutlass.Int64(bidx) * 2 * vectors + column, None])
    if group == cfg.rows - 1 and is_mine:
        totals.fill(cfg.identity)
        origin = (cutlass.Int32(indptr[last]) + last) // cfg.items - bidx * cfg.rows
        add_parts(cfg, totals, tails, cutlass.max(origin, 0), cfg.rows, tidx, width)
        cute.autovec_copy(totals, parts[(cutlass.Int64(bidx) * 2 + 1) * vectors + column, None])


@cute.kernel
def merge_kernel(
    cfg: Static,
    x: cute.Tensor,
    indptr: cute.Tensor,
    indices: cute.Tensor,
    weights: Many[cute.Tensor],
    y: cute.Tensor,
    parts: cute.Tensor,
    rows: cutlass.Int32,
    edges: cutlass.Int32,
    extent: cutlass.Int32,
    vectors: cutlass.Int32,
    heads: Many[cutlass.Int32],
    width: cutlass.Constexpr,
):
    """Reduce SPAN items of a CTA over TILE vectors of columns, ITEMS of a group; `parts` are for the second kernel."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, tile, _ = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    places = smem.allocate_tensor(cutlass.Int64, cute.make_layout(cfg.span), 16)
    tails = smem.allocate_tensor(cutlass.Float32, cute.make_layout((cfg.threads, width)), 16)
    ended = smem.allocate_tensor(cutlass.Int32, cute.make_layout(cfg.bounds), 16)
    start, group, items = bidx * cfg.span, tidx // cfg.tile, rows + edges
    if tidx < cfg.bounds:
        ended[tidx] = find_row(indptr, rows, edges, cutlass.min(start + tidx * cfg.items, items))
    cute.arch.sync_threads()
    lower, upper = cutlass.Int32(indptr[0]), cutlass.Int32(indptr[rows])
    base = cutlass.max(start - ended[0], lower)
    bound = cutlass.min(cutlass.min(start + cfg.span, items) - ended[cfg.rows], upper)
    load_places(cfg, indices, places, base, bound, extent, vectors, tidx)

    item = cutlass.min(start + group * cfg.items, items)
    row, last = ended[group], ended[group + 1]
    first = cutlass.max(item - row, lower)
    end = cutlass.min(cutlass.min(item + cfg.items, items) - last, upper)
    is_mine = tile * cfg.tile + tidx % cfg.tile < vectors
    column = cutlass.min(tile * cfg.tile + tidx % cfg.tile, vectors - 1)
    totals = cute.make_rmem_tensor(width, cutlass.Float32)
    head = cute.make_rmem_tensor(width, cutlass.Float32)
    totals.fill(cfg.identity)
    head.fill(cfg.identity)
    reduce_items(
        cfg, x, indptr, weights, heads, y, places, totals, head, base, first, end, row, last, item, rows, vectors,
        column, is_mine, width,
    )  # fmt: skip
    for e in cutlass.range_constexpr(width):
        tails[tidx, e] = totals[e]
    cute.arch.sync_threads()
    join_groups(cfg, indptr, y, parts, tails, totals, head, row, last, vectors, column, is_mine, width)


@cute.kernel
def join_kernel(
    cfg: Static,
    indptr: cute.Tensor,
    y: cute.Tensor,
    parts: cute.Tensor,
    rows: cutlass.Int32,
    edges: cutlass.Int32,
    vectors: cutlass.Int32,
    width: cutlass.Constexpr,
):
    """Put together the parts of the row that ends in CTA `bidx + 1` of the first kernel and begins before it."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, tile, _ = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    tails = smem.allocate_tensor(cutlass.Float32, cute.make_layout((cfg.threads, width)), 16)
    last, group = bidx + 1, tidx // cfg.tile
    row = find_row(indptr, rows, edges, last * cfg.span)
    begin, end = cutlass.Int32(indptr[row]), cutlass.Int32(indptr[cutlass.min(row + 1, rows)])
    first = cutlass.max((begin + row) // cfg.span, 0)
    if row < rows and first < last and (end + row) // cfg.span == last:
        is_mine = tile * cfg.tile + tidx % cfg.tile < vectors
        column = cutlass.min(tile * cfg.tile + tidx % cfg.tile, vectors - 1)
        totals = cute.make_rmem_tensor(width, cutlass.Float32)
        totals.fill(cfg.identity)
        values = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), cutlass.Float32)
        for cta in range(first + group, last, cfg.step):
            for turn in cutlass.range_constexpr(cfg.unroll):
                place = cutlass.Int64(cutlass.min(cta + turn * cfg.rows, last - 1)) * 2 + 1
                cute.autovec_copy(parts[place * vectors + column, None], values[None, turn])
            for turn in cutlass.range_constexpr(cfg.unroll):
                if cta + turn * cfg.rows < last:
                    for e in cutlass.range_constexpr(width):
                        totals[e] = combine(cfg, totals[e], values[e, turn])
        for e in cutlass.range_constexpr(width):
            tails[tidx, e] = totals[e]
        cute.arch.sync_threads()
        if group == 0 and is_mine:
            cute.autovec_copy(parts[cutlass.Int64(last) * 2 * vectors + column, None], values[None, 0])
            add_parts(cfg, totals, tails, 1, cfg.rows, tidx, width)
            for e in cutlass.range_constexpr(width):
                totals[e] = combine(cfg, totals[e], values[e, 0])
            write_row(cfg, totals, y, row, vectors, column, end - begin, width)
