"""Which launches are complete when another one starts: streams, events, and waits of the host.

Launches of one stream are numbered from 1. A clock maps a stream to the number of its last launch that is known to be
complete. Two streams know of each other's launches only through an event or a wait of the host. The legacy default
stream (0 and 1) and a blocking stream wait for each other; torch's streams are non-blocking.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Clock = dict[int, int]
LEGACY = 0
_DEFAULTS = {1: LEGACY, 2: LEGACY}  # cudaStreamLegacy, cudaStreamPerThread (blocking: as the default stream here)
NON_BLOCKING = 1  # cudaStreamNonBlocking


def _merge(target: Clock, other: Clock) -> None:
    for stream, number in other.items():
        target[stream] = max(target.get(stream, 0), number)


@dataclass(slots=True)
class StreamOrder:
    """The clocks of streams, events and the host."""

    streams: dict[int, Clock] = field(default_factory=dict)
    counts: Clock = field(default_factory=dict)
    events: dict[int, Clock] = field(default_factory=dict)
    host: Clock = field(default_factory=dict)
    blocking: set[int] = field(default_factory=set)
    several: bool = False  # whether the program made a stream of its own

    def add_stream(self, stream: int, *, blocking: bool = False) -> int:
        """Note a new stream and return it."""
        self.several = True
        if blocking:
            self.blocking.add(stream)
        return stream

    def _clock(self, stream: int) -> Clock:
        return self.streams.setdefault(stream, {})

    def launch(self, stream: int) -> tuple[int, int, Clock]:
        """Count a launch: (its stream, its number, the clock of what is complete when it starts).

        Earlier launches of its own stream are not in the clock: they may overlap with a dependent launch.
        """
        stream = _DEFAULTS.get(stream, stream)
        clock = self._clock(stream)
        _merge(clock, self.host)
        for other in self.blocking if stream == LEGACY else {LEGACY} if stream in self.blocking else ():
            _merge(clock, {**self._clock(other), other: self.counts.get(other, 0)})
        number = self.counts[stream] = self.counts.get(stream, 0) + 1
        return stream, number, dict(clock)

    def record_event(self, event: int, stream: int) -> None:
        """An event that all launches of a stream so far precede."""
        stream = _DEFAULTS.get(stream, stream)
        self.events[event] = {**self._clock(stream), stream: self.counts.get(stream, 0)}

    def wait_event(self, stream: int, event: int) -> None:
        """Later launches of a stream start after an event."""
        _merge(self._clock(_DEFAULTS.get(stream, stream)), self.events.get(event, {}))

    def wait_stream(self, stream: int, other: int) -> None:
        """Later launches of a stream start after all launches so far of another one."""
        self.record_event(-1, other)
        self.wait_event(stream, -1)

    def synchronize_event(self, event: int) -> None:
        """The host waits for an event."""
        _merge(self.host, self.events.get(event, {}))

    def synchronize(self, stream: int | None = None) -> None:
        """The host waits for a stream, or for all of them."""
        for one in list(self.counts) if stream is None else [_DEFAULTS.get(stream, stream)]:
            _merge(self.host, {**self._clock(one), one: self.counts.get(one, 0)})
