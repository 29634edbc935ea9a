"""The 19 problems of KernelBench's first level in tests/bench/problems: the planner alone against torch eager, on a GPU
at full size.

    python tests/bench/nineteen_on_gpu.py --out $OUT/nineteen.json [--precisions tf32,fp32] [--steps 12] [--seconds 350]
    [--only 04,22]
    python tests/bench/nineteen_on_gpu.py --dry-run --steps 1 --only 21_sigmoid        reduced sizes on the emulator; no
    GPU, no times

First every rung of the planner's ladder (at most --steps of them) is compiled, checked and timed beside the others, as
landscape_on_gpu.py does. Then the fastest
correct one of each problem is run again as `cutegen run` runs it: confined, on fresh inputs, timed outputs checked,
torch eager by the same protocol. A problem
that the planner does not recognise is listed as such. `authors` is what the CuTeGen authors' published CuTe kernel
reached on an H200 over torch eager as torch comes: products in strict
float32, convolutions with TF32. `speedup` is over torch eager under the row's own policy; `over_defaults`, where both
policies were run, over torch eager as it comes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from landscape_problems import NINETEEN

from workbench import executors
from workbench.analysis import devices, speed_of_light
from workbench.codegen import compile_program
from workbench.codegen.canonical import canonical
from workbench.evaluate import evaluate
from workbench.executors.gpu.presence import gpus_to_use
from workbench.landscapes.keys import problem_key
from workbench.landscapes.table import Row
from workbench.problems import inspection
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Bound, Candidate, Job
from workbench.tuning.files import describe_machine
from workbench.tuning.plan import ARCH, DEVICE, TuningPlan, TuningProblem
from workbench.tuning.run import Run, RunOptions

# of the authors' kernels on an H200, 2026-11-20: torch eager over theirs, L2 flushed, median of 20
AUTHORS = {
    1: 0.64,
    4: 1.18,
    9: 1.13,
    21: 1.0,
    22: 1.0,
    33: 1.3,
    40: 19.9,
    49: 1.10,
    50: 0.48,
    53: 1.3,
    55: 0.07,
    59: 0.72,
    60: 0.36,
    61: 0.41,
    80: 0.14,
    82: 1.6,
    88: 8.4,
    97: 0.04,
    99: 4.3,
}
STRICT = ("matmul", "attention")  # kinds that torch computes in strict float32 unless told otherwise
SCREEN_SHARE = 0.45  # of the time, at most, for trying the rungs


def plan(question: tuple[Path, str, int]) -> TuningPlan | tuple[str, str, str]:
    """A problem under one precision with the first rungs of its ladder, or (name, precision, why there is none)."""
    path, precision, steps = question
    place = TuningProblem(f"{path.stem} {precision}", str(path), precision)
    facts = inspection.inspect(place.problem)
    try:
        found = recognise(facts)
    except Unrecognised as reason:
        return path.stem, precision, str(reason)
    rungs = ladder(Context(found=found, precision=precision, arch=ARCH, device=DEVICE, facts=facts))
    programs = tuple(dict.fromkeys(canonical(write_program(found, rung, ARCH)) for rung in rungs))[:steps]
    problem = place.problem
    sources = tuple(compile_program(program, binding_of(problem, facts, found)) for program in programs)
    return TuningPlan(place, problem, facts, problem_key(problem), programs, sources, len(programs))


def bound_of(one: TuningPlan) -> Bound:
    """The speed of light at full size."""
    return speed_of_light.bound(next(work for work in one.facts.work if work.case == "full"), devices.find(DEVICE))


def screened(one: TuningPlan, rows: list[Row]) -> dict[str, Any]:
    """What trying the rungs gave."""
    mine = [row for row in rows if row.key == one.key]
    eager = next((row.median_s for row in mine if not row.program), None)
    good = sorted(
        (row for row in mine if row.program and row.correct and row.median_s), key=lambda row: row.median_s or 0.0
    )
    tried = [
        {
            "program": row.program,
            "median_s": row.median_s,
            "correct": row.correct,
            "failure": row.failure,
            "error": row.error,
            "registers": row.registers,
        }
        for row in mine
        if row.program
    ]
    bound = bound_of(one)
    stem, precision = one.place.name.rsplit(" ", 1)
    found = {
        "problem": stem,
        "precision": precision,
        "kind": one.facts.kind,
        "recognised": True,
        "bound_s": bound.bound_s,
        "limited_by": bound.limited_by,
        "flops": bound.flops,
        "least_bytes": bound.least_bytes,
        "tried": tried,
        "eager_s": eager,
        "verified": False,
    }
    if good:
        found |= {
            "program": good[0].program,
            "median_s": good[0].median_s,
            "speedup": eager / good[0].median_s if eager and good[0].median_s else None,
        }
    return found


def verified(one: TuningPlan, row: dict[str, Any]) -> dict[str, Any]:
    """The fastest rung again, by the GPU executor."""
    from workbench.executors.gpu.executor import GpuExecutor

    job = Job(
        problem=one.problem,
        facts=one.facts,
        candidate=Candidate(
            source=dict(zip(one.programs, one.sources, strict=True))[row["program"]], program=row["program"]
        ),
        arch=ARCH,
        device=DEVICE,
        cases=("full",),
        trials=1,
        timed_calls=20,
        wall_limit_s=120.0,
        memory_limit_bytes=96 << 30,
    )
    trial = evaluate(job, GpuExecutor())
    verdict, reference = trial.verdict, trial.outcome.reference_timing
    if not verdict.correct or verdict.time_s is None or reference is None:
        return row | {"verified": False, "verification": verdict.failure.message if verdict.failure else "no time"}
    return row | {
        "verified": True,
        "median_s": verdict.time_s,
        "eager_s": reference.median_s,
        "speedup": reference.median_s / verdict.time_s,
        "worst_error_in_tolerances": verdict.worst_error,
        "suspect": verdict.suspect,
        "samples_s": trial.outcome.timing.samples_s if trial.outcome.timing else (),
        "eager_samples_s": reference.samples_s,
    }


def over_defaults(rows: list[dict[str, Any]]) -> None:
    """Adds to each row its speedup over torch eager as it comes, where that was timed in this run."""
    eager = {(row["problem"], row["precision"]): row.get("eager_s") for row in rows}
    for row in rows:
        base = eager.get((row["problem"], "fp32" if row.get("kind") in STRICT else "tf32"))
        if base and row.get("median_s"):
            row["over_defaults"] = base / row["median_s"]


def mean(values: list[float]) -> float | None:
    """Geometric mean; None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of each precision, with the authors' over the same problems and over all."""
    said: dict[str, Any] = {"authors_all": mean(list(AUTHORS.values()))}
    for precision in dict.fromkeys(row["precision"] for row in rows):
        done = [row for row in rows if row["precision"] == precision and row.get("speedup")]
        said[precision] = {
            "problems": len(done),
            "geometric_mean": mean([row["speedup"] for row in done]),
            "authors_same_problems": mean([AUTHORS[int(row["problem"][:2])] for row in done]),
            "over_defaults": mean([row["over_defaults"] for row in done if "over_defaults" in row]),
            "under_authors": [
                row["problem"]
                for row in done
                if row.get("over_defaults", row["speedup"]) < AUTHORS[int(row["problem"][:2])]
            ],
            "verified": sum(row["verified"] for row in done),
            "unrecognised": [row["problem"] for row in rows if row["precision"] == precision and not row["recognised"]],
        }
    return said


def show(row: dict[str, Any]) -> str:
    """One line."""
    start = f"{row['precision']:5} {row['problem']:28} authors {AUTHORS[int(row['problem'][:2])]:6.2f}  "
    if not row["recognised"]:
        return start + f"unrecognised: {row['why']}"
    if "program" not in row:
        return (
            start
            + "no rung is correct: "
            + "; ".join(sorted({tried["failure"].split(":")[0] for tried in row["tried"]}))
        )
    return (
        start + f"ours {row['speedup'] or 0:6.2f} ({row.get('over_defaults', 0):6.2f} over torch as it comes)  "
        f"{row['median_s'] * 1e6:10.1f} us of {row['eager_s'] * 1e6 if row['eager_s'] else 0:10.1f}  bound "
        f"{row['bound_s'] / row['median_s']:4.0%}  {'verified' if row['verified'] else 'screened'}  "
        f"{row['program']}"
    )


def main() -> int:
    """Plan, screen, verify; written after every problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--precisions", default="tf32,fp32")
    parser.add_argument("--steps", type=int, default=12, help="rungs of the ladder that are tried")
    parser.add_argument("--seconds", type=float, default=350.0)
    parser.add_argument("--workers", type=int, default=max((os.cpu_count() or 2) - 1, 1))
    parser.add_argument("--only", default="", help="problems, by how their file's name begins")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    start = time.monotonic()
    paths = [
        path
        for path in sorted(NINETEEN.glob("[0-9]*.py"))
        if any(path.name.startswith(name) for name in arguments.only.split(","))
    ]
    questions = [(path, precision, arguments.steps) for precision in arguments.precisions.split(",") for path in paths]
    with get_context("fork").Pool(min(arguments.workers, len(questions))) as pool:
        answers = pool.map(plan, questions, chunksize=1)
    plans = [one for one in answers if isinstance(one, TuningPlan)]
    head = describe_machine(gpus_to_use())
    with tempfile.TemporaryDirectory() as folder:
        asked = RunOptions(
            workers=arguments.workers,
            measurers=3,
            gpus=() if arguments.dry_run else gpus_to_use()[:1],
            seconds=arguments.seconds * SCREEN_SHARE,
            dry_run=arguments.dry_run,
            out=Path(folder) / "rows.csv",
            run_number=0,
        )
        run = Run(plans, asked, Path(folder), set())
        run.run()
    rows = [
        screened(one, run.rows)
        if isinstance(one, TuningPlan)
        else {"problem": one[0], "precision": one[1], "recognised": False, "why": one[2], "verified": False}
        for one in answers
    ]

    def keep() -> None:
        over_defaults(rows)
        if arguments.out is not None:
            arguments.out.write_text(
                json.dumps(
                    {
                        "machine": head,
                        "seconds": time.monotonic() - start,
                        "summary": summary(rows),
                        "authors": AUTHORS,
                        "rows": rows,
                    },
                    indent=1,
                )
                + "\n"
            )

    keep()
    for at, one in enumerate(answers):
        if (
            not isinstance(one, TuningPlan)
            or arguments.dry_run
            or "program" not in rows[at]
            or time.monotonic() - start > arguments.seconds - 20
        ):
            continue
        twin = next(
            (
                row
                for row in rows[:at]
                if row["problem"] == rows[at]["problem"]
                and row.get("verified")
                and row.get("program") == rows[at]["program"]
            ),
            None,
        )
        if twin is not None and one.facts.kind not in ("matmul", "convolution", "attention"):
            rows[at] |= {
                key: twin[key] for key in ("verified", "median_s", "eager_s", "speedup", "samples_s", "eager_samples_s")
            } | {"same_as": twin["precision"]}  # no product in it, so the policy changes nothing
        else:
            rows[at] = verified(one, rows[at])
        keep()
        print(show(rows[at]), flush=True)
    executors.shutdown()
    keep()
    print("\n".join(map(show, rows)))
    print(json.dumps(summary(rows), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
