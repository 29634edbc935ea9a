"""Pooling with one output per thread; x and y are (planes, depth, height, width)."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.pool.window import combine, window_size
from workbench.kernels.static import Static


@cute.kernel
def pool_kernel(cfg: Static, x: cute.Tensor, y: cute.Tensor):
    """Compute one output per thread."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    planes, depth, height, width = y.shape
    index = cutlass.Int64(bidx) * cfg.threads + tidx
    if index < cutlass.Int64(planes) * depth * height * width:
        column = cutlass.Int32(index % width)
        rest = index // width
        row = cutlass.Int32(rest % height)
        layer = cutlass.Int32(rest // height % depth)
        plane = cutlass.Int32(rest // height // depth)
        total = -cutlass.Float32.inf if cfg.op == "max" else cutlass.Float32(0.0)
        for a in cutlass.range(cfg.window[0], unroll=1):
            i = layer * cfg.stride[0] - cfg.padding[0] + a * cfg.dilation[0]
            for b in cutlass.range(cfg.window[1], unroll=1):
                j = row * cfg.stride[1] - cfg.padding[1] + b * cfg.dilation[1]
                if i >= 0 and i < x.shape[1] and j >= 0 and j < x.shape[2]:
                    for c in cutlass.range(cfg.window[2], unroll=1):
                        k = column * cfg.stride[2] - cfg.padding[2] + c * cfg.dilation[2]
                        if k >= 0 and k < x.shape[3]:
                            total = combine(cfg, total, x[plane, i, j, k].to(cutlass.Float32))
        if cutlass.const_expr(cfg.is_counted):
            total = total / window_size(cfg, x, layer, row, column)
        elif cutlass.const_expr(cfg.op == "avg"):
            total = total * cfg.factor
        y[plane, layer, row, column] = total.to(y.element_type)


@cute.jit
def launch_pool(cfg: Static, x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    ctas = (cute.size(y) + cfg.threads - 1) // cfg.threads
    pool_kernel(cfg, x, y).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
