"""Finds accesses that a launch makes too early: before an earlier launch, which nothing orders before it, has ended.

A launch with programmatic dependent launch starts when every CTA of its predecessor has executed
`griddepcontrol.launch_dependents` or has ended. Only `griddepcontrol.wait` makes it wait until the predecessor has
ended and its writes are visible (PTX ISA, griddepcontrol; CUDA C++ programming guide, programmatic dependent launch).
A predecessor that did not wait itself leaves its own predecessors running. Launches on two streams overlap unless an
event or the host orders them (host/stream_order.py).

The launches run one after the other here, and each keeps its accesses. A later launch is checked against the earlier
ones that it may overlap with on a GPU: a read against their writes, a write against their reads and writes. An access
counts as after a wait if the thread's warp waited, or learnt of another warp's wait through a barrier. Two atomics, and
loads and stores that synchronise (acquire, release, volatile), are not suspected.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.sanitizer.global_accesses import Access, Accesses
from workbench.emulator.sanitizer.vector_clocks import line_phrase
from workbench.records import kernel_function

MOST_KEPT = 16  # earlier launches whose accesses are kept; the oldest are forgotten first
KIND = "launch_order"
DEPENDENT_HINT = (
    "call cute.arch.griddepcontrol_wait() before the first access to what an earlier kernel writes or reads, in every"
    " kernel of the chain, or launch without use_pdl"
)
STREAM_HINT = (
    "order the streams: record an event after the first launch and let the second stream wait for it, or use one stream"
)


@dataclass(slots=True, eq=False)
class OrderedLaunch:
    """One launch among others: what it may overlap with, and, once it runs, its accesses.

    `at_start` may still run when it starts, `after_wait` when one of its CTAs has waited.
    """

    kernel: str
    stream: int
    number: int
    ctas: int
    at_start: tuple[OrderedLaunch, ...] = ()
    after_wait: tuple[OrderedLaunch, ...] = ()
    accesses: Accesses | None = None
    waited: set[int] = field(default_factory=set)  # CTAs in which a thread waited
    trigger: int = 0  # tick of the first launch_dependents
    triggered_early: bool = False  # a CTA let dependents start before it waited itself

    @property
    def waits(self) -> bool:
        """Whether every CTA waited, so that this launch ends after its predecessors."""
        return len(self.waited) == self.ctas

    def left_running(self) -> tuple[OrderedLaunch, ...]:
        """The launches that may still run when this one has ended."""
        return self.after_wait if self.waits else self.at_start

    def running_at_trigger(self) -> tuple[OrderedLaunch, ...]:
        """The launches that may still run when dependents of this one start."""
        early = self.triggered_early or not self.waits
        return (self, *(self.at_start if early else self.after_wait))[:MOST_KEPT]


@dataclass(slots=True)
class LaunchHistory:
    """The launches that a later one may overlap with."""

    last: dict[int, OrderedLaunch] = field(default_factory=dict)  # by stream
    recent: list[OrderedLaunch] = field(default_factory=list)  # of all streams, while there are several

    def begin(
        self,
        kernel: str,
        ctas: int,
        place: tuple[int, int, dict[int, int]],
        *,
        dependent: bool,
        several: bool,
    ) -> OrderedLaunch:
        """Add a launch at `place` (`StreamOrder.launch`). Only a `dependent` one overlaps with its predecessor."""
        stream, number, clock = place
        others = [one for one in self.recent if one.stream != stream and clock.get(one.stream, 0) < one.number]
        before = self.last.get(stream)
        chained = dependent and before is not None and before.accesses is not None
        launch = OrderedLaunch(
            kernel,
            stream,
            number,
            ctas,
            at_start=(*(before.running_at_trigger() if chained and before else ()), *others)[:MOST_KEPT],
            after_wait=(*(before.left_running() if chained and before else ()), *others)[:MOST_KEPT],
        )
        self.last[stream] = launch
        self.recent = [*self.recent, launch][-MOST_KEPT:] if several else []
        return launch


class OrderChecks:
    """Checks the accesses of a running launch against those of the launches that it may overlap with."""

    def __init__(self, launch: OrderedLaunch) -> None:
        self.launch = launch

    def wait(self, blocks: Array) -> None:
        """Threads of these CTAs executed griddepcontrol.wait."""
        self.launch.waited.update(blocks.tolist())

    def trigger(self, tick: int, *, early: bool) -> None:
        """A thread executed griddepcontrol.launch_dependents; `early`: its CTA has not waited before."""
        self.launch.trigger = self.launch.trigger or tick
        self.launch.triggered_early |= early

    def check(self, a: Access, unit: int, *, writes: bool) -> None:
        """Fault at an access to bytes that an overlapping launch writes, or, if this one writes, reads."""
        if a.ins.form.strong or not (self.launch.at_start or self.launch.after_wait):
            return
        after = a.known.has_waited(a.lanes)
        for others, rows in ((self.launch.at_start, ~after), (self.launch.after_wait, after)):
            if rows.any():
                for other in others:
                    self._check_against(a, unit, other, rows, writes)

    def _check_against(self, a: Access, unit: int, other: OrderedLaunch, rows: Array, writes: bool) -> None:
        record = other.accesses
        table = record.tables.get(a.found.start) if record is not None else None
        if record is None or table is None or table.identity != a.found.identity:  # freed and allocated again
            return
        at = (a.units[rows] * unit // record.unit)[..., None] + np.arange(max(unit // record.unit, 1))
        at = np.minimum(at, len(table.written) - 1)
        written = table.written[at]
        stamps = np.maximum(np.maximum(written, table.read[at]), table.before[at]) if writes else written
        if not stamps.any():
            return
        if a.ins.form.atomic:
            stamps = np.where([record.ticks.is_atomic(int(tick)) for tick in stamps.reshape(-1)], 0, stamps.reshape(-1))
            stamps = stamps.reshape(at.shape)
        if stamps.any():
            row, column, part = (int(n) for n in np.unravel_index(int(np.argmax(stamps > 0)), stamps.shape))
            lane, place = int(a.lanes[np.nonzero(rows)[0][row]]), (row, column, part)
            self._report(a, other, lane, int(at[place]) * record.unit, int(stamps[place]), bool(written[place]), writes)

    def _report(
        self, a: Access, other: OrderedLaunch, lane: int, offset: int, tick: int, wrote: bool, writes: bool
    ) -> None:
        record = other.accesses
        assert record is not None
        line = line_phrase(record.ticks.instructions[tick], "at")
        waited = bool(a.known.has_waited(np.array([lane]))[0])
        if other.stream != self.launch.stream:
            why, hint = "runs on another stream, with no event between the two", STREAM_HINT
        elif waited:
            why, hint = "may still run: no kernel after it waited for it before this one waited", DEPENDENT_HINT
        else:
            why, hint = "may still run: nothing waited for it (programmatic dependent launch)", DEPENDENT_HINT
        if other.stream == self.launch.stream and 0 < other.trigger < tick:
            line += f", after its launch_dependents{line_phrase(record.ticks.instructions[other.trigger], 'at')},"
        where = a.b.memory.describe_nearest(a.found.start + offset)
        raise a.b.fault(
            KIND,
            f"{where} is {'overwritten' if writes else 'read'} too early: an earlier launch"
            f" ({kernel_function(other.kernel)}) {'writes' if wrote else 'reads'} it{line} and {why}",
            a.ins.line,
            lane,
            a.found.start + offset,
            hint=hint,
        )
