"""Loops over steps: a number of steps, or until the policy `budget` stops them."""

from __future__ import annotations

import dataclasses

from workbench.errors import Unrecorded, UserError
from workbench.policies.budget import BudgetSettings, Standing, why_stop
from workbench.protocols import Options
from workbench.records import Event, Version
from workbench.session.deciding import is_open, say_settled
from workbench.session.log import SessionLog
from workbench.session.parts import Parts
from workbench.session.proposing import NO_OPTIONS

UNRECORDED = 40  # unrecorded programs that a loop skips at most on replay; more than any ladder has


def run_steps(
    parts: Parts, steps: int, by: str, options: Options = NO_OPTIONS, *, largest_gain_first: bool = False
) -> tuple[Version, ...]:
    """Make a first version if there is none, then `steps` refinements; judge each.

    What an interrupt left undecided is finished first, beside these steps.
    """
    _finish_undecided(parts, by)
    made: list[Version] = []
    skipped, wanted = 0, steps + (1 if parts.log.baseline is None else 0)
    while len(made) < wanted and skipped <= UNRECORDED:
        try:
            version = parts.proposing.generate(by, options=options, largest_gain_first=largest_gain_first)
        except Unrecorded as missing:  # replay has no time of it: it was rejected; try the next one
            parts.log.add_event(Event(kind="note", message=str(missing)))
            skipped += 1
            continue
        if version is None:
            break
        made.append(version)
        parts.deciding.judge(version)
    return tuple(parts.log.version(version.number) for version in made)


def _finish_undecided(parts: Parts, by: str) -> None:
    """Judge the versions that the proposer `by` made of the baseline and that have no decision; test them if needed.

    A note says what was decided. Versions of others, such as a person's, stay pending.
    """
    log = parts.log
    for version in log.versions:
        base = log.baseline.number if log.baseline is not None else None
        if version.decision is not None or version.proposal.by != by or version.parent != base:
            continue
        if base is not None and version.trials and is_open(version.trials[-1].verdict):
            continue  # judged before, and both are kept
        if version.needs_verdict:
            try:
                parts.testing.test(version.number)
            except Unrecorded as missing:
                log.reject(version.number, str(missing))
                say_settled(log, version)
                continue
        parts.deciding.judge(log.version(version.number))
        say_settled(log, version)


def run_until(parts: Parts, settings: BudgetSettings, by: str, options: Options = NO_OPTIONS) -> tuple[Version, ...]:
    """Make a first version if there is none, then refinements until the policy stops. An event gives the reason."""
    log, made, idle = parts.log, list[Version](), 0
    while (reason := why_stop(settings, current_standing(log, idle, len(made)))) is None:
        before = log.best
        new = run_steps(parts, 0 if log.baseline is None else 1, by, options, largest_gain_first=True)
        if not new:
            reason = f"{by} has no further idea"
            break
        made += new
        after = log.best  # by the session's rule: faster, or at the same time with fewer joules
        gained = after is not None and (before is None or after.number != before.number)
        idle = 0 if gained else idle + len(new)
    log.add_event(
        Event(
            kind="stopped",
            version=log.best.number if log.best else None,
            message=f"stopped: {reason}",
            data=(("attempts", len(made)), ("idle", idle)),
        )
    )
    return tuple(log.version(version.number) for version in made)


def current_standing(log: SessionLog, idle: int, attempts: int) -> Standing:
    """The state of the session for the policy, from the last trial of its best version."""
    best = log.best
    trial = best.trials[-1] if best is not None and best.trials else None
    timing = trial.outcome.reference_timing if trial is not None else None
    bound = trial.verdict.bound if trial is not None else None
    return Standing(
        best_s=_best_time_s(log),
        bound_s=bound.bound_s if bound is not None else None,
        reference_s=timing.median_s if timing is not None else None,
        idle=idle,
        attempts=attempts,
    )


def _best_time_s(log: SessionLog) -> float | None:
    best = log.best
    return best.trials[-1].verdict.time_s if best is not None and best.trials else None


def parse_until(until: str | int, epsilon: float | None, patience: int | None) -> BudgetSettings | None:
    """Settings of the policy `budget` for "sol", None for a number of steps. Raises `UserError` for other values."""
    if str(until) == "sol":
        settings = BudgetSettings()
        if epsilon is not None:
            settings = dataclasses.replace(settings, epsilon=epsilon)
        return dataclasses.replace(settings, patience=patience) if patience is not None else settings
    if not str(until).isdigit():
        raise UserError(
            f"until is {until!r}; it must be sol (near the speed of light, or no further gain) or a number of steps"
        )
    if epsilon is not None or patience is not None:
        raise UserError("epsilon and patience belong to --until sol")
    return None
