"""How CuTe DSL is diverted.

Each patch of CuTe DSL 4.8 (private names, hence the pinned version) is one line of `Patches`, and all are undone at the
end: compile options keep PTX, cubin and line info; DLPack tensors say that they are CUDA memory; the execution engine
gets our runtime symbols; device attributes come from a data sheet; the compiled function says which PTX its library was
made from.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

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

from workbench.analysis.sampled import LAUNCH_S
from workbench.emulator.emulation import LIBRARIES, CompiledModule, Emulation, current, inside
from workbench.emulator.execution.launch import EmulationFault
from workbench.emulator.execution.tensor_views import Arguments
from workbench.emulator.host import cuda_bindings
from workbench.emulator.host.cuda_torch import TorchCuda, generator_class
from workbench.emulator.host.dlpack import as_cuda_capsule
from workbench.emulator.host.runtime import Runtime
from workbench.emulator.host.source_locations import remember_source_locations
from workbench.emulator.host.strictness import poison_fragments, watch_arguments
from workbench.emulator.host.torch_device import operator_registration, tensor_properties, within
from workbench.errors import NotEmulated
from workbench.interrupts import hold_during
from workbench.records import Failure

R = TypeVar("R")


class Patches:
    """Attribute replacements that can be undone."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []

    def set(self, owner: object, name: str, value: object) -> object:
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
        self.compile_options(folder)
        self.set(
            CuTeDSL._get_dsl().envar, "arch", emulation.arch
        )  # the environment variable is read only once per process
        for name in ("generate_mlir_function_types", "generate_original_ir", "compile_and_cache"):
            self.set(CuTeDSL, name, hold_during(getattr(CuTeDSL, name)))
        self._engine(emulation, runtime)
        self._tensors(emulation)
        watch_arguments(self.set, emulation.given)
        remember_source_locations(self.set)
        if emulation.sanitize:
            poison_fragments(self.set)
        self._driver(emulation)
        if emulation.cuda:
            self._divert_torch(emulation)
        else:
            self._current_stream()

    def compile_options(self, folder: str) -> None:
        options = dsl_compiler.CompileOptions
        plain = options.apply_envar_settings

        def keep(self: dsl_compiler.CompileOptions, envar: object, function_name: str) -> None:
            for kind in (dsl_compiler.KeepPTX, dsl_compiler.KeepCUBIN, dsl_compiler.GenerateLineInfo):
                self.options[kind].value = True
            self.options[dsl_compiler.DumpDir].value = folder
            plain(self, envar, function_name)

        self.set(options, "apply_envar_settings", keep)

    def _engine(self, emulation: Emulation, runtime: Runtime) -> None:
        engine = execution_engine.ExecutionEngine
        make = engine.__init__

        def init(self: execution_engine.ExecutionEngine, *args: object, **kwargs: object) -> None:
            make(self, *args, **kwargs)
            runtime.register(self)

        self.set(engine, "__init__", init)
        compiled = cuda_jit_executor.CudaDialectJitCompiledFunction
        self.set(compiled, "num_devices", 1)
        load = compiled._load_cuda_library

        def load_library(self: cuda_jit_executor.CudaDialectJitCompiledFunction) -> list[object]:
            emulation.loading = CompiledModule(self.__ptx__ or "", self.__cubin__ or b"")
            try:
                load(self)
                return []  # no handles to unload: ours mean nothing to a real driver, which would crash on them
            finally:
                emulation.loading = None

        self.set(compiled, "_load_cuda_library", load_library)
        unknown = functools.partial(
            emulation.given, Arguments()
        )  # what the next launch is given, unless its call says so
        for owner in (dsl_executor.JitExecutor, dsl_executor.JitCompiledFunction):
            if "run_compiled_program" in owner.__dict__:
                self.set(owner, "run_compiled_program", _raising(owner.run_compiled_program, runtime, after=unknown))
        if importlib.util.find_spec("tvm_ffi"):
            from workbench.emulator.host import tvm_ffi

            def made(function: dsl_executor.JitCompiledFunction) -> None:
                emulation.compiled.append(CompiledModule(function.__ptx__ or "", function.__cubin__ or b""))

            tvm_ffi.divert(
                self.set,
                functools.partial(_raising, runtime=runtime, before=unknown),
                made,
                emulation.tags if emulation.cuda else None,
            )
        self.set(
            dsl_cuda,
            "get_device_attribute",
            lambda attribute, device_id=0: emulation.gpu.attribute(int(attribute)) or 0,
        )

    def _tensors(self, emulation: Emulation) -> None:
        tensor = cute_runtime._Tensor
        load = tensor.load_dltensor
        make = tensor.__init__

        def init(self: cute_runtime._Tensor, source: object, *args: object, **kwargs: object) -> None:
            make(self, source, *args, **kwargs)
            if isinstance(source, torch.Tensor) and emulation.tags.kind(source) is None:
                emulation.tags.put(source, "host")

        def load_dltensor(self: cute_runtime._Tensor) -> None:
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
        """What `cuda.bindings` answers: a kernel asks it for the number of SMs while it is compiled
        (cutlass.utils.HardwareInfo).
        """
        for module, answers in (
            (cuda_driver, cuda_bindings.driver_answers(emulation.gpu)),
            (cuda_runtime, cuda_bindings.runtime_answers(emulation.gpu)),
        ):
            for name, answer in answers.items():
                self.set(module, name, answer)

    def _divert_torch(self, emulation: Emulation) -> None:
        answer: object
        for name, answer in tensor_properties(emulation.tags).items():
            self.set(torch.Tensor, name, answer)
        for name, answer in TorchCuda(emulation.gpu, emulation.tags).functions().items():
            self.set(torch.cuda, name, answer)
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
            self.set(torch.cuda.nvtx, name, lambda *_, **__: 0)  # marks for a profiler, which there is none of
        self.set(torch, "Generator", generator_class())
        self.set(torch.library.Library, "impl", operator_registration(inside))
        self.set(torch.autograd, "_engine_run_backward", within(inside, torch.autograd._engine_run_backward))
        for owner in (cutlass_runtime, cute_runtime):
            self.set(owner, "load_module", _refuse_module)
        self._benchmarks(emulation)

    def _benchmarks(self, emulation: Emulation) -> None:
        """One call says what a hundred would, since the time is modelled; the tag goes to standard error, next to what
        the program prints.
        """

        def modelled(plain: Callable[..., float], **fixed: object) -> Callable[..., float]:
            def benchmark(*args: object, **kwargs: object) -> float:
                microseconds = plain(*args, **{**kwargs, **fixed})
                basis = f"roofline of {emulation.gpu.device.name}: counted bytes and FLOPs against the data sheet"
                if microseconds <= 0:  # a ratio of two benchmarks must not divide by zero
                    microseconds = LAUNCH_S * 1e6
                    basis = (
                        "no CuTe DSL kernel was launched, and torch's kernels are not modelled: the time is the overhead"
                        " of one launch"
                    )
                note = f"modelled, not measured: benchmark = {microseconds:.3f} us ({basis})"
                emulation.notes.append(note)
                print(f"cutegen: {note}", file=sys.stderr)
                return microseconds

            return functools.wraps(plain)(benchmark)

        once = {"warmup_iterations": 0, "iterations": 1}
        timed = modelled(cutlass_testing.benchmark, **once, workspace_count=1, use_cupti=False)
        for owner in (cutlass_testing, cute_testing):
            self.set(owner, "benchmark", timed)
        self.set(cutlass_testing, "_benchmark_for_autotune", modelled(cutlass_testing._benchmark_for_autotune, **once))


@functools.cache
def _runtime() -> Runtime:
    """One set of callbacks for the process, answered by whichever emulation is active."""
    runtime = Runtime(lambda which: current().gpu.attribute(which) or 0, lambda *launch: current().launch(*launch))
    runtime.on_load = _loaded
    return runtime


def _loaded(image: bytes) -> None:
    emulation = current()
    module = emulation.loading or next(
        (made for made in emulation.compiled if made.cubin and made.cubin in image), None
    )
    if module is None or not module.ptx:
        fault = EmulationFault(
            Failure(
                stage="launch",
                kind="no_ptx",
                message="the compiled module carries no PTX: it was compiled outside the emulator",
                hint="compile inside `emulated()`",
            )
        )
        emulation.faults.append(fault)
        raise fault
    LIBRARIES[image] = module


def _refuse_module(file_path: object, **_: object) -> NoReturn:
    raise NotEmulated(
        f"{file_path}: a function compiled ahead of time carries no PTX, so it is not emulated; compile it in this"
        " program (turn the program's compile cache off)"
    )


def _raising(
    plain: Callable[..., R],
    runtime: Runtime,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> Callable[..., R]:
    """Raises what a callback had to keep, since no Python exception crosses a compiled frame; `before` and `after` are
    called either way.
    """

    def call(*args: object, **kwargs: object) -> R:
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
