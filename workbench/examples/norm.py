"""Residual add fused with RMSNorm or LayerNorm, over the last axis; the row is read once and stays in registers.

    total = x + residual                      (written back: it is the residual of the next layer)
    rms:   y = total * rsqrt(mean(total**2) + eps) * weight
    layer: y = (total - mean) * rsqrt(variance + eps) * weight + bias

The kernel is `workbench.kernels.norm`; this module configures, calls and checks it.

Such a kernel is bound by memory, so each byte is moved once: every thread loads its part of the row, 16 bytes per
access and neighbouring threads at neighbouring addresses (coalesced), all loads issued before the first is needed
(`load_row`), and keeps it in registers through both statistics and the output. A row is shared by just so many threads
that each holds about 16 elements (`row_threads`): a single warp for short rows (then a CTA has 4 rows and needs no
barrier), up to 1024 threads for long ones. Sums go over a warp by 5 shuffles and over the CTA's warps through 32 words
of shared memory (`row_sum`). The variance is the mean of squared differences from the mean, which costs a second sum
but no second read, and does not cancel as mean(x**2) - mean(x)**2 does (`row_statistics`). Statistics are float32
whatever the type; the order of summation is fixed, so the result is the same in every run.

    python -m workbench.examples.norm --rows 37 --columns 1000
"""

import argparse

import torch

from workbench.kernels.norm import host
from workbench.kernels.norm.config import NormConfig

CONFIGS = {
    (is_layer, adds): NormConfig(is_layer=is_layer, adds_residual=adds, per_thread=16)
    for is_layer in (False, True)
    for adds in (False, True)
}
NAMES = {name: name for name in ("x", "residual", "weight", "bias")}


def normalise(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """LayerNorm where there is a bias, else RMSNorm: (y, x + residual)."""
    added, shifts = () if residual is None else (residual,), () if bias is None else (bias,)
    config = CONFIGS[bias is not None, residual is not None]
    y, total = host.norm(config, NAMES, x, added, weight, shifts, eps)
    return y, total


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual (or of x) over the last axis: (y, x + residual), both of x's shape and type.

    x and residual (..., columns) are contiguous float32, float16 or bfloat16, columns at most 32768; weight (columns,)
    may be of another of these types. Raises ValueError, and TypeError for dtypes, for what the kernel does not take.
    """
    return normalise(x, weight, None, residual, eps)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None = None, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """LayerNorm of x + residual (or of x) over the last axis: (y, x + residual).

    Arguments as for `rms_norm`; bias (columns,) has weight's type.
    """
    return normalise(x, weight, bias, residual, eps)


def main(arguments: list[str] | None = None) -> None:
    """Normalise random rows, check against torch."""
    parser = argparse.ArgumentParser(description="fused residual add and norm")
    parser.add_argument("--rows", type=int, default=37)
    parser.add_argument("--columns", type=int, default=1000)
    options = parser.parse_args(arguments)
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 2e-2)):
        x, residual = (torch.randn(options.rows, options.columns, device="cuda").to(dtype) for _ in range(2))
        weight, bias = (torch.randn(options.columns, device="cuda").to(dtype) for _ in range(2))
        h = (x + residual).double()
        wanted = {
            "rms": h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * weight.double(),
            "layer": torch.nn.functional.layer_norm(h, (options.columns,), weight.double(), bias.double()),
        }
        for name, (y, total) in {
            "rms": rms_norm(x, weight, residual),
            "layer": layer_norm(x, weight, bias, residual),
        }.items():
            error = ((y.double() - wanted[name]).abs() / (1 + wanted[name].abs())).max().item()
            print(f"{name:5} {dtype}: total equal {torch.equal(total, x + residual)}, largest error {error:.2g}")
            assert torch.equal(total, x + residual) and error < tolerance


if __name__ == "__main__":
    main()
