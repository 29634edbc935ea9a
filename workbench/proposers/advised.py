"""Proposals that make an advised change: the next legal program with one setting moved (probes/moving.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from workbench.codegen.canonical import canonical
from workbench.errors import ProgramError, UserError
from workbench.probes import directives
from workbench.probes.moving import describe_move, extends_failed_step, list_failed_steps, map_programs, write_moved
from workbench.proposers.binding import candidate_of
from workbench.records import Advice, Ask, Diagnosis, Event, Proposal

MOST_ADVICE = 3  # of a diagnosis that are followed
MOST_STEPS = 4  # programs that one advice may lead to from one version, nearest first


def propose_advised(
    ask: Ask, advice: Iterable[Advice], banned: frozenset[str] = frozenset(), *, most: int | None = MOST_STEPS
) -> Iterator[Proposal]:
    """Untried programs that make the advised moves of the version to improve, in the order of the advice.

    `banned` settings are not touched; `most` limits the steps of one advice; where a step failed, none goes on in its
    direction. Empty for a version without a program.
    """
    program = ask.baseline.proposal.candidate.program if ask.baseline is not None else None
    if program is None:
        return
    tried = {version.proposal.candidate.source for version in ask.history}
    known, failed = set(map_programs(ask.history)), list_failed_steps(ask.history)
    for one in advice:
        wanted = [move for move in one.moves if move.setting not in banned]
        for move, text in itertools.islice(write_moved(program, wanted), most):
            if canonical(text) in known or extends_failed_step(failed, move, text):
                continue
            try:
                candidate = candidate_of(ask.problem, ask.facts, ask.arch, text)
            except ProgramError:
                continue
            if candidate.source in tried:
                continue
            yield Proposal(
                candidate=candidate,
                title=f"{describe_move(move, program, text)} ({one.probe})",
                reason=describe_reason(one),
                by="planner",
                parent=ask.baseline.number if ask.baseline is not None else None,
                instruction=ask.instruction,
                advice=one.probe,
            )


def list_followed(found: Diagnosis | None) -> tuple[Advice, ...]:
    """The advice that the planner follows: the first that did not slow programs down in the mean of the landscapes.

    None where nothing is left to gain.
    """
    if found is None or found.exhausted:
        return ()
    return tuple(advice for advice in found.advice if advice.mean_gain is None or advice.mean_gain > 1)[:MOST_ADVICE]


def follow_advice(ask: Ask, which: object, banned: frozenset[str]) -> Iterator[Event | Proposal]:
    """The next untried proposal of one advice of the diagnosis (see `choose_advice`); a note if there is none."""
    advice = choose_advice(ask.diagnosis, which)
    proposal = next(propose_advised(ask, [advice], banned, most=None), None)
    if proposal is not None:
        yield proposal
        return
    if ask.baseline is not None and ask.baseline.proposal.candidate.program is None:
        why = "the version is not written in muCUTLASS, so no setting can be changed"
    elif not advice.moves:
        why = "this advice is no change of a setting"
    else:
        names = ", ".join(dict.fromkeys(move.setting for move in advice.moves))
        why = f"every legal program with this change ({names}) was tried or goes on where one failed, or there is none"
    yield Event(kind="note", message=f"{advice.probe}: {why}")


def choose_advice(found: Diagnosis | None, which: object) -> Advice:
    """The advice of a probe, or with a number, from 1. Raises `UserError` if the diagnosis has no such advice."""
    advice = found.advice if found is not None else ()
    for number, one in enumerate(advice, 1):
        if str(which) in (one.probe, str(number)):
            return one
    has = ", ".join(f"{number} {one.probe}" for number, one in enumerate(advice, 1)) or "no advice"
    raise UserError(f"the diagnosis has no advice {which!r}; it has {has}")


def describe_reason(advice: Advice) -> str:
    """Why the change is proposed: the probe, what it measured, and what to expect."""
    evidence = f" ({directives.describe_evidence(advice)})" if advice.evidence else ""
    expected = directives.expected_gain(advice)
    hope = f"expect {expected:.2f}x, " if expected is not None else ""
    return (
        f"probe {advice.probe}: {advice.cause}{evidence}; {hope}about {advice.gain:.2f}x without this cost; "
        f"elsewhere "
        f"{directives.describe_gains(advice)}"
    )
