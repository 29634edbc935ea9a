"""`torch.cuda` for a machine without a GPU: queries from the data sheet, streams that are numbers, events on the
modelled clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch

from workbench.emulator.host.cuda_streams import CudaGraph, Stream, StreamState
from workbench.emulator.host.device_tags import DeviceTags
from workbench.emulator.host.torch_device import parse_device
from workbench.emulator.host.virtual_gpu import VirtualGpu

_STATE_CALLS = (
    "empty_cache",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "_lazy_init",
    "init",
    "ipc_collect",
    "set_sync_debug_mode",
    "reset_accumulated_memory_stats",
)


class TorchCuda:
    """Replacements for names of the module `torch.cuda`, answered by one virtual GPU."""

    def __init__(self, gpu: VirtualGpu, tags: DeviceTags) -> None:
        self.gpu = gpu
        self.tags = tags
        self.state = StreamState(gpu)
        self.streams = self.state.streams
        self.default = self.state.external_stream(0)
        self.streams.append(self.default)

    def replacements(self) -> dict[str, object]:
        """The replacement for each name of `torch.cuda`."""
        gpu, memory = self.gpu, self.gpu.device.memory_bytes
        answers: dict[str, Callable[..., object]] = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "is_bf16_supported": lambda *a, **k: True,
            "get_device_name": lambda device=None: self.device_name(),
            "get_device_capability": lambda device=None: gpu.capability(),
            "get_device_properties": self.device_properties,
            "get_arch_list": lambda: [gpu.arch],
            "current_stream": lambda device=None: self.streams[-1],
            "default_stream": lambda device=None: self.default,
            "is_current_stream_capturing": lambda: self.streams[-1].cuda_stream in gpu.capturing,
            "stream": self.stream,
            "set_stream": self.set_stream,
            "synchronize": lambda device=None: gpu.streams.synchronize(),
            "device": _Device,
            "set_device": _Device,
            "graph": self.graph,
            "mem_get_info": lambda device=None: (memory - self.allocated_bytes(), memory),
            "memory_allocated": lambda device=None: self.allocated_bytes(),
            "max_memory_allocated": lambda device=None: self.allocated_bytes(),
            "memory_reserved": lambda device=None: self.allocated_bytes(),
            "max_memory_reserved": lambda device=None: self.allocated_bytes(),
            "get_rng_state": lambda device=None: torch.get_rng_state(),
            "set_rng_state": lambda new_state, device=None: torch.set_rng_state(new_state),
            "can_device_access_peer": lambda *_: False,
        }
        return {
            **{name: _make_noop() for name in _STATE_CALLS},
            **answers,
            "Stream": self.state.stream,
            "ExternalStream": self.state.external_stream,
            "Event": self.state.event,
            "CUDAGraph": self.state.graph,
        }

    def device_name(self) -> str:
        """The name as the driver would give it, marked as emulated."""
        return f"NVIDIA {self.gpu.device.name} (emulated)"

    def allocated_bytes(self) -> int:
        """Bytes of live device memory."""
        return sum(found.size for found in self.tags.alive_ranges() if found.kind == "cuda") + sum(
            len(buffer.data) for buffer in self.gpu.buffers.values()
        )

    def device_properties(self, device: object = None) -> SimpleNamespace:
        """The fields of torch's _CudaDeviceProperties."""
        parse_device(device if device is not None else 0)
        found = self.gpu.device
        major, minor = self.gpu.capability()
        return SimpleNamespace(
            name=self.device_name(),
            major=major,
            minor=minor,
            total_memory=found.memory_bytes,
            multi_processor_count=found.sms,
            warp_size=32,
            is_integrated=False,
            is_multi_gpu_board=False,
            max_threads_per_multi_processor=found.threads_per_sm,
            max_threads_per_block=1024,
            regs_per_multiprocessor=found.registers_per_sm,
            shared_memory_per_block=49_152,
            shared_memory_per_block_optin=found.shared_bytes_per_block,
            shared_memory_per_multiprocessor=found.shared_bytes_per_sm,
            L2_cache_size=found.l2_bytes,
            clock_rate=int(found.clock_hz / 1e3),
            gcnArchName="",
        )

    def set_stream(self, stream: Stream) -> None:
        """Make a stream the current one."""
        self.streams[-1] = stream

    @contextmanager
    def stream(self, stream: Stream | None) -> Iterator[None]:
        """`with torch.cuda.stream(s):`"""
        self.streams.append(stream if stream is not None else self.streams[-1])
        try:
            yield
        finally:
            self.streams.pop()

    @contextmanager
    def graph(
        self, graph: CudaGraph, pool: object = None, stream: Stream | None = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        """`with torch.cuda.graph(g):` captures CuTe DSL launches on the current stream; they do not run."""
        with self.stream(stream or self.state.stream()):
            graph.capture_begin()
            try:
                yield
            finally:
                graph.capture_end()


def _make_noop() -> Callable[..., None]:
    """A new function for each name that does nothing: torch keeps a table by function."""
    return lambda *args, **kwargs: None


class _Device:
    """`with torch.cuda.device(0):`"""

    def __init__(self, device: object) -> None:
        self.idx = parse_device(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def generator_class() -> type:
    """A `torch.Generator` that accepts device="cuda" but is a CPU generator, since the CPU draws the numbers."""

    class Generator(torch._C.Generator):  # type: ignore[misc]
        """A CPU generator whatever the device."""

        def __new__(cls, device: object = "cpu") -> torch.Generator:
            parse_device(device)
            return super().__new__(cls, "cpu")

    return Generator
