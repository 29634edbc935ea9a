"""`emulated()`: CuTe DSL programs run on the CPU while it is active.

There are two ways to tell device memory apart. By default, CPU tensors stand for device tensors, whatever CuTe DSL
gets; the workbench's own candidates need this. With `cuda=True`, for unmodified programs, only tensors requested on
"cuda" are device memory (torch_device.py), `torch.cuda` (cuda_torch.py) and `cuda.bindings` (cuda_bindings.py) answer,
and host memory in a kernel is an error, as on a GPU.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cutlass.cutlass_dsl import cuda_jit_executor

from workbench.analysis import devices
from workbench.emulator.emulation import ACTIVE, OPERANDS, CompiledModule, Emulation
from workbench.emulator.execution.launch import DeviceLimits
from workbench.emulator.host import cuda_bindings
from workbench.emulator.host.device_tags import DeviceTags
from workbench.emulator.host.patches import Patches
from workbench.emulator.host.virtual_gpu import VirtualGpu
from workbench.errors import UserError
from workbench.records import Failure, Launch

SHARED_LIMITS = {
    "sm_80": 166_912,
    "sm_86": 101_376,
    "sm_89": 101_376,
    "sm_90": 232_448,
    "sm_90a": 232_448,
    "sm_100a": 232_448,
}


def preload() -> None:
    """Import what the first emulation and the first compiled call import, before a process is forked."""
    cuda_bindings.preload()
    names = ["numpy.ctypeslib"]
    if importlib.util.find_spec("tvm_ffi"):
        names += ["workbench.emulator.host.tvm_ffi", "cutlass.cute._tvm_ffi_args_spec_converter"]
    for name in names:
        importlib.import_module(name)


def _find_limits(device: str, arch: str) -> DeviceLimits:
    """The limits of a launch on a device, for code of an architecture."""
    known = devices.find(device)
    return DeviceLimits(
        name=device,
        shared_bytes_per_block=SHARED_LIMITS.get(arch, 232_448),
        sms=known.sms,
        shared_bytes_per_sm=known.shared_bytes_per_sm,
        threads_per_sm=known.threads_per_sm,
        l2_bytes=known.l2_bytes,
        l2_partitions=known.l2_partitions,
        blocks_per_sm=known.blocks_per_sm,
    )


@contextmanager
def emulated(
    *,
    arch: str = "sm_80",
    device: str = "H200",
    counters: bool = True,
    step_limit: int = 200_000_000,
    source_file: str | None = None,
    cuda: bool = False,
    strict: bool = True,
    sanitize: bool = False,
    sample: int | None = None,
    follow: bool = False,
    limit_s: float | None = None,
    skip_repeats: bool = False,
    l2_share: float | None = None,
    note_launch: Callable[[Launch], None] | None = None,
    note_fault: Callable[[Failure], None] | None = None,
) -> Iterator[Emulation]:
    """Run CuTe DSL programs on the CPU for `arch`. A launch that goes wrong raises `EmulationFault`.

    cuda: only tensors requested on "cuda" are device memory; torch.cuda and cuda.bindings answer as on a machine with
    one GPU `device`.

    sanitize: compile register fragments so that a read before the first write is found (strictness.py).

    follow: follow the first CTAs of each launch in time and through the caches (`Launch.paced`).

    sample: execute only so many CTAs of each launch, spread over the grid, and scale their counts. Results are then
    incomplete, and loads of unwritten memory are allowed. A CTA that waits for one outside the sample (a flag in global
    memory) is a fault of kind `livelock.KIND`.

    limit_s: seconds of CPU time after which a sampled launch ends with a fault of kind "too_long".

    skip_repeats: skip the middle of long loops in a followed sample once they repeat themselves. Counts and clocks go
    on as if they had run (sampling/steady_state.py). A loop that only waits for a value in global memory ends at its
    first test (sampling/flag_waits.py).

    l2_share: follow what all CTAs ask of L2 (`Launch.l2`), on the interpreter. The launch has this share of the
    device's L2 and CTAs in flight: 1, or less for a shrunk case.

    note_launch: is told of each launch when it has run; note_fault of each fault, before it is raised.

    strict: reading shared memory that nothing wrote is an error, otherwise advice: kernels do it in tiles that stick
    out, and drop the result.
    """
    if ACTIVE:
        raise UserError("an emulation is already active in this process: leave it first")
    limits = _find_limits(device, arch)
    emulation = Emulation(
        arch,
        limits,
        VirtualGpu(devices.find(device), arch),
        counters,
        step_limit,
        source_file,
        cuda,
        strict,
        sanitize=sanitize,
        sample=sample,
        follow=follow,
        limit_s=limit_s,
        skip_repeats=skip_repeats,
        l2_share=l2_share,
        note_launch=note_launch,
        note_fault=note_fault,
        tags=DeviceTags() if cuda else OPERANDS,
    )
    emulation.tags.drop_freed()
    patches = Patches()
    with tempfile.TemporaryDirectory(prefix="cutegen-") as folder:
        ACTIVE.append(emulation)
        try:
            patches.apply(emulation, folder)
            with emulation.enter_modes():
                yield emulation
        finally:
            patches.restore()
            ACTIVE.clear()


def _record_functions_of_tvm_ffi(modules: list[CompiledModule]) -> tuple[type, str, Callable[[Any], Any]]:
    """(class, name, method) that records functions which are compiled for TVM-FFI. It loads them itself."""
    from cutlass.cutlass_dsl import tvm_ffi_provider

    owner, name = tvm_ffi_provider.TVMFFIJitCompiledFunctionBase, "_create_tvm_ffi_function"
    create = getattr(owner, name)

    def create_function(self: Any) -> Any:
        modules.append(CompiledModule(self.__ptx__ or "", self.__cubin__ or b""))
        return create(self)

    return owner, name, create_function


@contextmanager
def record_modules() -> Iterator[list[CompiledModule]]:
    """Record PTX, cubin and line info of every module that is loaded on a real GPU. Launches go to the device."""
    modules: list[CompiledModule] = []
    patches = Patches()
    compiled = cuda_jit_executor.CudaDialectJitCompiledFunction
    load = compiled._load_cuda_library

    def load_library(self: Any) -> Any:
        modules.append(CompiledModule(self.__ptx__ or "", self.__cubin__ or b""))
        return load(self)

    with tempfile.TemporaryDirectory(prefix="cutegen-") as folder:
        try:
            patches.patch_compile_options(folder)
            patches.set(compiled, "_load_cuda_library", load_library)
            if importlib.util.find_spec("tvm_ffi"):
                patches.set(*_record_functions_of_tvm_ffi(modules))
            yield modules
        finally:
            patches.restore()


__all__ = ["CompiledModule", "Emulation", "emulated", "record_modules"]
