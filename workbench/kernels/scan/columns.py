"""Scan along any axis but the last: tensors are (batches, scan axis, columns), one thread per column."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.scan.tile import combine
from workbench.kernels.static import Many, Static, dtype

PREFETCH = 8  # elements loaded before the first is used


@cute.jit
def load_element(cfg: Static, inputs: Many[cute.Tensor], batch, row, column):
    """Return the scanned value at one coordinate."""
    elements = tuple(x[batch, row, column].to(dtype(cfg.accumulator)) for x in inputs)
    return elements[0] if cutlass.const_expr(cfg.value is None) else cfg.value(*elements)


@cute.kernel
def scan_kernel(cfg: Static, inputs: Many[cute.Tensor], y: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32):
    """Scan one column per thread; neighbouring threads read neighbouring columns."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    # columns and batches share grid x: y and z are limited to 65535
    blocks = (columns + cfg.threads - 1) // cfg.threads
    block, batch = bidx % blocks, bidx // blocks
    column = block * cfg.threads + tidx
    if column < columns:
        running = dtype(cfg.accumulator)(cfg.identity)
        values = cute.make_rmem_tensor(PREFETCH, dtype(cfg.accumulator))
        values.fill(cfg.identity)
        for start in range(0, rows, PREFETCH):
            for i in cutlass.range_constexpr(PREFETCH):
                if start + i < rows:
                    row = rows - 1 - start - i if cutlass.const_expr(cfg.reverse) else start + i
                    values[i] = load_element(cfg, inputs, batch, row, column)
            for i in cutlass.range_constexpr(PREFETCH):
                if start + i < rows:
                    row = rows - 1 - start - i if cutlass.const_expr(cfg.reverse) else start + i
                    if cutlass.const_expr(cfg.exclusive):
                        y[batch, row, column] = running.to(y.element_type)
                        running = combine(cfg, running, values[i])
                    else:
                        running = combine(cfg, running, values[i])
                        y[batch, row, column] = running.to(y.element_type)


@cute.jit
def scan_columns(
    cfg: Static,
    inputs: Many[cute.Tensor],
    y: cute.Tensor,
    batches: cutlass.Int32,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    stream: cuda.CUstream,
):
    """Inputs and y (batches, rows, columns), scanned along rows."""
    num_ctas = ((columns + cfg.threads - 1) // cfg.threads) * batches
    scan_kernel(cfg, inputs, y, rows, columns).launch(grid=[num_ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
