"""The log of a session: its store, its versions in memory, and the subscribers to its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import evaluate
from workbench.analysis import call_times, devices
from workbench.analysis import hunks as hunk_maths
from workbench.analysis.version_rows import version_rows
from workbench.codegen import exports
from workbench.errors import StaleDecision, UserError
from workbench.policies import accept_rules
from workbench.proposers.binding import find_gradient
from workbench.records import (
    Decision,
    Event,
    Exchange,
    Facts,
    Problem,
    Proposal,
    StoredProfile,
    Trial,
    Version,
)
from workbench.store import Meta, Store
from workbench.trust import DATABASE

__all__ = ["DATABASE", "Reference", "SessionLog", "check_fresh"]

if TYPE_CHECKING:
    from pandas import DataFrame

Reference = int | str  # a version: its number, "v3", "latest", "pending", "best" or "baseline"


class SessionLog:
    """The contents of a session. Each method that adds something returns after it is on disk."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder, self.name = store, folder, folder.name
        self.problem, self.facts = store.problem()
        self.arch, self.device = store.meta()["arch"], store.meta()["device"]
        self._callbacks: list[Callable[[Event], None]] = []
        self._lock = threading.RLock()
        self._versions = store.versions()

    # ---- reading ----------------------------------------------------------------------------------------------

    @property
    def meta(self) -> Meta:
        """The named values of the session."""
        return self.store.meta()

    @property
    def accept_rule(self) -> str:
        """The rule by which versions are accepted."""
        return self.meta.get("accept_rule") or accept_rules.DEFAULT

    @property
    def constraints(self) -> tuple[str, ...]:
        """Instructions that are given to the proposer every time (`pin`)."""
        return tuple(self.meta.get("constraints", ()))

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, oldest first."""
        return self._versions

    @property
    def baseline(self) -> Version | None:
        """The version accepted last. The next proposal starts from it."""
        accepted = {version.number: version for version in self._versions if _is_accepted(version)}
        order = [
            decision.version
            for decision in self.store.decisions()
            if decision.kind == "accept" and decision.version in accepted
        ]
        return accepted[order[-1]] if order else None

    @property
    def best(self) -> Version | None:
        """The fastest correct version that was accepted and whose time is not refused, or what the session's rule
        prefers to it (`accept_rules.find_best`).

        A modelled time is never compared with a measured one, nor a time of another GPU with one of the session's.
        If no version was measured on the session's GPU, those of the GPU that measured last are compared.
        """
        verdicts = [(version, version.trials[-1].verdict) for version in self._versions if version.trials]
        timed = [
            (verdict.time_s, verdict.time_provenance, version)
            for version, verdict in verdicts
            if _is_accepted(version) and verdict.correct and verdict.time_s and not verdict.refused
        ]
        timed = [item for item in timed if item[1] == "measured"] or timed
        place = {item[2].number: item[2].trials[-1] for item in timed}
        here = [item for item in timed if devices.is_same(place[item[2].number].outcome.device, self.device)]
        if timed and not here:
            last = max(place.values(), key=lambda trial: trial.at).outcome.device
            here = [item for item in timed if devices.is_same(place[item[2].number].outcome.device, last)]
        timed = here
        if not timed:
            return self.baseline
        fastest = min(timed, key=lambda item: item[0])[2]
        return accept_rules.find_best(self.accept_rule, fastest, [item[2] for item in timed])

    @property
    def pending(self) -> Version | None:
        """The latest version without a decision."""
        return next((version for version in reversed(self._versions) if version.decision is None), None)

    def version(self, reference: Reference = "latest") -> Version:
        """A version by number, "v3", "latest", "pending", "best" or "baseline". Raises `UserError` if none matches."""
        text = str(reference).strip()
        if text in ("latest", "pending", "best", "baseline"):
            found = self._find_named(text)
            if found is None:
                hint = "" if self._versions else "; make one with generate or edit"
                raise UserError(f"there is no {text} version yet{hint}")
            return found
        digits = text.removeprefix("v")
        match = next(
            (version for version in self._versions if digits.isdigit() and version.number == int(digits)), None
        )
        if match is None:
            known = ", ".join(f"v{version.number}" for version in self._versions) or "none"
            raise UserError(f"no version {text!r}; there are: {known}")
        return match

    def _find_named(self, name: str) -> Version | None:
        if name == "latest":
            return self._versions[-1] if self._versions else None
        if name == "pending":
            return self.pending
        return self.best if name == "best" else self.baseline

    def diff(self, old: Reference, new: Reference) -> tuple[hunk_maths.Hunk, ...]:
        """The hunks between the sources of two versions. Their numbers start at 1."""
        sources = (self.version(reference).proposal.candidate.source for reference in (old, new))
        return hunk_maths.hunks(*sources)

    def export(self, reference: Reference, path: str | Path | None, form: str = "kernelbench") -> str:
        """The main file of a version in a form (codegen.exports).

        Its files are written to `path` if given, a folder for a form of several; a file that differs stays.
        """
        version = self.version(reference)
        source = exports.add_times(version.proposal.candidate.source, _last_times(version))
        gradient = find_gradient(self.facts) if form == "custom-op" else None
        files = exports.write(form, source, self.problem, self.facts, self.device, self.arch, gradient)
        if path is not None:
            targets = {Path(path) / name: text for name, text in files.items()}
            for target, text in targets.items():
                if target.exists() and target.read_text() != text:
                    raise UserError(f"{target} exists and differs; remove it or choose another name")
            for target, text in targets.items():
                if form in exports.FOLDERS:
                    target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
        return next(iter(files.values()))

    def standing_decisions(self) -> dict[int, Decision]:
        """Version number -> the decision that holds."""
        return {version.number: version.decision for version in self._versions if version.decision}

    @property
    def last_decision(self) -> Decision | None:
        """The last decision that still holds, which `undo` takes back."""
        standing = self.standing_decisions()
        decisions = reversed(self.store.decisions())
        return next((decision for decision in decisions if standing.get(decision.version) == decision), None)

    # ---- adding ----------------------------------------------------------------------------------------------

    def add_version(self, proposal: Proposal) -> Version:
        """Append a version and an event."""
        version = self.store.add_version(proposal, evaluate.now())
        self._reload()
        self.add_event(Event(kind="proposed", version=version.number, message=f"v{version.number}: {proposal.title}"))
        return version

    def add_profile(self, stored: StoredProfile) -> None:
        """Append a profile of a version."""
        self.store.add_profile(stored)
        self._reload()

    def add_trial(self, number: int, job_hash: str, trial: Trial) -> None:
        """Append one evaluation of a version."""
        self.store.add_trial(number, job_hash, trial)
        self._reload()

    def add_exchange(self, exchange: Exchange) -> int:
        """Append a call of a language model; returns its number."""
        return self.store.add_exchange(exchange, evaluate.now())

    def add_decisions(self, *decisions: Decision) -> Version:
        """Append decisions and an event for each, all of them or none; returns the version of the last."""
        with self._lock:
            events = tuple(self._describe_decision(decision) for decision in decisions)
            self.store.add_decisions(decisions, events, evaluate.now())
            self._reload()
        for event in events:
            self.notify(event)
        return self.version(decisions[-1].version)

    def _describe_decision(self, decision: Decision) -> Event:
        number, before = decision.version, self.version(decision.version).decision
        undone = before.taken_back if decision.kind == "undo" and before is not None else ""
        message = undone or f"v{number} {decision.participle}{decision.reason and ': '}{decision.reason}"
        return Event(kind="decided", version=number, message=message)

    def reject(
        self, reference: Reference, reason: str, *, by: str = "policy", source_hash: str | None = None
    ) -> Version:
        """Append a rejection. Raises `StaleDecision` if the version is not the given source."""
        version = self.version(reference)
        check_fresh(version, source_hash)
        return self.add_decisions(
            Decision(
                kind="reject",
                version=version.number,
                source_hash=version.source_hash,
                at=evaluate.now(),
                reason=reason,
                by=by,
            )
        )

    def pin(self, constraint: str) -> tuple[str, ...]:
        """Add an instruction for all later proposals, until `unpin`."""
        self.store.set_meta({"constraints": [*self.constraints, constraint]})
        return self.constraints

    def unpin(self, constraint: str) -> tuple[str, ...]:
        """Remove a pinned instruction."""
        if constraint not in self.constraints:
            raise UserError(f"{constraint!r} is not pinned; pinned: {', '.join(self.constraints) or 'nothing'}")
        self.store.set_meta({"constraints": [item for item in self.constraints if item != constraint]})
        return self.constraints

    def _reload(self) -> None:
        with self._lock:  # else an older list from another thread could replace a newer one
            self._versions = self.store.versions()

    # ---- events -----------------------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call `callback` with every event, on the thread of the work. Returns a function that unsubscribes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def add_stop(self) -> None:
        """Append that work was stopped."""
        self.add_event(Event(kind="stopped", message="stopped; everything finished is kept"))

    def add_note(self, message: str) -> None:
        """Notify the subscribers of a note, and store it unless the session is open for reading only."""
        event = Event(kind="note", message=message)
        if self.store.write:
            self.store.add_event(event, evaluate.now())
        self.notify(event)

    def set_device(self, device: str, arch: str) -> None:
        """Go on with another device. A session that is open for reading only does so in memory."""
        if self.store.write:
            self.store.set_meta({"device": device, "arch": arch})
        self.device, self.arch = device, arch

    def add_event(self, event: Event) -> None:
        """Store an event and notify the subscribers."""
        self.store.add_event(event, evaluate.now())
        self.notify(event)

    def notify(self, event: Event) -> None:
        """Notify the subscribers of an event without storing it."""
        for callback in tuple(self._callbacks):
            try:
                callback(event)
            except Exception:  # a failing view must not end the work
                logging.getLogger(__name__).exception("a subscriber of session %s failed", self.name)


class LogReader:
    """What can be read of a session. `Session` is one."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log

    @property
    def name(self) -> str:
        """The name of the session's folder."""
        return self.log.name

    @property
    def folder(self) -> Path:
        """The folder of the session."""
        return self.log.folder

    @property
    def problem(self) -> Problem:
        """The problem of the session."""
        return self.log.problem

    @property
    def facts(self) -> Facts:
        """The facts of the problem."""
        return self.log.facts

    @property
    def arch(self) -> str:
        """The compile target, e.g. "sm_90a"."""
        return self.log.arch

    @property
    def device(self) -> str:
        """The device whose limits and rates are used."""
        return self.log.device

    @property
    def constraints(self) -> tuple[str, ...]:
        """Instructions that are given to the proposer every time (`pin`)."""
        return self.log.constraints

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, oldest first."""
        return self.log.versions

    @property
    def baseline(self) -> Version | None:
        """The version accepted last. The next proposal starts from it."""
        return self.log.baseline

    @property
    def best(self) -> Version | None:
        """The fastest correct version that was accepted and whose time is not refused, or what the rule prefers."""
        return self.log.best

    @property
    def pending(self) -> Version | None:
        """The latest version without a decision."""
        return self.log.pending

    def version(self, reference: Reference = "latest") -> Version:
        """A version by number, "v3", "latest", "pending", "best" or "baseline"."""
        return self.log.version(reference)

    def profiles(self, reference: Reference = "latest") -> tuple[StoredProfile, ...]:
        """The profiles that the session keeps of a version, oldest first."""
        return self.log.store.profiles(self.version(reference).number)

    def frame(self) -> DataFrame:
        """A pandas DataFrame with a row per version: times, joules, tokens, dollars (see `version_rows`)."""
        import pandas

        rows = [{name: value for name, value in row.items() if name != "device"} for row in version_rows(self.versions)]
        return pandas.DataFrame(rows).set_index("version") if rows else pandas.DataFrame()

    def diff(self, old: Reference, new: Reference) -> tuple[hunk_maths.Hunk, ...]:
        """The hunks between the sources of two versions. Their numbers start at 1."""
        return self.log.diff(old, new)

    def events(self) -> tuple[Event, ...]:
        """All stored events, oldest first."""
        return tuple(self.log.store.events(Event))

    def decisions(self) -> tuple[Decision, ...]:
        """All decisions, including those taken back."""
        return tuple(self.log.store.decisions())

    def exchanges(self) -> dict[int, Exchange]:
        """All calls of a language model, by number."""
        return self.log.store.exchanges()

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call `callback` with every event, on the thread of the work. Returns a function that unsubscribes it."""
        return self.log.subscribe(callback)


def check_fresh(version: Version, source_hash: str | None) -> None:
    """Raise `StaleDecision` if `source_hash` is given and is not that of the version."""
    if source_hash is not None and source_hash != version.source_hash:
        raise StaleDecision(f"v{version.number} is not the source that was shown; look at it again and decide then")


def _last_times(version: Version) -> str:
    """Where, when and how fast a version was last timed, for the docstring of an export; "" without such a trial."""
    timed = [trial for trial in version.trials if trial.verdict.correct and trial.outcome.timing is not None]
    if not timed:
        return ""
    outcome, at = timed[-1].outcome, dict(timed[-1].outcome.versions).get("recorded") or timed[-1].at[:10]
    return f"Measured on {outcome.device}, {at}: {call_times.describe_times(outcome)}."


def _is_accepted(version: Version) -> bool:
    return version.decision is not None and version.decision.kind == "accept"
