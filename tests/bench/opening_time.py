"""Processor time of opening a problem: `cutegen problem` in a fresh process, and one more in a session's process.

    python tests/bench/opening_time.py --label after [--tree FOLDER] [--repeats 3] [--out FILE]

Nothing of an earlier inspection is cached. User and system time of every process of the command count: the command, the
worker server and the inspection. Wall time depends on what else the machine does. `--tree` is another checkout to
measure, whose rows get another label; rows with the label are replaced, the others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROBLEMS = ("mlp_sequential", "llama_norm_fp16", "lm_loss")
WARM = """
import json, sys, tempfile, psutil
from workbench import Session
from workbench.executors.jobs.client import server
from workbench.views.text.problem_card import describe_problem

def processor_time():
    mine = psutil.Process().cpu_times()
    workers = psutil.Process(server().process.pid).cpu_times()
    return sum((mine.user, mine.system, *workers[:4]))

for path in sys.argv[1:]:
    before = processor_time()
    with Session.create(path, root=tempfile.mkdtemp()) as session:
        describe_problem(session)
        print(json.dumps(processor_time() - before), flush=True)
"""


def measure_command(path: Path, environment: dict[str, str]) -> float:
    """Seconds of `cutegen problem` in a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "workbench", "problem", str(path)]
    subprocess.run(command, env=environment, cwd=environment["PYTHONPATH"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_warm(paths: list[Path], environment: dict[str, str]) -> list[float]:
    """Seconds of each problem of one process but the first, which starts the worker server."""
    command = [sys.executable, "-c", WARM, *map(str, paths)]
    tree = environment["PYTHONPATH"]
    done = subprocess.run(command, env=environment, cwd=tree, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


def measure(tree: Path, label: str, repeats: int) -> list[dict[str, object]]:
    """Rows of a checkout. A first run, which is not counted, writes the bytecode."""
    rows: list[dict[str, object]] = []
    paths = [HERE.parent / "problems" / "outsider" / f"{name}.py" for name in PROBLEMS]
    for repeat in range(-1, repeats):
        with tempfile.TemporaryDirectory() as folder:
            environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            environment |= {
                "PYTHONPATH": str(tree.absolute()),
                "CUTEGEN_ROOT": f"{folder}/sessions",
                "OMP_NUM_THREADS": "1",
            }
            seconds = []
            for path in paths:
                environment["CUTEGEN_CACHE"] = f"{folder}/{path.stem}"
                seconds.append(("fresh process", path.stem, measure_command(path, environment)))
            environment["CUTEGEN_CACHE"] = f"{folder}/warm"
            warm = measure_warm([paths[-1], *paths[:-1]], environment)
            seconds += [("warm", path.stem, one) for path, one in zip(paths[:-1], warm, strict=True)]
        if repeat >= 0:
            rows += [
                {"label": label, "how": how, "problem": name, "repeat": repeat, "cpu_s": round(one, 2)}
                for how, name, one in seconds
            ]
    return rows


def main() -> None:
    """Measure, write the rows and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--label", default="after")
    parser.add_argument("--tree", type=Path, default=HERE.parents[1])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "opening_time.json")
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
    rows = [row for row in known if row["label"] != arguments.label]
    rows += measure(arguments.tree, arguments.label, arguments.repeats)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
    arguments.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    for label, how, name in dict.fromkeys((row["label"], row["how"], row["problem"]) for row in rows):
        same = [row["cpu_s"] for row in rows if (row["label"], row["how"], row["problem"]) == (label, how, name)]
        print(f"{label:8} {how:14} {name:18} {statistics.median(same):5.2f} s of {len(same)}")


if __name__ == "__main__":
    main()
