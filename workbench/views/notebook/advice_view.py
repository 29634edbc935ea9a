"""The advice on the version on display, as plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from workbench.probes import directives
from workbench.records import Diagnosis, Version
from workbench.views.notebook import view_model
from workbench.views.text import diagnosis


class TopAdvice(TypedDict):
    """The first advice of a diagnosis. `way` is "apply" where one command makes the change, else words."""

    probe: str
    severity: str
    cause: str
    action: str
    evidence: str
    gain: str
    code: str
    way: str


class AdviceView(TypedDict):
    """The diagnosis of a version in short: its class, the first advice, how many more there are, what else to say."""

    head: str
    top: TopAdvice | None
    more: int
    note: str


def advice_view(
    version: Version | None, found: Diagnosis | None, versions: Sequence[Version] = (), *, has_model: bool
) -> AdviceView:
    """The first advice on a version of a session, from `Session.known_diagnosis`, whose change no version has yet.
    `has_model` says whether a model can follow it.
    """
    if version is None or found is None:
        return {"head": "", "top": None, "more": 0, "note": _describe_undiagnosed(version)}
    room = diagnosis.describe_room(found)
    head = ", ".join(filter(None, (f"v{version.number} is bound by {found.bottleneck} ({found.provenance})", room)))
    if found.exhausted or not found.advice:
        faster = diagnosis.find_faster(version, versions)
        note = diagnosis.describe_exhausted(faster) if found.exhausted else "no probe found a cause"
        return {"head": head, "top": None, "more": 0, "note": note}
    moves = [diagnosis.find_move(version, advice, versions) for advice in found.advice]
    at = next((number for number, move in enumerate(moves) if move.sets or not move.made), 0)
    advice, move = found.advice[at], moves[at]
    place = directives.locate(advice, version.proposal.candidate.source)
    by_hand = f"edit it by hand: {move.passed or 'no setting of a program makes this change'}"
    if move.made and not move.sets:
        by_hand = f"edit it by hand: each setting that makes this change was tried ({move.made})"
    if move.other:
        by_hand = f"for {diagnosis.read_arch(move.other)}, in a session with that --arch: {move.other}"
    top: TopAdvice = {
        "probe": advice.probe,
        "severity": advice.severity,
        "cause": advice.cause,
        "action": f"{advice.action} ({diagnosis.describe_sets(move)})" if move.sets else advice.action,
        "evidence": directives.describe_evidence(advice),
        "gain": f"{directives.describe_gain(advice, found.room)}; elsewhere {directives.describe_gains(advice)}",
        "code": f"line {place[0]}: {place[1]}" if place else "",
        "way": "apply" if move.sets or has_model else by_hand,
    }
    return {"head": head, "top": top, "more": len(found.advice) - 1, "note": found.note}


def _describe_undiagnosed(version: Version | None) -> str:
    """Why there is no diagnosis of a version, or the command that makes one."""
    if version is None:
        return "no version yet"
    if not version.trials or version.trials[-1].outcome.timing is not None:
        return f"not diagnosed yet: %cutegen diagnose v{version.number}"
    trial = version.trials[-1]
    wrong = "" if trial.verdict.correct else view_model.describe_failure(version) or f"v{version.number} is not correct"
    return f"nothing to diagnose: {wrong or trial.outcome.full_note or 'no kernel of it has a time'}"
