"""Hopper products, run directly from the library on the emulator; small integers, so all sums are exact."""

from __future__ import annotations

import dataclasses

import cutlass
import pytest
import torch

from workbench.emulator import emulated
from workbench.kernels.gemm.sm90 import host
from workbench.kernels.gemm.sm90.config import GemmSm90Config
from workbench.kernels.operands import Read

NAMES = {"a": "a", "b": "b", "bias": "bias", "residual": "residual"}
BIAS, RESIDUAL = Read(role="bias", along="n"), Read(role="residual", along="both")


def matrix(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a matrix of small integers."""
    return torch.randint(-3, 4, (rows, columns), generator=torch.Generator().manual_seed(seed)).to(dtype)


def add_bias_and_residual(total, vectors, slices, e, tile, place, shape):
    """An epilogue with the kernel's parameters; `slices` holds the current subtile of the (m, n) tensor."""
    column = cutlass.min(tile[1] + place[1], shape[1] - 1)
    total = total + vectors[0][column].to(cutlass.Float32)
    return total + slices[0][e].to(cutlass.Float32)


def add_plain(total, operands, batch, row, column):
    """An epilogue for kernels that add split-K partial sums."""
    total = total + operands[0][column].to(cutlass.Float32)
    return total + operands[1][batch, row, column].to(cutlass.Float32)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("entry", "config", "shape"),
    [
        ("gemm", GemmSm90Config(kind="f16", tile=(64, 64, 64), epilogue=add_bias_and_residual), (72, 136, 72)),
        (
            "gemm",
            GemmSm90Config(
                kind="bf16",
                tile=(64, 64, 32),
                cluster=(2, 1),
                schedule="pingpong",
                stages=3,
                epilogue=add_bias_and_residual,
            ),
            (200, 72, 104),
        ),
        (
            "gemm",
            GemmSm90Config(kind="f16", tile=(64, 64, 16), stream_k=True, epilogue=add_bias_and_residual),
            (72, 136, 400),
        ),
        ("gemm_split_k", GemmSm90Config(kind="f16", tile=(64, 64, 32), split_k=2, epilogue=add_plain), (40, 72, 200)),
        (
            "gemm_split_k",
            GemmSm90Config(kind="f16", tile=(64, 64, 32), split_k=2, in_cluster=True, epilogue=add_plain),
            (40, 72, 200),
        ),
    ],
)
def test_products_with_an_epilogue(
    entry: str, config: GemmSm90Config, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.kernels.gemm.sm90.host.max_active_clusters", lambda cfg: 2)
    m, n, k = shape
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[config.kind]
    a, b, bias, residual = (
        matrix(m, k, dtype, 1),
        matrix(k, n, dtype, 2),
        matrix(1, n, dtype, 3)[0],
        matrix(m, n, dtype, 4),
    )
    config = dataclasses.replace(config, reads=(BIAS, RESIDUAL))
    with emulated(arch="sm_90a", device="H200") as emulation:
        got = getattr(host, entry)(config, NAMES, a, b, (bias, residual))
    assert torch.equal(got, (a.double() @ b.double() + bias.double() + residual.double()).to(dtype))
    assert not [finding for finding in emulation.findings if finding.severity == "error"]


@pytest.mark.slow
def test_rows_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.kernels.gemm.sm90.host.max_active_clusters", lambda cfg: 2)
    a, b = matrix(72, 40, torch.float16, 1), matrix(40, 136, torch.float16, 2)
    config = GemmSm90Config(kind="f16", tile=(64, 64, 32), reduction="max", reduces_rows=True, cast="f32")
    with emulated(arch="sm_90a", device="H200"):
        got = host.gemm_reduce(config, NAMES, a, b, ())
    assert torch.equal(got, (a.double() @ b.double()).amax(1).float())
