"""The kernel of segment_softmax: exp(s - max) / sum(exp(s - max)) over the scores of each row, for each head.

A row is read twice: for its largest score and the sum together (online), and for its result; the second time it comes
from L1. `width` heads lie next to each other in the lanes of a group, so that it reads whole sectors. The parts of the
lanes and groups are put together in a fixed order.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.scalars import choose, exp
from workbench.kernels.static import Static


def merge(highest, total, other, other_total):
    """Return (the largest score, the sum) of two parts; a part without scores is (-inf, 0)."""
    most = cute.arch.fmax(highest, other, nan=True)
    own = choose(highest == most, cutlass.Float32(1.0), exp(highest - most))
    others = choose(other == most, cutlass.Float32(1.0), exp(other - most))
    return most, total * own + other_total * others


@cute.jit
def merge_lanes(cfg: Static, highest, total, width: cutlass.Constexpr):
    """Merge the parts of the lanes of a group that have one head."""
    step = cfg.tile // 2
    for halving in cutlass.range_constexpr(5):
        if cutlass.const_expr(step >> halving >= width):
            other = cute.arch.shuffle_sync_bfly(highest, offset=step >> halving)
            other_total = cute.arch.shuffle_sync_bfly(total, offset=step >> halving)
            highest, total = merge(highest, total, other, other_total)
    return highest, total


@cute.jit
def merge_groups(cfg: Static, highest, total, tidx):
    """Merge the parts of the groups of a row, in shared memory."""
    smem = cutlass.memory.SmemAllocator()
    parts = smem.allocate_tensor(cutlass.Float32, cute.make_layout((cfg.threads, 2)), 16)
    parts[tidx, 0] = highest
    parts[tidx, 1] = total
    cute.arch.sync_threads()
    start = tidx // cfg.group * cfg.group + tidx % cfg.tile
    highest, total = parts[start, 0], parts[start, 1]
    for other in cutlass.range_constexpr(1, cfg.split):
        place = start + other * cfg.tile
        highest, total = merge(highest, total, parts[place, 0], parts[place, 1])
    return highest, total


@cute.kernel
def segment_softmax_kernel(
    cfg: Static,
    scores: cute.Tensor,
    indptr: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    heads: cutlass.Int32,
    width: cutlass.Constexpr,
):
    """Normalise ROWS rows of a CTA for `width` heads."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, part, _ = cute.arch.block_idx()
    row = bidx * cfg.rows + tidx // cfg.group
    place = tidx % cfg.group
    head = part * width + place % width
    begin, end = cutlass.Int32(0), cutlass.Int32(0)
    if row < rows:
        begin, end = cutlass.Int32(indptr[row]), cutlass.Int32(indptr[row + 1])
    first = begin + place // width
    step = cfg.group // width
    highest, total = cutlass.Float32(float("-inf")), cutlass.Float32(0.0)
    loaded = cute.make_rmem_tensor(cfg.unroll, scores.element_type)
    for at in range(first, end, step * cfg.unroll):
        for turn in cutlass.range_constexpr(cfg.unroll):
            if at + turn * step < end:
                loaded[turn] = scores[cutlass.Int64(at + turn * step) * heads + head]
        for turn in cutlass.range_constexpr(cfg.unroll):
            if at + turn * step < end:
                highest, total = merge(highest, total, loaded[turn].to(cutlass.Float32), cutlass.Float32(1.0))
    highest, total = merge_lanes(cfg, highest, total, width)
    if cutlass.const_expr(cfg.split > 1):
        highest, total = merge_groups(cfg, highest, total, tidx)
    for at in range(first, end, step):
        where = cutlass.Int64(at) * heads + head
        y[where] = (exp(scores[where].to(cutlass.Float32) - highest) / total).to(y.element_type)


@cute.jit
def launch_segment_softmax(
    cfg: Static,
    scores: cute.Tensor,
    indptr: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    heads: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    ctas = (rows + cfg.rows - 1) // cfg.rows
    segment_softmax_kernel(cfg, scores, indptr, y, rows, heads, width).launch(
        grid=[ctas, heads // width, 1], block=[cfg.threads, 1, 1], stream=stream
    )
