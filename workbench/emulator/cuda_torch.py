"""`torch.cuda` for a machine that has no GPU: queries from the data sheet, streams that are numbers, events on the modelled clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from workbench.emulator.facade import device_of
from workbench.emulator.gpu import VirtualGpu, number
from workbench.emulator.labels import Labels
from workbench.errors import NotEmulated

_STATE_CALLS = (
    "synchronize", "empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "_lazy_init", "init", "ipc_collect", "set_stream", "set_sync_debug_mode", "reset_accumulated_memory_stats",
)  # fmt: skip


class TorchCuda:
    """Replacements by name: `functions` for the module `torch.cuda`, answered by one virtual GPU."""

    def __init__(self, gpu: VirtualGpu, labels: Labels) -> None:
        self.gpu = gpu
        self.labels = labels
        self.streams: list[Any] = []
        self.Stream, self.ExternalStream, self.Event, self.CUDAGraph = self._classes()
        self.default = self.ExternalStream(0)
        self.streams.append(self.default)

    def functions(self) -> dict[str, Any]:
        """What replaces each name of `torch.cuda`."""
        gpu, device = self.gpu, self.gpu.device
        answers: dict[str, Callable[..., Any]] = {
            "is_available": lambda: True, "is_initialized": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "is_bf16_supported": lambda *a, **k: True,
            "get_device_name": lambda which=None: self.name(), "get_device_capability": lambda which=None: gpu.capability(), "get_device_properties": self.properties,
            "get_arch_list": lambda: [gpu.arch], "current_stream": lambda which=None: self.streams[-1], "default_stream": lambda which=None: self.default,
            "is_current_stream_capturing": lambda: self.streams[-1].cuda_stream in gpu.capturing, "stream": self.stream, "device": _Device, "set_device": _Device, "graph": self.graph, "mem_get_info": lambda which=None: (device.memory_bytes - self.used(), device.memory_bytes),
            "memory_allocated": lambda which=None: self.used(), "max_memory_allocated": lambda which=None: self.used(), "memory_reserved": lambda which=None: self.used(),
            "max_memory_reserved": lambda which=None: self.used(), "can_device_access_peer": lambda *_: False,
        }  # fmt: skip
        return {**{name: _nothing() for name in _STATE_CALLS}, **answers, "Stream": self.Stream, "ExternalStream": self.ExternalStream, "Event": self.Event, "CUDAGraph": self.CUDAGraph}

    def name(self) -> str:
        """As the driver would give it, with what it is."""
        return f"NVIDIA {self.gpu.device.name} (emulated)"

    def used(self) -> int:
        """Bytes of labelled memory that is alive."""
        return sum(found.size for found in self.labels.alive() if found.kind == "cuda") + sum(len(buffer.data) for buffer in self.gpu.buffers.values())

    def properties(self, which: Any = None) -> Any:
        """The fields of torch's _CudaDeviceProperties."""
        device_of(which if which is not None else 0)
        device = self.gpu.device
        major, minor = self.gpu.capability()
        return SimpleNamespace(
            name=self.name(), major=major, minor=minor, total_memory=device.memory_bytes, multi_processor_count=device.sms, warp_size=32, is_integrated=False, is_multi_gpu_board=False,
            max_threads_per_multi_processor=device.threads_per_sm, max_threads_per_block=1024, regs_per_multiprocessor=device.registers_per_sm, shared_memory_per_block=49_152,
            shared_memory_per_block_optin=device.shared_bytes_per_block, shared_memory_per_multiprocessor=device.shared_bytes_per_sm, L2_cache_size=device.l2_bytes,
            clock_rate=int(device.clock_hz / 1e3), gcnArchName="",
        )  # fmt: skip

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        """`with torch.cuda.stream(s):`"""
        self.streams.append(stream if stream is not None else self.streams[-1])
        try:
            yield
        finally:
            self.streams.pop()

    @contextmanager
    def graph(self, graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global") -> Iterator[None]:
        """`with torch.cuda.graph(g):` CuTe DSL launches on the current stream are kept, not run."""
        with self.stream(stream or self.Stream()):
            graph.capture_begin()
            try:
                yield
            finally:
                graph.capture_end()

    def _classes(self) -> tuple[type, type, type, type]:
        gpu, outer = self.gpu, self

        class Stream:
            """torch.cuda.Stream: a number; whatever is put on it has already happened."""

            def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
                self.cuda_stream = gpu.handle()
                self.priority = priority
                self.device = device_of("cuda" if device is None else device)
                self.device_index = 0

            def synchronize(self) -> None:
                """Nothing is left to wait for."""

            wait_stream = wait_event = lambda self, other: None

            def query(self) -> bool:
                """Whether all work is done: it is."""
                return True

            def record_event(self, event: Any = None) -> Any:
                """An event recorded here."""
                event = event or outer.Event()
                event.record(self)
                return event

            def __cuda_stream__(self) -> tuple[int, int]:
                """The CUDA stream protocol: version and handle."""
                return 0, self.cuda_stream

            def __enter__(self) -> Any:
                outer.streams.append(self)
                return self

            def __exit__(self, *_: Any) -> None:
                outer.streams.pop()

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

            def __hash__(self) -> int:
                return hash(self.cuda_stream)

        class ExternalStream(Stream):
            """A stream that someone else made."""

            def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
                super().__init__(device)
                self.cuda_stream = number(stream_ptr)

        class Event:
            """torch.cuda.Event on the modelled clock: elapsed times are modelled, never measured."""

            def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
                self.enable_timing = enable_timing
                self.cuda_event = gpu.handle()

            def record(self, stream: Any = None) -> None:
                """Note the clock."""
                gpu.record(self.cuda_event)

            def elapsed_time(self, end_event: Any) -> float:
                """Modelled milliseconds."""
                if not (self.enable_timing and end_event.enable_timing):
                    raise ValueError("Both events must be created with argument 'enable_timing=True'.")
                return gpu.elapsed_ms(self.cuda_event, end_event.cuda_event)

            wait = synchronize = lambda self, *_: None

            def query(self) -> bool:
                """Whether the event has happened: it has."""
                return True

        class CUDAGraph:
            """torch.cuda.CUDAGraph of CuTe DSL launches; a torch operation inside a capture is refused by name."""

            def __init__(self, keep_graph: bool = False) -> None:
                self._stream: int | None = None
                self._graph: int | None = None

            def capture_begin(self, *_: Any, **__: Any) -> None:
                """Launches on the current stream are kept from now on."""
                self._stream = outer.streams[-1].cuda_stream
                gpu.begin_capture(self._stream)

            def capture_end(self) -> None:
                """The capture is complete."""
                self._graph = gpu.end_capture(number(self._stream))

            def replay(self) -> None:
                """Run what was captured."""
                if self._graph is None:
                    raise NotEmulated("a CUDA graph was replayed before it was captured")
                gpu.replay(self._graph)

            def reset(self) -> None:
                """Forget what was captured."""
                self._graph = None

        return Stream, ExternalStream, Event, CUDAGraph


def _nothing() -> Callable[..., None]:
    """A function of its own for each name: torch keeps a table by function."""
    return lambda *args, **kwargs: None


class _Device:
    """`with torch.cuda.device(0):`"""

    def __init__(self, device: Any) -> None:
        self.idx = device_of(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


def generator_class() -> type:
    """`torch.Generator` that takes device="cuda": a CPU generator, since that is where the numbers are drawn."""

    class Generator(torch._C.Generator):  # type: ignore[misc]
        """A CPU generator whatever the device."""

        def __new__(cls, device: Any = "cpu") -> Any:
            device_of(device)
            return super().__new__(cls, "cpu")

    return Generator
