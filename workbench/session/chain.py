"""Drives a session by the policy `chain`: nodes of generate, repair, re-test, restore; then accept or reject, by rule or by the person."""

from __future__ import annotations

from typing import Any

from workbench.errors import UserError
from workbench.policies.chain import RANKS, ChainSettings, Tried, next_action, rank, restored
from workbench.records import Event, Version


def run(session: Any, settings: ChainSettings, by: str) -> tuple[Version, ...]:
    """The whole chain: depth 0 if there is no baseline, then one node per depth; stops at a node that fails for good."""
    first = 0 if session.baseline is None else session.baseline.proposal.depth + 1
    made: list[Version] = []
    for depth in range(first, settings.depth + 1):
        version = node(session, settings, by, depth)
        if version is None:
            break
        made.append(session.version(version.number))
        if not version.trials[-1].verdict.correct:
            session.reject(version.number, f"the chain ends: not repaired in {settings.regenerate} attempts", by="policy")
            break
        _decide(session, settings, version)
        if settings.continue_from == "best" and session.best is not None and session.baseline is not None and session.best.number != session.baseline.number:
            session.accept(session.best.number, reason="the chain goes on from the best", by="policy")
    return tuple(session.version(version.number) for version in made)


def node(session: Any, settings: ChainSettings, by: str, depth: int) -> Version | None:
    """One depth: a correct version, or the best failed one; None when the proposer has nothing."""
    attempts: list[list[Tried]] = []
    while True:
        action = next_action(settings, tuple(tuple(attempt) for attempt in attempts))
        if action == "generate":
            attempts.append([])
            _try(session, attempts[-1], lambda: session.generate(by, depth=depth, chain=settings))
            if not attempts[-1] and by != "llm":
                return None
        elif action == "repair":
            last = attempts[-1][-1]
            number = last.round + 1
            session._say(Event(kind="note", version=last.version, message=f"repair round {number} of {settings.repair_rounds}"))
            if not _try(session, attempts[-1], lambda last=last: session.repair(last.version, by), number):
                attempts[-1].append(Tried(version=last.version, rank=last.rank, round=number))  # the round is lost
        elif action == "retest":
            last = attempts[-1][-1]
            session.test(last.version)
            attempts[-1].append(_tried(session.version(last.version), last.round))
        else:
            return _end(session, action, attempts)


def _end(session: Any, action: str, attempts: list[list[Tried]]) -> Version | None:
    everything = tuple(tuple(attempt) for attempt in attempts)
    left = attempts[-1][-1].version if action == "done" else restored(everything)
    if left is None:
        return None
    version: Version = session.version(left)
    if action == "failed":
        session._say(Event(kind="note", version=left, message=f"restored v{left}, the furthest of this step ({RANKS[rank(version.trials[-1].verdict)]})"))
    for number in sorted({tried.version for attempt in attempts for tried in attempt} - {left}):
        if session.version(number).decision is None:
            session.reject(number, f"failed; {'repaired by' if action == 'done' else 'not as far as'} v{left}", by="policy")
    return version


def _try(session: Any, attempt: list[Tried], make: Any, number: int = 0) -> bool:
    """Add what was made; an unusable answer is said, and leaves nothing."""
    from workbench.proposers.llm.proposer import NoUsableReply

    try:
        version = make()
    except NoUsableReply as reason:
        session._say(Event(kind="note", message=str(reason)))
        return False
    if version is None:
        return False
    attempt.append(_tried(version, number))
    return True


def _tried(version: Version, number: int) -> Tried:
    verdict = version.trials[-1].verdict if version.trials else None
    return Tried(version=version.number, rank=rank(verdict), round=number, timed_out=verdict is not None and verdict.failure is not None and verdict.failure.kind == "timeout")


def _decide(session: Any, settings: ChainSettings, version: Version) -> None:
    if settings.accept == "correct" and not version.trials[-1].verdict.suspect:
        session.accept(version.number, reason="correct", by="policy")
    else:
        session._judge(version)


def settings_from(options: dict[str, Any]) -> ChainSettings:
    """Chain settings from a person's name=value pairs; raises `UserError` naming the setting."""
    known = {name: field for name, field in ChainSettings.__dataclass_fields__.items() if name != "profile_from"}
    made: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise UserError(f"the chain has no setting {name!r}; there are: {', '.join(known)}")
        choices = {"profile": ("late", "always", "never"), "accept": ("faster", "correct"), "continue_from": ("latest", "best")}.get(name)
        if choices and value not in choices:
            raise UserError(f"chain: {name}={value}; legal: {', '.join(choices)}")
        try:
            made[name] = value if choices else int(value)
        except ValueError:
            raise UserError(f"chain: {name}={value} is not a number") from None
    return ChainSettings(**made)
