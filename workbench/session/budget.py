"""Drives a session by the policy `budget`: one attempt after the other, until the best is good enough or nothing helps."""

from __future__ import annotations

from typing import Any

from workbench.policies.budget import BudgetSettings, Standing, why_stop
from workbench.records import Event, Version


def run(session: Any, settings: BudgetSettings, by: str, **options: Any) -> tuple[Version, ...]:
    """First version if there is none, then refinements; the last event says why it stopped."""
    made: list[Version] = []
    idle = 0
    while True:
        reason = why_stop(settings, standing(session, idle, len(made)))
        if reason is not None:
            break
        before = _best_s(session)
        new = session.run(0 if session.baseline is None else 1, by, **({"rank": "roi"} if by == "planner" else {}), **options)
        if not new:
            reason = f"{by} has no further idea"
            break
        made += new
        after = _best_s(session)
        idle = 0 if after is not None and (before is None or after < before) else idle + len(new)
    session._say(Event(kind="stopped", version=session.best.number if session.best else None, message=f"stopped: {reason}", data=(("attempts", len(made)), ("idle", idle))))
    return tuple(session.version(version.number) for version in made)


def standing(session: Any, idle: int, attempts: int) -> Standing:
    """Where the session stands, from its best version's last trial."""
    best = session.best
    trial = best.trials[-1] if best is not None and best.trials else None
    timing = trial.outcome.reference_timing if trial is not None else None
    bound = trial.verdict.bound if trial is not None else None
    return Standing(best_s=_best_s(session), bound_s=bound.bound_s if bound is not None else None, reference_s=timing.median_s if timing is not None else None, idle=idle, attempts=attempts)


def _best_s(session: Any) -> float | None:
    best = session.best
    return best.trials[-1].verdict.time_s if best is not None and best.trials else None
