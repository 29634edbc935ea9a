"""Recorded sessions: everything that a session's model and person did, as one JSON file; played back, every version is built and checked anew."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from workbench import evaluate
from workbench.errors import UserError
from workbench.records import Decision, Event, Exchange, Problem, Proposal, Scalar, Verdict, Version, record
from workbench.wire import from_plain, to_plain

FOLDER = Path(__file__).parent.parent / "recordings"
FORMAT = 1


@record
class Step:
    """One version as it was made: what was exchanged, what was proposed, what came of it then, and the standing decision."""

    proposal: Proposal
    exchanges: tuple[Exchange, ...] = ()
    verdict: Verdict | None = None
    decision: Decision | None = None


@record
class Recording:
    """A session to play back. `by` says who answered: the model that the exchanges name, recorded verbatim."""

    label: str
    problem: Problem
    arch: str
    device: str
    executor: str
    at: str
    steps: tuple[Step, ...] = ()
    constraints: tuple[str, ...] = ()
    versions: tuple[tuple[str, Scalar], ...] = ()  # of torch, CuTe DSL, ...


def names() -> tuple[str, ...]:
    """The recordings that come with the workbench."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def load(name: str | Path) -> Recording:
    """A shipped recording by name, or one from a file."""
    path = FOLDER / f"{name}.json" if str(name) in names() else Path(name)
    if not path.is_file():
        raise UserError(f"no recording is called {str(name)!r}; there are: {', '.join(names()) or 'none'}, or give a file")
    try:
        plain = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is not a recording: {error}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise UserError(f"{path} is not a recording of this workbench (format {FORMAT})")
    return from_plain(plain["recording"], Recording)


def of(session: Any, label: str) -> Recording:
    """What a session holds, as a recording."""
    kept = session.exchanges()
    steps = [
        Step(
            proposal=version.proposal, exchanges=tuple(kept[number] for number in version.proposal.exchanges),
            verdict=version.trials[-1].verdict if version.trials else None, decision=version.decision,
        )
        for version in session.versions
    ]  # fmt: skip
    versions = session.versions[0].trials[0].outcome.versions if session.versions and session.versions[0].trials else ()
    return Recording(label=label, problem=session.problem, arch=session.arch, device=session.device, executor=session._store.meta()["executor"], at=evaluate.now(), steps=tuple(steps), constraints=session.constraints, versions=versions)


def save(session: Any, path: str | Path, label: str) -> Path:
    """Write a session as a recording; refuses to overwrite one (a recording is never edited afterwards)."""
    target = Path(path)
    if target.exists():
        raise UserError(f"{target} exists; a recording is not changed afterwards, choose another name")
    target.write_text(json.dumps({"format": FORMAT, "recording": to_plain(of(session, label))}, indent=1, ensure_ascii=False) + "\n")
    return target


def play(session: Any, recording: Recording) -> tuple[str, ...]:
    """Append, build and check every recorded version on the session's executor; sentences about what differs from what was recorded."""
    if session.versions:
        raise UserError("a recording is played into a new session; this one has versions already")
    said: list[str] = []
    for number, step in enumerate(recording.steps, 1):
        for exchange in step.exchanges:
            session._say(Event(kind="note", message=f"{exchange.purpose}: {exchange.model} answered {len(exchange.reply)} characters (recorded)"))
        numbers = tuple(session._store.add_exchange(exchange, evaluate.now()) for exchange in step.exchanges)
        version: Version = session._append(dataclasses.replace(step.proposal, exchanges=numbers), test=True)
        verdict = version.trials[-1].verdict
        difference = _difference(number, step.verdict, verdict)
        if difference:
            said.append(difference)
            session._say(Event(kind="note", version=number, message=difference))
        if step.decision is not None:
            _decide(session, version, step.decision)
    return tuple(said)


def _decide(session: Any, version: Version, recorded: Decision) -> None:
    reason = f"{recorded.reason} (recorded)" if recorded.reason else "(recorded)"
    if recorded.kind == "accept" and version.trials[-1].verdict.correct:
        session.accept(version.number, reason=reason, by=recorded.by)
    else:
        session.reject(version.number, reason if recorded.kind == "reject" else "accepted when recorded, but not correct today", by=recorded.by)


def _difference(number: int, before: Verdict | None, now: Verdict) -> str:
    if before is None or (before.correct and now.correct):
        return ""
    if before.correct != now.correct:
        today = f"{now.failure.stage}: {now.failure.message}" if now.failure else "not correct"
        return f"v{number} was correct when recorded, today it is not ({today})" if before.correct else f"v{number} failed when recorded, today it is correct"
    if before.failure and now.failure and (before.failure.stage, before.failure.kind) != (now.failure.stage, now.failure.kind):
        return f"v{number} failed as {before.failure.stage}/{before.failure.kind} when recorded, today as {now.failure.stage}/{now.failure.kind}"
    return ""
