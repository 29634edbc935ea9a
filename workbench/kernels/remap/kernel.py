"""Copies elements from other places: a thread has one column, or a vector of them, of several neighbouring rows."""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.static import Many, Static


@cute.jit
def find_place(cfg: Static, at, size, number):
    """Return where along an axis of `size` elements the result's place `at` lies; outside of it for a constant.

    `number`: elements in front (pads), or the size of x by that of the result (nearest), as torch computes it.
    """
    if cutlass.const_expr(cfg.mode == "flip"):
        place = size - 1 - at
    elif cutlass.const_expr(cfg.mode == "nearest"):
        place = cutlass.min(cutlass.Int32(at.to(cutlass.Float32) * number), size - 1)
    elif cutlass.const_expr(cfg.mode == "nearest_exact"):
        place = cutlass.min(cutlass.Int32((at.to(cutlass.Float32) + 0.5) * number), size - 1)
    elif cutlass.const_expr(cfg.mode == "replicate"):
        place = clamp_place(at - number, size)
    else:
        place = at - number
    if cutlass.const_expr(cfg.mode == "reflect"):
        place = cutlass.select_(place < 0, -place, place)
        place = cutlass.select_(place >= size, 2 * (size - 1) - place, place)
    if cutlass.const_expr(cfg.mode == "circular"):
        place = cutlass.select_(place < 0, place + size, place)
        place = cutlass.select_(place >= size, place - size, place)
    return place


def clamp_place(place, size):
    """Return the place of an axis of `size` elements that is nearest to another, which may lie outside of it."""
    return cutlass.max(cutlass.min(place, size - 1), 0)


@cute.jit
def find_outer(
    cfg: Static,
    outer,
    is_kept,
    stride,
    ends: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    numbers: Many,
):
    """Return where in x the innermost group `outer` of the result's rows begins, and whether it is kept in a constant.

    `stride`: elements, or vectors, of such a group of x; `ends`, `sizes`, `numbers`: of the groups around it.
    """
    rest = outer
    base = 0
    for (group, begin, _), end, extent, factor in zip(cfg.groups[1:], ends, sizes, numbers, strict=True):
        at = rest
        if cutlass.const_expr(begin is not None):
            at = rest % end
            rest = rest // end
        if cutlass.const_expr(group >= 0):
            at = find_place(cfg, at, extent, factor)
            if cutlass.const_expr(cfg.mode == "constant"):
                is_kept = is_kept & (at >= 0) & (at < extent)
                at = clamp_place(at, extent)
        base = base + at * stride
        stride = stride * extent
    return base, is_kept


@cute.kernel
def remap_kernel(
    cfg: Static,
    x: cute.Tensor,
    others: Many[cute.Tensor],
    out: cute.Tensor,
    columns: cutlass.Int32,
    size: cutlass.Int32,
    number,
    blocks: cutlass.Int32,
    outers: cutlass.Int32,
    ends: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    numbers: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Compute `width` neighbouring columns in each of `turns` rows per thread, which lie in one innermost group.

    `columns`, `size`: columns of the result and of x, in vectors; `number`: what `find_place` takes for them.
    `ends`, `sizes`, `numbers`: for each group of the rows the extents of the result and of x, and that number.
    `blocks`: threads for the rows of an innermost group, of which there are `outers`.
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    thread = bidx * cfg.threads + tidx
    column = thread % columns
    block = thread // columns
    top = block % blocks * turns
    outer = cutlass.min(block // blocks, outers - 1)
    rows = cutlass.select_(block // blocks < outers, ends[0] - top, 0)  # that the thread has, if fewer than `turns`
    base = column
    is_kept = True
    if cutlass.const_expr(cfg.moves_columns):
        base = find_place(cfg, column, size, number)
        if cutlass.const_expr(cfg.mode == "constant"):
            is_kept = (base >= 0) & (base < size)
            base = clamp_place(base, size)
    outer_base, is_kept = find_outer(cfg, outer, is_kept, size * sizes[0], ends[1:], sizes[1:], numbers[1:])
    base = base + outer_base
    parts = cute.make_rmem_tensor(cute.make_layout((width, turns)), x.element_type)
    read = tuple(cute.make_rmem_tensor(cute.make_layout((width, turns)), b.element_type) for b in others)
    target = (outer * ends[0] + top) * columns + column
    for turn in cutlass.range_constexpr(turns):  # the last rows may be read several times
        last = cutlass.min(top + turn, ends[0] - 1)
        at = last
        is_inside = is_kept
        if cutlass.const_expr(cfg.groups[0][0] >= 0):
            at = find_place(cfg, last, sizes[0], numbers[0])
            if cutlass.const_expr(cfg.mode == "constant"):
                is_inside = is_kept & (at >= 0) & (at < sizes[0])
                at = clamp_place(at, sizes[0])
        cute.autovec_copy(cute.zipped_divide(x, (width,))[None, base + at * size], parts[None, turn])
        if cutlass.const_expr(cfg.mode == "constant"):
            for e in cutlass.range_constexpr(width):
                constant = cutlass.Float32(cfg.value).to(x.element_type)
                parts[e, turn] = cutlass.select_(is_inside, parts[e, turn], constant)
        for b, part in zip(others, read, strict=True):
            place = target + (last - top) * columns
            cute.autovec_copy(cute.zipped_divide(b, (width,))[None, place], part[None, turn])
    for turn in cutlass.range_constexpr(turns):
        if turn < rows:
            place = target + turn * columns
            if cutlass.const_expr(cfg.is_plain):
                cute.autovec_copy(parts[None, turn], cute.zipped_divide(out, (width,))[None, place])
            else:
                result = cute.make_rmem_tensor(cute.make_layout(width), out.element_type)
                for e in cutlass.range_constexpr(width):
                    total = parts[e, turn].to(cutlass.Float32)
                    if cutlass.const_expr(cfg.expression is not None):
                        total = cfg.expression(total, *(part[e, turn].to(cutlass.Float32) for part in read))
                    result[e] = total.to(out.element_type)
                cute.autovec_copy(result, cute.zipped_divide(out, (width,))[None, place])


@cute.jit
def launch_remap(
    cfg: Static,
    x: cute.Tensor,
    others: Many[cute.Tensor],
    out: cute.Tensor,
    columns: cutlass.Int32,
    size: cutlass.Int32,
    number,
    blocks: cutlass.Int32,
    outers: cutlass.Int32,
    ends: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    numbers: Many,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    ctas = (blocks * outers * columns + (cfg.threads - 1)) // cfg.threads
    remap_kernel(cfg, x, others, out, columns, size, number, blocks, outers, ends, sizes, numbers, width, turns).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
