"""Sum, maximum or minimum of all elements of a tensor, in one launch.

The kernel is `workbench.kernels.reduce_all`; this module configures, calls and checks it.

A grid of a few CTAs per SM walks over the data with a grid stride (`reduce_elements`). Each thread keeps `unroll` loads
of 16 bytes in flight, which hides the latency of memory; neighbouring threads read neighbouring 16 bytes, so that a
warp's request is 512 contiguous bytes. Each thread accumulates in a register, warps combine by shuffles, the CTA's
warps through shared memory (`reduce_cta`), and thread 0 writes the CTA's partial result to a workspace.

Last-CTA finish (`reduce_all_kernel`). No CTA waits for another. Thread 0 makes its partial visible to the whole GPU and
then increments a counter, in one atomic with acquire-release order; whoever counts last knows that all partials are
there. That CTA combines them, in the order of their CTAs: the result does not depend on who was last, and is the same
in every run. It also sets the counter back to 0 for the next call, so that no memset is needed.

Sums of float16, bfloat16 and float32 are accumulated in float32, sums of int32 in int64 as torch does; maximum and
minimum keep the type. NaN is not propagated by maximum and minimum (IEEE 754 maximumNumber, which is what max.f32
does).

    python -m workbench.examples.reduce_all --count 1000003
"""

import argparse

import torch

from workbench.kernels.reduce_all import host
from workbench.kernels.reduce_all.config import OPS, ReduceAllConfig

CONFIGS = {op: ReduceAllConfig(op=op, threads=256, unroll=4, ctas_per_sm=8) for op in OPS}


def reduce_all(x: torch.Tensor, op: str = "sum") -> torch.Tensor:
    """The sum, max or min of all elements of x, as a tensor without dimensions.

    x is contiguous, of any shape: float32, float16, bfloat16 or int32. The result is float32 for floating-point sums,
    int64 for integer sums, and x's type for max and min. Bitwise reproducible on one device. Raises ValueError, and
    TypeError for dtypes, where the kernel does not take x.
    """
    if op not in CONFIGS:
        raise ValueError(f"op must be one of {', '.join(OPS)}, not {op!r}")
    result: torch.Tensor = host.reduce_all(CONFIGS[op], {"x": "x"}, x)
    return result


def main(arguments: list[str] | None = None) -> None:
    """Reduce random numbers, check against torch."""
    parser = argparse.ArgumentParser(description="full reduction")
    parser.add_argument("--count", type=int, default=1_000_003)
    options = parser.parse_args(arguments)
    x = torch.randint(-50, 50, (options.count,), dtype=torch.int32, device="cuda")
    for op in OPS:
        ours, theirs = reduce_all(x, op).item(), getattr(torch, op)(x).item()
        print(f"{op:4}int32    ours {ours}  torch {theirs}")
        assert ours == theirs
    y = x.to(torch.bfloat16)
    ours, theirs = reduce_all(y).item(), y.double().sum().item()
    print(f"sum bfloat16 ours {ours}  exact {theirs}")
    assert abs(ours - theirs) <= 1e-6 * y.double().abs().sum().item()


if __name__ == "__main__":
    main()
