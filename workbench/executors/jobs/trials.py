"""Which trials a job has: cases, calls, values and layouts of inputs. Every process of a job agrees on it."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.records import Case, Facts, Job, record

SHRUNK, ODD = "shrunk", "odd"
TINY, OVER, EMPTY, LONG = "tiny", "over", "empty", ("long", "long2", "long3", "beyond")
NUMBERS = ("numbers", "numbers2")  # sizes of the shrunk case, and other numbers given to forward
EDGES = (*NUMBERS, TINY, OVER, *LONG, EMPTY)  # small cases with one trial
REFUSABLE = (TINY, EMPTY, *LONG)  # cases that host code may refuse
# errors by which host code refuses what it is given
REFUSALS = ("ValueError", "AssertionError", "NotImplementedError")

# values of the inputs of a call; "" for drawn ones
ZEROS, LARGE, NEGATIVE, SMALL = "zeros and one sign", "large", "negative", "small and positive"
# slices along each axis that are zero or tiny: there the eps of a norm decides; without zeros where these do not suit
FAINT, FAINT_ONLY = "zero and tiny rows", "tiny rows"
# values that lie close together behind a bias or a sum: a norm of them is a difference of almost equal numbers
ILL_CONDITIONED = frozenset((NEGATIVE, SMALL, FAINT))
NOT_FINITE = "NaN and infinity"
# layouts of the inputs of a trial; "" for those of the problem
TRANSPOSED, APART = "transposed layout", "offset and padded layout"

# calls with the same inputs, by which the law of random results is compared: the most and the fewest
LAW_CALLS, FEWEST_LAW_CALLS = 48, 8

LARGE_BYTES = 1 << 30  # of inputs and outputs

AT_CASE = "at-case"  # file in `private/`: the case that the reference was called at last


@record
class Run:
    """A trial of a case. `values` has the kind of each call's inputs.

    One of repeated calls is for the law of random results: up to `repeats` calls with the same inputs, the second half
    of them on another instance and with another seed of torch.
    """

    case: str
    trial: int
    values: tuple[str, ...] = ("",)
    layout: str = ""
    draws_state: bool = True  # whether parameters that the problem makes constant are drawn
    repeats: int = 0

    @property
    def place(self) -> str:
        """The beginning of the names of its files."""
        return f"{self.case}-{self.trial}"

    @property
    def expected_place(self) -> str:
        """The place of the parameters, values and results: inputs of another layout have those of the first trial."""
        return f"{self.case}-0" if self.layout else self.place

    @property
    def may_be_left_out(self) -> bool:
        """Whether the reference may find that it does not run with these inputs."""
        return bool(self.layout) or self.values in ((NOT_FINITE,), (FAINT,))


def name_numbers(facts: Facts, case: str) -> str:
    """The other numbers that a case gives to forward: "pos = 37, alpha = 0.5"; "" for the numbers of the problem."""
    return ", ".join(f"{name} = {value}" for name, value in facts.other_numbers(case).items())


def small_cases(facts: Facts) -> tuple[str, ...]:
    """The cases for the emulator."""
    known = {case.name for case in facts.cases}
    return (SHRUNK, ODD, *(name for name in EDGES if name in known))


def gpu_cases(facts: Facts) -> tuple[str, ...]:
    """The cases for a GPU: odd sizes and other numbers are checked once before the full case is checked and timed.

    Facts from before the case of size 1 was known have the full case only, so that their jobs keep their hashes.
    """
    known = {case.name for case in facts.cases}
    return (ODD, *(name for name in NUMBERS if name in known), "full") if {TINY, ODD} <= known else ("full",)


def list_runs(job: Job) -> list[Run]:
    """All trials of a job on the emulator, in order.

    The first case is as the problem makes it, the odd one has special values. Layouts, values of one sign, tiny ones
    and those that are not finite come with the smallest case that has no extents of 1. A job with one trial has each
    case once, as drawn.
    """
    known = {case.name for case in job.facts.cases}
    names = [name for name in job.cases if name in known]
    if job.trials < 2 or not names or names[0] != SHRUNK:
        return [Run(case=name, trial=trial) for name in names for trial in range(max(job.trials, 1))]
    runs = [Run(case=SHRUNK, trial=trial, draws_state=False) for trial in range(job.trials - 1)]
    runs.append(_next(runs, ODD if ODD in names else SHRUNK, (ZEROS, LARGE)))
    runs += [Run(case=name, trial=0) for name in names if name in EDGES]
    small = next(name for name in (OVER, ODD, SHRUNK) if name in names)
    for values in ((NEGATIVE, SMALL), (FAINT,), (NOT_FINITE,)):
        runs.append(_next(runs, small, values))
    base = next(run for run in runs if run.case == (OVER if OVER in names else SHRUNK))
    for layout in (APART, TRANSPOSED):
        trial = sum(run.case == base.case for run in runs)
        runs.append(Run(case=base.case, trial=trial, layout=layout, draws_state=base.draws_state))
    if has_law(job.facts):
        trial = sum(run.case == small for run in runs)
        runs.append(Run(case=small, trial=trial, repeats=LAW_CALLS))
    return runs


def has_law(facts: Facts) -> bool:
    """Whether results are random, and their law is that of a single call."""
    kinds = {item.kind for item in facts.degeneracies}
    return "random" in kinds and not kinds & {"state_assigned", "input_modified"}


def _next(runs: Sequence[Run], case: str, values: tuple[str, ...]) -> Run:
    return Run(case=case, trial=sum(run.case == case for run in runs), values=values)


def gpu_trials(job: Job, case: str) -> range:
    """The numbers of a case's trials on a GPU: one of a case that is not timed, and one of large tensors, whose outputs
    have many millions of elements; the timed calls are checked besides.
    """
    if case != job.cases[-1]:
        return range(1)
    return range(1) if is_large(job, case) and job.timed_calls else range(max(job.trials, 1))


def count_calls(job: Job, case: str, trial: int) -> int:
    """Calls of one instance in a trial on a GPU: two in the last one, so that what a call leaves is seen, unless the
    tensors of a call are large.

    The referee holds those of both calls at once, in float64 too. A quick job has one call.
    """
    is_last = (case, trial) == (job.cases[-1], max(job.trials, 1) - 1)
    return 2 if is_last and not job.quick and not is_large(job, case) else 1


def is_large(job: Job, name: str) -> bool:
    """Whether the inputs and outputs of a case are more than LARGE_BYTES."""
    found: list[Case] = [one for one in job.facts.cases if one.name == name]
    return sum(spec.size_bytes for case in found for spec in (*case.inputs, *case.outputs)) > LARGE_BYTES


def input_seed(seed: int, call: int) -> int:
    """The seed of a call's inputs."""
    return seed ^ (2 * call + 1)
