"""Turnaround on a GPU: from a version's source to its verdict with timing, for every version that the planner writes
for the shipped problems; beside it a plain script in KernelBench's manner.

    python tests/bench/turnaround_on_gpu.py [--problems softmax,matmul] [--precision fp32] [--steps 2] [--plain 1]
    [--out FOLDER]

Each version is tested twice: as new (nothing of it compiled before), then again. The plain script, in a fresh process,
imports torch and CuTe DSL, loads the candidate, compiles, checks 5 times and times 100
calls, each on inputs of its own. Prints a table; writes turnaround.json under --out (default: $OUT, else the current
folder).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from pathlib import Path

import numpy as np

import workbench.problems as problems
from workbench.records import Version
from workbench.session import Session

PLAIN = """
import importlib.util, sys, time
start = time.perf_counter()
import torch
import cutlass, cutlass.cute
imported = time.perf_counter()

def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

precision = sys.argv[3]
dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
problem, candidate = load(sys.argv[1], "problem"), load(sys.argv[2], "candidate")
cast = lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v
def inputs(seed):
    torch.manual_seed(seed)
    with torch.device("cuda"):
        return [cast(v.cuda() if isinstance(v, torch.Tensor) else v) for v in problem.get_inputs()]
def model(module, name):
    torch.manual_seed(42)
    return getattr(module, name)(*problem.get_init_inputs()).cuda().to(dtype)
with torch.no_grad():
    reference, custom = model(problem, "Model"), model(candidate, "ModelNew")
    for seed in range(5):
        values = inputs(seed)
        ok = torch.allclose(reference(*values).float(), custom(*values).float(), atol=1e-2, rtol=1e-2)
        torch.cuda.synchronize()
        if seed == 0:
            compiled = time.perf_counter()
    checked = time.perf_counter()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    values = inputs(9)
    for _ in range(3):
        custom(*values)
    taken = []
    for n in range(100):
        values = inputs(10 + n)
        torch.cuda.synchronize()
        begin.record()
        custom(*values)
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end))
done = time.perf_counter()
print("PLAIN", imported - start, compiled - imported, checked - compiled, done - checked, sorted(taken)[50] * 1e-3, ok)
"""


def plain(session: Session, version: Version, folder: Path) -> dict[str, object]:
    """The plain script on one version, in a process of its own: seconds in all and by phase."""
    (folder / "plain.py").write_text(PLAIN)
    (folder / "problem.py").write_text(problems.with_settings(session.problem.source, session.problem.settings))
    (folder / "candidate.py").write_text(version.proposal.candidate.source)
    start = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable,
            str(folder / "plain.py"),
            str(folder / "problem.py"),
            str(folder / "candidate.py"),
            session.problem.precision,
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    total = time.perf_counter() - start
    said = next((line.split()[1:] for line in done.stdout.splitlines() if line.startswith("PLAIN")), None)
    if said is None:
        return {"total": total, "failed": done.stderr.strip()[-300:]}
    return {
        "total": total,
        **dict(
            zip(
                ("import", "compile and first check", "other checks", "timing", "median_s"),
                map(float, said[:5]),
                strict=True,
            )
        ),
        "passed": said[5] == "True",
    }


def tested(session: Session, version: Version, first: bool) -> dict[str, object]:
    """One test of a version: wall seconds, phases, what came out."""
    start = time.perf_counter()
    trial = session.test(version.number)
    total = time.perf_counter() - start
    timing = trial.outcome.timing
    return {
        "problem": session.problem.name,
        "version": version.number,
        "title": version.proposal.title,
        "new": first,
        "seconds": total,
        "correct": trial.verdict.correct,
        "phases": dict(trial.outcome.phases),
        "failure": trial.verdict.failure.message if trial.verdict.failure else None,
        "time_s": trial.verdict.time_s,
        "interval_s": [timing.low_s, timing.high_s] if timing else None,
        "method": timing.method if timing else None,
        "notes": timing.notes if timing else (),
        "launch_overhead_s": timing.launch_overhead_s if timing else None,
        "disturbed": trial.verdict.disturbed,
        "ratios": {one.against: [one.ratio, one.low, one.high] for one in trial.outcome.ratios if one.of == "kernels"},
    }


def loop(name: str, arguments: argparse.Namespace) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The planner's versions of one problem, each tested as new and again; the plain script on the best of them."""
    rows: list[dict[str, object]] = []
    plains: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUTEGEN_CACHE"] = str(Path(folder) / "cache")  # nothing was compiled before
        with Session.create(
            problems.load(name, precision=arguments.precision),
            root=folder,
            executor="gpu",
            arch=arguments.arch,
            device="H200",
        ) as session:
            for _ in range(arguments.steps + 1):
                made = session.generate("planner", test=False)
                if made is None:
                    break
                rows += [tested(session, made, True), tested(session, made, False)]
                session.judge(made.number)
            right = [v for v in session.versions if v.trials and v.trials[-1].verdict.correct]
            for version in sorted(right, key=lambda v: v.trials[-1].verdict.time_s or 0)[: arguments.plain]:
                plains.append({"problem": name, "version": version.number, **plain(session, version, Path(folder))})
    return rows, plains


def spread(values: list[float]) -> dict[str, float]:
    """Percentiles in seconds."""
    return (
        {f"p{q}": float(np.percentile(values, q)) for q in (10, 25, 50, 75, 90)}
        | {"max": max(values), "count": float(len(values))}
        if values
        else {}
    )


def main() -> None:
    """Measure; rows are written after every problem, so that a cut run loses little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--steps", type=int, default=2, help="refinements of each problem after its first version")
    parser.add_argument(
        "--plain", type=int, default=1, help="of how many versions of each problem the plain script is run"
    )
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    arguments = parser.parse_args()
    names = tuple(arguments.problems.split(",")) if arguments.problems else problems.shipped()
    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,temperature.gpu",
        "--format=csv,noheader",
    ]
    machine = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": subprocess.run(query, capture_output=True, text=True).stdout.strip(),
        "cpus": os.cpu_count(),
        "versions": {name: version_of(name) for name in ("torch", "nvidia-cutlass-dsl")},
    }
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Session.create(names[0], root=folder, executor="gpu", arch=arguments.arch, device="H200") as session,
    ):
        session.generate("planner")  # the server is warm from here on
    print(f"warm after {time.perf_counter() - start:.1f} s (imports, first context)", flush=True)
    rows: list[dict[str, object]] = []
    plains: list[dict[str, object]] = []
    failed: dict[str, str] = {}
    summary: dict[str, dict[str, float]] = {}
    for name in names:
        try:
            more, scripts = loop(name, arguments)
        except Exception as error:  # one problem's trouble is told, and the others are measured all the same
            print(f"{name:22} FAILED {type(error).__name__}: {error}", flush=True)
            failed[name] = f"{type(error).__name__}: {error}"
            continue
        rows, plains = rows + more, plains + scripts
        for row in more:
            seconds = dict(row["phases"])  # type: ignore[call-overload]
            phases = "  ".join(f"{key} {value:.2f}" for key, value in seconds.items())
            print(
                f"{name:22} v{row['version']} {'new  ' if row['new'] else 'again'} {row['seconds']:6.2f} s  "
                f"{'ok ' if row['correct'] else 'BAD'} {row['method']}  {phases}  {row['failure'] or ''}",
                flush=True,
            )
        for one in scripts:
            print(f"{name:22} v{one['version']} plain {one['total']:6.2f} s  {one}", flush=True)
        summary = {
            kind: spread([float(str(row["seconds"])) for row in rows if row["new"] is new])
            for kind, new in (("new", True), ("again", False))
        } | {"plain": spread([float(str(one["total"])) for one in plains])}
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "turnaround.json").write_text(
            json.dumps(
                {
                    "machine": machine,
                    "precision": arguments.precision,
                    "summary": summary,
                    "failed": failed,
                    "rows": rows,
                    "plain": plains,
                },
                indent=1,
            )
            + "\n"
        )
    for kind, values in summary.items():
        print(kind, "  ".join(f"{key} {value:.2f}" for key, value in values.items()))


if __name__ == "__main__":
    main()
