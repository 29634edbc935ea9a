"""Host side of histograms: checks, the result, sizes of tables and of the grid, the launch."""

import torch

from workbench.kernels.histogram.kernel import launch_histogram
from workbench.kernels.host import call, check_operand
from workbench.kernels.static import Static, bind
from workbench.kernels.tensors import access_width, count_sms, device_key, expect_contiguous, view_flat

INTEGERS = (torch.uint8, torch.int32, torch.int64)


def histogram(cfg: Static, names: Static, x, bins):
    """How often each of 0 to bins - 1 occurs in x: int32 (bins,). Other values are not counted.

    x is contiguous uint8, int32 or int64 of any shape with fewer than 2**31 elements.
    """
    check_operand(names["x"], x, x.shape, INTEGERS)
    if not 0 < bins <= cfg.max_bins:
        raise ValueError(f"bins must be from 1 to {cfg.max_bins}, not {bins}")
    if x.numel() >= 2**31:
        raise ValueError(f"{names['x']} has {x.numel()} elements: a count could exceed int32")
    expect_contiguous(x)
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    if x.numel() == 0:
        return counts
    capacity = 1 << (bins - 1).bit_length()
    copies = max(1, min(32, cfg.table_words // capacity))
    width = access_width(0, x)
    resident = max(1, min(4, cfg.sm_bytes // (4 * capacity * copies)))
    blocks = min(count_sms(x.device) * resident, -(-x.numel() // (width * cfg.threads)))
    call(
        bind(launch_histogram, cfg),
        (device_key(), x.dtype, capacity, copies, width),
        (
            view_flat(x, width * x.element_size()),
            view_flat(counts, 4),
            x.numel(),
            bins,
            blocks,
        ),
        (capacity, copies, width),
    )
    return counts
