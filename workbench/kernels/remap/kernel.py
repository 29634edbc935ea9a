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
    else:
        place = at - number
    if cutlass.const_expr(cfg.mode == "replicate"):
        place = cutlass.max(cutlass.min(place, size - 1), 0)
    if cutlass.const_expr(cfg.mode == "reflect"):
        place = cutlass.select_(place < 0, -place, place)
        place = cutlass.select_(place >= size, 2 * (size - 1) - place, place)
    if cutlass.const_expr(cfg.mode == "circular"):
        place = cutlass.select_(place < 0, place + size, place)
        place = cutlass.select_(place >= size, place - size, place)
    return place


@cute.kernel
def remap_kernel(
    cfg: Static,
    x: cute.Tensor,
    others: Many[cute.Tensor],
    out: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    size: cutlass.Int32,
    number,
    leading: cutlass.Int32,
    ends: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    numbers: Many,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Compute `width` neighbouring columns in each of `turns` rows per thread.

    `columns`: of the result, in vectors. `size`: columns of x, in elements; `number`: what `find_place` takes for them.
    `ends`, `sizes`, `numbers`: for each group of the rows the extents of the result and of x, and that number.
    `leading`: elements of x for one place of the axes before the groups.
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    thread = bidx * cfg.threads + tidx
    first = thread // columns * turns
    column = thread % columns
    source_column = column
    is_column = True
    if cutlass.const_expr(cfg.moves_columns):
        source_column = find_place(cfg, column, size, number)
        if cutlass.const_expr(cfg.mode == "constant"):
            is_column = source_column >= 0 and source_column < size
    for turn in cutlass.range_constexpr(turns):
        row = first + turn
        if row < rows:
            rest, stride, source, is_inside = row, size, source_column * width, is_column
            for (group, _, _), end, extent, factor in zip(cfg.groups, ends, sizes, numbers, strict=True):
                at = rest % end
                rest = rest // end
                if cutlass.const_expr(group >= 0):
                    at = find_place(cfg, at, extent, factor)
                    if cutlass.const_expr(cfg.mode == "constant"):
                        is_inside = is_inside and at >= 0 and at < extent
                source = source + at * stride
                stride = stride * extent
            source = source + rest * leading
            part = cute.make_rmem_tensor(cute.make_layout(width), x.element_type)
            if cutlass.const_expr(cfg.mode == "constant"):
                for e in cutlass.range_constexpr(width):
                    part[e] = cutlass.Float32(cfg.value).to(x.element_type)
                if is_inside:
                    cute.autovec_copy(cute.zipped_divide(x, (width,))[None, source // width], part)
            else:
                cute.autovec_copy(cute.zipped_divide(x, (width,))[None, source // width], part)
            target = row * columns + column
            if cutlass.const_expr(cfg.is_plain):
                cute.autovec_copy(part, cute.zipped_divide(out, (width,))[None, target])
            else:
                read = tuple(cute.make_rmem_tensor(cute.make_layout(width), b.element_type) for b in others)
                for b, fragment in zip(others, read, strict=True):
                    cute.autovec_copy(cute.zipped_divide(b, (width,))[None, target], fragment)
                result = cute.make_rmem_tensor(cute.make_layout(width), out.element_type)
                for e in cutlass.range_constexpr(width):
                    total = part[e].to(cutlass.Float32)
                    if cutlass.const_expr(cfg.expression is not None):
                        total = cfg.expression(total, *(fragment[e].to(cutlass.Float32) for fragment in read))
                    result[e] = total.to(out.element_type)
                cute.autovec_copy(result, cute.zipped_divide(out, (width,))[None, target])


@cute.jit
def launch_remap(
    cfg: Static,
    x: cute.Tensor,
    others: Many[cute.Tensor],
    out: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    size: cutlass.Int32,
    number,
    leading: cutlass.Int32,
    ends: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    numbers: Many,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    threads = (rows + (turns - 1)) // turns * columns
    remap_kernel(cfg, x, others, out, rows, columns, size, number, leading, ends, sizes, numbers, width, turns).launch(
        grid=[(threads + (cfg.threads - 1)) // cfg.threads, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
