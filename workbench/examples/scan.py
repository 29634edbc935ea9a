"""Inclusive prefix sums along the last axis, in one pass over memory: decoupled look-back (Merrill and Garland, 2016).

The kernel is `workbench.kernels.scan.lookback`, in the configurations below. A row is cut into tiles of threads x
per_thread elements, one per CTA; every element is read once and written once. A CTA

1. draws a ticket: tiles are numbered in the order in which CTAs start, so that a tile's predecessors are always running
   or done, and waiting for them cannot deadlock whatever the hardware's schedule;
2. loads its tile, 16 bytes per thread and access, neighbouring threads at neighbouring addresses (coalesced), and keeps
   it in registers (`load_tile`);
3. scans it: each thread its own vectors, each warp by 5 shuffles per vector (`scan_warp`), the warps through shared
   memory;
4. publishes its total, looks back for the sum of all tiles before it, and publishes its prefix (`exchange`);
5. adds the sum before it to its registers and stores them, coalesced as the loads (`store_tile`).

Look-back is one warp's work: lane i reads the status of the (i+1)-th tile before, 32 tiles at a time, until one has its
whole prefix (`look_back`). A status is one 64-bit word, state in the upper half and value in the lower: written and
read at once, state and value cannot be torn apart, so that no fence is needed.

int32 is exact (modulo 2**32). In float32 the last bits depend on how far each look-back went, and so may differ from
run to run.

    python -m workbench.examples.scan --rows 33 --columns 10001
"""

import argparse

import torch

from workbench.kernels.scan.config import ScanConfig
from workbench.kernels.scan.host import launch_lookback
from workbench.kernels.tensors import expect_contiguous

CONFIGS = {
    torch.int32: ScanConfig(lookback=True, threads=256, per_thread=16, accumulator="i32"),
    torch.float32: ScanConfig(lookback=True, threads=256, per_thread=16),
}


def scan(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Inclusive prefix sums of x (..., columns), int32 or float32, contiguous, along the last axis.

    They are written to `out` if given, of x's shape and type. Raises ValueError, and TypeError for dtypes, for what
    the kernel does not take.
    """
    if x.dtype not in CONFIGS:
        raise TypeError(f"scan takes int32 and float32, not {x.dtype}")
    if x.dim() == 0:
        raise ValueError("scan needs at least one axis")
    y = torch.empty_like(x) if out is None else out
    if y.shape != x.shape or y.dtype != x.dtype:
        raise ValueError(f"out must have shape {tuple(x.shape)} and type {x.dtype}")
    expect_contiguous(x, y)
    config = CONFIGS[x.dtype]
    if x.numel() > 0:
        tiles = x.numel() // x.shape[-1] * -(-x.shape[-1] // config.tile)
        if tiles >= 2**31:
            raise ValueError("scan takes at most 2**31 - 1 tiles")
        launch_lookback(config, (x,), y)
    return y


def main(arguments: list[str] | None = None) -> None:
    """Scan random integers and floats, check against torch."""
    parser = argparse.ArgumentParser(description="inclusive prefix sums")
    parser.add_argument("--rows", type=int, default=33)
    parser.add_argument("--columns", type=int, default=10001)
    options = parser.parse_args(arguments)
    x = torch.randint(-1000, 1000, (options.rows, options.columns), dtype=torch.int32, device="cuda")
    exact = torch.cumsum(x, -1, dtype=torch.int32)
    print("int32   equal:", same := torch.equal(scan(x), exact))
    assert same
    error = (scan(x.float()) - exact).abs().max().item()  # integers below 2**24 in float32: exact too
    print("float32 largest error:", error)
    assert error == 0


if __name__ == "__main__":
    main()
