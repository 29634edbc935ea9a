"""Evaluates a candidate: runs its job on an executor and turns the outcome into a verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from workbench import landscapes
from workbench.analysis import coverage, devices, integrity, speed_of_light, statistics
from workbench.analysis.energy_model import estimate_energy
from workbench.analysis.time_model import TimeEstimate, compare_times, estimate_time
from workbench.executors.wrong_result import wrong_result
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import (
    Bound,
    EnergyEstimate,
    Failure,
    Job,
    Outcome,
    Provenance,
    Ratio,
    RecordedTime,
    Trial,
    Verdict,
    Work,
    record,
)

QUICK = "quick trial: each case was checked once, and the kernels were timed alone; the whole verdict comes with test"

# In a disturbed run, a speed-up counts as real only if its interval lies beyond this ratio (inferred: another
# process on the device can take up to half of it).
DISTURBED = 1.5


def evaluate(job: Job, executor: Executor, *, parent: Trial | None = None, context: RunContext = PLAIN) -> Trial:
    """Run the job and judge the outcome. Raises only the errors of `Executor.run`."""
    outcome = executor.run(job, context)
    return Trial(outcome=outcome, verdict=judge(job, outcome, parent), at=now())


def now() -> str:
    """The current time in UTC, in ISO format with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def judge(job: Job, outcome: Outcome, parent: Trial | None) -> Verdict:
    """The verdict on an outcome. A parent's time is compared only if device and provenance are the same."""
    failure = _failure(job, outcome)
    worst = max((check.max_error for check in outcome.checks), default=None)
    bound = _bound(job, outcome)
    if failure is not None:
        return Verdict(correct=False, failure=failure, worst_error=worst, bound=bound)
    timed = _measured(outcome) if outcome.timing is not None else _modelled(job, outcome)
    disturbed = _disturbances(outcome)
    compared = _compare(job, outcome, timed, parent, disturbed)
    recorded = find_recorded(job, outcome) if outcome.timing is None else None
    before = parent.verdict.recorded if parent is not None else None
    return Verdict(
        correct=True,
        worst_error=worst,
        time_s=timed.seconds,
        time_provenance=timed.provenance,
        time_interval=timed.interval,
        limit=timed.limit,
        time_note=timed.note,
        recorded=recorded,
        bound=bound,
        fraction_of_bound=bound.bound_s / timed.seconds if bound and timed.seconds else None,
        speedup=compared.speedup,
        distinguishable=compared.distinguishable,
        suspect=integrity.doubts(
            outcome, bound, timed.seconds, job.facts.work, [one.target for one in job.facts.graph]
        ),
        speedup_interval=compared.interval,
        speedup_of=compared.of,
        recorded_speedup=_recorded_speedup(before, recorded),
        disturbed=disturbed,
        doubts=(
            *((QUICK,) if outcome.quick else ()),
            *integrity.task_doubts(job.facts.degeneracies),
            *coverage.unreached_numbers(job.facts, outcome),
            *dict.fromkeys(check.doubt for check in outcome.checks if check.doubt),
        ),
        refuses=coverage.refused_inputs(job.facts, outcome),
        untested=coverage.untested_sizes(job.facts, outcome),
        left_out=outcome.left_out,
        tested=coverage.tested_inputs(job.facts, outcome),
        refused=integrity.refusal_reason(outcome, bound, timed.seconds)
        or ("" if job.allow_torch else integrity.torch_refusal(outcome, job.facts.work)),
        energy=timed.energy,
        energy_note=timed.energy_note,
    )


def _recorded_speedup(before: RecordedTime | None, now: RecordedTime | None) -> float | None:
    """The ratio of two recorded times; None unless both are of one GPU."""
    if before is None or now is None or before.device != now.device:
        return None
    return before.seconds / now.seconds


@record
class _Time:
    """The time of an outcome, and beside a modelled time the modelled energy, or why there is none."""

    seconds: float | None = None
    provenance: Provenance | None = None
    interval: tuple[float, float] | None = None
    limit: str = ""
    note: str = ""
    energy: EnergyEstimate | None = None
    energy_note: str = ""


def _measured(outcome: Outcome) -> _Time:
    assert outcome.timing is not None
    return _Time(seconds=outcome.timing.median_s, provenance="measured")


def _modelled(job: Job, outcome: Outcome) -> _Time:
    estimate, work = estimate_outcome(job, outcome), _find_work(job, "full")
    if estimate is None or work is None:
        return _Time(note=outcome.full_note)
    energy = estimate_energy(outcome.full_launches, devices.find(outcome.device), work, estimate)
    return _Time(
        seconds=estimate.seconds,
        provenance="modelled",
        interval=(estimate.low_s, estimate.high_s),
        limit=estimate.limit,
        energy=None if isinstance(energy, str) else energy,
        energy_note=energy if isinstance(energy, str) else "",
    )


def estimate_outcome(job: Job, outcome: Outcome) -> TimeEstimate | None:
    """The modelled time of an outcome whose launches were run at full size; None for others."""
    work = _find_work(job, "full")
    if not outcome.full_launches or work is None:
        return None
    return estimate_time(outcome.full_launches, outcome.full_builds, devices.find(outcome.device), work)


def find_recorded(job: Job, outcome: Outcome) -> RecordedTime | None:
    """The measured time of this very program on this device, if a landscape has it."""
    place = landscapes.find(job.problem, outcome.device) if job.candidate.program else None
    if place is None or job.candidate.program is None:
        return None
    row = place.row(job.candidate.program, outcome.arch) or place.row_of_same_code(job.candidate.program, outcome.arch)
    if row is None or row.median_s is None or row.low_s is None or row.high_s is None:
        return None
    if not row.correct:
        return None
    date = str(place.runs[row.run]["date"])[:10]
    return RecordedTime(seconds=row.median_s, low_s=row.low_s, high_s=row.high_s, device=place.device, date=date)


def _failure(job: Job, outcome: Outcome) -> Failure | None:
    if outcome.failure is not None:
        return outcome.failure
    error = next((finding for finding in outcome.findings if finding.severity == "error"), None)
    if error is not None:
        return Failure(stage="run", kind=error.kind, message=error.message, line=error.line)
    wrong = wrong_result(outcome.checks, outcome.unmapped_parameters, outcome.launches, job.facts)
    if wrong is not None:
        return wrong
    if not outcome.checks:
        return Failure(stage="check", kind="nothing_checked", message="nothing was checked")
    return None


def _find_work(job: Job, case: str) -> Work | None:
    return next((work for work in job.facts.work if work.case == case), None)


def _bound(job: Job, outcome: Outcome) -> Bound | None:
    work = _find_work(job, outcome.timing.case if outcome.timing else "full")
    return speed_of_light.bound(work, devices.find(outcome.device)) if work else None


def _disturbances(outcome: Outcome) -> tuple[str, ...]:
    """Doubts about the times of this run, of the candidate and of the programs timed with it."""
    timings = (outcome.timing, outcome.rival_timing, outcome.reference_timing)
    return tuple(dict.fromkeys(doubt for timing in timings if timing is not None for doubt in timing.doubts))


@record
class _Comparison:
    """A speed-up over the parent, whether it is larger than the noise, and its interval."""

    speedup: float | None = None
    distinguishable: bool | None = None
    interval: tuple[float, float] | None = None
    of: Literal["kernels", "calls"] = "kernels"


def _compare(job: Job, outcome: Outcome, timed: _Time, parent: Trial | None, disturbed: tuple[str, ...]) -> _Comparison:
    """The speed-up over the parent: from one run that timed both, else from the samples of two runs, or modelled."""
    if parent is None or timed.seconds is None or parent.verdict.time_s is None:
        return _Comparison()
    if parent.verdict.time_provenance != timed.provenance or parent.outcome.device != outcome.device:
        return _Comparison()
    if timed.provenance == "modelled":
        return _compare_modelled(job, outcome, parent.outcome)
    limit = DISTURBED if disturbed else 1.0
    ratio = _find_ratio(outcome)
    if ratio is not None:
        return _Comparison(
            speedup=ratio.ratio,
            distinguishable=ratio.low > limit or ratio.high < 1 / limit,
            interval=(ratio.low, ratio.high),
            of=ratio.of,
        )
    before = parent.outcome.timing
    if outcome.timing is None or before is None or before.cold_l2 != outcome.timing.cold_l2:
        return _Comparison()
    _, low, high = statistics.unpaired_ratio(
        before.samples_s,
        outcome.timing.samples_s,
        (before.per_round, outcome.timing.per_round),
        between_runs=statistics.BETWEEN_RUNS,
    )
    limit = DISTURBED if disturbed or before.doubts or before.method != outcome.timing.method else 1.0
    return _Comparison(
        speedup=parent.verdict.time_s / timed.seconds,
        distinguishable=low > limit or high < 1 / limit,
        interval=(low, high),
    )


def _find_ratio(outcome: Outcome) -> Ratio | None:
    """The ratio to the parent that decides: of whole calls where the GPU waits for the host with either of the two,
    else of kernels.
    """
    ratios = {one.of: one for one in outcome.ratios if one.against == "parent"}
    waits = any(timing is not None and timing.waits_for_host for timing in (outcome.timing, outcome.rival_timing))
    return (ratios.get("calls") if waits else None) or ratios.get("kernels")


def _compare_modelled(job: Job, outcome: Outcome, before: Outcome) -> _Comparison:
    new, old = estimate_outcome(job, outcome), estimate_outcome(job, before)
    if new is None or old is None:  # the parent's trial is from a version that did not run at full size
        return _Comparison()
    found = compare_times(new, old)
    return _Comparison(
        speedup=found.speedup, distinguishable=found.order != "cannot be told", interval=(found.low, found.high)
    )
