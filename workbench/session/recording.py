"""Recorded sessions as JSON files: proposals, model calls and decisions. Playing one tests every version again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from workbench import evaluate, trust
from workbench.errors import UserError, WorkbenchError
from workbench.records import Decision, Event, Exchange, Problem, Proposal, Scalar, Verdict, Version, record
from workbench.session.log import SessionLog
from workbench.session.parts import Parts
from workbench.session.testing import describe
from workbench.wire import from_plain, to_plain

FOLDER = Path(__file__).parent.parent / "recordings"
FORMAT = 1
MOST_BYTES = 64 << 20  # of a file


@record
class Step:
    """One recorded version: its model calls, proposal, verdict, and the decision that holds."""

    proposal: Proposal
    exchanges: tuple[Exchange, ...] = ()
    verdict: Verdict | None = None
    decision: Decision | None = None


@record
class Recording:
    """A session to play back. Model calls are verbatim."""

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
    """Names of the recordings in the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def load(name: str | Path) -> Recording:
    """Load a recording of the package by name, or one from a file."""
    path = FOLDER / f"{name}.json" if str(name) in names() else Path(name)
    if not path.is_file():
        raise UserError(
            f"no recording is called {str(name)!r}; there are: {', '.join(names()) or 'none'}, or give a file"
        )
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path} has more than {MOST_BYTES >> 20} MiB, the limit of a recording")
    try:
        plain = json.loads(path.read_bytes())
        if not isinstance(plain, dict) or plain.get("format") != FORMAT or "recording" not in plain:
            raise UserError(f"{path} is not a recording of this workbench (format {FORMAT})")
        return from_plain(plain["recording"], Recording)
    except (ValueError, RecursionError, WorkbenchError) as error:
        if isinstance(error, UserError):
            raise
        text = next(iter(str(error).splitlines()), "")
        raise UserError(f"{path} is not a recording: {text}") from None


def describe_recording(name: str | Path) -> str:
    """What a recording is, and what playing it would run, in one line."""
    found = load(name)
    title = " ".join(found.problem.name.split())
    return (
        f"{name} is a recording with {len(found.steps)} versions of the problem {title}; "
        f"playing it runs the problem's code ({len(found.problem.source.splitlines())} lines) and theirs"
    )


def check_trust(name: str | Path, *, given: bool = False) -> None:
    """Raise `UserError` for a recording that is neither shipped, nor was written here, nor is trusted.

    With `given` it is trusted from now on.
    """
    if str(name) not in names():
        what = describe_recording(name)
        trust.require(Path(name), trust.hash_file(Path(name)), what, given=given)


def make_recording(log: SessionLog, label: str) -> Recording:
    """The recording of a session."""
    kept = log.store.exchanges()
    steps = [
        Step(
            proposal=version.proposal,
            exchanges=tuple(kept[number] for number in version.proposal.exchanges),
            verdict=version.trials[-1].verdict if version.trials else None,
            decision=version.decision,
        )
        for version in log.versions
    ]
    return Recording(
        label=label,
        problem=log.problem,
        arch=log.arch,
        device=log.device,
        executor=log.meta["executor"],
        at=evaluate.now(),
        steps=tuple(steps),
        constraints=log.constraints,
        versions=log.versions[0].trials[0].outcome.versions if log.versions and log.versions[0].trials else (),
    )


def save(log: SessionLog, path: str | Path, label: str, *, own: bool = True) -> Path:
    """Write a session as a recording; that of one's `own` is trusted. An existing file is never overwritten."""
    target = Path(path)
    if target.exists():
        raise UserError(f"{target} exists; a recording is not changed afterwards, choose another name")
    document = {"format": FORMAT, "recording": to_plain(make_recording(log, label))}
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if own:
        trust.trust(target, trust.hash_file(target))
    return target


def play_file(parts: Parts, name: str | Path) -> tuple[str, ...]:
    """Play a recording that the user trusts (see `check_trust` and `play`)."""
    check_trust(name)
    return play(parts, load(name))


def play(parts: Parts, recording: Recording) -> tuple[str, ...]:
    """Add and test every recorded version. Returns a sentence for each verdict that differs from the recorded one."""
    log = parts.log
    if log.versions:
        raise UserError("a recording is played into a new session; this one has versions already")
    differences: list[str] = []
    for number, step in enumerate(recording.steps, 1):
        for exchange in step.exchanges:
            message = f"{exchange.purpose}: {exchange.model} answered {len(exchange.reply)} characters (recorded)"
            log.add_event(Event(kind="note", message=message))
        numbers = tuple(log.add_exchange(exchange) for exchange in step.exchanges)
        version = parts.testing.add(dataclasses.replace(step.proposal, exchanges=numbers))
        difference = _describe_difference(number, step.verdict, version.trials[-1].verdict)
        if difference:
            differences.append(difference)
            log.add_event(Event(kind="note", version=number, message=difference))
        if step.decision is not None:
            _repeat_decision(parts, version, step.decision)
    return tuple(differences)


def _repeat_decision(parts: Parts, version: Version, recorded: Decision) -> None:
    reason = f"{recorded.reason} (recorded)" if recorded.reason else "(recorded)"
    if recorded.kind == "accept" and version.trials[-1].verdict.correct:
        parts.deciding.accept(version.number, reason=reason, by=recorded.by)
        return
    if recorded.kind == "part":
        parts.log.add_decisions(dataclasses.replace(recorded, version=version.number, source_hash=version.source_hash))
        return
    if recorded.kind != "reject":
        reason = "accepted when recorded, but not correct today"
    parts.log.reject(version.number, reason, by=recorded.by)


def _describe_difference(number: int, before: Verdict | None, now: Verdict) -> str:
    if before is None or (before.correct and now.correct):
        return ""
    if before.correct:
        return f"v{number} was correct when recorded, today it is not ({describe(now)})"
    if now.correct:
        return f"v{number} failed when recorded, today it is correct"
    old, new = (f"{failure.stage}/{failure.kind}" if failure else "" for failure in (before.failure, now.failure))
    return f"v{number} failed as {old} when recorded, today as {new}" if old and new and old != new else ""
