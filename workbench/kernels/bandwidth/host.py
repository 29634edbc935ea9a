"""Host side of the read-only kernels: checks, the sums, the launch."""

import torch

from workbench.kernels.bandwidth.kernel import launch_l2, launch_shared
from workbench.kernels.host import call
from workbench.kernels.static import Static, bind
from workbench.kernels.tensors import device_key, expect_contiguous, view_flat


def read_l2(cfg: Static, x, passes, ctas):
    """Read x from L2, `passes` chunks by each of `ctas` CTAs: the sums of what each thread read, float32.

    x is float32, a multiple of a chunk's elements.
    """
    if x.dtype != torch.float32 or x.numel() == 0 or x.numel() % cfg.chunk:
        raise ValueError(f"read_l2 takes float32, a multiple of {cfg.chunk} elements, not {x.numel()} of {x.dtype}")
    expect_contiguous(x)
    sums = torch.empty(ctas * cfg.threads, dtype=torch.float32, device=x.device)
    chunks = x.numel() // cfg.chunk
    call(
        bind(launch_l2, cfg),
        (device_key(),),
        (view_flat(x, 16), view_flat(sums, 16), chunks, passes, ctas),
    )
    return sums


def read_shared(cfg: Static, x, passes, ctas):
    """Copy x to the shared memory of each of `ctas` CTAs and read it there: the sums of what each thread read, float32.

    x is float32, as many as the rows have. In every pass each warp reads one group of rows.
    """
    if x.dtype != torch.float32 or x.numel() != cfg.elements:
        raise ValueError(f"read_shared takes {cfg.elements} float32, not {x.numel()} of {x.dtype}")
    expect_contiguous(x)
    sums = torch.empty(ctas * cfg.threads, dtype=torch.float32, device=x.device)
    call(
        bind(launch_shared, cfg),
        (device_key(),),
        (view_flat(x, 16), view_flat(sums, 16), passes, ctas),
    )
    return sums
