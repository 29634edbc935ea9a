"""The device that a program sees: attributes from a data sheet, streams, events on a modelled clock, allocations,
captures.

All work runs at once and in program order, so a stream is a number; which launches a program orders is kept for checks
(stream_order.py). The clock is the sum of the modelled times of the launches so far (timing/roofline.py), so an event's
elapsed time is modelled, never measured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import SupportsInt

import numpy as np

from workbench.analysis.devices import Device
from workbench.emulator.host.stream_order import NON_BLOCKING, StreamOrder
from workbench.errors import NotEmulated

FIRST_HANDLE = 0x1000  # streams, events and graphs; 0, 1 and 2 are CUDA's default streams
DRIVER_VERSION = 13_000


@dataclass(slots=True)
class Buffer:
    """Memory that the program allocated through the driver; `written` is its shadow, one byte per byte."""

    data: np.ndarray
    written: np.ndarray
    name: str


@dataclass(slots=True)
class VirtualGpu:
    """One device of compute capability `arch`."""

    device: Device
    arch: str
    clock_s: float = 0.0
    # stream -> launches that its graph will replay, on any stream
    capturing: dict[int, list[Callable[[int], None]]] = field(default_factory=dict)
    captures: dict[int, int] = field(default_factory=dict)  # stream -> its capture's number
    graphs: dict[int, list[Callable[[int], None]]] = field(default_factory=dict)
    events: dict[int, float | None] = field(default_factory=dict)
    buffers: dict[int, Buffer] = field(default_factory=dict)
    streams: StreamOrder = field(default_factory=StreamOrder)
    _next: int = FIRST_HANDLE

    def new_handle(self) -> int:
        """A number that no stream, event or graph has yet."""
        self._next += 1
        return self._next

    def new_stream(self, flags: int = NON_BLOCKING) -> int:
        """The handle of a new stream."""
        return self.streams.add_stream(self.new_handle(), blocking=not flags & NON_BLOCKING)

    def capability(self) -> tuple[int, int]:
        """Major and minor compute capability of the architecture that programs are compiled for."""
        digits = "".join(char for char in self.arch if char.isdigit())
        return int(digits[:-1]), int(digits[-1])

    def attribute(self, which: int) -> int | None:
        """A device attribute by number (CUdevice_attribute, the same as cudaDeviceAttr); None if the table lacks it."""
        device = self.device
        major, minor = self.capability()
        return {
            1: 1024,
            2: 1024,
            3: 1024,
            4: 64,
            5: 2**31 - 1,
            6: 65_535,
            7: 65_535,
            8: 49_152,
            9: 65_536,
            10: 32,
            12: device.registers_per_sm,
            13: int(device.clock_hz / 1e3),
            16: device.sms,
            17: 0,
            18: 0,
            19: 1,
            20: 0,
            31: 1,
            32: 1,
            38: device.l2_bytes,
            39: device.threads_per_sm,
            40: 3,
            41: 1,
            75: major,
            76: minor,
            78: 1,
            81: device.shared_bytes_per_sm,
            82: device.registers_per_sm,
            83: 1,
            95: 1,
            97: device.shared_bytes_per_block,
            106: device.blocks_per_sm,
            111: 1024,
            115: 1,
            120: int(major >= 9),
        }.get(which)

    def record(self, event: int, stream: int) -> None:
        """Store the modelled clock in an event, and which launches precede it."""
        self.events[event] = self.clock_s
        self.streams.record_event(event, stream)

    def elapsed_ms(self, start: int, end: int) -> float:
        """Modelled milliseconds between two recorded events."""
        first, last = self.events.get(start), self.events.get(end)
        if first is None or last is None:
            raise NotEmulated("an event's time was asked for before the event was recorded")
        return (last - first) * 1e3

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes of unwritten device memory at a multiple of 256 and return the address."""
        raw = np.full(size + 256, 0xFF, dtype=np.uint8)
        start = -raw.ctypes.data % 256
        data = raw[start : start + size]
        address = int(data.ctypes.data)
        self.buffers[address] = Buffer(data, np.zeros(size, dtype=np.uint8), f"allocation of {size} bytes")
        return address

    def free(self, address: int) -> bool:
        """Free an allocation; False if there is none at this address."""
        return self.buffers.pop(address, None) is not None

    def find_shadow(self, address: int) -> tuple[np.ndarray, int] | None:
        """The shadow of the allocation that holds `address`, and the offset of `address` in it."""
        for start, buffer in self.buffers.items():
            if start <= address < start + len(buffer.data):
                return buffer.written, address - start
        return None

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes from anywhere to anywhere; an uninitialised source makes the target uninitialised."""
        ctypes.memmove(to, source, size)
        into, origin = self.find_shadow(to), self.find_shadow(source)
        if into:
            into[0][into[1] : into[1] + size] = origin[0][origin[1] : origin[1] + size] if origin else 1

    def fill(self, to: int, pattern: bytes, count: int) -> None:
        """Write `count` copies of `pattern`."""
        ctypes.memmove(to, pattern * count, len(pattern) * count)
        if into := self.find_shadow(to):
            into[0][into[1] : into[1] + len(pattern) * count] = 1

    def begin_capture(self, stream: int) -> None:
        """Begin to capture launches on this stream; they do not run."""
        self.capturing[stream], self.captures[stream] = [], self.new_handle()

    def end_capture(self, stream: int) -> int:
        """End the capture and return the graph's handle."""
        graph = self.new_handle()
        self.graphs[graph] = self.capturing.pop(stream, [])
        return graph

    def replay(self, graph: int, stream: int) -> None:
        """Run the launches of a graph in order, as work on a stream."""
        for step in self.graphs[graph]:
            step(stream)


def handle_number(handle: object) -> int:
    """The integer in a cuda.bindings handle, a torch stream or a plain number."""
    value = handle.cuda_stream if hasattr(handle, "cuda_stream") else handle
    if not value:
        return 0
    assert isinstance(value, SupportsInt)
    return int(value)
