"""`emulated()`: CuTe DSL programs run on the CPU while it is active; CPU torch tensors stand for device tensors.

Each patch of CuTe DSL 4.8 (private names, hence the pinned version) is one line of `_Patches.apply`, and all are undone at the end:
compile options keep PTX, cubin and line info; DLPack tensors say that they are CUDA memory; the execution engine gets our runtime symbols;
device attributes come from `DeviceLimits`; the compiled function says which PTX its library was made from.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import cutlass.base_dsl.compiler as dsl_compiler
import cutlass.base_dsl.jit_executor as dsl_executor
import cutlass.base_dsl.runtime.cuda as dsl_cuda
import cutlass.cute.runtime as cute_runtime
import torch
from cutlass._mlir import execution_engine
from cutlass.cutlass_dsl import CuTeDSL, cuda_jit_executor

from workbench.emulator.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.machine import Machine
from workbench.emulator.runtime import LaunchConfig, Runtime, cluster_of
from workbench.emulator.tensors import AllocationWatch, as_cuda_capsule, storage_range
from workbench.errors import UserError
from workbench.records import Failure, Finding, Launch

SHARED_LIMITS = {"sm_80": 166_912, "sm_86": 101_376, "sm_89": 101_376, "sm_90": 232_448, "sm_90a": 232_448, "sm_100a": 232_448}
_ACTIVE: list[Emulation] = []
_LIBRARIES: dict[bytes, CompiledModule] = {}  # image -> what it was compiled to; compiled functions outlive one emulation
_MACHINES: dict[tuple[str, str, str | None], Machine] = {}


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """One module that the program loaded."""

    ptx: str
    cubin: bytes


@dataclass(slots=True)
class Emulation:
    """What happened while `emulated()` was active."""

    arch: str
    limits: DeviceLimits
    counters: bool
    step_limit: int
    source_file: str | None
    launches: list[Launch] = field(default_factory=list)
    modules: list[CompiledModule] = field(default_factory=list)
    watch: AllocationWatch = field(default_factory=AllocationWatch)
    seen: list[tuple[Any, str]] = field(default_factory=list)
    loading: CompiledModule | None = None

    @property
    def findings(self) -> list[Finding]:
        """Findings of all launches."""
        return [finding for launch in self.launches for finding in launch.findings]

    def attribute(self, which: int) -> int:
        """A CUDA device attribute by number (cudaDeviceAttr, driver_types.h)."""
        limits = self.limits
        table = {97: limits.shared_bytes_per_block, 8: 49_152, 81: limits.shared_bytes_per_block, 16: limits.sms, 1: limits.threads_per_block, 10: 32, 12: 65_536, 82: 65_536, 39: 2048}
        major, minor = _capability(self.arch)
        return {75: major, 76: minor}.get(which, table.get(which, 0))

    def memory(self) -> GlobalMemory:
        """All tensors that CuTe DSL has been given and that are still alive."""
        memory = GlobalMemory()
        for tensor, name in self.seen:
            start, size = storage_range(tensor)
            memory.register(start, size, name, written=self.watch.written(start))
        for start, size, name in self.watch.alive():
            memory.register(start, size, name, written=self.watch.written(start))
        return memory

    def launch(self, name: str, image: bytes, config: LaunchConfig, arguments: Any) -> None:
        """Run one grid on the machine."""
        module = _LIBRARIES[image]
        if module not in self.modules:
            self.modules.append(module)
        key = (module.ptx, self.limits.name, self.source_file)
        machine = _MACHINES.get(key)
        if machine is None:
            machine = _MACHINES[key] = Machine(module.ptx, self.limits, self.source_file)
        kernel = machine.module.kernels[name]
        params = tuple(ctypes.string_at(arguments[n], size) for n, (_, size, _) in enumerate(kernel.params))
        request = GridRequest(
            entry=name, grid=(config.grid.x, config.grid.y, config.grid.z), block=(config.block.x, config.block.y, config.block.z), cluster=cluster_of(config),
            dynamic_shared_bytes=config.shared, params=params, step_limit=self.step_limit, counters=self.counters, source_file=self.source_file,
        )  # fmt: skip
        launch = machine.run(request, self.memory())
        self.launches.append(launch)
        if launch.printed:
            sys.stdout.write(launch.printed)  # where a GPU's printf goes too


def _capability(arch: str) -> tuple[int, int]:
    digits = "".join(char for char in arch if char.isdigit())
    return int(digits[:-1]), int(digits[-1])


class _Patches:
    """Attribute replacements that can be undone."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute and return the old one."""
        missing = object()
        old = owner.__dict__.get(name, missing) if isinstance(owner, type) else getattr(owner, name, missing)
        setattr(owner, name, value)
        self.undo.append(lambda: delattr(owner, name) if old is missing else setattr(owner, name, old))
        return old

    def restore(self) -> None:
        """Undo everything, last first."""
        while self.undo:
            self.undo.pop()()

    def apply(self, emulation: Emulation, folder: str) -> None:
        """Divert CuTe DSL to `emulation`."""
        runtime = _runtime()
        runtime.pending = None
        self._compile_options(folder)
        self.set(CuTeDSL._get_dsl().envar, "arch", emulation.arch)  # the environment variable is read only once per process
        self._engine(emulation, runtime)
        self._tensors(emulation)
        self._torch()

    def _compile_options(self, folder: str) -> None:
        options = dsl_compiler.CompileOptions
        plain = options.apply_envar_settings

        def keep(self: Any, envar: Any, function_name: str) -> None:
            for kind in (dsl_compiler.KeepPTX, dsl_compiler.KeepCUBIN, dsl_compiler.GenerateLineInfo):
                self.options[kind].value = True
            self.options[dsl_compiler.DumpDir].value = folder
            plain(self, envar, function_name)

        self.set(options, "apply_envar_settings", keep)

    def _engine(self, emulation: Emulation, runtime: Runtime) -> None:
        engine = execution_engine.ExecutionEngine
        make = engine.__init__

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            make(self, *args, **kwargs)
            runtime.register(self)

        self.set(engine, "__init__", init)
        compiled = cuda_jit_executor.CudaDialectJitCompiledFunction
        self.set(compiled, "num_devices", 1)
        load = compiled._load_cuda_library

        def load_library(self: Any) -> Any:
            emulation.loading = CompiledModule(self.__ptx__ or "", self.__cubin__ or b"")
            try:
                load(self)
                return []  # no handles to unload: ours mean nothing to a real driver, which would crash on them
            finally:
                emulation.loading = None

        self.set(compiled, "_load_cuda_library", load_library)
        for owner in (dsl_executor.JitExecutor, dsl_executor.JitCompiledFunction):
            if "run_compiled_program" in owner.__dict__:
                self.set(owner, "run_compiled_program", _raising(owner.run_compiled_program, runtime))
        self.set(dsl_cuda, "get_device_attribute", lambda attribute, device_id=0: emulation.attribute(int(attribute)))

    def _tensors(self, emulation: Emulation) -> None:
        tensor = cute_runtime._Tensor
        load = tensor.load_dltensor
        make = tensor.__init__

        def init(self: Any, source: Any, *args: Any, **kwargs: Any) -> None:
            make(self, source, *args, **kwargs)
            if isinstance(source, torch.Tensor):
                emulation.seen.append((source, f"tensor{list(source.shape)} {str(source.dtype).removeprefix('torch.')}"))

        def load_dltensor(self: Any) -> None:
            if self._dltensor_wrapper is None:
                as_cuda_capsule(self._dlpack_data)
            load(self)

        self.set(tensor, "__init__", init)
        self.set(tensor, "load_dltensor", load_dltensor)

    def _torch(self) -> None:
        class Stream:
            """Stands for the current CUDA stream where there is none."""

            cuda_stream = 0

            def synchronize(self) -> None:
                """Everything has already happened."""

        # without asking whether there is a device: asking starts the driver, which a confined worker may not do
        self.set(torch.cuda, "current_stream", lambda device=None: Stream())
        self.set(torch.cuda, "synchronize", lambda device=None: None)


def _current() -> Emulation:
    if not _ACTIVE:
        raise UserError("a kernel that was compiled under emulation was launched outside it")
    return _ACTIVE[-1]


@functools.cache
def _runtime() -> Runtime:
    """One set of callbacks for the process, answered by whichever emulation is active."""
    runtime = Runtime(lambda which: _current().attribute(which), lambda *launch: _current().launch(*launch))
    runtime.on_load = _loaded
    return runtime


def _loaded(image: bytes) -> None:
    module = _current().loading
    if module is None or not module.ptx:
        raise EmulationFault(Failure(stage="launch", kind="no_ptx", message="the compiled module carries no PTX: it was compiled outside the emulator", hint="compile inside `emulated()`"))
    _LIBRARIES[image] = module


def _raising(plain: Callable[..., Any], runtime: Runtime) -> Callable[..., Any]:
    def run_compiled_program(self: Any, exe_args: Any) -> Any:
        try:
            result = plain(self, exe_args)
        except Exception:
            pending, runtime.pending = runtime.pending, None
            if pending is not None:
                raise pending from None
            raise
        pending, runtime.pending = runtime.pending, None
        if pending is not None:
            raise pending
        return result

    return run_compiled_program


@contextmanager
def emulated(*, arch: str = "sm_80", device: str = "H200", counters: bool = True, step_limit: int = 200_000_000, source_file: str | None = None) -> Iterator[Emulation]:
    """Run CuTe DSL programs on the CPU for `arch`; raises `EmulationFault` from the launch that went wrong."""
    if _ACTIVE:
        raise UserError("an emulation is already active in this process: leave it first")
    limits = DeviceLimits(name=device, shared_bytes_per_block=SHARED_LIMITS.get(arch, 232_448))
    emulation = Emulation(arch, limits, counters, step_limit, source_file)
    patches = _Patches()
    with tempfile.TemporaryDirectory(prefix="cutegen-") as folder:
        _ACTIVE.append(emulation)
        try:
            patches.apply(emulation, folder)
            with emulation.watch:
                yield emulation
        finally:
            patches.restore()
            _ACTIVE.clear()


@contextmanager
def recording() -> Iterator[list[CompiledModule]]:
    """On a real GPU: keep PTX, cubin and line info of every module that is loaded; launches go to the device as always."""
    modules: list[CompiledModule] = []
    patches = _Patches()
    compiled = cuda_jit_executor.CudaDialectJitCompiledFunction
    load = compiled._load_cuda_library

    def load_library(self: Any) -> Any:
        modules.append(CompiledModule(self.__ptx__ or "", self.__cubin__ or b""))
        return load(self)

    with tempfile.TemporaryDirectory(prefix="cutegen-") as folder:
        try:
            patches._compile_options(folder)
            patches.set(compiled, "_load_cuda_library", load_library)
            yield modules
        finally:
            patches.restore()


__all__ = ["CompiledModule", "Emulation", "emulated", "recording"]
