"""The example kernels against torch: checked on exact data, then timed on random data.

On a GPU, or with tiny sizes and no times on the emulator.

    PYTHONPATH=. python tests/bench/examples_on_gpu.py --out tests/bench/results/examples_h200.json
    PYTHONPATH=. python tests/bench/examples_on_gpu.py --device emulator --only scan --out /tmp/dry.json

Times are medians of `--repeats` interleaved calls (ours, torch, ours, ...), by CUDA events, each after the L2 was
overwritten; a spin on the GPU before each call lets the
host queue it in full, so that no launch overhead is measured. What a call allocates, clears or converts belongs to it.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from workbench.examples import conv2d, histogram, norm, reduce_all, scan, split_k, top_k, transpose

Pair = tuple[Callable[[], Any], Callable[[], Any]]
FLUSH_BYTES = 256 << 20
SPIN_CYCLES = 2_000_000  # about a millisecond


@dataclass(frozen=True)
class Case:
    """One comparison: `make(exact)` gives (ours, torch's) on exact data (small integers) or random data.

    Results may differ by `limit` of the largest element, 0 is bit for bit.
    """

    name: str
    make: Callable[[bool], Pair]
    bytes: int
    flops: int = 0
    limit: float = 0.0


def numbers(shape: tuple[int, ...], dtype: torch.dtype, exact: bool, seed: int) -> torch.Tensor:
    """Integers from -2 to 2, or normal numbers; integers from the whole range for integer types."""
    generator = torch.Generator("cuda").manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randint(-1000, 1000, shape, device="cuda", generator=generator).to(dtype)
    if exact:
        return torch.randint(-2, 3, shape, device="cuda", generator=generator).to(dtype)
    return torch.randn(shape, device="cuda", generator=generator, dtype=torch.float32).to(dtype)


def products(tiny: bool) -> Iterator[Case]:
    """split_k."""
    shapes = ((40, 72, 200), (20, 130, 129)) if tiny else ((512, 512, 32768), (64, 4096, 8192), (1000, 1000, 16383))
    for m, n, k in shapes:
        for deterministic in (True, False):

            def make(exact: bool, m: int = m, n: int = n, k: int = k, deterministic: bool = deterministic) -> Pair:
                a, b = numbers((m, k), torch.bfloat16, exact, 1), numbers((n, k), torch.bfloat16, exact, 2).t()
                if exact:
                    return lambda: split_k.matmul(a, b, deterministic=deterministic), lambda: (
                        a.double() @ b.double()
                    ).to(torch.bfloat16 if deterministic else torch.float32)
                return lambda: split_k.matmul(a, b, deterministic=deterministic), lambda: a @ b

            yield Case(
                f"split_k {m}x{n}x{k} bf16 {'deterministic' if deterministic else 'atomic'}",
                make,
                2 * (m * k + n * k) + (2 if deterministic else 4) * m * n,
                2 * m * n * k,
            )


def norms(tiny: bool) -> Iterator[Case]:
    """norm."""
    for rows, columns in ((5, 96), (3, 77)) if tiny else ((16384, 4096), (4096, 16384), (65536, 1024)):
        for dtype in (torch.bfloat16, torch.float32):
            for layer in (False, True):

                def make(
                    exact: bool,
                    shape: tuple[int, int] = (rows, columns),
                    dtype: torch.dtype = dtype,
                    layer: bool = layer,
                ) -> Pair:
                    x, residual = numbers(shape, dtype, False, 1), numbers(shape, dtype, False, 2)
                    weight, bias = numbers(shape[1:], dtype, False, 3), numbers(shape[1:], dtype, False, 4)
                    if layer:
                        return lambda: norm.layer_norm(x, weight, bias, residual), lambda: (
                            F.layer_norm(h := x + residual, shape[1:], weight, bias, 1e-5),
                            h,
                        )
                    return lambda: norm.rms_norm(x, weight, residual), lambda: (
                        F.rms_norm(h := x + residual, shape[1:], weight, 1e-6),
                        h,
                    )

                size = torch.finfo(dtype).bits // 8
                yield Case(
                    f"{'layer' if layer else 'rms'}_norm + residual {rows}x{columns} {dtype}",
                    make,
                    4 * rows * columns * size,
                    limit=4e-3 if size == 2 else 1e-5,
                )


def scans(tiny: bool) -> Iterator[Case]:
    """scan."""
    for rows, columns in ((3, 100), (2, 9001)) if tiny else ((4096, 32768), (4096, 32767), (1, 1 << 27)):
        for dtype in (torch.int32, torch.float32):

            def make(exact: bool, shape: tuple[int, int] = (rows, columns), dtype: torch.dtype = dtype) -> Pair:
                x = numbers(shape, dtype, exact, 1)
                y = torch.empty_like(x)
                return lambda: scan.scan(x, y), lambda: torch.cumsum(x, -1, dtype=dtype)

            yield Case(f"scan {rows}x{columns} {dtype}", make, 8 * rows * columns)


def histograms(tiny: bool) -> Iterator[Case]:
    """histogram."""
    count = 3001 if tiny else (1 << 28) + 3
    for bins, kind, dtype in (
        (256, "uniform", torch.uint8),
        (1000, "uniform", torch.int32),
        (1000, "one value", torch.int32),
        (20000, "uniform", torch.int32),
    ):

        def make(exact: bool, bins: int = bins, kind: str = kind, dtype: torch.dtype = dtype) -> Pair:
            x = (
                torch.randint(0, bins, (count,), device="cuda", dtype=torch.int32).to(dtype)
                if kind == "uniform"
                else torch.full((count,), 7, dtype=dtype, device="cuda")
            )
            return lambda: histogram.histogram(x, bins), lambda: torch.bincount(x, minlength=bins)

        yield Case(
            f"histogram {count} {dtype} {bins} bins {kind}", make, count * (1 if dtype == torch.uint8 else 4) + 4 * bins
        )


def top_ks(tiny: bool) -> Iterator[Case]:
    """top_k; equal values may come with other indices from torch, so values are compared."""
    for rows, columns, k, dtype in (
        ((5, 64, 4, torch.float32), (2, 3001, 33, torch.bfloat16))
        if tiny
        else ((65536, 256, 8, torch.float32), (4096, 32000, 50, torch.bfloat16), (256, 128256, 64, torch.float32))
    ):

        def make(exact: bool, shape: tuple[int, int] = (rows, columns), k: int = k, dtype: torch.dtype = dtype) -> Pair:
            x = numbers(shape, dtype, False, 1)
            return lambda: top_k.top_k(x, k)[0], lambda: torch.topk(x, k)[0]

        yield Case(f"top_k {rows}x{columns} k={k} {dtype}", make, rows * columns * torch.finfo(dtype).bits // 8)


def transposes(tiny: bool) -> Iterator[Case]:
    """transpose."""
    rows, columns = (48, 80) if tiny else (16384, 8192)
    for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.float64):
        for name, function in (("transpose", transpose.transpose), ("transpose_tma", transpose.transpose_tma)):

            def make(exact: bool, dtype: torch.dtype = dtype, function: Any = function) -> Pair:
                x = numbers((rows, columns), torch.int32, True, 1).to(dtype)
                y = torch.empty(columns, rows, dtype=dtype, device="cuda")
                return lambda: function(x, y), lambda: x.t().contiguous()

            yield Case(
                f"{name} {rows}x{columns} {dtype}",
                make,
                2 * rows * columns * torch.empty((), dtype=dtype).element_size(),
            )


def reductions(tiny: bool) -> Iterator[Case]:
    """reduce_all."""
    count = 5003 if tiny else (1 << 29) + 5
    for dtype, op in ((torch.int32, "sum"), (torch.float32, "max"), (torch.bfloat16, "min"), (torch.float32, "sum")):

        def make(exact: bool, dtype: torch.dtype = dtype, op: str = op) -> Pair:
            x = numbers((count,), dtype, exact, 1)
            return lambda: reduce_all.reduce_all(x, op), lambda: getattr(torch, op)(x)

        yield Case(f"reduce_all {op} {count} {dtype}", make, count * torch.empty((), dtype=dtype).element_size())


def convolutions(tiny: bool) -> Iterator[Case]:
    """conv2d."""
    full = ((32, 256, 56, 256, 3, 1), (32, 512, 28, 512, 3, 2), (32, 64, 112, 128, 1, 1), (64, 3, 224, 64, 7, 2))
    for images, channels, size, filters, window, stride in ((1, 8, 6, 10, 3, 1),) if tiny else full:

        def make(
            exact: bool,
            x_shape: tuple[int, ...] = (images, channels, size, size),
            w_shape: tuple[int, ...] = (filters, channels, window, window),
            stride: int = stride,
            pad: int = window // 2,
        ) -> Pair:
            x, weight = (
                numbers(shape, torch.float16, exact, seed).contiguous(memory_format=torch.channels_last)
                for seed, shape in enumerate((x_shape, w_shape))
            )
            if exact:
                return lambda: conv2d.conv2d(x, weight, stride, pad), lambda: F.conv2d(
                    x.float(), weight.float(), None, stride, pad
                ).half()
            return lambda: conv2d.conv2d(x, weight, stride, pad), lambda: F.conv2d(x, weight, None, stride, pad)

        out = (size + 2 * (window // 2) - window) // stride + 1
        moved = 2 * (
            images * channels * size * size + filters * channels * window * window + images * filters * out * out
        )
        yield Case(
            f"conv2d {images}x{channels}x{size}x{size} {filters} filters {window}x{window} stride {stride} fp16",
            make,
            moved,
            2 * images * out * out * filters * channels * window * window,
        )


GROUPS: dict[str, Callable[[bool], Iterator[Case]]] = {
    "split_k": products,
    "norm": norms,
    "scan": scans,
    "histogram": histograms,
    "top_k": top_ks,
    "transpose": transposes,
    "reduce_all": reductions,
    "conv2d": convolutions,
}


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference, relative to the largest element of torch's result.

    Over a pair of results, the larger of the two.
    """
    if isinstance(ours, tuple):
        return max(difference(a, b) for a, b in zip(ours, theirs, strict=True))
    if ours.shape != theirs.shape:
        return float("inf")
    if torch.equal(ours, theirs.to(ours.dtype)):
        return 0.0
    apart = (ours.double() - theirs.double()).abs().max().item()
    if apart != apart:  # noqa: PLR0124
        return float("inf")
    return float(apart / max(theirs.double().abs().max().item(), 1e-30))


def timed(case: Case, repeats: int) -> dict[str, Any]:
    """Medians in microseconds of both, with the quartiles."""
    functions = case.make(False)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + 3):
        for times, function in zip(taken, functions, strict=True):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            torch.cuda._sleep(SPIN_CYCLES)
            start.record()
            function()
            end.record()
            end.synchronize()
            if turn >= 3:
                times.append(1000 * start.elapsed_time(end))
    ours, theirs = (statistics.median(times) for times in taken)
    quartiles = [[round(q, 2) for q in statistics.quantiles(times, n=4)] for times in taken]
    row = {
        "ours_us": round(ours, 2),
        "torch_us": round(theirs, 2),
        "torch_over_ours": round(theirs / ours, 3),
        "quartiles_us": quartiles,
        "TB_per_s": round(case.bytes / ours / 1e6, 3),
    }
    return row | ({"TFLOP_per_s": round(case.flops / ours / 1e6, 1)} if case.flops else {})


def measured(case: Case, repeats: int) -> dict[str, Any]:
    """One row of the results: whether it is right, and how long it takes (with `repeats`)."""
    row: dict[str, Any] = {"name": case.name, "bytes": case.bytes, "flops": case.flops}
    try:
        ours, theirs = case.make(True)
        row["difference"] = difference(ours(), theirs())
        row["correct"] = row["difference"] <= case.limit
        del ours, theirs
        if repeats:
            row |= timed(case, repeats)
    except Exception as error:
        row |= {"correct": False, "error": f"{type(error).__name__}: {error}"[:400]}
    if repeats:
        torch.cuda.empty_cache()
    return row


def about(device: str) -> dict[str, Any]:
    """Date, device and versions."""
    versions = {name: metadata.version(name) for name in ("torch", "nvidia-cutlass-dsl")} | {
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
    }
    gpu = "emulated H200: no times"
    if device == "cuda":
        gpu = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
        ).stdout.strip()
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": gpu, "versions": versions}


def emulator() -> Any:
    """The emulator in place of a GPU."""
    import workbench

    return workbench.emulated(device="H200")


def main() -> None:
    """Run, print, write after every row; exit status 1 if anything is not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--only", nargs="*", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    tiny = arguments.device == "emulator"
    rows: list[dict[str, Any]] = []
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with emulator() if tiny else nullcontext():
        for group in arguments.only:
            for case in GROUPS[group](tiny):
                rows.append(measured(case, 0 if tiny else arguments.repeats))
                print(json.dumps(rows[-1]), flush=True)
                arguments.out.write_text(json.dumps(about(arguments.device) | {"rows": rows}, indent=1) + "\n")
    sys.exit(0 if all(row["correct"] for row in rows) else 1)


if __name__ == "__main__":
    main()
