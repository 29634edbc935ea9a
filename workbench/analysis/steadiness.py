"""Looks for signs that a run of timings was disturbed: other work on the device, drift, throttling. Every doubt is one
sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.analysis.statistics import split_rounds
from workbench.records import DeviceState

# All thresholds are inferred: alone on a device, a fixed kernel repeats within a few percent; a neighbour that takes
# turns with us costs tens of percent.
PROBE_SPREAD = 0.10  # (slowest - fastest) / median of the probes
ROUND_SPREAD = 0.10  # (90th - 10th percentile) / median of the rounds' medians
DRIFT = 0.04  # from the first third of the rounds to the last
TAIL = 1.3  # 90th percentile over median of all samples
TAIL_S = 5e-6  # and at least so much: short calls jitter by an event's resolution
BUSY = 0.2  # utilisation before the run started
SLOWED = ("thermal", "hardware_slowdown", "power_brake")  # not the power cap alone: a large matmul normally runs at it


def doubts(
    samples: Sequence[float],
    per_round: int,
    probes: Sequence[float] = (),
    surroundings: Sequence[DeviceState] = (),
    *,
    busy_before: bool = True,
    quiet_s: float | None = None,
) -> tuple[str, ...]:
    """Sentences about what disturbed the run; empty when nothing did.

    `busy_before`: whether another process must have caused a utilisation seen before the start. `quiet_s`: the fastest
    time of the probe kernel ever seen, in seconds.
    """
    return (
        *_neighbour_doubts(surroundings, busy_before),
        *_probe_doubts(probes, quiet_s),
        *_spread_doubts(samples, per_round),
        *_throttle_doubts(surroundings),
    )


def _neighbour_doubts(surroundings: Sequence[DeviceState], busy_before: bool) -> list[str]:
    found = []
    others = max((one.others for one in surroundings if one.others is not None), default=0)
    if others:
        found.append(f"{others} other process{'es' if others > 1 else ''} on the GPU during the run")
    before = surroundings[0].utilisation if surroundings else None
    if busy_before and before is not None and before >= BUSY:
        found.append(f"the GPU was {before:.0%} busy before the run began")
    return found


def _probe_doubts(probes: Sequence[float], quiet_s: float | None) -> list[str]:
    if len(probes) < 3 or min(probes) <= 0:
        return []
    middle = float(np.median(np.asarray(probes)))
    spread = (max(probes) - min(probes)) / middle
    if quiet_s and middle > (1 + 2 * PROBE_SPREAD) * quiet_s:
        return [
            f"a fixed kernel took {middle * 1e6:.0f} us between the rounds, {quiet_s * 1e6:.0f} us at best: something "
            "else uses the GPU, the candidate's own leftovers perhaps, or its clocks are low"
        ]
    if spread <= PROBE_SPREAD:
        return []
    return [
        f"a fixed kernel took between {min(probes) * 1e6:.0f} and {max(probes) * 1e6:.0f} us from round to round "
        f"({spread:.0%}): something else uses the GPU, or its clocks moved"
    ]


def _spread_doubts(samples: Sequence[float], per_round: int) -> list[str]:
    if per_round < 1 or len(samples) < 3 * per_round or min(samples) <= 0:
        return []
    found = []
    medians = np.asarray([np.median(one) for one in split_rounds(samples, per_round)])
    middle = float(np.median(medians))
    low, high = np.quantile(medians, [0.1, 0.9])
    third = max(len(medians) // 3, 1)
    first, last = float(np.median(medians[:third])), float(np.median(medians[-third:]))
    steps = np.diff(medians)
    if (
        abs(last / first - 1) > DRIFT
        and abs(last - first) > TAIL_S / 10
        and np.mean(np.sign(steps) == np.sign(last - first)) > 0.6
    ):
        found.append(f"times drifted by {last / first - 1:+.1%} from the first rounds to the last")
    elif (high - low) / middle > ROUND_SPREAD and high - low > TAIL_S / 5:
        found.append(f"medians of rounds are spread over {(high - low) / middle:.0%}")
    values = np.asarray(samples)
    slow = float(np.quantile(values, 0.9))
    if slow / middle > TAIL and slow - middle > TAIL_S:
        found.append(f"one call in ten took over {slow / middle:.1f}x the median")
    return found


def _throttle_doubts(surroundings: Sequence[DeviceState]) -> list[str]:
    reasons = sorted({reason for one in surroundings for reason in one.throttled if reason in SLOWED})
    return [f"the device slowed itself down during the run ({', '.join(reasons)})"] if reasons else []
