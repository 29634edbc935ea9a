"""The worked examples on the emulator against torch: odd shapes, every type, what is refused.

Integers wherever sums are to be exact.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from workbench.examples import conv2d, histogram, norm, reduce_all, scan, split_k, top_k, transpose
from workbench.kernels.gemm.split_k_host import choose_splits
from workbench.kernels.tensors import zero_counters

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def emulation() -> Iterator[Any]:
    """One emulated H200 per test; nothing may be found but advice."""
    torch.manual_seed(7)
    with workbench.emulated(device="H200") as active:
        yield active
        assert all(finding.severity == "advice" for finding in active.findings)


def integers(*shape: int, dtype: torch.dtype, most: int = 2) -> torch.Tensor:
    return torch.randint(-most, most + 1, shape, device="cuda").to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "n", "k", "b_along_k", "splits", "tile", "dtype"),
    [
        (1, 3, 129, True, None, None, torch.float16),  # 2-byte copies
        (70, 66, 320, False, 3, (64, 64), torch.bfloat16),  # 4-byte copies of b; 3 slices of 2, 2 and 1 tiles
        (130, 136, 200, True, 2, None, torch.bfloat16),
        (24, 40, 64, False, 1, None, torch.float16),  # one slice
    ],
)
def test_split_k(m: int, n: int, k: int, b_along_k: bool, splits: int | None, tile: Any, dtype: torch.dtype) -> None:
    a, b = integers(m, k, dtype=dtype), integers(n, k, dtype=dtype).t() if b_along_k else integers(k, n, dtype=dtype)
    exact = a.double() @ b.double()
    for deterministic in (True, False):
        d = split_k.matmul(a, b, deterministic=deterministic, splits=splits, tile=tile)
        assert d.dtype == (dtype if deterministic else torch.float32) and torch.equal(d, exact.to(d.dtype))


@pytest.mark.slow
def test_split_k_has_the_same_bits_in_every_run_and_leaves_its_semaphores_zero(emulation: Any) -> None:
    a, b = torch.randn(40, 640, device="cuda").half(), torch.randn(640, 24, device="cuda").half()
    first, second = (split_k.matmul(a, b, splits=5, tile=(64, 64)) for _ in range(2))
    assert torch.equal(first, second) and (first.double() - a.double() @ b.double()).abs().max() < 0.05
    assert [launch.grid for launch in emulation.launches] == [(1, 1, 5)] * 2
    assert not zero_counters(a.device, 1).any()


def test_splits_fill_the_machine() -> None:
    large, small = (split_k.configure(torch.float16, tile) for tile in (split_k.LARGE, split_k.SMALL))
    assert choose_splits(large, 512, 512, 32768, 132) == 16
    assert choose_splits(large, 8192, 8192, 8192, 132) == 1
    assert choose_splits(small, 64, 64, 200, 132) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [
        (5, 77, torch.float32),  # single elements, a warp per row
        (3, 1000, torch.bfloat16),
        (2, 4100, torch.float32),  # several warps per row, the last part short
        (1, 20000, torch.float16),  # 1024 threads, weights loaded late
    ],
)
def test_norms(rows: int, columns: int, dtype: torch.dtype) -> None:
    x, residual = (torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(2))
    weight, bias = (torch.randn(columns, device="cuda") for _ in range(2))
    tolerance = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    for added in (residual, None):
        h = x if added is None else x + added
        y, total = norm.rms_norm(x, weight, added)
        wanted = h.double() * torch.rsqrt((h.double() ** 2).mean(-1, keepdim=True) + 1e-6) * weight.double()
        assert torch.equal(total, h) and ((y.double() - wanted).abs() <= tolerance * (1 + wanted.abs())).all()
    y, total = norm.layer_norm(x, weight, bias, residual)
    wanted = torch.nn.functional.layer_norm((x + residual).double(), (columns,), weight.double(), bias.double())
    assert torch.equal(total, x + residual) and ((y.double() - wanted).abs() <= tolerance * (1 + wanted.abs())).all()


def test_the_variance_does_not_cancel() -> None:
    x = 10_000 + torch.arange(64.0, device="cuda")[None]
    one = torch.ones(64, device="cuda")
    y, _ = norm.layer_norm(x, one, one - 1)
    assert (y - torch.nn.functional.layer_norm(x.double(), (64,))).abs().max() < 1e-4


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1,), torch.int32),
        ((3, 101), torch.int32),
        ((2, 4096), torch.float32),
        ((2, 3, 8197), torch.int32),
        ((1, 150_000), torch.int32),
        ((2, 9001), torch.float32),
    ],
)
def test_scan(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = integers(*shape, dtype=dtype, most=50)
    out = torch.full_like(x, -1)
    assert scan.scan(x, out) is out and torch.equal(out, torch.cumsum(x, -1, dtype=dtype))


@pytest.mark.slow
def test_scan_wraps_as_int32_does() -> None:
    x = torch.full((1, 5000), 2**30, dtype=torch.int32, device="cuda")
    assert torch.equal(scan.scan(x), torch.cumsum(x, -1, dtype=torch.int32))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("count", "bins", "dtype"),
    [
        (1, 1, torch.int32),
        (1003, 200, torch.uint8),
        (5001, 1000, torch.int32),
        (2050, 300, torch.int64),
        (3001, 20_011, torch.int32),
    ],
)
def test_histogram(count: int, bins: int, dtype: torch.dtype) -> None:
    x = torch.randint(0, bins, (count,), device="cuda").to(dtype)
    assert torch.equal(histogram.histogram(x, bins).long(), torch.bincount(x, minlength=bins))


@pytest.mark.slow
def test_histogram_leaves_out_what_is_outside_and_counts_one_value() -> None:
    x = torch.tensor([-5, 7, 2**31 - 1, 6, 0, 6, -(2**31)], dtype=torch.int32, device="cuda")
    assert histogram.histogram(x, 7).tolist() == [1, 0, 0, 0, 0, 0, 2]
    assert histogram.histogram(torch.tensor([2**32 + 1, 1], device="cuda"), 7).tolist() == [0, 1, 0, 0, 0, 0, 0]
    assert histogram.histogram(torch.full((3000,), 6, dtype=torch.int32, device="cuda"), 7).tolist() == [0] * 6 + [3000]


@pytest.mark.slow
def test_histogram_has_no_bank_conflict_with_32_copies(emulation: Any) -> None:
    histogram.histogram(torch.randint(0, 256, (4096,), device="cuda", dtype=torch.int32), 256)
    assert not [finding for finding in emulation.findings if finding.kind == "bank_conflict"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "columns", "k", "dtype"),
    [
        (5, 33, 7, torch.float32),
        (2, 2100, 32, torch.bfloat16),
        (1, 1000, 100, torch.float16),
        (1, 33_000, 40, torch.float32),
    ],
)
def test_top_k_with_many_ties(rows: int, columns: int, k: int, dtype: torch.dtype) -> None:
    x = integers(rows, columns, dtype=dtype, most=200)
    values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
    ours = top_k.top_k(x, k)
    assert torch.equal(ours[0], values[:, :k]) and torch.equal(ours[1], indices[:, :k])


@pytest.mark.slow
def test_top_k_of_special_values() -> None:
    x = torch.tensor(
        [[-0.0, float("nan"), 0.0, float("-inf"), 1e-45, float("inf"), -1e-45, -float("nan")]], device="cuda"
    )
    values, indices = top_k.top_k(x, 8)
    assert indices.tolist() == [[1, 7, 5, 4, 0, 2, 6, 3]]
    assert torch.equal(values.view(torch.int32), torch.gather(x, 1, indices).view(torch.int32))


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("function", [transpose.transpose, transpose.transpose_tma])
def test_transpose_without_a_conflict(
    function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype, emulation: Any
) -> None:
    x = torch.randint(0, 200, (144, 80), device="cuda").to(dtype)
    assert torch.equal(function(x), x.t())
    assert not [finding for finding in emulation.findings if finding.kind == "bank_conflict"]


@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [
        (1, 1, torch.float32),
        (33, 67, torch.uint8),
        (37, 129, torch.float16),
        (65, 31, torch.int64),
        (1, 300, torch.bool),
    ],
)
def test_transpose_of_odd_shapes(rows: int, columns: int, dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (rows, columns), device="cuda").to(dtype)
    assert torch.equal(transpose.transpose(x), x.t())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("count", "dtype"), [(1, torch.float32), (4099, torch.bfloat16), (100_003, torch.int32), (50_000, torch.float16)]
)
def test_reduce_all(count: int, dtype: torch.dtype) -> None:
    x = integers(count, dtype=dtype)
    assert reduce_all.reduce_all(x).item() == x.double().sum().item()
    assert (
        reduce_all.reduce_all(x, "max").item() == x.max().item()
        and reduce_all.reduce_all(x, "min").item() == x.min().item()
    )


@pytest.mark.slow
def test_reduce_all_of_large_integers_of_an_unaligned_slice_and_of_nothing() -> None:
    x = torch.full((9001,), -(2**31), dtype=torch.int32, device="cuda")
    assert reduce_all.reduce_all(x).item() == -9001 * 2**31
    assert reduce_all.reduce_all(x[1:]).item() == -9000 * 2**31
    assert reduce_all.reduce_all(x[:0]).item() == 0


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("channels", "filters", "window", "settings", "dtype"),
    [
        (8, 9, (3, 3), {"padding": 1}, torch.float16),
        (3, 10, (3, 2), {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}, torch.bfloat16),
    ],
)
def test_conv2d(
    channels: int, filters: int, window: tuple[int, int], settings: dict[str, Any], dtype: torch.dtype
) -> None:
    x, weight = (
        integers(*shape, dtype=dtype).contiguous(memory_format=torch.channels_last)
        for shape in ((2, channels, 5, 7), (filters, channels, *window))
    )
    y = conv2d.conv2d(x, weight, **settings)
    assert y.is_contiguous(memory_format=torch.channels_last) and torch.equal(
        y, torch.nn.functional.conv2d(x.double(), weight.double(), **settings).to(dtype)
    )


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: split_k.matmul(ones(2, 3), ones(3, 2)), "float16 or bfloat16"),
    (lambda: split_k.matmul(ones(2, 3).half(), ones(2, 3).half()), "takes .m, k. and .k, n."),
    (lambda: split_k.matmul(ones(2, 3).half(), ones(3, 2).half(), splits=-1), "splits must be positive"),
    (lambda: norm.rms_norm(ones(2, 3), ones(4)), "weight has the shape .4,.; this kernel wants .3,."),
    (lambda: norm.rms_norm(ones(1, 40_000), ones(40_000)), "at most 32768"),
    (lambda: norm.rms_norm(ones(4, 2).t(), ones(4)), "contiguous"),
    (lambda: scan.scan(ones(3).double()), "int32 and float32"),
    (lambda: histogram.histogram(ones(3).int(), 40_000), "bins must be from 1 to 32768"),
    (lambda: top_k.top_k(ones(2, 5), 6), "k must be from 1 to 5"),
    (lambda: transpose.transpose_tma(ones(3, 4)), "multiple of 16 bytes"),
    (lambda: transpose.transpose(ones(3)), "wants 2 axes"),
    (lambda: reduce_all.reduce_all(ones(3), "mean"), "op must be one of sum, max, min"),
    (lambda: reduce_all.reduce_all(ones(0), "max"), "no elements"),
    (lambda: conv2d.conv2d(ones(1, 2, 3, 3).half(), ones(1, 2, 3, 3).half()), "channels last"),
    (lambda: conv2d.conv2d(ones(1, 1, 3, 3).half(), ones(1, 1, 5, 5).half()), "do not fit"),
]


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="cuda")


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_not_supported_is_said(number: int) -> None:
    call, said = REFUSED[number]
    with pytest.raises((ValueError, TypeError), match=said):
        call()


def test_tensors_on_the_cpu_are_refused() -> None:
    with pytest.raises(ValueError, match="CUDA device"):
        scan.scan(torch.ones(3, device="cpu"))


@pytest.mark.slow
def test_the_benchmark_runs_dry_and_an_example_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "dry.json"
    command = [
        sys.executable,
        "tests/bench/examples_on_gpu.py",
        "--device",
        "emulator",
        "--only",
        "reduce_all",
        "--out",
        str(out),
    ]
    assert subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True).returncode == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 4 and all(row["correct"] and row["difference"] == 0 and "ours_us" not in row for row in rows)
    command = [
        sys.executable,
        "-m",
        "workbench",
        "emulate",
        "workbench/examples/scan.py",
        "--rows",
        "2",
        "--columns",
        "4099",
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0 and "int32   equal: True" in done.stdout


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}
