"""`emulated()`: CuTe DSL programs run on the CPU while it is active.

Each patch of CuTe DSL 4.8 (private names, hence the pinned version) is one line of `_Patches`, and all are undone at the end:
compile options keep PTX, cubin and line info; DLPack tensors say that they are CUDA memory; the execution engine gets our runtime symbols;
device attributes come from a data sheet; the compiled function says which PTX its library was made from.

Two ways to tell device memory apart. Plain: CPU tensors stand for device tensors, whatever CuTe DSL is given (what the workbench's own candidates
need). With `cuda=True`, for unmodified programs: only what was asked for on "cuda" is device memory (facade.py), `torch.cuda` (cuda_torch.py) and
`cuda.bindings` (cuda_bindings.py) answer, and host memory in a kernel is the error that it is on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import cuda.bindings.driver as cuda_driver
import cuda.bindings.runtime as cuda_runtime
import cutlass.base_dsl.compiler as dsl_compiler
import cutlass.base_dsl.jit_executor as dsl_executor
import cutlass.base_dsl.runtime.cuda as dsl_cuda
import cutlass.cute.runtime as cute_runtime
import cutlass.cute.testing as cute_testing
import cutlass.runtime as cutlass_runtime
import cutlass.testing as cutlass_testing
import torch
from cutlass._mlir import execution_engine
from cutlass.cutlass_dsl import CuTeDSL, cuda_jit_executor

from workbench.analysis import devices
from workbench.emulator import cuda_bindings
from workbench.emulator.cuda_torch import TorchCuda, generator_class
from workbench.emulator.facade import Functions, Operations, operator_registration, tensor_properties, within
from workbench.emulator.gpu import VirtualGpu
from workbench.emulator.labels import Labels
from workbench.emulator.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.machine import Machine
from workbench.emulator.runtime import LaunchConfig, Runtime, cluster_of
from workbench.emulator.strictness import poison_fragments, watch_arguments
from workbench.emulator.tensors import AllocationWatch, as_cuda_capsule
from workbench.emulator.timing import roofline_seconds
from workbench.emulator.views import Arguments
from workbench.errors import NotEmulated, UserError
from workbench.interrupts import holding
from workbench.records import Failure, Finding, Launch

SHARED_LIMITS = {"sm_80": 166_912, "sm_86": 101_376, "sm_89": 101_376, "sm_90": 232_448, "sm_90a": 232_448, "sm_100a": 232_448}
_ACTIVE: list[Emulation] = []
_LIBRARIES: dict[bytes, CompiledModule] = {}  # image -> what it was compiled to; compiled functions outlive one emulation
_MACHINES: dict[tuple[str, str, str | None], Machine] = {}  # those that launched last; another is made again from its PTX
MACHINES = 64  # at most, since one of a large kernel takes megabytes


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
    gpu: VirtualGpu
    counters: bool
    step_limit: int
    source_file: str | None
    cuda: bool
    strict: bool
    sample: int | None = None
    follow: bool = False
    limit_s: float | None = None
    sanitize: bool = False
    arguments: Arguments = field(default_factory=Arguments)  # of the call of a compiled function that is running
    launches: list[Launch] = field(default_factory=list)
    faults: list[EmulationFault] = field(default_factory=list)  # also those that the program caught
    modules: list[CompiledModule] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    watch: AllocationWatch = field(default_factory=AllocationWatch)
    labels: Labels = field(default_factory=Labels)
    loading: CompiledModule | None = None  # known while CuTe DSL loads it
    compiled: list[CompiledModule] = field(default_factory=list)  # of functions that load their module themselves, at their first call
    _machines: dict[str, Machine] = field(default_factory=dict)

    def modes(self) -> ExitStack:
        """Torch's modes of this emulation, entered; closing the stack leaves them."""
        stack = ExitStack()
        if self.sample is None:  # what a sample leaves unwritten is no error, and filling it would touch all of it
            stack.enter_context(self.watch)
        if self.cuda:
            stack.enter_context(Operations(self.labels, self.gpu))
            stack.enter_context(Functions(self.labels))
        return stack

    @property
    def findings(self) -> list[Finding]:
        """Findings of all launches, errors first."""
        return [fault.finding for fault in self.faults if fault.finding] + [finding for launch in self.launches for finding in launch.findings]

    def files(self, kernel: str, line: int) -> list[str]:
        """The source files in which this kernel has instructions on line `line`: one, unless two files share a number."""
        machine = self._machines.get(kernel)
        instructions = machine.module.kernels[kernel].instructions if machine else []
        return sorted({ins.file for ins in instructions if ins.line == line and ins.file})

    def given(self, arguments: Arguments) -> None:
        """The arguments of the call that is about to run; none are known for functions that take them another way."""
        self.arguments = arguments

    def memory(self, arguments: Arguments | None = None) -> GlobalMemory:
        """All memory that a kernel may touch: labelled tensors that are still alive, and what the driver was asked for; of the tensors among `arguments` what they reach."""
        memory = GlobalMemory(arguments=arguments or Arguments())
        for found in self.labels.alive():
            if not (self.cuda and found.kind == "host"):
                memory.register(found.start, found.size, found.name, written=self.watch.written(found.start) if self.sample is None else None)
        for address, buffer in self.gpu.buffers.items():
            memory.register(address, len(buffer.data), buffer.name, written=buffer.written)
        return memory

    def launch(self, name: str, image: bytes, config: LaunchConfig, arguments: Any) -> None:
        """Run one grid on the machine, or keep it for a graph while its stream is being captured."""
        module = _LIBRARIES[image]
        if module not in self.modules:
            self.modules.append(module)
        key = (module.ptx, self.limits.name, self.source_file)
        machine = _MACHINES[key] = _MACHINES.pop(key) if key in _MACHINES else Machine(module.ptx, self.limits, self.source_file)
        while len(_MACHINES) > MACHINES:
            del _MACHINES[next(iter(_MACHINES))]
        self._machines[name] = machine
        kernel = machine.module.kernels[name]
        params = tuple(ctypes.string_at(arguments[n], size) for n, (_, size, _) in enumerate(kernel.params))
        request = GridRequest(
            entry=name, grid=(config.grid.x, config.grid.y, config.grid.z), block=(config.block.x, config.block.y, config.block.z), cluster=cluster_of(config),
            dynamic_shared_bytes=config.shared, params=params, step_limit=self.step_limit, counters=self.counters, source_file=self.source_file, strict_shared=self.strict, sanitize=self.sanitize,
            sample=self.sample, follow=self.follow, limit_s=self.limit_s,
        )  # fmt: skip
        captured = self.gpu.capturing.get(config.stream or 0)
        if captured is not None:
            captured.append(functools.partial(self._run, machine, request, self.arguments))
        else:
            self._run(machine, request, self.arguments)

    def _run(self, machine: Machine, request: GridRequest, arguments: Arguments) -> None:
        try:
            launch = machine.run(request, self.memory(arguments))
        except EmulationFault as fault:
            self.faults.append(self._explained(fault))
            raise self.faults[-1] from None
        self.launches.append(launch)
        self.gpu.clock_s += roofline_seconds(launch, self.gpu.device)
        if launch.printed:
            sys.stdout.write(launch.printed)  # where a GPU's printf goes too

    def _explained(self, fault: EmulationFault) -> EmulationFault:
        """An access to host memory, or to a tensor that is gone, is called that; every other fault is as it was."""
        finding = fault.finding
        if finding is None or finding.kind != "out_of_bounds" or finding.address is None:
            return fault
        kind, message, hint = "", "", ""
        host = [found for found in self.labels.alive() if found.kind == "host" and found.start <= finding.address < found.start + found.size] if self.cuda else []
        gone = self.labels.gone(finding.address)
        if host:
            kind, message, hint = "host_memory", f"the kernel touches host memory: {host[0].name} is on the CPU", 'put it on the device: .cuda(), or device="cuda"'
        elif gone and self.arguments.may_reach(finding.address) and self.memory().find(finding.address) is None:
            kind, message, hint = "use_after_free", f"the kernel touches memory that was freed: {gone} is gone", "keep the tensor alive until the last kernel that uses its address has run"
        if not kind:
            return fault
        message = f"{message}, by thread {finding.thread} of block {finding.block}"
        return EmulationFault(replace(fault.failure, kind=kind, message=message, hint=hint), replace(finding, kind=kind, message=message))


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
        for name in ("generate_mlir_function_types", "generate_original_ir", "compile_and_cache"):
            self.set(CuTeDSL, name, holding(getattr(CuTeDSL, name)))
        self._engine(emulation, runtime)
        self._tensors(emulation)
        watch_arguments(self.set, emulation.given)
        if emulation.sanitize:
            poison_fragments(self.set)
        self._driver(emulation)
        if emulation.cuda:
            self._facade(emulation)
        else:
            self._current_stream()

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
        unknown = functools.partial(emulation.given, Arguments())  # what the next launch is given, unless its call says so
        for owner in (dsl_executor.JitExecutor, dsl_executor.JitCompiledFunction):
            if "run_compiled_program" in owner.__dict__:
                self.set(owner, "run_compiled_program", _raising(owner.run_compiled_program, runtime, after=unknown))
        if importlib.util.find_spec("tvm_ffi"):
            from workbench.emulator import tvm

            def made(function: Any) -> None:
                emulation.compiled.append(CompiledModule(function.__ptx__ or "", function.__cubin__ or b""))

            tvm.divert(self.set, functools.partial(_raising, runtime=runtime, before=unknown), made, emulation.labels if emulation.cuda else None)
        self.set(dsl_cuda, "get_device_attribute", lambda attribute, device_id=0: emulation.gpu.attribute(int(attribute)) or 0)

    def _tensors(self, emulation: Emulation) -> None:
        tensor = cute_runtime._Tensor
        load = tensor.load_dltensor
        make = tensor.__init__

        def init(self: Any, source: Any, *args: Any, **kwargs: Any) -> None:
            make(self, source, *args, **kwargs)
            if isinstance(source, torch.Tensor) and emulation.labels.kind(source) is None:
                emulation.labels.put(source, "host")

        def load_dltensor(self: Any) -> None:
            if self._dltensor_wrapper is None:
                as_cuda_capsule(self._dlpack_data)
            load(self)

        self.set(tensor, "__init__", init)
        if not emulation.cuda:
            self.set(tensor, "load_dltensor", load_dltensor)

    def _current_stream(self) -> None:
        class Stream:
            """Stands for the current CUDA stream where there is none."""

            cuda_stream = 0

            def synchronize(self) -> None:
                """Everything has already happened."""

        # without asking whether there is a device: asking starts the driver, which a confined worker may not do
        self.set(torch.cuda, "current_stream", lambda device=None: Stream())
        self.set(torch.cuda, "synchronize", lambda device=None: None)

    def _driver(self, emulation: Emulation) -> None:
        """What `cuda.bindings` answers: a kernel asks it for the number of SMs while it is compiled (cutlass.utils.HardwareInfo)."""
        for module, answers in ((cuda_driver, cuda_bindings.driver_answers(emulation.gpu)), (cuda_runtime, cuda_bindings.runtime_answers(emulation.gpu))):
            for name, answer in answers.items():
                self.set(module, name, answer)

    def _facade(self, emulation: Emulation) -> None:
        answer: Any
        for name, answer in tensor_properties(emulation.labels).items():
            self.set(torch.Tensor, name, answer)
        for name, answer in TorchCuda(emulation.gpu, emulation.labels).functions().items():
            self.set(torch.cuda, name, answer)
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
            self.set(torch.cuda.nvtx, name, lambda *_, **__: 0)  # marks for a profiler, which there is none of
        self.set(torch, "Generator", generator_class())
        self.set(torch.library.Library, "impl", operator_registration(_inside))
        self.set(torch.autograd, "_engine_run_backward", within(_inside, torch.autograd._engine_run_backward))
        for owner in (cutlass_runtime, cute_runtime):
            self.set(owner, "load_module", _refuse_module)
        self._benchmarks(emulation)

    def _benchmarks(self, emulation: Emulation) -> None:
        """One call says what a hundred would, since the time is modelled; the label goes to standard error, next to what the program prints."""

        def modelled(plain: Callable[..., float], **fixed: Any) -> Callable[..., float]:
            def benchmark(*args: Any, **kwargs: Any) -> float:
                microseconds = plain(*args, **{**kwargs, **fixed})
                note = f"modelled, not measured: benchmark = {microseconds:.3f} us (roofline of {emulation.gpu.device.name}: counted bytes and FLOPs against the data sheet)"
                emulation.notes.append(note)
                print(f"cutegen: {note}", file=sys.stderr)
                return microseconds

            return functools.wraps(plain)(benchmark)

        once = {"warmup_iterations": 0, "iterations": 1}
        timed = modelled(cutlass_testing.benchmark, **once, workspace_count=1, use_cupti=False)
        for owner in (cutlass_testing, cute_testing):
            self.set(owner, "benchmark", timed)
        self.set(cutlass_testing, "_benchmark_for_autotune", modelled(cutlass_testing._benchmark_for_autotune, **once))


def _inside() -> ExitStack:
    """The modes of the emulation that is active, if one is."""
    return _ACTIVE[-1].modes() if _ACTIVE else ExitStack()


def _current() -> Emulation:
    if not _ACTIVE:
        raise UserError("a kernel that was compiled under emulation was launched outside it")
    return _ACTIVE[-1]


@functools.cache
def _runtime() -> Runtime:
    """One set of callbacks for the process, answered by whichever emulation is active."""
    runtime = Runtime(lambda which: _current().gpu.attribute(which) or 0, lambda *launch: _current().launch(*launch))
    runtime.on_load = _loaded
    return runtime


def _loaded(image: bytes) -> None:
    emulation = _current()
    module = emulation.loading or next((made for made in emulation.compiled if made.cubin and made.cubin in image), None)
    if module is None or not module.ptx:
        fault = EmulationFault(Failure(stage="launch", kind="no_ptx", message="the compiled module carries no PTX: it was compiled outside the emulator", hint="compile inside `emulated()`"))
        emulation.faults.append(fault)
        raise fault
    _LIBRARIES[image] = module


def _refuse_module(file_path: Any, **_: Any) -> Any:
    raise NotEmulated(f"{file_path}: a function compiled ahead of time carries no PTX, so it is not emulated; compile it in this program (turn the program's compile cache off)")


def _raising(plain: Callable[..., Any], runtime: Runtime, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> Callable[..., Any]:
    """Raises what a callback had to keep, since no Python exception crosses a compiled frame; `before` and `after` are called either way."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before()
        try:
            result = plain(*args, **kwargs)
        except Exception:
            pending, runtime.pending = runtime.pending, None
            if pending is not None:
                raise pending from None
            raise
        finally:
            after()
        pending, runtime.pending = runtime.pending, None
        if pending is not None:
            raise pending
        return result

    return call


@contextmanager
def emulated(*, arch: str = "sm_80", device: str = "H200", counters: bool = True, step_limit: int = 200_000_000, source_file: str | None = None, cuda: bool = False, strict: bool = True, sanitize: bool = False,
             sample: int | None = None, follow: bool = False, limit_s: float | None = None) -> Iterator[Emulation]:  # fmt: skip
    """Run CuTe DSL programs on the CPU for `arch`; raises `EmulationFault` from the launch that went wrong.

    With `cuda`, only what was asked for on "cuda" is device memory, and torch.cuda and cuda.bindings answer as on a machine with one GPU `device`.
    With `sanitize`, fragments in registers are compiled so that reading them before they are written is found (strictness.py).
    With `follow`, the first CTAs of each launch are followed in time and through the caches (`Launch.paced`). With `sample`, so many CTAs of each launch, spread over the grid, are all that is
    executed, and what they count is scaled: results are then incomplete, and loads of what was not written are allowed. A sampled launch whose CTAs wait for
    one that is not in the sample (flags in global memory) is a fault of kind `standstill.KIND`; `limit_s` ends one that takes longer, as a fault of kind "too_long".
    Without `strict`, reading shared memory that nothing wrote is advice, not an error: kernels do it in tiles that stick out, and drop what they read.
    """
    if _ACTIVE:
        raise UserError("an emulation is already active in this process: leave it first")
    known = devices.find(device)
    limits = DeviceLimits(name=device, shared_bytes_per_block=SHARED_LIMITS.get(arch, 232_448), sms=known.sms, shared_bytes_per_sm=known.shared_bytes_per_sm,
                          threads_per_sm=known.threads_per_sm, l2_bytes=known.l2_bytes, blocks_per_sm=known.blocks_per_sm)  # fmt: skip
    emulation = Emulation(arch, limits, VirtualGpu(known, arch), counters, step_limit, source_file, cuda, strict, sanitize=sanitize, sample=sample, follow=follow, limit_s=limit_s)
    patches = _Patches()
    with tempfile.TemporaryDirectory(prefix="cutegen-") as folder:
        _ACTIVE.append(emulation)
        try:
            patches.apply(emulation, folder)
            with emulation.modes():
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
