"""How the emulator's time grows with the problem: a Hopper GEMM (TMA, wgmma) on the interpreter, element-wise and row
kernels on compiled code; peak memory.

    python tests/bench/emulator_scaling.py --out tests/bench/results/emulator_scaling.json [--repeats 5] [--plot
    scaling.html]

Seconds are of warm launches: compiled, and run once before. The exponent is the slope of log time over log work, 1
being linear, from the second size on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
import workbench
from workbench.examples import gemm_hopper, norm, reduce_all, transpose

GEMMS, ELEMENTS = (256, 384, 512, 768, 1024, 1536), tuple(1 << n for n in range(16, 26, 2))
Run = Callable[[], object]


def gemms() -> Iterator[tuple[float, Run]]:
    """FLOPs and one launch: n x n x n in float16, 128 x 128 tiles, clusters of 2."""
    for n in GEMMS:
        a, b, d = (torch.randn(n, n).half().cuda() for _ in range(3))
        yield 2.0 * n**3, lambda a=a, b=b, d=d: gemm_hopper.gemm(a, b, d, tile=(128, 128, 64))


def sums() -> Iterator[tuple[float, Run]]:
    """Bytes and one launch: the sum of all elements in float32."""
    for count in ELEMENTS:
        x = torch.randn(count).cuda()
        yield 4.0 * count, lambda x=x: reduce_all.reduce_all(x)


def norms() -> Iterator[tuple[float, Run]]:
    """Bytes and one launch: residual and RMS norm of rows of 1024 in float32."""
    for count in ELEMENTS:
        x, r, w = (
            torch.randn(count // 1024, 1024).cuda(),
            torch.randn(count // 1024, 1024).cuda(),
            torch.randn(1024).cuda(),
        )
        yield 16.0 * count, lambda x=x, r=r, w=w: norm.rms_norm(x, w, r)


def transposes() -> Iterator[tuple[float, Run]]:
    """Bytes and one launch: a matrix with 1024 columns in float32."""
    for count in ELEMENTS:
        x = torch.randn(count // 1024, 1024).cuda()
        yield 8.0 * count, lambda x=x: transpose.transpose(x)


def measured(made: Iterator[tuple[float, Run]], repeats: int) -> list[dict[str, object]]:
    """Median and raw seconds of each size."""
    rows: list[dict[str, object]] = []
    for work, run in made:
        run()
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        rows.append({"work": work, "median_s": statistics.median(seconds), "seconds": seconds})
        print(f"  {work:12.3g}  {rows[-1]['median_s']:8.4f} s", flush=True)
    return rows


def exponent(rows: list[dict[str, object]]) -> float:
    """Slope of log time over log work."""
    points = np.log([[float(str(row["work"])), float(str(row["median_s"]))] for row in rows[1:]])
    return float(np.polyfit(points[:, 0], points[:, 1], 1)[0])


def plot(series: dict[str, list[dict[str, object]]], target: Path) -> None:
    """Time over work, both relative to the largest size, on logarithmic axes; beside it what linear would be."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, rows in series.items():
        top, slowest = float(str(rows[-1]["work"])), float(str(rows[-1]["median_s"]))
        figure.add_scatter(
            x=[float(str(row["work"])) / top for row in rows],
            y=[float(str(row["median_s"])) / slowest for row in rows],
            mode="lines+markers",
            name=f"{name} ({slowest:.2g} s)",
        )
    figure.add_scatter(x=[1e-3, 1], y=[1e-3, 1], mode="lines", line={"dash": "dot", "color": "gray"}, name="linear")
    figure.update_layout(
        xaxis={"type": "log", "title": "work (1 = largest)"},
        yaxis={"type": "log", "title": "time (1 = largest)"},
        template="plotly_white",
        width=760,
        height=480,
        margin={"t": 20},
    )
    figure.write_html(target, include_plotlyjs=True, config={"displayModeBar": False})


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    series: dict[str, list[dict[str, object]]] = {}
    with workbench.emulated(device="H200"):
        for name, made in (
            ("GEMM, TMA and wgmma", gemms),
            ("sum of all", sums),
            ("RMS norm", norms),
            ("transpose", transposes),
        ):
            print(name)
            series[name] = measured(made(), arguments.repeats)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "peak_bytes": peak,
        "exponents": {name: exponent(rows) for name, rows in series.items()},
        "series": series,
    }
    print(document["exponents"], f"peak {peak >> 20} MiB")
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.plot:
        plot(series, arguments.plot)


if __name__ == "__main__":
    main()
