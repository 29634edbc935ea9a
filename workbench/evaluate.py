"""Evaluates a candidate: runs its job on an executor and turns the outcome into a verdict."""

from __future__ import annotations

from datetime import UTC, datetime

from workbench.analysis import devices, integrity, model, speed_of_light, statistics
from workbench.executors.wrong_result import wrong_result
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Bound, Failure, Job, Outcome, Provenance, Trial, Verdict, Work

SAME_MODELLED = 0.01  # modelled times that differ by less count as equal (inferred)
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
    failure = _failure(outcome)
    worst = max((check.max_error for check in outcome.checks), default=None)
    bound = _bound(job, outcome)
    if failure is not None:
        return Verdict(correct=False, failure=failure, worst_error=worst, bound=bound)
    time_s, provenance = _time_and_provenance(job, outcome)
    disturbed = _disturbances(outcome)
    speedup, real, interval = _compare(outcome, time_s, provenance, parent, disturbed)
    return Verdict(
        correct=True,
        worst_error=worst,
        time_s=time_s,
        time_provenance=provenance,
        bound=bound,
        fraction_of_bound=bound.bound_s / time_s if bound and time_s else None,
        speedup=speedup,
        distinguishable=real,
        suspect=integrity.doubts(outcome, bound),
        speedup_interval=interval,
        disturbed=disturbed,
        refused=integrity.refusal_reason(outcome, bound),
    )


def _failure(outcome: Outcome) -> Failure | None:
    if outcome.failure is not None:
        return outcome.failure
    error = next((finding for finding in outcome.findings if finding.severity == "error"), None)
    if error is not None:
        return Failure(stage="run", kind=error.kind, message=error.message, line=error.line)
    wrong = wrong_result(outcome.checks, outcome.unmapped_parameters)
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


def _time_and_provenance(job: Job, outcome: Outcome) -> tuple[float | None, Provenance | None]:
    if outcome.timing is not None:
        return outcome.timing.median_s, "measured"
    emulated, target = _find_work(job, job.cases[0]), _find_work(job, "full")
    if outcome.launches and emulated and target:
        seconds, _ = model.modelled_time(
            outcome.launches,
            outcome.builds,
            devices.find(outcome.device),
            emulated,
            target,
            model.padding_ratio(job.facts, outcome.launches, emulated),
        )
        return seconds, "modelled"
    return None, None


def _disturbances(outcome: Outcome) -> tuple[str, ...]:
    """Doubts about the times of this run, of the candidate and of the programs timed with it."""
    timings = (outcome.timing, outcome.rival_timing, outcome.reference_timing)
    return tuple(dict.fromkeys(doubt for timing in timings if timing is not None for doubt in timing.doubts))


# (speed-up, whether it is larger than the noise, its interval)
Comparison = tuple[float | None, bool | None, tuple[float, float] | None]


def _compare(
    outcome: Outcome,
    time_s: float | None,
    provenance: Provenance | None,
    parent: Trial | None,
    disturbed: tuple[str, ...],
) -> Comparison:
    """The speed-up over the parent: from one run that timed both, else from the samples of two runs."""
    if parent is None or time_s is None or parent.verdict.time_s is None:
        return None, None, None
    if parent.verdict.time_provenance != provenance or parent.outcome.device != outcome.device:
        return None, None, None
    limit = DISTURBED if disturbed else 1.0
    ratio = next((one for one in outcome.ratios if one.against == "parent"), None)
    if ratio is not None:
        return ratio.ratio, ratio.low > limit or ratio.high < 1 / limit, (ratio.low, ratio.high)
    before = parent.outcome.timing
    if outcome.timing is not None and before is not None:
        if before.cold_l2 != outcome.timing.cold_l2:
            return None, None, None
        _, low, high = statistics.unpaired_ratio(
            before.samples_s,
            outcome.timing.samples_s,
            (before.per_round, outcome.timing.per_round),
            between_runs=statistics.BETWEEN_RUNS,
        )
        limit = DISTURBED if disturbed or before.doubts or before.method != outcome.timing.method else 1.0
        return parent.verdict.time_s / time_s, low > limit or high < 1 / limit, (low, high)
    speedup = parent.verdict.time_s / time_s
    return speedup, abs(speedup - 1) > SAME_MODELLED, None
