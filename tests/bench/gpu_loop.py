"""The planner's loop on a GPU at full sizes: each shipped problem, every version measured, checked and set beside its
bound and torch eager.

python tests/bench/gpu_loop.py --out results.json [--problems softmax,matmul] [--steps 4]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import workbench.problems as problems
from workbench.records import Version
from workbench.session import Session
from workbench.wire import to_plain


def row(name: str, version: Version) -> dict[str, object]:
    """What is kept of one version: verdict, timing samples, reference timing, decision."""
    trial = version.trials[-1]
    reference = trial.outcome.reference_timing
    verdict = trial.verdict
    return {
        "problem": name,
        "version": version.number,
        "title": version.proposal.title,
        "program": version.proposal.candidate.program,
        "source_hash": version.source_hash,
        "correct": verdict.correct,
        "failure": to_plain(verdict.failure) if verdict.failure else None,
        "median_s": verdict.time_s,
        "bound_s": verdict.bound.bound_s if verdict.bound else None,
        "fraction_of_bound": verdict.fraction_of_bound,
        "eager_median_s": reference.median_s if reference else None,
        "speedup_over_eager": reference.median_s / verdict.time_s if reference and verdict.time_s else None,
        "suspect": verdict.suspect,
        "decision": version.decision.kind if version.decision else None,
        "worst_error_in_tolerances": verdict.worst_error,
        "timing": to_plain(trial.outcome.timing) if trial.outcome.timing else None,
        "reference_timing": to_plain(reference) if reference else None,
        "phases": dict(trial.outcome.phases),
        "versions": dict(trial.outcome.versions),
        "protections": trial.outcome.protections,
    }


def main() -> None:
    """Run the loop on each problem; rows are written after every problem so that a cut run loses little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", default="")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=4)
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
    }
    rows: list[dict[str, object]] = []
    for name in names:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            problem = problems.load(name, precision=arguments.precision)
            with Session.create(problem, root=folder, executor="gpu", arch="sm_90a", device="H200") as session:
                try:
                    session.run(steps=arguments.steps)
                finally:
                    rows += [row(name, version) for version in session.versions if version.trials]
        arguments.out.write_text(
            json.dumps({"machine": machine, "precision": arguments.precision, "rows": rows}, indent=1) + "\n"
        )
        print(f"--- {name} ({time.perf_counter() - start:.0f} s)")
        for one in (one for one in rows if one["problem"] == name):
            said = one["failure"]["message"] if isinstance(one["failure"], dict) else ""
            times = (
                f"{(one['median_s'] or 0) * 1e6:10.1f} us  bound {100 * (one['fraction_of_bound'] or 0):5.1f} %  "
                f"eager/ours {one['speedup_over_eager'] or 0:6.2f}"
            )
            print(
                f"  v{one['version']} {'ok ' if one['correct'] else 'BAD'} {times}  {one['decision']}  "
                f"{one['title']} {said}",
                flush=True,
            )


if __name__ == "__main__":
    main()
