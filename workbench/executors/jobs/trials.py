"""Which trials a job has, and how many calls each makes with which seeds. Every process of a job agrees on it."""

from __future__ import annotations

from workbench.records import Facts, Job

DRAWN = ("shrunk", "odd")  # small cases with several trials
TINY = "tiny"
EDGES = (TINY, "over")  # small cases with one trial
# errors by which host code refuses what it is given
REFUSALS = ("ValueError", "AssertionError", "NotImplementedError")

LARGE_BYTES = 1 << 30  # of inputs and outputs

Place = tuple[str, int]  # (case, trial)


def small_cases(facts: Facts) -> tuple[str, ...]:
    """The cases for the emulator."""
    known = {case.name for case in facts.cases}
    return (*DRAWN, *(name for name in EDGES if name in known))


def gpu_cases(facts: Facts) -> tuple[str, ...]:
    """The cases for a GPU: the odd sizes are checked once before the full ones are checked and timed.

    Facts from before the case of size 1 was known have the full case only, so that their jobs keep their hashes.
    """
    known = {case.name for case in facts.cases}
    return ("odd", "full") if {TINY, "odd"} <= known else ("full",)


def _count(job: Job, case: str) -> int:
    """Trials of a case. Beside the edge cases, whose inputs are drawn, the odd case needs the special values only."""
    edges = case in EDGES or (case == "odd" and TINY in small_cases(job.facts) and "shrunk" in job.cases)
    return 1 if edges else max(job.trials, 1)


def list_trials(job: Job) -> list[Place]:
    """(case, trial) of all runs, in order."""
    known = {case.name for case in job.facts.cases}
    places = [(name, trial) for name in job.cases if name in known for trial in range(_count(job, name))]
    extra = find_not_finite(job)
    return places if extra is None or extra in places else [*places, extra]


def _drawn_cases(job: Job) -> list[str]:
    """Cases with several trials; if there are none, all."""
    known = {case.name for case in job.facts.cases}
    names = [name for name in job.cases if name in known]
    return [name for name in names if name not in EDGES] or names


def find_last(job: Job) -> Place | None:
    """The last trial of the last case with several: it makes two calls, so that what a call leaves is seen."""
    names = _drawn_cases(job)
    return (names[-1], _count(job, names[-1]) - 1) if names else None


def find_not_finite(job: Job) -> Place | None:
    """The trial whose inputs have NaN and infinity: the last of the first small case, or one more if there is no other
    case with several. None if cases have one trial.
    """
    names = _drawn_cases(job)
    if job.trials < 2 or not names or names[0] not in DRAWN:
        return None
    return (names[0], job.trials - 1 if len(names) > 1 else job.trials)


def has_special_values(job: Job, case: str, trial: int) -> bool:
    """Whether the inputs of this trial get special values: the last trial of small cases, if a case has several."""
    return case in DRAWN and job.trials > 1 and (case, trial) == find_last(job)


def count_calls(job: Job, case: str, trial: int) -> int:
    """Calls of one instance in a trial: two in the last one, unless the tensors of a call are large.

    The referee holds those of both calls at once, in float64 too.
    """
    sizes = next(
        (sum(spec.size_bytes for spec in (*one.inputs, *one.outputs)) for one in job.facts.cases if one.name == case), 0
    )
    return 2 if (case, trial) == find_last(job) and sizes <= LARGE_BYTES else 1


def input_seed(seed: int, call: int) -> int:
    """The seed of a call's inputs."""
    return seed ^ (2 * call + 1)
