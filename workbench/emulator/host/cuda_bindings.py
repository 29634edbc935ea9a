"""`cuda.bindings.driver` and `cuda.bindings.runtime` without a driver: answers for the calls that CuTe DSL programs
make, and a refusal by name for all others.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn, TypeAlias

import cuda.bindings.driver as driver
import cuda.bindings.runtime as runtime

from workbench.emulator.host.virtual_gpu import DRIVER_VERSION, VirtualGpu, handle_number
from workbench.errors import NotEmulated

Reply: TypeAlias = tuple[object, ...]  # the status, then the results
Answers: TypeAlias = dict[str, Callable[..., object]]
_WORKS_WITHOUT = ("cudaGetErrorName", "cudaGetErrorString")  # the runtime bindings answer these themselves
_COPIES = ("cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD")


def read_address(value: object) -> int:
    """The address in a number, a handle, or an object with a buffer, ctypes or numpy interface."""
    if hasattr(value, "ctypes"):
        return int(value.ctypes.data)
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value)
    if isinstance(value, bytes):
        return ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value or 0
    if isinstance(value, (bytearray, memoryview)):
        return ctypes.addressof(ctypes.c_char.from_buffer(value))
    return handle_number(value)


class _Api:
    """Replacements for one module: answers for known calls, a refusal for every other function."""

    def __init__(self, gpu: VirtualGpu, module: ModuleType, success: object, invalid: object) -> None:
        self.gpu, self.module, self.success, self.invalid = gpu, module, success, invalid

    def succeed(self, *values: object) -> Reply:
        """The tuple that cuda.bindings returns on success."""
        return (self.success, *values)

    def do_nothing(self, *_: object, **__: object) -> Reply:
        """Succeed and do nothing."""
        return self.succeed()

    def get_attribute(self, which: driver.CUdevice_attribute, device: object = 0) -> Reply:
        """A device attribute; raises `NotEmulated` with the name if the table lacks it."""
        value = self.gpu.attribute(int(which))
        if value is None:
            raise NotEmulated(f"the emulated device does not answer the attribute {getattr(which, 'name', which)}")
        return self.succeed(value)

    def free(self, address: object) -> Reply:
        """Free memory; freeing twice is an error, as on a GPU."""
        known = handle_number(address) == 0 or self.gpu.free(handle_number(address))
        return self.succeed() if known else (self.invalid,)

    def copy(self, to: object, source: object, size: int, *_: object) -> Reply:
        """memcpy in any direction."""
        self.gpu.copy(read_address(to), read_address(source), int(size))
        return self.succeed()

    def fill(self, width: int) -> Callable[..., object]:
        """Returns a memset for `width`-byte values; its count is in values."""

        def call(to: object, value: int, count: int, *_: object) -> Reply:
            self.gpu.fill(read_address(to), (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little"), int(count))
            return self.succeed()

        return call

    def record(self, event: object, stream: object = 0, *_: object) -> Reply:
        """Record an event on the modelled clock."""
        self.gpu.record(handle_number(event), handle_number(stream))
        return self.succeed()

    def wait_event(self, stream: object, event: object, *_: object) -> Reply:
        """Later work of a stream waits for an event."""
        self.gpu.streams.wait_event(handle_number(stream), handle_number(event))
        return self.succeed()

    def synchronize_event(self, event: object) -> Reply:
        """The host waits for an event."""
        self.gpu.streams.synchronize_event(handle_number(event))
        return self.succeed()

    def synchronize_stream(self, stream: object) -> Reply:
        """The host waits for a stream."""
        self.gpu.streams.synchronize(handle_number(stream))
        return self.succeed()

    def synchronize(self) -> Reply:
        """The host waits for all work."""
        self.gpu.streams.synchronize()
        return self.succeed()

    def order_answers(self, prefix: str) -> Answers:
        """Answers to the calls that order launches, the same in both modules."""
        return {
            f"{prefix}StreamWaitEvent": self.wait_event,
            f"{prefix}StreamSynchronize": self.synchronize_stream,
            f"{prefix}StreamQuery": self.synchronize_stream,
            f"{prefix}EventRecord": self.record,
            f"{prefix}EventSynchronize": self.synchronize_event,
            f"{prefix}EventQuery": self.synchronize_event,
        }

    def elapsed_ms(self, start: object, end: object) -> Reply:
        """Modelled milliseconds between two events."""
        return self.succeed(self.gpu.elapsed_ms(handle_number(start), handle_number(end)))

    def replacements(self, answers: Answers) -> Answers:
        """The answers, and a refusal for each other function of the module."""
        return {
            **_refusals(self.module),
            **{name: answer for name, answer in answers.items() if hasattr(self.module, name)},
        }


@functools.cache
def _refusals(module: ModuleType) -> dict[str, Callable[..., object]]:
    """A refusal for each function of a module that needs a GPU."""
    prefix = "cuda" if module is runtime else "cu"
    names = [
        name
        for name in dir(module)
        if re.match(prefix + "[A-Z]", name) and type(getattr(module, name)).__name__ == "cython_function_or_method"
    ]
    return {name: _make_refusal(f"{module.__name__}.{name}") for name in names if name not in _WORKS_WITHOUT}


def _make_refusal(name: str) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> NoReturn:
        raise NotEmulated(f"{name} is not emulated: run this program on a GPU, or do without the call")

    return call


class _Driver(_Api):
    """The calls of `cuda.bindings.driver` that are emulated."""

    def __init__(self, gpu: VirtualGpu) -> None:
        super().__init__(gpu, driver, driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE)
        self.context = driver.CUcontext(1)
        self.device = driver.CUdevice(0)

    def count_clusters(self, kernel: object, config: driver.CUlaunchConfig) -> Reply:
        """How many clusters of a launch fit: an upper bound, since GPCs of uneven size are not modelled."""
        sizes = [
            a.value.clusterDim.x * a.value.clusterDim.y * a.value.clusterDim.z
            for a in config.attrs
            if a.id == driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        ]
        return self.succeed(self.gpu.device.sms // max([int(size) for size in sizes], default=1))

    def count_blocks(self, kernel: object, threads: int, shared: int) -> Reply:
        """How many CTAs of a kernel fit on an SM; the register count is unknown here and ignored."""
        d = self.gpu.device
        by_threads, by_shared = d.threads_per_sm // max(int(threads), 1), d.shared_bytes_per_sm // max(int(shared), 1)
        return self.succeed(min(d.blocks_per_sm, by_threads, by_shared))

    def capture_info(self, stream: object) -> Reply:
        """Whether a stream is being captured, and the number of its capture."""
        status = driver.CUstreamCaptureStatus
        if handle_number(stream) in self.gpu.capturing:
            return self.succeed(status.CU_STREAM_CAPTURE_STATUS_ACTIVE, self.gpu.captures[handle_number(stream)])
        return self.succeed(status.CU_STREAM_CAPTURE_STATUS_NONE, 0)

    def device_answers(self) -> Answers:
        """Answers about the device, contexts and occupancy."""
        succeed, d = self.succeed, self.gpu.device
        return {
            "cuInit": self.do_nothing,
            "cuDriverGetVersion": lambda: succeed(DRIVER_VERSION),
            "cuDeviceGetCount": lambda: succeed(1),
            "cuDeviceGet": lambda ordinal: succeed(self.device),
            "cuDeviceGetName": lambda length, dev: succeed(f"NVIDIA {d.name} (emulated)".encode()[: int(length)]),
            "cuDeviceTotalMem": lambda dev: succeed(d.memory_bytes),
            "cuDeviceGetAttribute": self.get_attribute,
            "cuCtxCreate": lambda *_: succeed(self.context),
            "cuCtxGetCurrent": lambda: succeed(self.context),
            "cuCtxGetDevice": lambda *_: succeed(self.device),
            "cuCtxPopCurrent": lambda: succeed(self.context),
            "cuDevicePrimaryCtxRetain": lambda dev: succeed(self.context),
            "cuGetErrorName": lambda error: succeed(error.name.encode()),
            "cuGetErrorString": lambda error: succeed(error.name.encode()),
            "cuOccupancyAvailableDynamicSMemPerBlock": lambda *_: succeed(d.shared_bytes_per_block),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": self.count_blocks,
            "cuOccupancyMaxActiveClusters": self.count_clusters,
        }

    def work_answers(self) -> Answers:
        """Answers about streams, events, memory and libraries."""
        succeed, gpu = self.succeed, self.gpu
        d = gpu.device
        return {
            "cuStreamGetCaptureInfo": self.capture_info,
            "cuStreamCreate": lambda flags=0: succeed(driver.CUstream(gpu.new_stream(int(flags)))),
            "cuStreamCreateWithPriority": lambda flags, priority: succeed(driver.CUstream(gpu.new_stream(int(flags)))),
            "cuEventCreate": lambda flags=0: succeed(driver.CUevent(gpu.new_handle())),
            "cuCtxSynchronize": self.synchronize,
            **self.order_answers("cu"),
            "cuEventElapsedTime": self.elapsed_ms,
            "cuMemGetInfo": lambda: succeed(d.memory_bytes, d.memory_bytes),
            "cuMemAlloc": lambda size: succeed(driver.CUdeviceptr(gpu.allocate(int(size)))),
            "cuMemAllocAsync": lambda size, stream: succeed(driver.CUdeviceptr(gpu.allocate(int(size)))),
            "cuMemFree": self.free,
            "cuMemFreeAsync": lambda address, stream: self.free(address),
            "cuLibraryLoadData": lambda *_: succeed(driver.CUlibrary(gpu.new_handle())),
            "cuLibraryEnumerateKernels": lambda count, library: succeed(
                [driver.CUkernel(gpu.new_handle())] * int(count)
            ),
            "cuKernelGetFunction": lambda kernel: succeed(driver.CUfunction(handle_number(kernel))),
            **{name + ending: self.copy for name in _COPIES for ending in ("", "Async")},
            **{f"cuMemsetD{8 * width}{ending}": self.fill(width) for width in (1, 2, 4) for ending in ("", "Async")},
        }


_DRIVER_SUCCEEDS = (
    "cuCtxSetCurrent",
    "cuCtxPushCurrent",
    "cuCtxDestroy",
    "cuDevicePrimaryCtxRelease",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuLibraryUnload",
    "cuFuncSetAttribute",
    "cuKernelSetAttribute",
)  # calls that succeed and do nothing


def preload() -> None:
    """Find the functions to refuse, of which there are many, before a process is forked."""
    _refusals(driver)
    _refusals(runtime)


def driver_answers(gpu: VirtualGpu) -> Answers:
    """Replacements for `cuda.bindings.driver`."""
    api = _Driver(gpu)
    return api.replacements(
        {**api.device_answers(), **api.work_answers(), **dict.fromkeys(_DRIVER_SUCCEEDS, api.do_nothing)}
    )


class _Runtime(_Api):
    """The calls of `cuda.bindings.runtime` that are emulated."""

    def __init__(self, gpu: VirtualGpu) -> None:
        super().__init__(gpu, runtime, runtime.cudaError_t.cudaSuccess, runtime.cudaError_t.cudaErrorInvalidValue)

    def begin_capture(self, stream: object, mode: object) -> Reply:
        """Begin to capture launches on the stream."""
        self.gpu.begin_capture(handle_number(stream))
        return self.succeed()

    def end_capture(self, stream: object) -> Reply:
        """End the capture and return the graph."""
        return self.succeed(runtime.cudaGraph_t(self.gpu.end_capture(handle_number(stream))))

    def count_nodes(self, graph: object, count: int = 0) -> Reply:
        """The number of launches of a graph."""
        return self.succeed(None, len(self.gpu.graphs[handle_number(graph)]))

    def launch_graph(self, graph: object, stream: object) -> Reply:
        """Run the launches of a graph."""
        self.gpu.replay(handle_number(graph), handle_number(stream))
        return self.succeed()

    def get_properties(self, device: int) -> Reply:
        """The device properties, from the data sheet."""
        d, found = self.gpu.device, runtime.cudaDeviceProp()
        found.name = f"NVIDIA {d.name} (emulated)".encode()
        found.major, found.minor = self.gpu.capability()
        found.warpSize = 32
        found.totalGlobalMem, found.multiProcessorCount, found.l2CacheSize = d.memory_bytes, d.sms, d.l2_bytes
        found.sharedMemPerBlock = 49_152
        found.sharedMemPerBlockOptin = d.shared_bytes_per_block
        found.sharedMemPerMultiprocessor = d.shared_bytes_per_sm
        found.regsPerBlock = found.regsPerMultiprocessor = d.registers_per_sm
        found.maxThreadsPerBlock = 1024
        found.maxThreadsPerMultiProcessor, found.maxBlocksPerMultiProcessor = d.threads_per_sm, d.blocks_per_sm
        return self.succeed(found)

    def answers(self) -> Answers:
        """Answers by name."""
        succeed, gpu = self.succeed, self.gpu
        d = gpu.device
        return {
            "cudaGetDeviceCount": lambda: succeed(1),
            "cudaGetDevice": lambda: succeed(0),
            "cudaDeviceGetAttribute": self.get_attribute,
            "cudaGetDeviceProperties": self.get_properties,
            "cudaDriverGetVersion": lambda: succeed(DRIVER_VERSION),
            "cudaRuntimeGetVersion": lambda: succeed(DRIVER_VERSION),
            "cudaStreamCreate": lambda: succeed(runtime.cudaStream_t(gpu.new_stream(0))),
            "cudaStreamCreateWithFlags": lambda flags: succeed(runtime.cudaStream_t(gpu.new_stream(int(flags)))),
            "cudaStreamCreateWithPriority": lambda flags, priority: succeed(
                runtime.cudaStream_t(gpu.new_stream(int(flags)))
            ),
            "cudaEventCreate": lambda: succeed(runtime.cudaEvent_t(gpu.new_handle())),
            "cudaEventCreateWithFlags": lambda flags: succeed(runtime.cudaEvent_t(gpu.new_handle())),
            "cudaDeviceSynchronize": self.synchronize,
            **self.order_answers("cuda"),
            "cudaEventElapsedTime": self.elapsed_ms,
            "cudaMalloc": lambda size: succeed(gpu.allocate(int(size))),
            "cudaMallocAsync": lambda size, stream: succeed(gpu.allocate(int(size))),
            "cudaFree": self.free,
            "cudaFreeAsync": lambda address, stream: self.free(address),
            "cudaMemGetInfo": lambda: succeed(d.memory_bytes, d.memory_bytes),
            "cudaMemcpy": self.copy,
            "cudaMemcpyAsync": self.copy,
            "cudaMemset": self.fill(1),
            "cudaMemsetAsync": self.fill(1),
            "cudaStreamBeginCapture": self.begin_capture,
            "cudaStreamEndCapture": self.end_capture,
            "cudaGraphGetNodes": self.count_nodes,
            "cudaGraphLaunch": self.launch_graph,
            "cudaGraphInstantiate": lambda graph, flags=0: succeed(runtime.cudaGraphExec_t(handle_number(graph))),
        }


_RUNTIME_SUCCEEDS = (
    "cudaSetDevice",
    "cudaStreamDestroy",
    "cudaEventDestroy",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudaLibraryUnload",
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
)  # calls that succeed and do nothing


def runtime_answers(gpu: VirtualGpu) -> Answers:
    """Replacements for `cuda.bindings.runtime`."""
    api = _Runtime(gpu)
    return api.replacements({**api.answers(), **dict.fromkeys(_RUNTIME_SUCCEEDS, api.do_nothing)})
