"""Programs that a GPU measured, counted on the emulator: the time model's intervals for that GPU rest on them.

After `cutegen tune` a few of the measured configurations are counted, for the user's own GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from workbench.analysis import devices
from workbench.analysis.time_model import FITTED_ON, describe_refinement, find_refinement
from workbench.analysis.time_model.measured import MeasuredProgram, add_user_programs, find_user_programs
from workbench.executors.full_size import FullSizeRun
from workbench.executors.jobs.client import server
from workbench.landscapes.table import Row
from workbench.records import Candidate, Job, Outcome
from workbench.tuning.plan import TuningPlan

MOST = 6  # programs of a problem
LIMIT_S = 60.0
LEAST_S = 5.0  # no count begins with less time left

Say = Callable[[str], None]


def refine_model(plan: TuningPlan, rows: Sequence[Row], say: Say) -> int:
    """Count a few of a plan's measured programs, MOST of them and LIMIT_S at most, and keep them for the user. Returns
    how many were added. On the device that the time model was fitted on there is nothing to do.
    """
    if plan.device == FITTED_ON:
        return 0
    known = {one.program for one in find_user_programs(plan.device) if one.key == plan.key}
    chosen = choose_rows([row for row in rows if row.program in plan.programs])
    wanted = [row for row in chosen if row.program not in known][: max(MOST - len(known), 0)]
    sources = dict(zip(plan.programs, plan.sources, strict=True))
    end = time.monotonic() + LIMIT_S
    added: list[MeasuredProgram] = []
    for number, row in enumerate(wanted, 1):
        left = end - time.monotonic()
        if left < LEAST_S:
            break
        say(
            f"time model: program {number} of {len(wanted)} on the emulator, {left:.0f} s left at most; "
            "Ctrl-C or --no-refine leaves it out"
        )
        job = Job(
            problem=plan.problem,
            facts=plan.facts,
            candidate=Candidate(source=sources[row.program], program=row.program),
            arch=plan.arch,
            device=plan.device,
            wall_limit_s=left,
        )
        found = count_program(job, row.median_s or 0.0, plan.key)
        if isinstance(found, str):
            say(f"time model: not counted: {found}")
        else:
            added.append(found)
    if added:
        path = add_user_programs(added, plan.device)
        refined = find_refinement(devices.find(plan.device))
        say(f"time model: on {plan.device} {describe_refinement(refined)}; stored in {path}")
    return len(added)


def choose_rows(rows: Sequence[Row], most: int = MOST) -> list[Row]:
    """So many of the correct rows, from the fastest to the slowest by even steps in rank, each once."""
    timed = sorted(
        (row for row in rows if row.correct and row.program and row.median_s), key=lambda row: row.median_s or 0
    )
    if len(timed) <= most:
        return timed
    return [timed[round(number * (len(timed) - 1) / (most - 1))] for number in range(most)]


def count_program(job: Job, seconds: float, key: str) -> MeasuredProgram | str:
    """The program of a job that took so many seconds, with a few CTAs of each of its launches run at full size; or why
    it cannot be counted.
    """
    with FullSizeRun(job, server()) as run:
        outcome = run.add_to(Outcome(executor="emulator", arch=job.arch, device=job.device), None)
    work = next((work for work in job.facts.work if work.case == "full"), None)
    if outcome.failure is not None:
        return outcome.failure.message
    if work is None or not outcome.full_launches:
        return outcome.full_note or "it launches no kernel at full size"
    return MeasuredProgram(
        device=job.device,
        key=key,
        problem=job.problem.name,
        program=job.candidate.program or "",
        seconds=seconds,
        work=work,
        launches=outcome.full_launches,
        builds=outcome.full_builds,
    ).shorten()
