"""The launch of aggregate: the kernel of a row for each group of threads, or the two kernels of the merge path."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.aggregate.kernel import aggregate_kernel
from workbench.kernels.aggregate.merge_path import join_kernel, merge_kernel
from workbench.kernels.static import Many, Static


@cute.jit
def launch_aggregate(
    cfg: Static,
    x: cute.Tensor,
    indptr: cute.Tensor,
    indices: cute.Tensor,
    weights: Many[cute.Tensor],
    y: cute.Tensor,
    parts: Many[cute.Tensor],
    rows: cutlass.Int32,
    extent: cutlass.Int32,
    vectors: cutlass.Int32,
    heads: Many[cutlass.Int32],
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    tiles = (vectors + cfg.tile - 1) // cfg.tile
    if cutlass.const_expr(cfg.items > 0):
        edges = cutlass.Int32(cute.size(indices))
        ctas = (rows + edges + cfg.span - 1) // cfg.span
        merge_kernel(cfg, x, indptr, indices, weights, y, *parts, rows, edges, extent, vectors, heads, width).launch(
            grid=[ctas, tiles, 1], block=[cfg.threads, 1, 1], stream=stream
        )
        if ctas > 1:
            join_kernel(cfg, indptr, y, *parts, rows, edges, vectors, width).launch(
                grid=[ctas - 1, tiles, 1], block=[cfg.threads, 1, 1], stream=stream
            )
    else:
        ctas = (rows + cfg.rows - 1) // cfg.rows
        aggregate_kernel(cfg, x, indptr, indices, weights, y, rows, extent, vectors, heads, width).launch(
            grid=[ctas, tiles, 1], block=[cfg.threads, 1, 1], stream=stream
        )
