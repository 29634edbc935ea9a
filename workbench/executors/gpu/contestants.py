"""The programs that take turns in a run, and what their samples say: times with intervals, and ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from workbench.analysis import statistics
from workbench.executors.jobs.rpc import Channel
from workbench.records import Ratio
from workbench.wire import Json

CALLS = 3  # timed as a model sees them, of each contestant in each round; one where a call is slow
REFERENCES = ("eager", "compiled")  # the referee has these programs


@dataclass(slots=True)
class Contestant:
    """One of the programs that take turns, with its times: the candidate, or one that `Ratio.against` names."""

    name: str
    channel: Channel
    estimate_s: float = 0.0
    sample_s: float = 0.0  # seconds that a sample takes with all that belongs to it, such as drawing its inputs
    host_s: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    called: list[float] = field(default_factory=list)  # seconds of calls as a model sees them
    calls: int = 1
    sets: int = 0

    def ask(self, request: Json) -> Json:
        """Send a request to its process, and wait for the reply."""
        return self.channel.call(request | ({"program": self.name} if self.name in REFERENCES else {}))

    def start_again(self) -> None:
        """Forget the samples."""
        self.samples, self.walls, self.called, self.calls = [], [], [], 1

    def keep(self, said: Json, *, host: bool) -> None:
        """Keep a sample, with `host` also the host's seconds to enqueue it."""
        self.samples.append(float(said["s"]))
        self.walls.append(float(said["wall"]))
        if host:
            self.host_s.append(float(said["host"]))


@dataclass(slots=True, frozen=True)
class Summary:
    """The medians of a contestant with their 95 % intervals, in seconds: of its kernels, and of whole calls."""

    kernels: tuple[float, float, float]
    calls: tuple[float, float, float] | tuple[None, None, None]
    wall_ratio: float
    launch_overhead_s: float


def summarise(player: Contestant, size: int, calls: int = CALLS) -> Summary:
    """What the samples of a contestant say; a round has `size` of its kernels and `calls` whole calls."""
    spread, resolution = statistics.BETWEEN_RUNS, statistics.EVENT_S / player.calls
    return Summary(
        kernels=statistics.median_interval(player.samples, size, between_runs=spread, resolution_s=resolution),
        calls=statistics.median_interval(player.called, calls, between_runs=spread)
        if player.called
        else (None, None, None),
        wall_ratio=_median(player.walls),
        launch_overhead_s=_median(player.host_s),
    )


def compare_contestants(players: Sequence[Contestant], size: int, calls: int = CALLS) -> tuple[Ratio, ...]:
    """The speed-ups of the first contestant over each other one, by the times of kernels and by those of calls."""
    first, *others = players
    found = []
    for player in others:
        found.append(_compare(player, "kernels", (player.samples, first.samples), size))
        if player.called and first.called:
            found.append(_compare(player, "calls", (player.called, first.called), calls))
    return tuple(found)


def _compare(
    player: Contestant, of: Literal["kernels", "calls"], samples: tuple[list[float], list[float]], size: int
) -> Ratio:
    theirs, mine = (statistics.split_rounds(one, size) for one in samples)
    ratio, low, high = statistics.ratio_interval(theirs, mine, between_runs=statistics.BETWEEN_RUNS)
    against = cast("Literal['eager', 'parent', 'compiled']", player.name)
    return Ratio(against=against, ratio=ratio, low=low, high=high, of=of)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
