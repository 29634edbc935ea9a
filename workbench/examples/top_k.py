"""The k largest elements of each row, with their indices, largest first.

The kernel is `workbench.kernels.top_k`; this module configures, calls and checks it. Of equal elements the one with the
lowest index comes first.

An element and its index become one 64-bit key: the value's bits, mapped so that they compare as integers
(`order_bits`), above the complement of the index. Keys are all different, so one comparison decides everything, ties
too, and the result does not depend on the order in which elements are met.

Each warp keeps the best keys seen so far sorted across its lanes: `blocks` registers per lane, register b of lane l
being number 32*b + l. It streams through its part of the row, 16 bytes per lane and access (coalesced), and compares
with the k-th best so far (`scan_row`). Few elements pass: of random data about k * ln(n / k). Those that do are packed
into a queue in shared memory with a ballot (a lane's place is the number of passing lanes below it); whenever 32 are
there, they are sorted by a bitonic network of shuffles (`sort_lanes`) and merged into the list (`merge_into`), which
raises the bar for all that follow.

A row is the work of one warp if it is short, of 8 or 32 if it is long; then the warps' lists are merged pairwise
through shared memory, in log2(warps) rounds (`merge_warps`).

    python -m workbench.examples.top_k --rows 9 --columns 5001 --k 20
"""

import argparse

import torch

from workbench.kernels.top_k import host
from workbench.kernels.top_k.config import TopKConfig

CONFIG = TopKConfig(unroll=4, rows_per_cta=4)


def top_k(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of each row of x, largest first: (values, int64 indices), both (..., k).

    x (..., columns) is contiguous float32, float16 or bfloat16; 1 <= k <= 128 and k <= columns. Of equal elements the
    one with the lowest index comes first; NaN counts as larger than everything. Raises ValueError, and TypeError for
    dtypes, where the kernel does not take x.
    """
    values, indices = host.top_k(CONFIG, {"x": "x"}, x, k)
    return values, indices


def main(arguments: list[str] | None = None) -> None:
    """The largest of random rows, with many ties, checked against a stable sort."""
    parser = argparse.ArgumentParser(description="top k of each row")
    parser.add_argument("--rows", type=int, default=9)
    parser.add_argument("--columns", type=int, default=5001)
    parser.add_argument("--k", type=int, default=20)
    options = parser.parse_args(arguments)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randint(-100, 100, (options.rows, options.columns), device="cuda").to(dtype)
        sorted_values, sorted_indices = torch.sort(x, dim=-1, descending=True, stable=True)
        values, indices = top_k(x, options.k)
        same = torch.equal(values, sorted_values[:, : options.k]), torch.equal(indices, sorted_indices[:, : options.k])
        print(f"{dtype}: values equal {same[0]}, indices equal {same[1]}")
        assert all(same)


if __name__ == "__main__":
    main()
