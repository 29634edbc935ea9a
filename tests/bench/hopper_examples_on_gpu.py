"""The Hopper examples against torch on a GPU: GEMM (f16, bf16, e4m3), grouped GEMM, flash attention; checked, then
timed side by side.

    PYTHONPATH=. python tests/bench/hopper_examples_on_gpu.py --out tests/bench/results/h200_hopper_examples.json

CUDA graphs on both sides, interleaved, medians of `--rounds`; random normal data; operands stay the same, so that L2 is
warm on both sides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F

from workbench.examples import flash_attention, gemm_hopper, grouped_gemm

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Ours and torch's way, the relative error of ours against float32, FLOPs of one call."""

    name: str
    ours: Call
    torch: Call
    error: float
    flops: float


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Random normal numbers on the GPU."""
    return torch.randn(*shape, device="cuda").to(dtype)


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """|got - wanted| / |wanted|, in float32."""
    return float(((got.float() - wanted).norm() / wanted.norm()).item())


def gemms() -> Iterator[Case]:
    """Squares and one odd shape."""
    for dtype in (torch.bfloat16, torch.float16):
        for m, n, k in ((2048,) * 3, (4096,) * 3, (8192,) * 3, (4095, 4104, 4104)):
            a, b, d = (
                normal(m, k, dtype=dtype),
                normal(n, k, dtype=dtype),
                torch.empty(m, n, device="cuda", dtype=dtype),
            )
            gemm_hopper.gemm(a, b, d)
            yield Case(
                f"gemm {dtype} {m}x{n}x{k}",
                lambda a=a, b=b, d=d: gemm_hopper.gemm(a, b, d),
                lambda a=a, b=b, d=d: torch.matmul(a, b.t(), out=d),
                relative(d, a.float() @ b.float().t()),
                2.0 * m * n * k,
            )
    one = torch.ones((), device="cuda")
    for size in (4096, 8192):
        a, b = (normal(size, size).to(torch.float8_e4m3fn) for _ in range(2))
        d = torch.empty(size, size, device="cuda", dtype=torch.bfloat16)
        gemm_hopper.gemm(a, b, d)
        yield Case(
            f"gemm e4m3 {size}",
            lambda a=a, b=b, d=d: gemm_hopper.gemm(a, b, d),
            lambda a=a, b=b: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16),
            relative(d, a.float() @ b.float().t()),
            2.0 * size**3,
        )


def grouped() -> Iterator[Case]:
    """Eight products of different heights, as a mixture of experts has, against torch one after the other."""
    rows = (512, 1024, 96, 2048, 320, 768, 1536, 1888)
    problems = [
        (normal(m, 4096), normal(4096, 4096), torch.empty(m, 4096, device="cuda", dtype=torch.bfloat16)) for m in rows
    ]
    launch = grouped_gemm.prepare(problems)
    launch()
    worst = max(relative(d, a.float() @ b.float().t()) for a, b, d in problems)
    yield Case(
        f"grouped gemm bf16 rows {rows}",
        launch,
        lambda: [torch.matmul(a, b.t()) for a, b, _ in problems],
        worst,
        sum(2.0 * m * 4096 * 4096 for m in rows),
    )


def attentions() -> Iterator[Case]:
    """Forward, head dimensions 64 and 128, causal and not."""
    for dim in (64, 128):
        for causal in (False, True):
            for length in (4096, 1023):
                q, k, v = (normal(4, 2048 // dim, length, dim) for _ in range(3))
                out = flash_attention.attention(q, k, v, causal=causal)
                wanted = F.scaled_dot_product_attention(q[:1].float(), k[:1].float(), v[:1].float(), is_causal=causal)
                flops = 4.0 * q.shape[0] * q.shape[1] * length * length * dim * (0.5 if causal else 1)
                yield Case(
                    f"attention bf16 {tuple(q.shape)}{' causal' if causal else ''}",
                    lambda q=q, k=k, v=v, out=out, causal=causal: flash_attention.attention(
                        q, k, v, causal=causal, out=out
                    ),
                    lambda q=q, k=k, v=v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                    relative(out[:1], wanted),
                    flops,
                )


def replayer(call: Call, repeats: int) -> Call:
    """A CUDA graph of `repeats` calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    return graph.replay


def microseconds(replay: Call, repeats: int) -> float:
    """One replay, per call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / repeats


def measure(case: Case, rounds: int) -> dict[str, object]:
    """Both sides in turns."""
    repeats = max(2, min(100, int(1e13 / case.flops)))
    replays = replayer(case.ours, repeats), replayer(case.torch, repeats)
    pairs = [tuple(microseconds(replay, repeats) for replay in replays) for _ in range(rounds + 1)][1:]
    ours, theirs = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    return {
        "name": case.name,
        "error": case.error,
        "us": ours,
        "torch_us": theirs,
        "ratio": theirs / ours,
        "tflops": case.flops / ours / 1e6,
        "torch_tflops": case.flops / theirs / 1e6,
        "pairs_us": pairs,
    }


def main() -> None:
    """Measure and write after every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": gpu,
        "torch": torch.__version__,
        "cutlass_dsl": version("nvidia-cutlass-dsl"),
    }
    rows: list[dict[str, object]] = []
    for made in (attentions, grouped, gemms):
        for case in made():
            rows.append(measure(case, arguments.rounds))
            print(
                {
                    name: round(value, 4) if isinstance(value, float) else value
                    for name, value in rows[-1].items()
                    if name != "pairs_us"
                },
                flush=True,
            )
            arguments.out.write_text(json.dumps({**document, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
