"""Two sessions on two GPUs, alone and side by side: the times that each measures, and their ratio.

    python tests/bench/two_gpus.py --out FILE.json [--rounds 5] [--limit-s 200]

A round measures each candidate on each GPU alone, then on both GPUs at once, as `cutegen test --gpu N` does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from workbench.executors.gpu import presence, telemetry

CANDIDATES = {
    "softmax": "softmax(x) .threads_per_row(128)",
    "matmul": "gemm(a, b) .arch(sm_90a) .mma(tf32) .tile(128, 128, 32)",
}
Row = dict[str, object]


def start(problem: str, gpu: int) -> subprocess.Popen[str]:
    """A test of a problem's candidate on a GPU, in the background."""
    command = [sys.executable, "-P", "-m", "workbench", "test", problem, CANDIDATES[problem], "--executor", "gpu"]
    precision = ["--precision", "tf32"] if problem == "matmul" else []
    return subprocess.Popen(
        [*command, *precision, "--no-calibrate", "--json", "--gpu", str(gpu)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[float, list[str]]:
    """(the measured seconds, what disturbed them)."""
    out, said = process.communicate(timeout=150)
    if process.returncode:
        raise SystemExit(said[-2000:])
    found = json.loads(out)
    return float(found["time_s"]), list(found["disturbed"])


def measure(rounds: int, limit_s: float) -> list[Row]:
    """A row per candidate, GPU, round and way of running."""
    rows: list[Row] = []
    begun = time.monotonic()
    for number in range(rounds):
        for problem in CANDIDATES:
            if time.monotonic() - begun > limit_s:
                return rows
            found = {("alone", gpu): finish(start(problem, gpu)) for gpu in (0, 1)}
            both = [start(problem, gpu) for gpu in (0, 1)]
            found |= {("side by side", gpu): finish(process) for gpu, process in enumerate(both)}
            for (way, gpu), (seconds, disturbed) in found.items():
                rows.append(
                    {"problem": problem, "round": number, "way": way, "gpu": gpu, "seconds": seconds}
                    | ({"disturbed": disturbed} if disturbed else {})
                )
    return rows


def summarise(rows: list[Row]) -> list[Row]:
    """Medians of each candidate and GPU, and side by side over alone."""
    found: list[Row] = []
    for problem, gpu in sorted({(str(row["problem"]), int(str(row["gpu"]))) for row in rows}):
        alone, beside = (
            statistics.median(
                float(str(row["seconds"]))
                for row in rows
                if (row["problem"], row["gpu"], row["way"]) == (problem, gpu, way)
            )
            for way in ("alone", "side by side")
        )
        found.append({"problem": problem, "gpu": gpu, "alone_s": alone, "beside_s": beside, "ratio": beside / alone})
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=200)
    arguments = parser.parse_args()
    gpus = presence.list_gpus()
    if isinstance(gpus, str) or len(gpus) < 2:
        raise SystemExit("this machine has no two GPUs")
    rows = measure(arguments.rounds, arguments.limit_s)
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpus": [one.attributes.name for one in gpus],
        "driver": telemetry.driver_version(),
    }
    arguments.out.write_text(json.dumps({**about, "summary": summarise(rows), "rows": rows}, indent=1) + "\n")
    for row in summarise(rows):
        alone = float(str(row["alone_s"])) * 1e6
        print(f"{row['problem']:8} GPU {row['gpu']}: {row['ratio']:.3f} of alone ({alone:.1f} us)")


if __name__ == "__main__":
    main()
