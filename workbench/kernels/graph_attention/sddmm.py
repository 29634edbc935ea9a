"""The kernel of sddmm: for each neighbour e of row r the product q[r] . k[indices[e]], or the sum q[r] + k[indices[e]].

TILE threads share the columns of a neighbour, in vectors; SPLIT such groups share the neighbours of a row, and each has
UNROLL of them at once. For dot a CTA's second number is the head, and the product is added up by shuffles.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.gather.kernel import checked_offset
from workbench.kernels.static import Static


@cute.jit
def score_neighbours(
    cfg: Static,
    q: cute.Tensor,
    k: cute.Tensor,
    indices: cute.Tensor,
    y: cute.Tensor,
    first,
    end,
    row,
    lane,
    head,
    extent,
    heads,
    vectors,
    width: cutlass.Constexpr,
):
    """Compute the products of a group's next UNROLL neighbours, from number `first` on."""
    scores = cute.make_rmem_tensor(cfg.unroll, cutlass.Float32)
    scores.fill(0.0)
    own = cute.make_rmem_tensor(width, q.element_type)
    parts = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), k.element_type)
    for column in range(lane, vectors, cfg.tile):
        if first < end:
            cute.autovec_copy(q[(cutlass.Int64(row) * heads + head) * vectors + column, None], own)
        for turn in cutlass.range_constexpr(cfg.unroll):
            at = first + turn * cfg.split
            if at < end:
                number = cutlass.Int64(indices[at])
                place = checked_offset((number * heads + head) * vectors + column, number, extent)
                cute.autovec_copy(k[place, None], parts[None, turn])
        for turn in cutlass.range_constexpr(cfg.unroll):
            if first + turn * cfg.split < end:
                for e in cutlass.range_constexpr(width):
                    scores[turn] = scores[turn] + own[e].to(cutlass.Float32) * parts[e, turn].to(cutlass.Float32)
    for turn in cutlass.range_constexpr(cfg.unroll):
        for halving in cutlass.range_constexpr(cfg.halvings):
            scores[turn] = scores[turn] + cute.arch.shuffle_sync_bfly(scores[turn], offset=cfg.tile // 2 >> halving)
        at = first + turn * cfg.split
        if (at < end) & (lane == 0):
            y[cutlass.Int64(at) * heads + head] = scores[turn].to(y.element_type)


@cute.jit
def add_to_neighbours(
    cfg: Static,
    q: cute.Tensor,
    k: cute.Tensor,
    indices: cute.Tensor,
    y: cute.Tensor,
    first,
    end,
    row,
    lane,
    extent,
    vectors,
    width: cutlass.Constexpr,
):
    """Add the row's own columns to those of a group's next UNROLL neighbours, from number `first` on."""
    own = cute.make_rmem_tensor(width, q.element_type)
    parts = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), k.element_type)
    for column in range(lane, vectors, cfg.tile):
        cute.autovec_copy(q[cutlass.Int64(row) * vectors + column, None], own)
        for turn in cutlass.range_constexpr(cfg.unroll):
            at = first + turn * cfg.split
            if at < end:
                number = cutlass.Int64(indices[at])
                cute.autovec_copy(k[checked_offset(number * vectors + column, number, extent), None], parts[None, turn])
        for turn in cutlass.range_constexpr(cfg.unroll):
            at = first + turn * cfg.split
            if at < end:
                sums = cute.make_rmem_tensor(width, y.element_type)
                for e in cutlass.range_constexpr(width):
                    total = own[e].to(cutlass.Float32) + parts[e, turn].to(cutlass.Float32)
                    sums[e] = total.to(y.element_type)
                cute.autovec_copy(sums, y[cutlass.Int64(at) * vectors + column, None])


@cute.kernel
def sddmm_kernel(
    cfg: Static,
    q: cute.Tensor,
    k: cute.Tensor,
    indptr: cute.Tensor,
    indices: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    extent: cutlass.Int32,
    heads: cutlass.Int32,
    vectors: cutlass.Int32,
    width: cutlass.Constexpr,
):
    """Compute the scores of ROWS rows of a CTA."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, head, _ = cute.arch.block_idx()
    row = bidx * cfg.rows + tidx // cfg.group
    lane = tidx % cfg.tile
    begin, end = cutlass.Int32(0), cutlass.Int32(0)
    if row < rows:
        begin, end = cutlass.Int32(indptr[row]), cutlass.Int32(indptr[row + 1])
    first = begin + tidx % cfg.group // cfg.tile
    if cutlass.const_expr(cfg.op == "dot"):
        # the lanes of a warp take as many turns, because they shuffle: those of a shorter row take empty ones
        turns = cute.arch.warp_redux_sync((end - begin + (cfg.step - 1)) // cfg.step, "max")
        for turn in range(turns):
            score_neighbours(
                cfg,
                q,
                k,
                indices,
                y,
                first + turn * cfg.step,
                end,
                row,
                lane,
                head,
                extent,
                heads,
                vectors,
                width,
            )
    else:
        for at in range(first, end, cfg.step):
            add_to_neighbours(cfg, q, k, indices, y, at, end, row, lane, extent, vectors, width)


@cute.jit
def launch_sddmm(
    cfg: Static,
    q: cute.Tensor,
    k: cute.Tensor,
    indptr: cute.Tensor,
    indices: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    extent: cutlass.Int32,
    heads: cutlass.Int32,
    vectors: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    ctas = (rows + cfg.rows - 1) // cfg.rows
    sddmm_kernel(cfg, q, k, indptr, indices, y, rows, extent, heads, vectors, width).launch(
        grid=[ctas, heads, 1], block=[cfg.threads, 1, 1], stream=stream
    )
