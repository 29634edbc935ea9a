"""`cuda.bindings.driver` and `cuda.bindings.runtime` with no driver: the calls that CuTe DSL programs make are
answered, every other one is refused by name.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn, TypeAlias

import cuda.bindings.driver as driver
import cuda.bindings.runtime as runtime

from workbench.emulator.host.virtual_gpu import DRIVER_VERSION, VirtualGpu, number
from workbench.errors import NotEmulated

Reply: TypeAlias = tuple[object, ...]  # the status, then what the call gives
Answers: TypeAlias = dict[str, Callable[..., object]]
_WORKS_WITHOUT = ("cudaGetErrorName", "cudaGetErrorString")  # the runtime bindings answer these themselves
_COPIES = ("cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD")


def pointer(value: object) -> int:
    """An address: a number, a handle, or an object with a buffer, ctypes or numpy interface."""
    if hasattr(value, "ctypes"):
        return int(value.ctypes.data)
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value)
    if isinstance(value, bytes):
        return ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value or 0
    if isinstance(value, (bytearray, memoryview)):
        return ctypes.addressof(ctypes.c_char.from_buffer(value))
    return number(value)


class _Api:
    """Replacements for one module: what is answered, and a refusal for every other function."""

    def __init__(self, gpu: VirtualGpu, module: ModuleType, success: object, invalid: object) -> None:
        self.gpu, self.module, self.success, self.invalid = gpu, module, success, invalid

    def done(self, *values: object) -> Reply:
        """The tuple that cuda.bindings returns."""
        return (self.success, *values)

    def nothing(self, *_: object, **__: object) -> Reply:
        """Succeed and do nothing."""
        return self.done()

    def attribute(self, which: driver.CUdevice_attribute, device: object = 0) -> Reply:
        """A device attribute; one that the table lacks is refused by name."""
        value = self.gpu.attribute(int(which))
        if value is None:
            raise NotEmulated(f"the emulated device does not answer the attribute {getattr(which, 'name', which)}")
        return self.done(value)

    def free(self, address: object) -> Reply:
        """Give memory back; a second time is an error, as it is on a GPU."""
        known = number(address) == 0 or self.gpu.free(number(address))
        return self.done() if known else (self.invalid,)

    def copy(self, to: object, source: object, size: int, *_: object) -> Reply:
        """memcpy in any direction."""
        self.gpu.copy(pointer(to), pointer(source), int(size))
        return self.done()

    def fill(self, width: int) -> Callable[..., object]:
        """memset of `width`-byte values; the count is in values."""

        def call(to: object, value: int, count: int, *_: object) -> Reply:
            self.gpu.fill(pointer(to), (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little"), int(count))
            return self.done()

        return call

    def record(self, event: object, *_: object) -> Reply:
        """Note the modelled clock."""
        self.gpu.record(number(event))
        return self.done()

    def elapsed(self, start: object, end: object) -> Reply:
        """Modelled milliseconds."""
        return self.done(self.gpu.elapsed_ms(number(start), number(end)))

    def replacements(self, answers: Answers) -> Answers:
        """The answers, and a refusal for each other function of the module."""
        prefix = "cuda" if self.module is runtime else "cu"
        names = [
            name
            for name in dir(self.module)
            if re.match(prefix + "[A-Z]", name)
            and type(getattr(self.module, name)).__name__ == "cython_function_or_method"
        ]
        refused = {name: _refusal(f"{self.module.__name__}.{name}") for name in names if name not in _WORKS_WITHOUT}
        return {**refused, **{name: answer for name, answer in answers.items() if hasattr(self.module, name)}}


def _refusal(name: str) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> NoReturn:
        raise NotEmulated(f"{name} is not emulated: run this program on a GPU, or do without the call")

    return call


class _Driver(_Api):
    """The calls of `cuda.bindings.driver` that are answered."""

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
        return self.done(self.gpu.device.sms // max([int(size) for size in sizes], default=1))

    def count_blocks(self, kernel: object, threads: int, shared: int) -> Reply:
        """How many CTAs of a kernel an SM holds; registers are not known here."""
        d = self.gpu.device
        by_threads, by_shared = d.threads_per_sm // max(int(threads), 1), d.shared_bytes_per_sm // max(int(shared), 1)
        return self.done(min(d.blocks_per_sm, by_threads, by_shared))

    def capture_info(self, stream: object) -> Reply:
        """Whether a stream is being captured, and the number of its capture."""
        status = driver.CUstreamCaptureStatus
        if number(stream) in self.gpu.capturing:
            return self.done(status.CU_STREAM_CAPTURE_STATUS_ACTIVE, self.gpu.captures[number(stream)])
        return self.done(status.CU_STREAM_CAPTURE_STATUS_NONE, 0)

    def devices(self) -> Answers:
        """Answers about the device, contexts and occupancy."""
        done, d = self.done, self.gpu.device
        return {
            "cuInit": self.nothing,
            "cuDriverGetVersion": lambda: done(DRIVER_VERSION),
            "cuDeviceGetCount": lambda: done(1),
            "cuDeviceGet": lambda ordinal: done(self.device),
            "cuDeviceGetName": lambda length, dev: done(f"NVIDIA {d.name} (emulated)".encode()[: int(length)]),
            "cuDeviceTotalMem": lambda dev: done(d.memory_bytes),
            "cuDeviceGetAttribute": self.attribute,
            "cuCtxCreate": lambda *_: done(self.context),
            "cuCtxGetCurrent": lambda: done(self.context),
            "cuCtxGetDevice": lambda *_: done(self.device),
            "cuCtxPopCurrent": lambda: done(self.context),
            "cuDevicePrimaryCtxRetain": lambda dev: done(self.context),
            "cuGetErrorName": lambda error: done(error.name.encode()),
            "cuGetErrorString": lambda error: done(error.name.encode()),
            "cuOccupancyAvailableDynamicSMemPerBlock": lambda *_: done(d.shared_bytes_per_block),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": self.count_blocks,
            "cuOccupancyMaxActiveClusters": self.count_clusters,
        }

    def work(self) -> Answers:
        """Answers about streams, events, memory and libraries."""
        done, gpu = self.done, self.gpu
        d = gpu.device
        return {
            "cuStreamGetCaptureInfo": self.capture_info,
            "cuStreamCreate": lambda flags=0: done(driver.CUstream(gpu.handle())),
            "cuStreamCreateWithPriority": lambda flags, priority: done(driver.CUstream(gpu.handle())),
            "cuEventCreate": lambda flags=0: done(driver.CUevent(gpu.handle())),
            "cuEventRecord": self.record,
            "cuEventElapsedTime": self.elapsed,
            "cuMemGetInfo": lambda: done(d.memory_bytes, d.memory_bytes),
            "cuMemAlloc": lambda size: done(driver.CUdeviceptr(gpu.allocate(int(size)))),
            "cuMemAllocAsync": lambda size, stream: done(driver.CUdeviceptr(gpu.allocate(int(size)))),
            "cuMemFree": self.free,
            "cuMemFreeAsync": lambda address, stream: self.free(address),
            "cuLibraryLoadData": lambda *_: done(driver.CUlibrary(gpu.handle())),
            "cuLibraryEnumerateKernels": lambda count, library: done([driver.CUkernel(gpu.handle())] * int(count)),
            "cuKernelGetFunction": lambda kernel: done(driver.CUfunction(number(kernel))),
            **{name + ending: self.copy for name in _COPIES for ending in ("", "Async")},
            **{f"cuMemsetD{8 * width}{ending}": self.fill(width) for width in (1, 2, 4) for ending in ("", "Async")},
        }


_DRIVER_SUCCEEDS = (
    "cuCtxSetCurrent",
    "cuCtxPushCurrent",
    "cuCtxSynchronize",
    "cuCtxDestroy",
    "cuDevicePrimaryCtxRelease",
    "cuStreamDestroy",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuEventSynchronize",
    "cuEventQuery",
    "cuEventDestroy",
    "cuLibraryUnload",
    "cuFuncSetAttribute",
    "cuKernelSetAttribute",
)  # calls that succeed and do nothing


def driver_answers(gpu: VirtualGpu) -> Answers:
    """Replacements for `cuda.bindings.driver`."""
    api = _Driver(gpu)
    return api.replacements({**api.devices(), **api.work(), **dict.fromkeys(_DRIVER_SUCCEEDS, api.nothing)})


class _Runtime(_Api):
    """The calls of `cuda.bindings.runtime` that are answered."""

    def __init__(self, gpu: VirtualGpu) -> None:
        super().__init__(gpu, runtime, runtime.cudaError_t.cudaSuccess, runtime.cudaError_t.cudaErrorInvalidValue)

    def begin_capture(self, stream: object, mode: object) -> Reply:
        """Launches on the stream are kept from now on."""
        self.gpu.begin_capture(number(stream))
        return self.done()

    def end_capture(self, stream: object) -> Reply:
        """The graph that was captured."""
        return self.done(runtime.cudaGraph_t(self.gpu.end_capture(number(stream))))

    def count_nodes(self, graph: object, count: int = 0) -> Reply:
        """How many launches a graph has."""
        return self.done(None, len(self.gpu.graphs[number(graph)]))

    def launch_graph(self, graph: object, stream: object) -> Reply:
        """Run what was captured."""
        self.gpu.replay(number(graph))
        return self.done()

    def properties(self, device: int) -> Reply:
        """The device's data sheet."""
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
        return self.done(found)

    def answers(self) -> Answers:
        """Answers by name."""
        done, gpu = self.done, self.gpu
        d = gpu.device
        return {
            "cudaGetDeviceCount": lambda: done(1),
            "cudaGetDevice": lambda: done(0),
            "cudaDeviceGetAttribute": self.attribute,
            "cudaGetDeviceProperties": self.properties,
            "cudaDriverGetVersion": lambda: done(DRIVER_VERSION),
            "cudaRuntimeGetVersion": lambda: done(DRIVER_VERSION),
            "cudaStreamCreate": lambda: done(runtime.cudaStream_t(gpu.handle())),
            "cudaStreamCreateWithFlags": lambda flags: done(runtime.cudaStream_t(gpu.handle())),
            "cudaStreamCreateWithPriority": lambda flags, priority: done(runtime.cudaStream_t(gpu.handle())),
            "cudaEventCreate": lambda: done(runtime.cudaEvent_t(gpu.handle())),
            "cudaEventCreateWithFlags": lambda flags: done(runtime.cudaEvent_t(gpu.handle())),
            "cudaEventRecord": self.record,
            "cudaEventElapsedTime": self.elapsed,
            "cudaMalloc": lambda size: done(gpu.allocate(int(size))),
            "cudaMallocAsync": lambda size, stream: done(gpu.allocate(int(size))),
            "cudaFree": self.free,
            "cudaFreeAsync": lambda address, stream: self.free(address),
            "cudaMemGetInfo": lambda: done(d.memory_bytes, d.memory_bytes),
            "cudaMemcpy": self.copy,
            "cudaMemcpyAsync": self.copy,
            "cudaMemset": self.fill(1),
            "cudaMemsetAsync": self.fill(1),
            "cudaStreamBeginCapture": self.begin_capture,
            "cudaStreamEndCapture": self.end_capture,
            "cudaGraphGetNodes": self.count_nodes,
            "cudaGraphLaunch": self.launch_graph,
            "cudaGraphInstantiate": lambda graph, flags=0: done(runtime.cudaGraphExec_t(number(graph))),
        }


_RUNTIME_SUCCEEDS = (
    "cudaSetDevice",
    "cudaDeviceSynchronize",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
    "cudaStreamQuery",
    "cudaStreamWaitEvent",
    "cudaEventSynchronize",
    "cudaEventQuery",
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
    return api.replacements({**api.answers(), **dict.fromkeys(_RUNTIME_SUCCEEDS, api.nothing)})
