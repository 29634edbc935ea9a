"""Online softmax on tensor core accumulators, shared by the wgmma and mma.sync attention kernels.

The accumulator layouts of wgmma (m64nN) and mma.sync (m16n8, warps along m) agree: element e of a thread lies in row e
// 2 % 2, which is 8 rows apart, and in column e // 4 * 8 + e % 2, relative to the thread's first element. Four
neighbouring threads share a row.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def view_rows(accumulator):
    """View a thread's accumulators as (2 rows, elements of a row)."""
    layout = cute.make_layout((2, (2, cute.size(accumulator) // 4)), stride=(2, (1, 4)))
    return cute.make_tensor(accumulator.iterator, layout)


@cute.jit
def mask_scores(cfg: Static, tSrS, row, column, keys):
    """Set scores of masked and out-of-range keys to minus infinity.

    `row` and `column` are those of this thread's first element.
    """
    for half in cutlass.range_constexpr(2):
        limit = keys - column
        if cutlass.const_expr(cfg.causal):
            limit = cutlass.min(limit, row + half * 8 + 1 - column)
        scores = view_rows(tSrS)[half, None]
        for e in cutlass.range(cute.size(scores), unroll_full=True):
            scores[e] = scores[e] if e // 2 * 8 + e % 2 < limit else -cutlass.Float32.inf


@cute.jit
def update_softmax(tSrS, row_max, row_sum, scale_log2, masked: cutlass.Constexpr):
    """Replace the scores by exponentials in place and update the running max and sum of the thread's two rows.

    Return the two factors that rescale the O accumulated so far.
    """
    rescale = cute.make_rmem_tensor(2, cutlass.Float32)
    for half in cutlass.range_constexpr(2):
        scores = view_rows(tSrS)[half, None]
        top = scores.load().reduce(cute.ReductionOp.MAX, row_max[half], 0)
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
        base = top * scale_log2
        if cutlass.const_expr(masked):
            # if all keys of this row are masked so far, the maximum is -inf
            base = cutlass.Float32(0.0) if top == -cutlass.Float32.inf else base
        rescale[half] = cute.math.exp2(row_max[half] * scale_log2 - base, fastmath=True)
        scores.store(cute.math.exp2(scores.load() * scale_log2 - base, fastmath=True))
        row_sum[half] = scores.load().reduce(cute.ReductionOp.ADD, row_sum[half] * rescale[half], 0)
        row_max[half] = top
    return rescale


@cute.jit
def scale_rows(accumulator, factors):
    """Multiply each of a thread's two rows by its factor."""
    for half in cutlass.range_constexpr(2):
        row = view_rows(accumulator)[half, None]
        row.store(row.load() * factors[half])


@cute.jit
def normalize(cfg: Static, tOrO, row_sum):
    """Divide O by its row sums, which four threads hold in parts."""
    for half in cutlass.range_constexpr(2):
        total = row_sum[half] + cute.arch.shuffle_sync_bfly(row_sum[half], 1)
        total = total + cute.arch.shuffle_sync_bfly(total, 2)
        if cutlass.const_expr(cfg.mask is not None and cfg.mask.empty == "zero"):
            total = cutlass.Float32(1.0) if total == 0.0 else total
        row_sum[half] = 1.0 / total
    scale_rows(tOrO, row_sum)


@cute.jit
def store_rows(tOrO, gO: cute.Tensor, row, column):
    """Store a thread's elements of O to gO (queries, dim), predicated; `row` and `column` are those of the first."""
    for half in cutlass.range_constexpr(2):
        values = view_rows(tOrO)[half, None]
        if row + half * 8 < gO.shape[0]:
            for e in cutlass.range(cute.size(values), unroll_full=True):
                if column + e // 2 * 8 + e % 2 < gO.shape[1]:
                    gO[row + half * 8, column + e // 2 * 8 + e % 2] = values[e].to(gO.element_type)
