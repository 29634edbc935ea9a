"""Counts, on the emulator, the programs that were measured on an H100: the package ships them, and the time model's
intervals for an H100 rest on them (workbench/analysis/time_model/measured.py).

    python tests/bench/device_rows.py KERNELBENCH          resumable; up to a minute a program

The programs are those of the searches in results/*search_live.jsonl on an H100: the planner's first version and the
best. Where a row has no text of a program it is today's first version, if its title is the recorded one; the program is
left out otherwise. A program that several searches measured has the median of its times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench import problems
from workbench.analysis.time_model.measured import SHIPPED, file_name, load_programs, save_programs
from workbench.codegen import compile_program
from workbench.codegen.canonical import canonical
from workbench.landscapes import problem_key
from workbench.problems import inspection
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Candidate, Job, Problem
from workbench.session import Session
from workbench.tuning.refining import count_program

RESULTS = Path(__file__).parent / "results"
SEARCHES = ("h100_search_live", "thirty_search_live")
DEVICE, ARCH = "H100", "sm_90a"
OUT = SHIPPED / file_name(DEVICE)
LIMIT_S = 240.0

Json = dict[str, Any]


def name_file(problem: str) -> str:
    """The name of KernelBench's file of a row's problem."""
    return problem.split("_", 1)[1] if problem.startswith("level") else problem


def read_searches() -> dict[str, list[Json]]:
    """The searches on the device, by the name of the problem's file."""
    found: dict[str, list[Json]] = defaultdict(list)
    for name in SEARCHES:
        for line in (RESULTS / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["device"] == DEVICE and row["provenance"] == "measured" and row["first_correct"]:
                found[name_file(row["problem"])].append(row)
    return found


def first_version(problem: Problem) -> tuple[str, str]:
    """(title, canonical text) of the planner's first version for the device."""
    with (
        tempfile.TemporaryDirectory() as root,
        Session.create(problem, root=root, executor="emulator", arch=ARCH, device=DEVICE, calibrate=False) as session,
    ):
        first = session.generate()
        assert first is not None
        program = first.proposal.candidate.program
        assert program is not None
        return first.proposal.title, canonical(program)


def list_programs(searches: Sequence[Json], problem: Problem) -> Iterator[tuple[str, list[float]]]:
    """(text, measured seconds in each search) of the programs of a problem's searches."""
    title, first = first_version(problem)
    times: dict[str, list[float]] = defaultdict(list)
    for row in searches:
        if row["first"] == title:
            times[first].append(row["first_s"])
        else:
            print(f"{problem.name}: the first version was {row['first']!r}, today it is {title!r}", flush=True)
        if row["best"] != "first":
            text = canonical(row["best"])
            if text != first or row["first"] != title:
                times[text].append(row["best_s"])
    yield from times.items()


def count(kernelbench: Path, out: Path) -> None:
    """Count what the file does not hold yet."""
    done = list(load_programs(out)) if out.exists() else []
    for name, searches in read_searches().items():
        (path,) = kernelbench.glob(f"level[12]/{name}.py")
        loaded = problems.load(str(path), precision="tf32")
        opened = inspection.open_problem(loaded)
        key = problem_key(opened.problem)
        binding = binding_of(opened.problem, opened.facts, recognise(opened.facts))
        for program, seconds in list_programs(searches, loaded):
            if (key, program) in {(one.key, one.program) for one in done}:
                continue
            start = time.perf_counter()
            job = Job(
                problem=opened.problem,
                facts=opened.facts,
                candidate=Candidate(source=compile_program(program, binding), program=program),
                arch=ARCH,
                device=DEVICE,
                wall_limit_s=LIMIT_S,
            )
            found = count_program(job, median(seconds), key)
            said = found if isinstance(found, str) else f"{time.perf_counter() - start:.0f} s"
            print(f"{name}: {program[:90]}: {said}", flush=True)
            if not isinstance(found, str):
                done.append(found)
                save_programs(done, out)


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernelbench", type=Path, help="the folder with level1 and level2")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    count(arguments.kernelbench, arguments.out)


if __name__ == "__main__":
    main()
