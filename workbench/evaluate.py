"""One candidate -> one Trial: run it, then turn the outcome into a verdict."""

from __future__ import annotations

from datetime import UTC, datetime

from workbench.analysis import devices, integrity, model, speed_of_light, statistics
from workbench.protocols import Executor, Progress
from workbench.records import Bound, Failure, Job, Outcome, Provenance, Trial, Verdict, Work

SAME_MODELLED = 0.01  # modelled times closer than this are the same (inferred)


def evaluate(job: Job, executor: Executor, *, parent: Trial | None = None, progress: Progress | None = None) -> Trial:
    """Run the job and judge it. Raises only what the executor raises (`Stopped`, `Unavailable`, `WorkerLost`)."""
    outcome = executor.run(job, progress=progress)
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
    speedup, real = _compare(outcome, time_s, provenance, parent)
    return Verdict(
        correct=True, worst_error=worst, time_s=time_s, time_provenance=provenance, bound=bound, fraction_of_bound=bound.bound_s / time_s if bound and time_s else None,
        speedup=speedup, distinguishable=real, suspect=integrity.doubts(outcome, bound), refused=integrity.refused(outcome, bound),
    )  # fmt: skip


def _failure(outcome: Outcome) -> Failure | None:
    if outcome.failure is not None:
        return outcome.failure
    error = next((finding for finding in outcome.findings if finding.severity == "error"), None)
    if error is not None:
        return Failure(stage="run", kind=error.kind, message=error.message, line=error.line)
    wrong = next((check for check in outcome.checks if not check.passed), None)
    if wrong is not None:
        lost = ", ".join(outcome.unmapped_parameters)
        hint = f"these parameters have no partner in Model by name and shape, so they kept their own values: {lost}" if lost else ""
        return Failure(stage="check", kind="wrong_result", message=f"wrong result at case {wrong.case}: {wrong.message}", hint=hint)
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
        seconds, _ = model.modelled_time(outcome.launches, outcome.builds, devices.find(outcome.device), emulated, target)
        return seconds, "modelled"
    return None, None


def _compare(outcome: Outcome, time_s: float | None, provenance: Provenance | None, parent: Trial | None) -> tuple[float | None, bool | None]:
    if parent is None or time_s is None or parent.verdict.time_s is None:
        return None, None
    if parent.verdict.time_provenance != provenance or parent.outcome.device != outcome.device:
        return None, None
    speedup = parent.verdict.time_s / time_s
    if outcome.timing is not None and parent.outcome.timing is not None:
        return speedup, statistics.distinguishable(parent.outcome.timing.samples_s, outcome.timing.samples_s)
    return speedup, abs(speedup - 1) > SAME_MODELLED
