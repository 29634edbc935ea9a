"""Runs the policy `chain` on a session: generates, repairs, re-tests or restores each node, then decides on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench import plugins
from workbench.errors import NoUsableReply, UserError
from workbench.policies.chain import RANKS, ChainSettings, NodeTrial, furthest_version, next_action, rank
from workbench.records import Event, Version
from workbench.session.parts import Parts

CHOICES = {
    "profile": ("late", "always", "never"),
    "accept": ("faster", "correct"),
    "continue_from": ("latest", "best"),
}


class ChainLoop:
    """One chain over the parts of a session."""

    def __init__(self, parts: Parts, settings: ChainSettings, by: str) -> None:
        self.log, self.testing = parts.log, parts.testing
        self.proposing, self.deciding = parts.proposing, parts.deciding
        self.settings, self.by = settings, by
        self.tries_again = plugins.load("proposer", by, check=False).needs_model  # another reply may be usable

    def run(self) -> tuple[Version, ...]:
        """Run the whole chain: depth 0 if there is no baseline, then one node per depth. Stop at a node that fails."""
        log, settings = self.log, self.settings
        first = 0 if log.baseline is None else log.baseline.proposal.depth + 1
        made: list[Version] = []
        for depth in range(first, settings.depth + 1):
            version = self._run_node(depth)
            if version is None:
                break
            made.append(log.version(version.number))
            if not version.trials[-1].verdict.correct:
                log.reject(version.number, f"the chain ends: not repaired in {settings.regenerate} attempts")
                break
            self._decide(version)
            best, base = log.best, log.baseline
            if settings.continue_from == "best" and best and base and best.number != base.number:
                self.deciding.accept(best.number, reason="the chain goes on from the best")
        return tuple(log.version(version.number) for version in made)

    def _run_node(self, depth: int) -> Version | None:
        """Run one depth. Returns a correct version, or the best failed one; None if the proposer has no idea."""
        attempts: list[list[NodeTrial]] = []
        while True:
            action = next_action(self.settings, tuple(tuple(attempt) for attempt in attempts))
            if action == "generate":
                attempts.append([])
                self._add_attempt(
                    attempts[-1], lambda: self.proposing.generate(self.by, depth=depth, chain=self.settings), repair=0
                )
                if not attempts[-1] and not self.tries_again:
                    return None
            elif action == "repair":
                self._repair(attempts[-1])
            elif action == "retest":
                last = attempts[-1][-1]
                self.testing.test(last.version)
                attempts[-1].append(_node_trial(self.log.version(last.version), last.round))
            else:
                return self._finish_node(action, attempts)

    def _repair(self, attempt: list[NodeTrial]) -> None:
        last = attempt[-1]
        number = last.round + 1
        message = f"repair round {number} of {self.settings.repair_rounds}"
        self.log.add_event(Event(kind="note", version=last.version, message=message))
        if not self._add_attempt(attempt, lambda: self.proposing.repair(last.version, self.by), repair=number):
            attempt.append(
                NodeTrial(version=last.version, rank=last.rank, round=number)
            )  # the round counts nevertheless

    def _add_attempt(self, attempt: list[NodeTrial], make: Callable[[], Version | None], *, repair: int) -> bool:
        """Add the result of `make` to the attempt. An unusable reply adds an event and no version."""
        try:
            version = make()
        except NoUsableReply as reason:
            self.log.add_event(Event(kind="note", message=str(reason)))
            return False
        if version is None:
            return False
        attempt.append(_node_trial(version, repair))
        return True

    def _finish_node(self, action: str, attempts: list[list[NodeTrial]]) -> Version | None:
        """The version that the node ends with. All other versions of the node are rejected."""
        everything = tuple(tuple(attempt) for attempt in attempts)
        left = attempts[-1][-1].version if action == "done" else furthest_version(everything)
        if left is None:
            return None
        version = self.log.version(left)
        if action == "failed":
            reached = RANKS[rank(version.trials[-1].verdict)]
            message = f"restored v{left}, the furthest of this step ({reached})"
            self.log.add_event(Event(kind="note", version=left, message=message))
        why = f"failed; {'repaired by' if action == 'done' else 'not as far as'} v{left}"
        for number in sorted({tried.version for attempt in attempts for tried in attempt} - {left}):
            if self.log.version(number).decision is None:
                self.log.reject(number, why)
        return version

    def _decide(self, version: Version) -> None:
        if self.settings.accept == "correct" and not version.trials[-1].verdict.suspect:
            self.deciding.accept(version.number, reason="correct")
        else:
            self.deciding.judge(version)


def _node_trial(version: Version, number: int) -> NodeTrial:
    verdict = version.trials[-1].verdict if version.trials else None
    return NodeTrial(
        version=version.number,
        rank=rank(verdict),
        round=number,
        timed_out=verdict is not None and verdict.failure is not None and verdict.failure.kind == "timeout",
    )


def parse_settings(options: Mapping[str, str | int]) -> ChainSettings:
    """Chain settings from the user's name=value pairs. Raises `UserError` with the name of a wrong one."""
    known = [name for name in ChainSettings.__dataclass_fields__ if name != "profile_from"]
    made: dict[str, str | int] = {}
    for name, value in options.items():
        if name not in known:
            raise UserError(f"the chain has no setting {name!r}; there are: {', '.join(known)}")
        choices = CHOICES.get(name)
        if choices and value not in choices:
            raise UserError(f"chain: {name}={value}; legal: {', '.join(choices)}")
        try:
            made[name] = value if choices else int(value)
        except ValueError:
            raise UserError(f"chain: {name}={value} is not a number") from None
    return ChainSettings(**made)  # type: ignore[arg-type]  # the loop above has checked each value
