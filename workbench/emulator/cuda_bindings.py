"""`cuda.bindings.driver` and `cuda.bindings.runtime` with no driver: the calls that CuTe DSL programs make are answered, every other one is refused by name."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import cuda.bindings.driver as driver
import cuda.bindings.runtime as runtime

from workbench.emulator.gpu import DRIVER_VERSION, VirtualGpu, number
from workbench.errors import NotEmulated

Answers = dict[str, Callable[..., Any]]
_WORKS_WITHOUT = ("cudaGetErrorName", "cudaGetErrorString")  # the runtime bindings answer these themselves
_COPIES = ("cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD")


def pointer(value: Any) -> int:
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

    def __init__(self, gpu: VirtualGpu, module: Any, success: Any, invalid: Any) -> None:
        self.gpu, self.module, self.success, self.invalid = gpu, module, success, invalid

    def done(self, *values: Any) -> tuple[Any, ...]:
        """The tuple that cuda.bindings returns."""
        return (self.success, *values)

    def attribute(self, which: Any, device: Any = 0) -> tuple[Any, ...]:
        """A device attribute; one that the table lacks is refused by name."""
        value = self.gpu.attribute(int(which))
        if value is None:
            raise NotEmulated(f"the emulated device does not answer the attribute {getattr(which, 'name', which)}")
        return self.done(value)

    def free(self, address: Any) -> tuple[Any, ...]:
        """Give memory back; a second time is an error, as it is on a GPU."""
        known = number(address) == 0 or self.gpu.free(number(address))
        return self.done() if known else (self.invalid,)

    def copy(self, to: Any, source: Any, size: int, *_: Any) -> tuple[Any, ...]:
        """memcpy in any direction."""
        self.gpu.copy(pointer(to), pointer(source), int(size))
        return self.done()

    def fill(self, width: int) -> Callable[..., Any]:
        """memset of `width`-byte values; the count is in values."""

        def call(to: Any, value: int, count: int, *_: Any) -> tuple[Any, ...]:
            self.gpu.fill(pointer(to), (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little"), int(count))
            return self.done()

        return call

    def record(self, event: Any, *_: Any) -> tuple[Any, ...]:
        """Note the modelled clock."""
        self.gpu.record(number(event))
        return self.done()

    def elapsed(self, start: Any, end: Any) -> tuple[Any, ...]:
        """Modelled milliseconds."""
        return self.done(self.gpu.elapsed_ms(number(start), number(end)))

    def replacements(self, answers: Answers) -> Answers:
        """The answers, and a refusal for each other function of the module."""
        prefix = "cuda" if self.module is runtime else "cu"
        names = [name for name in dir(self.module) if re.match(prefix + "[A-Z]", name) and type(getattr(self.module, name)).__name__ == "cython_function_or_method"]
        refused = {name: _refusal(f"{self.module.__name__}.{name}") for name in names if name not in _WORKS_WITHOUT}
        return {**refused, **{name: answer for name, answer in answers.items() if hasattr(self.module, name)}}


def _refusal(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotEmulated(f"{name} is not emulated: run this program on a GPU, or do without the call")

    return call


def driver_answers(gpu: VirtualGpu) -> Answers:
    """Replacements for `cuda.bindings.driver`."""
    api = _Api(gpu, driver, driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE)
    done = api.done
    context = driver.CUcontext(1)
    device = driver.CUdevice(0)
    d = gpu.device

    def nothing(*_: Any, **__: Any) -> tuple[Any, ...]:
        return done()

    def cluster_count(kernel: Any, config: Any) -> tuple[Any, ...]:
        sizes = [a.value.clusterDim.x * a.value.clusterDim.y * a.value.clusterDim.z for a in config.attrs if a.id == driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION]
        return done(d.sms // max([int(size) for size in sizes], default=1))  # an upper bound: GPCs of uneven size are not modelled

    def capture(stream: Any) -> tuple[Any, ...]:
        status = driver.CUstreamCaptureStatus
        active = number(stream) in gpu.capturing
        return done(status.CU_STREAM_CAPTURE_STATUS_ACTIVE, gpu.captures[number(stream)]) if active else done(status.CU_STREAM_CAPTURE_STATUS_NONE, 0)

    answers: Answers = {
        "cuStreamGetCaptureInfo": capture,
        "cuDriverGetVersion": lambda: done(DRIVER_VERSION), "cuDeviceGetCount": lambda: done(1), "cuDeviceGet": lambda ordinal: done(device),
        "cuDeviceGetName": lambda length, dev: done(f"NVIDIA {d.name} (emulated)".encode()[: int(length)]), "cuDeviceTotalMem": lambda dev: done(d.memory_bytes),
        "cuDeviceGetAttribute": api.attribute, "cuCtxCreate": lambda *_: done(context), "cuCtxGetCurrent": lambda: done(context), "cuCtxGetDevice": lambda *_: done(device),
        "cuCtxPopCurrent": lambda: done(context), "cuDevicePrimaryCtxRetain": lambda dev: done(context), "cuMemGetInfo": lambda: done(d.memory_bytes, d.memory_bytes),
        "cuStreamCreate": lambda flags=0: done(driver.CUstream(gpu.handle())), "cuStreamCreateWithPriority": lambda flags, priority: done(driver.CUstream(gpu.handle())),
        "cuEventCreate": lambda flags=0: done(driver.CUevent(gpu.handle())), "cuEventRecord": api.record, "cuEventElapsedTime": api.elapsed,
        "cuMemAlloc": lambda size: done(driver.CUdeviceptr(gpu.allocate(int(size)))), "cuMemAllocAsync": lambda size, stream: done(driver.CUdeviceptr(gpu.allocate(int(size)))),
        "cuMemFree": api.free, "cuMemFreeAsync": lambda address, stream: api.free(address),
        "cuGetErrorName": lambda error: done(error.name.encode()), "cuGetErrorString": lambda error: done(error.name.encode()),
        "cuLibraryLoadData": lambda *_: done(driver.CUlibrary(gpu.handle())), "cuLibraryEnumerateKernels": lambda count, library: done([driver.CUkernel(gpu.handle())] * int(count)),
        "cuKernelGetFunction": lambda kernel: done(driver.CUfunction(number(kernel))), "cuOccupancyAvailableDynamicSMemPerBlock": lambda *_: done(d.shared_bytes_per_block),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda kernel, threads, shared: done(min(d.blocks_per_sm, d.threads_per_sm // max(int(threads), 1), d.shared_bytes_per_sm // max(int(shared), 1))),
        "cuOccupancyMaxActiveClusters": cluster_count, "cuInit": nothing,
        **{name + ending: api.copy for name in _COPIES for ending in ("", "Async")},
        **{f"cuMemsetD{8 * width}{ending}": api.fill(width) for width in (1, 2, 4) for ending in ("", "Async")},
        **dict.fromkeys(("cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxSynchronize", "cuCtxDestroy", "cuDevicePrimaryCtxRelease", "cuStreamDestroy", "cuStreamSynchronize", "cuStreamQuery",
                         "cuStreamWaitEvent", "cuEventSynchronize", "cuEventQuery", "cuEventDestroy", "cuLibraryUnload", "cuFuncSetAttribute", "cuKernelSetAttribute"), nothing),
    }  # fmt: skip
    return api.replacements(answers)


def runtime_answers(gpu: VirtualGpu) -> Answers:
    """Replacements for `cuda.bindings.runtime`."""
    api = _Api(gpu, runtime, runtime.cudaError_t.cudaSuccess, runtime.cudaError_t.cudaErrorInvalidValue)
    done = api.done
    d = gpu.device

    def nothing(*_: Any, **__: Any) -> tuple[Any, ...]:
        return done()

    def begin(stream: Any, mode: Any) -> tuple[Any, ...]:
        gpu.begin_capture(number(stream))
        return done()

    def end(stream: Any) -> tuple[Any, ...]:
        return done(runtime.cudaGraph_t(gpu.end_capture(number(stream))))

    def nodes(graph: Any, count: int = 0) -> tuple[Any, ...]:
        return done(None, len(gpu.graphs[number(graph)]))

    def launch(graph: Any, stream: Any) -> tuple[Any, ...]:
        gpu.replay(number(graph))
        return done()

    def properties(device: int) -> tuple[Any, ...]:
        found = runtime.cudaDeviceProp()
        found.name = f"NVIDIA {d.name} (emulated)".encode()
        found.major, found.minor = gpu.capability()
        found.totalGlobalMem, found.multiProcessorCount, found.warpSize, found.l2CacheSize = d.memory_bytes, d.sms, 32, d.l2_bytes
        found.sharedMemPerBlock, found.sharedMemPerBlockOptin, found.sharedMemPerMultiprocessor = 49_152, d.shared_bytes_per_block, d.shared_bytes_per_sm
        found.regsPerBlock = found.regsPerMultiprocessor = d.registers_per_sm
        found.maxThreadsPerBlock, found.maxThreadsPerMultiProcessor, found.maxBlocksPerMultiProcessor = 1024, d.threads_per_sm, d.blocks_per_sm
        return done(found)

    answers: Answers = {
        "cudaGetDeviceCount": lambda: done(1), "cudaGetDevice": lambda: done(0), "cudaDeviceGetAttribute": api.attribute, "cudaGetDeviceProperties": properties,
        "cudaDriverGetVersion": lambda: done(DRIVER_VERSION), "cudaRuntimeGetVersion": lambda: done(DRIVER_VERSION),
        "cudaStreamCreate": lambda: done(runtime.cudaStream_t(gpu.handle())), "cudaStreamCreateWithFlags": lambda flags: done(runtime.cudaStream_t(gpu.handle())),
        "cudaStreamCreateWithPriority": lambda flags, priority: done(runtime.cudaStream_t(gpu.handle())),
        "cudaEventCreate": lambda: done(runtime.cudaEvent_t(gpu.handle())), "cudaEventCreateWithFlags": lambda flags: done(runtime.cudaEvent_t(gpu.handle())),
        "cudaEventRecord": api.record, "cudaEventElapsedTime": api.elapsed,
        "cudaMalloc": lambda size: done(gpu.allocate(int(size))), "cudaMallocAsync": lambda size, stream: done(gpu.allocate(int(size))), "cudaFree": api.free,
        "cudaFreeAsync": lambda address, stream: api.free(address), "cudaMemGetInfo": lambda: done(d.memory_bytes, d.memory_bytes),
        "cudaMemcpy": api.copy, "cudaMemcpyAsync": api.copy, "cudaMemset": api.fill(1), "cudaMemsetAsync": api.fill(1),
        "cudaStreamBeginCapture": begin, "cudaStreamEndCapture": end, "cudaGraphGetNodes": nodes, "cudaGraphLaunch": launch,
        "cudaGraphInstantiate": lambda graph, flags=0: done(runtime.cudaGraphExec_t(number(graph))),
        **dict.fromkeys(("cudaSetDevice", "cudaDeviceSynchronize", "cudaStreamDestroy", "cudaStreamSynchronize", "cudaStreamQuery", "cudaStreamWaitEvent", "cudaEventSynchronize", "cudaEventQuery",
                         "cudaEventDestroy", "cudaGetLastError", "cudaPeekAtLastError", "cudaLibraryUnload", "cudaGraphDestroy", "cudaGraphExecDestroy"), nothing),
    }  # fmt: skip
    return api.replacements(answers)
