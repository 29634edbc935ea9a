"""What a try is worth: the logarithm of its speed-up, clipped, so that a few huge ones do not dominate."""

from __future__ import annotations

import math

from workbench.records import record
from workbench.records.search import NodeResult


@record
class Reward:
    """The reward of a result lies in [-1 / clip, 1]. KernelPro's own constants were not found; all are inferred.

    passed: clip(log2(reference / time), -1, clip) / clip, with the first correct time of the search as the reference.
    """

    clip: float = 4.0  # log2 of the speed-up that gives a reward of 1
    wrong: float = -0.25  # compiled, and wrong: as a pass at half the speed
    broken: float = -0.25  # did not compile

    def of(self, result: NodeResult, reference_s: float | None) -> float:
        """The reward of one result; `reference_s` is the reference's time in seconds."""
        if result.outcome == "compile-error":
            return self.broken
        if result.outcome == "failed" or not result.time_s or not reference_s:
            return self.wrong
        return min(self.clip, max(-1.0, math.log2(reference_s / result.time_s))) / self.clip
