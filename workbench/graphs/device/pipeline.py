"""Mini-batches made ready while a model is in training: drawn in one thread, their rows fetched in another.

On a GPU each of the two has a stream of its own, so that a batch is drawn, and the rows of another one are gathered in
pinned memory and copied, while a step of the optimizer runs. Nothing about a batch depends on how far ahead it is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

import torch

from workbench.graphs.batches import Batch, MiniBatches
from workbench.graphs.device.batches import DeviceBatch, DeviceMiniBatches
from workbench.graphs.loaders import Tensors, to_tensors

Item = TypeVar("Item")
POLL_S = 0.1  # how often a thread with nothing to do looks whether it is still wanted


class Stopwatch:
    """Adds up the time of blocks. On a GPU by events of the stream, so that the host need not wait for its work."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def __enter__(self) -> None:
        self._mark()

    def __exit__(self, *_: object) -> None:
        self._mark()

    def _mark(self) -> None:
        if self.device.type == "cuda":
            self._events.append(torch.cuda.Event(enable_timing=True))
            self._events[-1].record(torch.cuda.current_stream(self.device))
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> float:
        """The time of all blocks; on a GPU after its work is done."""
        spans = zip(self._events[::2], self._events[1::2], strict=True)
        passed: float = sum(begin.elapsed_time(end) for begin, end in spans) / 1e3
        return passed + sum(self._marks[1::2]) - sum(self._marks[::2])


@dataclasses.dataclass(frozen=True, slots=True)
class _End(Generic[Item]):
    """The last entry of a queue, with the error that ended it."""

    error: BaseException | None = None


def run_ahead(items: Generator[Item, None, None], depth: int) -> Generator[Item, None, None]:
    """The items, made in a thread of their own that is at most `depth` ahead; 0: in this thread, when asked for.

    Errors come where their item would have come. Closing the generator ends the thread.
    """
    if not depth:
        yield from items
        return
    ready: queue.Queue[Item | _End[Item]] = queue.Queue(depth)
    stopped = threading.Event()
    worker = threading.Thread(target=_fill, args=(items, ready, stopped), daemon=True)
    worker.start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        worker.join()


def _fill(items: Generator[Item, None, None], ready: queue.Queue[Item | _End[Item]], stopped: threading.Event) -> None:
    end: _End[Item] = _End()
    try:
        with contextlib.closing(items):
            for item in items:
                if not _put(item, ready, stopped):
                    return
    except BaseException as error:  # it is raised in the thread that waits for the item
        end = _End(error)
    _put(end, ready, stopped)


def _put(item: Item | _End[Item], ready: queue.Queue[Item | _End[Item]], stopped: threading.Event) -> bool:
    """Whether the item was put: not if nobody wants it any more."""
    while not stopped.is_set():
        with contextlib.suppress(queue.Full):
            ready.put(item, timeout=POLL_S)
            return True
    return False


class HostRows:
    """Rows of a matrix in the host's memory: gathered into pinned memory by torch's threads, then copied to a GPU.

    Two buffers take turns, so that one is filled while the other is copied. They grow with the largest batch.
    """

    def __init__(self, features: torch.Tensor, device: torch.device) -> None:
        self._features, self._device = features, device
        self._buffers = [features.new_empty((0, features.shape[1])) for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in self._buffers] if device.type == "cuda" else []
        self._turn = 0

    def fetch(self, nodes: torch.Tensor, gathering: Stopwatch, copying: Stopwatch) -> torch.Tensor:
        """The rows of these nodes, int64[U] on the host, on the device: on the stream, not before."""
        self._turn = 1 - self._turn
        if self._copied:
            self._copied[self._turn].synchronize()  # what was copied from this buffer before
        if len(nodes) > len(self._buffers[self._turn]):
            shape = (len(nodes) + len(nodes) // 8, self._features.shape[1])
            self._buffers[self._turn] = torch.empty(shape, dtype=self._features.dtype, pin_memory=bool(self._copied))
        rows = self._buffers[self._turn][: len(nodes)]
        with gathering:
            torch.index_select(self._features, 0, nodes, out=rows)
        with copying:
            found = rows.to(self._device, non_blocking=True, copy=True)
        if self._copied:
            self._copied[self._turn].record(torch.cuda.current_stream(self._device))
        return found


@dataclasses.dataclass(slots=True, kw_only=True)
class Parts:
    """Stopwatches of an epoch: of drawing, of the host that gathers rows, of the device that gets or copies them."""

    drawing: Stopwatch
    gathering: Stopwatch
    copying: Stopwatch


_Drawn = tuple[Batch | DeviceBatch, "torch.Tensor | None", "torch.cuda.Event | None"]  # with its nodes on the host
_Ready = tuple[Tensors, "torch.cuda.Event | None"]


class Feed:
    """The tensors of mini-batches, made ready up to `depth` batches ahead in each of two threads; 0: one by one.

    Labels lie on the device. Features lie there or in the host's memory.
    """

    def __init__(
        self, batches: MiniBatches | DeviceMiniBatches, features: torch.Tensor, labels: torch.Tensor, depth: int = 0
    ) -> None:
        self.batches, self.features, self.labels, self.depth = batches, features, labels, depth
        self.device = labels.device
        self._rows = None if features.device == self.device else HostRows(features, self.device)
        ahead = depth > 0 and self.device.type == "cuda"
        self._streams = [torch.cuda.Stream(self.device) for _ in range(2)] if ahead else []

    def epoch(self, number: int) -> tuple[Generator[Tensors, None, None], Parts]:
        """The batches of an epoch, ready on the current stream, and what adds up the time of their parts."""
        host = torch.device("cpu")
        on_device = isinstance(self.batches, DeviceMiniBatches)
        parts = Parts(
            drawing=Stopwatch(self.device if on_device else host),
            gathering=Stopwatch(host),
            copying=Stopwatch(self.device),
        )
        return self._deliver(number, parts), parts

    def _deliver(self, number: int, parts: Parts) -> Generator[Tensors, None, None]:
        for stream in self._streams:  # what the arrays' owners still do comes first
            stream.wait_stream(torch.cuda.current_stream(self.device))
        drawn = run_ahead(self._draw(number, parts), self.depth)
        with contextlib.closing(run_ahead(self._fetch(drawn, parts), self.depth)) as ready:
            for tensors, fetched in ready:
                if fetched is not None:
                    stream = torch.cuda.current_stream(self.device)
                    stream.wait_event(fetched)
                    for one in (tensors.features, tensors.indptr, tensors.indices, tensors.labels):
                        one.record_stream(stream)
                yield tensors

    def _draw(self, number: int, parts: Parts) -> Generator[_Drawn, None, None]:
        with self._on_stream(0):
            batches: Iterator[Batch | DeviceBatch] = iter(self.batches.epoch(number))
            while True:
                with parts.drawing:
                    batch = next(batches, None)
                if batch is None:
                    return
                nodes = torch.as_tensor(batch.nodes).cpu() if self._rows is not None else None
                yield batch, nodes, self._mark(0)

    def _fetch(self, drawn: Generator[_Drawn, None, None], parts: Parts) -> Generator[_Ready, None, None]:
        with contextlib.closing(drawn), self._on_stream(1):
            for batch, nodes, event in drawn:
                if event is not None and isinstance(batch, DeviceBatch):
                    self._streams[1].wait_event(event)
                    for one in (batch.nodes, batch.indptr, batch.indices):
                        one.record_stream(self._streams[1])
                if self._rows is not None and nodes is not None:
                    rows = self._rows.fetch(nodes, parts.gathering, parts.copying)
                else:
                    with parts.copying:
                        rows = self.features[torch.as_tensor(batch.nodes, device=self.device)]
                yield to_tensors(batch, rows, self.labels), self._mark(1)

    def _on_stream(self, number: int) -> contextlib.AbstractContextManager[object]:
        return torch.cuda.stream(self._streams[number]) if self._streams else contextlib.nullcontext()

    def _mark(self, number: int) -> torch.cuda.Event | None:
        """An event after the work that this stream was given so far."""
        if not self._streams:
            return None
        event = torch.cuda.Event()
        event.record(self._streams[number])
        return event
