"""How often the advice of each probe helped: counted on landscapes by tests/bench/calibrate_probes.py."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files

from workbench.records import Move, record
from workbench.wire import from_plain

PRIOR = 10  # fires that the mean of all probes counts as, for a probe with few or none (chosen)
EVEN = 0.5
HARMFUL = -0.02  # the logarithm of a speed-up, drawn to 0 for few rows, under which a move is not advised (chosen)


@record
class Calibrated:
    """Results of one probe over all rows of landscapes with counts. A hit is an advised change that made the program at
    least `calibrate_probes.HIT` times as fast.
    """

    problems: int = 0  # on which it fired
    fires: int = 0  # rows that it advised on, with a measured row for its advice
    hits: int = 0
    hit_rate: float | None = None
    moves: tuple[tuple[str, int, float], ...] = ()  # (setting and direction, rows with it, geometric mean speed-up)
    mean_gain: float | None = None  # geometric mean of the speed-up by the first advised change that was measured

    def expect(self, pooled: float) -> float:
        """The hit rate to expect: `pooled`, that of all probes together, counts as PRIOR fires."""
        return (self.hits + PRIOR * pooled) / (self.fires + PRIOR)

    def order_moves(self, moves: Sequence[Move]) -> tuple[Move, ...]:
        """Moves that helped most first, without those that slowed programs down in the mean of at least PRIOR rows."""
        known = {name: (rows, gain) for name, rows, gain in self.moves}

        def look_up(move: Move) -> tuple[int, float]:
            return known.get(f"{move.setting} {move.direction}", (0, 1.0))

        def worth(move: Move) -> float:
            rows, gain = look_up(move)
            found = math.log(gain) * rows / (rows + PRIOR)
            return found if abs(found) > -HARMFUL else 0.0  # too little to leave the probe's own order

        kept = [move for move in moves if worth(move) >= 0 or look_up(move)[0] < PRIOR]
        return tuple(sorted(kept, key=lambda move: -worth(move)))


def pooled_rate(known: Mapping[str, Calibrated]) -> float:
    """The hit rate of all probes together; EVEN if nothing was calibrated."""
    fires = sum(item.fires for item in known.values())
    return sum(item.hits for item in known.values()) / fires if fires else EVEN


@functools.cache
def calibrated() -> dict[str, Calibrated]:
    """The shipped results, by probe; {} for probes without."""
    path = files(__package__) / "calibrated.json"
    if not path.is_file():
        return {}
    return {name: from_plain(row, Calibrated) for name, row in json.loads(path.read_text())["probes"].items()}
