"""Landscapes of at least 20 problems on a GPU: every configuration of the plan compiled, timed and checked at full
size.

    python tests/bench/landscape_on_gpu.py --out $OUT/landscape.csv --seconds 540 [--done earlier.csv.gz ...] [--only
    matmul_bf16] [--workers 15] [--kept DIR]
    python tests/bench/landscape_on_gpu.py --plan [--kept DIR]                         what would be measured; no GPU
    python tests/bench/landscape_on_gpu.py --dry-run --most 3 --only matmul_bf16_4096  reduced sizes on the emulator; no
    GPU, no times
    python tests/bench/landscape_on_gpu.py --join a.csv b.csv --to workbench/landscapes/h200.csv.gz

Most processes compile and never touch a GPU; a few measure what those kept, one at a time on a GPU while the others
load (workbench/tuning). With several GPUs each has measurers and problems of its own. Problems are served in turn, so
that a run which is cut
short has something of each; rows are appended as they come, and what --out or --done holds is not measured again. The
plans and what was compiled lie in --kept, where the next run of the same code finds them. A process that crashes, or
takes longer than its limit, loses only the configuration at hand. Where the measurers' time goes is printed every 20 s
and, by problem, at the end.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from landscape_problems import places

from workbench.executors.gpu.presence import gpus_to_use
from workbench.landscapes import table
from workbench.tuning import plan as tuning_plan
from workbench.tuning.files import start_file
from workbench.tuning.plan import MOST, TuningPlan, TuningProblem, list_tasks, plan_problem


def list_folder(folder: Path) -> list[TuningProblem]:
    """The problem files of a folder, products in TF32."""
    return [TuningProblem(path.stem, str(path), "tf32") for path in sorted(folder.glob("*.py"))]


def planned(arguments: argparse.Namespace) -> list[TuningPlan]:
    """The plans of all chosen problems that the planner recognises.

    What --kept holds of this code is not planned again.
    """
    of = list_folder(arguments.folder) if arguments.folder else places()
    chosen = [place for place in of if any(place.name.startswith(name) for name in arguments.only.split(","))]
    path = arguments.kept / f"plans-{tuning_plan.code_hash()}.pickle.gz" if arguments.kept else None
    known: dict[str, TuningPlan | str] = (
        pickle.loads(gzip.decompress(path.read_bytes())) if path and path.exists() else {}
    )
    new = [place for place in chosen if place.name not in known]
    if new:
        with multiprocessing.get_context("fork").Pool(min(arguments.workers, len(new), os.cpu_count() or 1)) as pool:
            known |= zip([place.name for place in new], pool.map(plan_problem, new, chunksize=1), strict=True)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(pickle.dumps(known), 6))
    plans: dict[str, TuningPlan] = {}
    for place in chosen:
        plan = known[place.name]
        if isinstance(plan, str):
            print(f"# {place.name}: {plan}", flush=True)
        else:
            plans.setdefault(plan.key, plan.limit(arguments.most or MOST))
    return list(plans.values())


def main() -> int:
    """Measure, or one of the other things that the module's text names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--workers", type=int, default=max((os.cpu_count() or 2) - 1, 2), help="processes in all")
    parser.add_argument(
        "--measurers", type=int, default=3, help="of them, those that use a GPU, one at a time; so many for each GPU"
    )
    parser.add_argument(
        "--gpus",
        type=int,
        default=max(len(gpus_to_use()), 1),
        help="how many to use; all rows of a problem are of one",
    )
    parser.add_argument(
        "--kept", type=Path, help="folder for plans and what is compiled (default: one that is removed at the end)"
    )
    parser.add_argument("--only", default="", help="names of problems, or how they begin")
    parser.add_argument(
        "--folder", type=Path, help="problem files instead of the problems whose landscapes are shipped"
    )
    parser.add_argument("--most", type=int, default=0, help="configurations of a problem")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="files whose rows are not measured again")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--join", type=Path, nargs="+")
    parser.add_argument("--to", type=Path)
    arguments = parser.parse_args()
    if arguments.join:
        table.write(arguments.to, *table.join(map(table.read, arguments.join)))
        print(f"{arguments.to}: {len(table.read(arguments.to)[1])} rows, {arguments.to.stat().st_size} bytes")
        return 0
    start = time.monotonic()
    plans = planned(arguments)
    before = (*arguments.done, *([arguments.out] if arguments.out and arguments.out.exists() else []))
    done = {
        (row.key, row.program) for path in before for row in table.read(path)[1] if "OutOfMemory" not in row.failure
    }
    if arguments.plan:
        for plan in plans:
            print(
                f"{plan.place.name:28} {plan.key} {len(plan.programs):4} programs of {plan.legal:5} legal "
                f"combinations; first {plan.programs[0]}"
            )
        left = list_tasks(plans, done)
        print(f"{len(plans)} problems, {sum(len(task.targets) for task in left)} measurements of {len(left)} files")
        return 0
    if arguments.out is None and not arguments.dry_run:
        parser.error("--out FILE says where the rows go")
    arguments.run_number = 0 if arguments.dry_run else start_file(arguments.out, plans, gpus_to_use())
    print(f"# {len(plans)} problems planned in {time.monotonic() - start:.0f} s", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        from workbench.tuning.run import (  # after the plan: CuTe DSL and torch, which the processes then have
            Run,
            RunOptions,
        )

        arguments.seconds -= time.monotonic() - start
        folder = arguments.kept or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        options = RunOptions(
            seconds=arguments.seconds,
            workers=arguments.workers,
            measurers=arguments.measurers,
            gpus=() if arguments.dry_run else gpus_to_use()[: arguments.gpus],
            out=None if arguments.dry_run else arguments.out,
            run_number=arguments.run_number,
            dry_run=arguments.dry_run,
        )
        run = Run(plans, options, folder, done)
        try:
            run.run()
        except KeyboardInterrupt:
            print("# stopped", flush=True)
        run.print_report()
    failures = Counter(row.failure.split(":")[0] for row in run.rows if row.failure)
    by_problem = Counter(row.key for row in run.rows if row.correct)
    for plan in plans:
        times = [row.median_s for row in run.rows if row.key == plan.key and row.median_s and row.program]
        eager = next((row.median_s for row in run.rows if row.key == plan.key and not row.program), None)
        said = f"best {min(times) * 1e6:9.1f} us" if times else ""
        print(
            f"{plan.place.name:28} {by_problem[plan.key]:4} correct of {len(plan.programs):4}  {said}  eager "
            f"{(eager or 0) * 1e6:9.1f} us",
            flush=True,
        )
    print(
        f"# {len(run.rows)} of {run.total} rows in {time.monotonic() - start:.0f} s, {len(run.queue)} files "
        f"not begun; failures: {dict(failures)}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
