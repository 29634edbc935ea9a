"""Accepts versions, whole or in part, rejects them, and undoes decisions. Nothing is accepted on a quick trial."""

from __future__ import annotations

from collections.abc import Iterable

from workbench import evaluate
from workbench.analysis import devices
from workbench.analysis import hunks as hunk_maths
from workbench.errors import Unavailable, UserError
from workbench.policies import accept_rules
from workbench.policies.accept_rules import Ruling
from workbench.records import Candidate, Decision, Event, Proposal, Verdict, Version
from workbench.records.proposal import HUMAN
from workbench.session.log import Reference, SessionLog, check_fresh
from workbench.session.profiling import Profiling
from workbench.session.testing import Testing

RECORDED_NOISE = 0.02  # recorded times that differ by less say nothing (inferred from repeated landscape rows)


class Deciding:
    """Decides about the versions of a log. One that had no trial, or only a quick one, is tested first."""

    def __init__(self, testing: Testing, profiling: Profiling) -> None:
        self.testing, self.profiling = testing, profiling
        self.log: SessionLog = testing.log

    def accept(
        self,
        reference: Reference = "latest",
        *,
        hunks: Iterable[int] | None = None,
        source_hash: str | None = None,
        reason: str = "",
        by: str = "policy",
        force: bool = False,
    ) -> Version:
        """Make a version the baseline. With `hunks`, first make a new version with only those changes to its parent.

        Raises `StaleDecision` if the version is not the given source, and `UserError` for a wrong or suspect version
        that no person forces.
        """
        version = self.log.version(reference)
        check_fresh(version, source_hash)
        picked = None if hunks is None else tuple(sorted(set(hunks)))
        whole = version
        if picked is not None:
            version = self._merge(version, picked)
        if version.needs_verdict:
            self.testing.test(version.number)
            version = self.log.version(version.number)
        _check_acceptable(version, by=by, force=force)
        decisions = [] if version.number == whole.number else self._close_partly(whole, picked, version, by)
        accepted = Decision(
            kind="accept",
            version=version.number,
            source_hash=version.source_hash,
            at=evaluate.now(),
            reason=reason,
            by=by,
            hunks=picked,
        )
        return self.log.add_decisions(*decisions, accepted)

    def _merge(self, version: Version, picked: tuple[int, ...]) -> Version:
        """Add a version that applies only the picked hunks to the parent of `version`."""
        if not picked:
            raise UserError(f"no hunk of v{version.number} was picked: name some, or reject it")
        if version.parent is None:
            raise UserError(f"v{version.number} has no parent, so it has no hunks; accept it whole")
        parent = self.log.version(version.parent)
        old, new = parent.proposal.candidate, version.proposal.candidate
        source = hunk_maths.apply(old.source, new.source, picked)
        if source == new.source:
            return version
        names = f"{hunk_maths.name_hunks(picked)} of v{version.number}"
        label = f"v{parent.number} with {names}"
        proposal = Proposal(
            candidate=Candidate(source=hunk_maths.replace_docstring(source, (old.program, new.program), label)),
            title=f"{version.proposal.title} ({names})",
            reason="a person picked these hunks to accept",
            by=HUMAN,
            parent=parent.number,
        )
        return self.testing.add(proposal)

    def _close_partly(
        self, whole: Version, picked: tuple[int, ...] | None, version: Version, by: str
    ) -> list[Decision]:
        """The decision that says of a version that some of its hunks became another one, which is about to be accepted;
        none if the version was decided on before.
        """
        if whole.decision is not None:
            return []
        closed = Decision(
            kind="part",
            version=whole.number,
            source_hash=whole.source_hash,
            at=evaluate.now(),
            reason=_name_successor(version.number),
            by=by,
            hunks=picked,
        )
        return [closed]

    def undo(self) -> Decision:
        """Take back the last decision that still holds; with that for some hunks, also that on the whole version."""
        last, standing = self.log.last_decision, self.log.standing_decisions()
        if last is None:
            raise UserError("there is no decision to undo")
        successor = _name_successor(last.version)
        partly = (d.version for d in standing.values() if (d.kind, d.reason) == ("part", successor))
        numbers = (last.version, *(partly if last.kind == "accept" else ()))
        undone = [
            Decision(kind="undo", version=number, source_hash=self.log.version(number).source_hash, at=evaluate.now())
            for number in numbers
        ]
        self.log.add_decisions(*undone)
        return last

    def judge(self, version: Version) -> Version:
        """Accept a tested version that is correct and better than the baseline by the session's rule, reject any other,
        with a reason.

        A correct version whose order cannot be told without a GPU stays undecided: both are kept. Where the rule needs
        energies and one is unknown, a note says so, and the time decides.
        """
        if version.needs_verdict:
            self.testing.test(version.number)
            version = self.log.version(version.number)
        verdict, base = version.trials[-1].verdict, self.log.baseline
        if not verdict.correct:
            return self.log.reject(version.number, verdict.failure.message if verdict.failure else "not correct")
        if verdict.suspect:
            return self.log.reject(version.number, f"suspect: {verdict.suspect[0]}")
        if base is None:
            return self.accept(version.number, reason="first correct version")
        ruling = self._judge_energy(version, base)
        if ruling is not None and ruling.choice != "open":
            decide = self.accept if ruling.choice == "accept" else self.log.reject
            return decide(version.number, reason=ruling.reason + describe_contradiction(verdict))
        if is_open(verdict):
            return self._keep_both(version, base)
        if verdict.speedup is None:
            return self.log.reject(version.number, "no time to compare")
        contradiction = describe_contradiction(verdict)
        if verdict.speedup > 1 and verdict.distinguishable:
            reason = f"{verdict.speedup:.2f}x faster than v{base.number} ({verdict.basis}){contradiction}"
            return self.accept(version.number, reason=reason)
        reason = f"{verdict.speedup:.2f}x of v{base.number} ({verdict.basis}), no gain{contradiction}"
        return self.log.reject(version.number, reason)

    def _judge_energy(self, version: Version, base: Version) -> Ruling | None:
        """What the session's rule says of the energies of two versions; None where the time decides."""
        rule, verdict = self.log.accept_rule, version.trials[-1].verdict
        if verdict.speedup is None or not accept_rules.needs_energy(rule, verdict):
            return None
        why = self._measure_energies(version, base)
        version, base = self.log.version(version.number), self.log.version(base.number)
        ratio = accept_rules.compare_energy(version, base)
        if isinstance(ratio, str):
            message = f"{why or ratio}; the rule {rule} falls back to time"
            self.log.add_event(Event(kind="note", version=version.number, message=message))
            return None
        return accept_rules.judge_energy(rule, verdict, ratio, base.number)

    def _measure_energies(self, *versions: Version) -> str:
        """Measure the energies that are not known on the session's GPU. Returns why one could not be measured, if
        versions are timed on a GPU here.
        """
        if self.testing.executor.device_name() is None:
            return ""
        for version in versions:
            if version.energy is None or not devices.is_same(version.energy.device, self.log.device):
                try:
                    found = self.profiling.profile(version.number, "energy", {})
                except (UserError, Unavailable) as missing:
                    return f"the energy of v{version.number} is unknown: {missing}"
                if found.energy is None:
                    return f"the energy of v{version.number} is unknown: {'; '.join(found.notes)}"
        return ""

    def _keep_both(self, version: Version, base: Version) -> Version:
        """Leave a version undecided, with a note for the person."""
        verdict = version.trials[-1].verdict
        why = f"; {verdict.time_note}" if verdict.time_note else ""
        self.log.add_event(
            Event(
                kind="note",
                version=version.number,
                message=f"v{version.number} or v{base.number}: which is faster cannot be told without a GPU{why}; "
                f"both are kept{describe_contradiction(verdict)}",
            )
        )
        return self.log.version(version.number)


def _name_successor(number: int) -> str:
    """The reason of a decision "part": where the picked hunks went."""
    return f"as v{number}"


def describe_settled(before: Version, now: Version) -> str:
    """What a loop made of a version that waited for a decision; "" if it still waits, or a person decided."""
    made = now.decision
    if before.decision is not None or made is None or made.by == "person":
        return ""
    reason = f": {made.reason}" if made.reason else ""
    return f"v{now.number} was pending; it is {made.participle} now{reason}"


def say_settled(log: SessionLog, before: Version) -> None:
    """Add a note of what a loop made of a version that waited for a decision."""
    if said := describe_settled(before, log.version(before.number)):
        log.add_event(Event(kind="note", version=before.number, message=said))


def is_open(verdict: Verdict) -> bool:
    """Whether a correct version has no measured time and its order with its parent cannot be told."""
    return verdict.correct and verdict.time_provenance != "measured" and not verdict.distinguishable


def describe_contradiction(verdict: Verdict) -> str:
    """A phrase if the recorded times of a version and its parent say otherwise than the verdict; else ""."""
    recorded = verdict.recorded_speedup
    if recorded is None or verdict.speedup is None or abs(recorded - 1) < RECORDED_NOISE:
        return ""
    if verdict.distinguishable and (verdict.speedup > 1) == (recorded > 1):
        return ""
    return f"; recorded on a GPU: {recorded:.2f}x"


def _check_acceptable(version: Version, *, by: str, force: bool) -> None:
    verdict, all_the_same = version.trials[-1].verdict, f"%cutegen accept v{version.number} --force"
    if not verdict.correct and not force:
        why = verdict.failure.message if verdict.failure else "failed"
        raise UserError(
            f"v{version.number} is not correct ({why}); reject it, edit it, or accept it all the same: {all_the_same}"
        )
    if verdict.refused and not (force and by == "person"):
        what = (
            f"look at what it leaves out, and reject it; only if you know why: {all_the_same}"
            if by == "person"
            else f"{by} may not accept it"
        )
        raise UserError(f"v{version.number} is refused as suspect: {verdict.refused}; {what}")
