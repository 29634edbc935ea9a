"""What is expected of a program before it is tried: the planner's model, advice on its parent, its parent's time; on a
Hopper GPU the recorded times of other problems.

All are logarithms of the problem's speed of light over a time, so that they can be compared; with recorded times, of
the best time over a time. Inferred constants are named below.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from workbench.landscapes.keys import settings_of
from workbench.policies.search import SearchNode
from workbench.policies.search.fitted import RecordedPriors
from workbench.probes import directives
from workbench.probes.moving import ABSENT, goes
from workbench.proposers.ladders import Rung
from workbench.proposers.planner import return_on_investment
from workbench.records import Advice, Diagnosis, record
from workbench.records.search import NORMAL_90, Prior, SearchCandidate

LEAST = 0.05  # standard deviation of a prior that is joined with another, at least (inferred)
Advise = Callable[[int], Diagnosis | None]  # version -> what its test's counts advise, without any run


@record
class PriorSettings:
    """Constants of the priors; all are inferred."""

    known_spread: float = 0.02  # half the interval of 90 % of the log of a time that is known
    model_spread: float = 0.35  # half the interval of 90 % of the log of a time by the planner's model
    first_rung: float = -0.7  # log of the share of the speed of light that the planner's first choice reaches
    rung_step: float = 0.05  # what each later rung is expected to be slower
    rung_spread: float = 0.7
    change_loss: float = 0.05  # what a change that nothing speaks for is expected to be slower
    change_spread: float = 0.4
    advised_loss: float = 0.2  # half the interval below an advised gain


class SessionPriors:
    """Priors of a problem's programs. `bound_s` is its speed of light in seconds; without it there are no priors."""

    def __init__(
        self,
        bound_s: float | None,
        advise: Advise,
        recorded: RecordedPriors | None = None,
        settings: PriorSettings | None = None,
    ) -> None:
        """With `recorded`, its priors are the ground on which advice builds."""
        self.bound_s, self._advise, self.settings = bound_s, advise, settings or PriorSettings()
        self._recorded = recorded

    def of_time(self, program: str, time_s: float | None) -> Prior | None:
        """Of a program that the session has a time of."""
        if self._recorded is not None:
            return self._recorded.predict([program])[0]
        if self.bound_s is None or not time_s:
            return None
        return _around(math.log(self.bound_s / time_s), self.settings.known_spread, "its own time")

    def of_rung(self, program: str, rung: Rung, rank: int) -> Prior | None:
        """By the planner's model of the whole kernel, where it has one; else by the place on the ladder."""
        if self._recorded is not None:
            return self._recorded.predict([program])[0]
        if self.bound_s is None:
            return None
        chosen = self.settings
        if rung.seconds:
            return _around(math.log(self.bound_s / rung.seconds), chosen.model_spread, "the planner's model")
        return _around(chosen.first_rung - chosen.rung_step * rank, chosen.rung_spread, "the planner's order")

    def rank_changes(
        self, node: SearchNode, changes: Sequence[tuple[str, SearchCandidate]]
    ) -> tuple[SearchCandidate, ...]:
        """The candidates with their priors: those that the diagnosis of the node's version advises come first.

        An advised change is worth its return on investment (the triage formula of muCUTLASS): the expected gain counts
        more where much is left to the bound.
        """
        result = node.result
        if result is None or self.bound_s is None or not result.time_s or node.candidate is None:
            return tuple(candidate for _, candidate in changes)
        own, plain = (
            math.log(self.bound_s / result.time_s),
            self._of_changes(node.candidate.text, result.time_s, changes),
        )
        if self._recorded is not None:
            own = self._recorded.predict([node.candidate.text])[0].log_speedup
        found = self._advise(result.version) if result.version is not None else None
        advice = () if found is None or found.exhausted else found.advice
        first, rest = [], []
        for (setting, candidate), prior in zip(changes, plain, strict=True):
            one = _find_advice(advice, node.candidate.text, candidate.text, setting)
            if one is None:
                rest.append(dataclasses.replace(candidate, prior=prior))
            else:
                advised = self._of_advice(own, result.time_s / self.bound_s, one)
                joined = _join(prior, advised) if self._recorded is not None else advised
                first.append((advice.index(one), dataclasses.replace(candidate, prior=joined)))
        return (*(candidate for _, candidate in sorted(first, key=lambda item: item[0])), *rest)

    def _of_changes(
        self, program: str, time_s: float, changes: Sequence[tuple[str, SearchCandidate]]
    ) -> Sequence[Prior]:
        """What is expected of each change where no advice speaks for it."""
        if self._recorded is not None:
            return self._recorded.predict([candidate.text for _, candidate in changes])
        assert self.bound_s is not None
        own, chosen = math.log(self.bound_s / time_s), self.settings
        return [_around(own - chosen.change_loss, chosen.change_spread, "its parent's time") for _ in changes]

    def _of_advice(self, own: float, gap: float, advice: Advice) -> Prior:
        gain = directives.expected_gain(advice)
        worth = math.log(return_on_investment(max(gain, 1.0), gap)) if gain is not None else 0.0
        most = math.log(max(advice.gain, 1.0))
        mean = own + min(worth, most)
        return Prior(
            log_speedup=mean,
            low=mean - self.settings.advised_loss,
            high=max(mean + self.settings.advised_loss, own + most),
            source=f"advice of {advice.probe}, ROI",
        )


def _find_advice(advice: Sequence[Advice], before: str, after: str, setting: str) -> Advice | None:
    """The first advice that a change of one setting follows."""
    old, new = (settings_of(text).get(setting, ABSENT) for text in (before, after))
    for one in advice:
        if any(move.setting == setting and goes(move, old, new, after) for move in one.moves):
            return one
    return None


def _around(mean: float, spread: float, source: str) -> Prior:
    return Prior(log_speedup=mean, low=mean - spread, high=mean + spread, source=source)


def _join(one: Prior, other: Prior) -> Prior:
    """Two priors on one scale: their means weighted by inverse variances, with the deviation of the surer one."""
    weights = [max(prior.deviation, LEAST) ** -2 for prior in (one, other)]
    mean = (weights[0] * one.log_speedup + weights[1] * other.log_speedup) / sum(weights)
    half = NORMAL_90 * min(one.deviation, other.deviation)
    return Prior(log_speedup=mean, low=mean - half, high=mean + half, source=f"{one.source}; {other.source}")
