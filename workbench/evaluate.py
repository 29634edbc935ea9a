"""One candidate -> one Trial: run it, then turn the outcome into a verdict."""

from __future__ import annotations

from datetime import UTC, datetime

from workbench.analysis import devices, integrity, model, speed_of_light, statistics
from workbench.executors.wrong_result import wrong_result
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Bound, Failure, Job, Outcome, Provenance, Trial, Verdict, Work

SAME_MODELLED = 0.01  # modelled times closer than this are the same (inferred)
# in a disturbed run only a difference that is surely larger than this is told apart
DISTURBED = 1.5  # (inferred: a neighbour that takes turns with us costs up to half the device)


def evaluate(job: Job, executor: Executor, *, parent: Trial | None = None, context: RunContext = PLAIN) -> Trial:
    """Run the job and judge it. Raises only what the executor raises (`Stopped`, `Unavailable`, `WorkerLost`)."""
    outcome = executor.run(job, context)
    return Trial(outcome=outcome, verdict=judge(job, outcome, parent), at=now())


def now() -> str:
    """The time in UTC, ISO format, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def judge(job: Job, outcome: Outcome, parent: Trial | None) -> Verdict:
    """The verdict on an outcome; a parent's time is compared only when it came from the same device in the same way."""
    failure = _failure(outcome)
    worst = max((check.max_error for check in outcome.checks), default=None)
    bound = _bound(job, outcome)
    if failure is not None:
        return Verdict(correct=False, failure=failure, worst_error=worst, bound=bound)
    time_s, provenance = _time(job, outcome)
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


def _work(job: Job, name: str) -> Work | None:
    return next((work for work in job.facts.work if work.case == name), None)


def _bound(job: Job, outcome: Outcome) -> Bound | None:
    work = _work(job, outcome.timing.case if outcome.timing else "full")
    return speed_of_light.bound(work, devices.find(outcome.device)) if work else None


def _time(job: Job, outcome: Outcome) -> tuple[float | None, Provenance | None]:
    if outcome.timing is not None:
        return outcome.timing.median_s, "measured"
    emulated, target = _work(job, job.cases[0]), _work(job, "full")
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
    """Why the times of this run may not hold, those of what the candidate was set against included."""
    timings = (outcome.timing, outcome.rival_timing, outcome.reference_timing)
    return tuple(dict.fromkeys(doubt for timing in timings if timing is not None for doubt in timing.doubts))


Comparison = tuple[
    float | None, bool | None, tuple[float, float] | None
]  # speed-up, whether it is larger than the noise, its interval


def _compare(
    outcome: Outcome,
    time_s: float | None,
    provenance: Provenance | None,
    parent: Trial | None,
    disturbed: tuple[str, ...],
) -> Comparison:
    """The ratio of one run where both took turns in it, else that of the stored samples of two runs."""
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
