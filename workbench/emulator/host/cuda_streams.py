"""`torch.cuda`'s streams, events and graphs, answered by one virtual GPU.

Work on a stream is already done when the call returns, and events are on the modelled clock. What a program waits for
is noted all the same, for checks of the order of launches (stream_order.py).
"""

from __future__ import annotations

from typing import ClassVar

import torch

from workbench.emulator.host.torch_device import parse_device
from workbench.emulator.host.virtual_gpu import VirtualGpu, handle_number
from workbench.errors import NotEmulated


class StreamState:
    """The virtual GPU, the stack of current streams, and the classes that are bound to both."""

    def __init__(self, gpu: VirtualGpu) -> None:
        self.gpu = gpu
        self.streams: list[Stream] = []
        bound = {"state": self}
        self.stream = type("Stream", (Stream,), bound)
        self.external_stream = type("ExternalStream", (ExternalStream, self.stream), bound)
        self.event = type("Event", (Event,), bound)
        self.graph = type("CUDAGraph", (CudaGraph,), bound)


class Stream:
    """torch.cuda.Stream: a number; its work is already done."""

    state: ClassVar[StreamState]

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        self.cuda_stream = self.make_handle()
        self.priority = priority
        self.device: torch.device | None = parse_device("cuda" if device is None else device)
        self.device_index = 0

    def make_handle(self) -> int:
        """The number of a new stream."""
        return self.state.gpu.new_stream()

    def synchronize(self) -> None:
        """The host waits for the stream."""
        self.state.gpu.streams.synchronize(self.cuda_stream)

    def wait_stream(self, other: object) -> None:
        """Later work waits for another stream's work so far."""
        self.state.gpu.streams.wait_stream(self.cuda_stream, handle_number(other))

    def wait_event(self, other: Event) -> None:
        """Later work waits for an event."""
        self.state.gpu.streams.wait_event(self.cuda_stream, other.cuda_event)

    def query(self) -> bool:
        """True: all work is done."""
        self.synchronize()
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event on this stream and return it."""
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
    """A stream that other code created."""

    def __init__(self, stream_ptr: object, device: object = None, **_: object) -> None:
        self.known = handle_number(stream_ptr)
        super().__init__(device)

    def make_handle(self) -> int:
        """The number of the other code's stream."""
        return self.known


class Event:
    """torch.cuda.Event on the modelled clock: elapsed times are modelled, never measured."""

    state: ClassVar[StreamState]

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self.enable_timing = enable_timing
        self.cuda_event = self.state.gpu.new_handle()

    def record(self, stream: object = None) -> None:
        """Store the modelled clock, and what the stream's work so far is."""
        self.state.gpu.record(self.cuda_event, self._number(stream))

    def elapsed_time(self, end_event: Event) -> float:
        """Modelled milliseconds between two recorded events."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return self.state.gpu.elapsed_ms(self.cuda_event, end_event.cuda_event)

    def _number(self, stream: object) -> int:
        return handle_number(self.state.streams[-1] if stream is None else stream)

    def wait(self, stream: object = None) -> None:
        """Later work of a stream waits for the event."""
        self.state.gpu.streams.wait_event(self._number(stream), self.cuda_event)

    def synchronize(self) -> None:
        """The host waits for the event."""
        self.state.gpu.streams.synchronize_event(self.cuda_event)

    def query(self) -> bool:
        """True: the event has happened."""
        self.synchronize()
        return True


class CudaGraph:
    """torch.cuda.CUDAGraph of CuTe DSL launches; a torch operation inside a capture raises `NotEmulated`."""

    state: ClassVar[StreamState]

    def __init__(self, keep_graph: bool = False) -> None:
        self._stream: int | None = None
        self._graph: int | None = None

    def capture_begin(self, *_: object, **__: object) -> None:
        """Begin to capture launches on the current stream."""
        self._stream = self.state.streams[-1].cuda_stream
        self.state.gpu.begin_capture(self._stream)

    def capture_end(self) -> None:
        """End the capture."""
        self._graph = self.state.gpu.end_capture(handle_number(self._stream))

    def replay(self) -> None:
        """Run the captured launches."""
        if self._graph is None:
            raise NotEmulated("a CUDA graph was replayed before it was captured")
        self.state.gpu.replay(self._graph, self.state.streams[-1].cuda_stream)

    def reset(self) -> None:
        """Drop the captured launches."""
        self._graph = None
