"""The classes of `torch.cuda` that stand for work on a GPU: streams, events and graphs, answered by one virtual GPU.

Whatever is put on a stream has already happened, and events are on the modelled clock.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from workbench.emulator.host.torch_device import device_of
from workbench.emulator.host.virtual_gpu import VirtualGpu, number
from workbench.errors import NotEmulated


class StreamState:
    """The virtual GPU, the stack of current streams, and the classes that are bound to the two."""

    def __init__(self, gpu: VirtualGpu) -> None:
        self.gpu = gpu
        self.streams: list[Stream] = []
        bound = {"state": self}
        self.stream = type("Stream", (Stream,), bound)
        self.external_stream = type("ExternalStream", (ExternalStream, self.stream), bound)
        self.event = type("Event", (Event,), bound)
        self.graph = type("CUDAGraph", (CudaGraph,), bound)


class Stream:
    """torch.cuda.Stream: a number; whatever is put on it has already happened."""

    state: ClassVar[StreamState]

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        self.cuda_stream = self.state.gpu.handle()
        self.priority = priority
        self.device: torch.device | None = device_of("cuda" if device is None else device)
        self.device_index = 0

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def wait_stream(self, other: object) -> None:
        """Nothing is left to wait for."""

    def wait_event(self, other: object) -> None:
        """Nothing is left to wait for."""

    def query(self) -> bool:
        """Whether all work is done: it is."""
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """An event recorded here."""
        event = event or self.state.event()
        event.record(self)
        return event

    def __cuda_stream__(self) -> tuple[int, int]:
        """The CUDA stream protocol: version and handle."""
        return 0, self.cuda_stream

    def __enter__(self) -> Stream:
        self.state.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.state.streams.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)


class ExternalStream(Stream):
    """A stream that someone else made."""

    def __init__(self, stream_ptr: object, device: object = None, **_: object) -> None:
        super().__init__(device)
        self.cuda_stream = number(stream_ptr)


class Event:
    """torch.cuda.Event on the modelled clock: elapsed times are modelled, never measured."""

    state: ClassVar[StreamState]

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self.enable_timing = enable_timing
        self.cuda_event = self.state.gpu.handle()

    def record(self, stream: object = None) -> None:
        """Note the clock."""
        self.state.gpu.record(self.cuda_event)

    def elapsed_time(self, end_event: Event) -> float:
        """Modelled milliseconds."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return self.state.gpu.elapsed_ms(self.cuda_event, end_event.cuda_event)

    def wait(self, stream: object = None) -> None:
        """Nothing is left to wait for."""

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def query(self) -> bool:
        """Whether the event has happened: it has."""
        return True


class CudaGraph:
    """torch.cuda.CUDAGraph of CuTe DSL launches; a torch operation inside a capture is refused by name."""

    state: ClassVar[StreamState]

    def __init__(self, keep_graph: bool = False) -> None:
        self._stream: int | None = None
        self._graph: int | None = None

    def capture_begin(self, *_: object, **__: object) -> None:
        """Launches on the current stream are kept from now on."""
        self._stream = self.state.streams[-1].cuda_stream
        self.state.gpu.begin_capture(self._stream)

    def capture_end(self) -> None:
        """The capture is complete."""
        self._graph = self.state.gpu.end_capture(number(self._stream))

    def replay(self) -> None:
        """Run what was captured."""
        if self._graph is None:
            raise NotEmulated("a CUDA graph was replayed before it was captured")
        self.state.gpu.replay(self._graph)

    def reset(self) -> None:
        """Forget what was captured."""
        self._graph = None
