"""Histogram of integers: how often each of 0 .. bins - 1 occurs; private tables in shared memory, merged by atomics.

The kernel is `workbench.kernels.histogram`; this module configures, calls and checks it.

Counting straight into global memory would send every element through L2's atomic units, and equal values would queue at
one address. Here each CTA counts into its own table in shared memory (`count_elements`), and adds the table to the
result once, at the end: bins atomics instead of one per element.

Within a CTA, lanes of a warp that meet in one bin would still queue. So the table has up to 32 copies, interleaved:
copy c of bin b is word b * copies + c, and lane l counts in copy l % copies (`count_value`). With 32 copies a lane has
the bank of its own number to itself: no two lanes of a warp ever meet, in a bank or in a bin, however skewed the
values. Large tables have fewer copies (bins * copies is at most 16384 words where that is possible), and rely on values
being spread.

Elements are read once, 16 bytes per thread and access with `unroll` accesses in flight, by a grid of as many CTAs as
the SMs hold at a time. Integer sums do not depend on the order, so the result is exact and the same in every run.
Values outside 0 .. bins - 1 are not counted.

    python -m workbench.examples.histogram --count 1000003 --bins 1000
"""

import argparse

import torch

from workbench.kernels.histogram import host
from workbench.kernels.histogram.config import HistogramConfig

CONFIG = HistogramConfig(threads=512, unroll=4)


def histogram(x: torch.Tensor, bins: int) -> torch.Tensor:
    """Count how often each of 0 to bins - 1 occurs in x; returns int32 (bins,).

    x is contiguous uint8, int32 or int64 of any shape with fewer than 2**31 elements; bins at most 32768. Raises
    ValueError, and TypeError for dtypes, where the kernel does not take x.
    """
    counts: torch.Tensor = host.histogram(CONFIG, {"x": "x"}, x, bins)
    return counts


def main(arguments: list[str] | None = None) -> None:
    """Count random values, check against torch.bincount."""
    parser = argparse.ArgumentParser(description="histogram")
    parser.add_argument("--count", type=int, default=1_000_003)
    parser.add_argument("--bins", type=int, default=1000)
    options = parser.parse_args(arguments)
    for dtype in (torch.uint8, torch.int32, torch.int64):
        x = torch.randint(
            0, min(options.bins, 256 if dtype == torch.uint8 else options.bins), (options.count,), device="cuda"
        ).to(dtype)
        same = torch.equal(histogram(x, options.bins).long(), torch.bincount(x, minlength=options.bins))
        print(f"{dtype}: equal {same}")
        assert same


if __name__ == "__main__":
    main()
