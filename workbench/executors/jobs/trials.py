"""Which trials a job has, and how many calls each makes with which seeds. Every process of a job agrees on it."""

from __future__ import annotations

from workbench.records import Job


def list_trials(job: Job) -> list[tuple[str, int]]:
    """(case, trial) of all runs, in order."""
    known = {case.name for case in job.facts.cases}
    return [(name, trial) for name in job.cases if name in known for trial in range(job.trials)]


def has_special_values(job: Job, case: str, trial: int) -> bool:
    """Whether the inputs of this trial get special values: the last trial of small cases, if a case has several."""
    return case != "full" and job.trials > 1 and (case, trial) == list_trials(job)[-1]


def count_calls(job: Job, case: str, trial: int) -> int:
    """Calls of one instance in a trial: two in the last trial, so that what a call leaves is seen."""
    return 2 if (case, trial) == list_trials(job)[-1] else 1


def input_seed(seed: int, call: int) -> int:
    """The seed of a call's inputs."""
    return seed ^ (2 * call + 1)
