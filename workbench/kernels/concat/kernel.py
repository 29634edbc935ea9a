"""Copies a matrix into columns of another."""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.static import Static


@cute.kernel
def copy_kernel(cfg: Static, source: cute.Tensor, target: cute.Tensor, count: cutlass.Int32):
    """Copy one word per thread."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * cfg.threads + tidx
    if i < count:
        columns = source.shape[1]
        target[i // columns, i % columns] = source[i // columns, i % columns]


@cute.jit
def launch_copy(cfg: Static, source: cute.Tensor, target: cute.Tensor, count: cutlass.Int32, stream: cuda.CUstream):
    ctas = (count + cfg.threads - 1) // cfg.threads
    copy_kernel(cfg, source, target, count).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
