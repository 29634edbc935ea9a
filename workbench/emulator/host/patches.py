"""The patches that make CuTe DSL use the emulator.

Each patch of CuTe DSL 4.8 (private names, hence the pinned version) is one line of `Patches`, and all are undone at the
end: compile options keep PTX, cubin and line info; DLPack tensors are marked as CUDA memory; the execution engine gets
our runtime symbols; a data sheet gives the device attributes; the compiled function names the PTX of its library.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
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

from workbench.analysis.time_model import fitted_model
from workbench.emulator.emulation import LIBRARIES, CompiledModule, Emulation, current_emulation, enter_active_modes
from workbench.emulator.execution.launch import EmulationFault
from workbench.emulator.execution.tensor_views import Arguments
from workbench.emulator.host import cuda_bindings
from workbench.emulator.host.cuda_torch import TorchCuda, generator_class
from workbench.emulator.host.dlpack import mark_capsule_cuda
from workbench.emulator.host.runtime import Runtime
from workbench.emulator.host.source_locations import memoise_source_locations
from workbench.emulator.host.strictness import poison_fragments, watch_arguments
from workbench.emulator.host.torch_device import make_library_impl, restore_modes, tensor_properties
from workbench.errors import NotEmulated
from workbench.interrupts import hold_during
from workbench.records import Failure

R = TypeVar("R")

# names of torch.cuda that answer although CPU tensors stand for device tensors; none of them asks for a device, which
# would start the driver, and a confined worker may not do that
STAND_IN_NAMES = (
    *("get_device_properties", "get_device_capability", "get_device_name"),
    *("Stream", "ExternalStream", "Event", "CUDAGraph", "graph", "device"),
    *("stream", "set_stream", "current_stream", "default_stream", "synchronize", "is_current_stream_capturing"),
)
COMPILE_NOTE = "torch.compile: what it was given runs eagerly, since its code generators need a GPU"


class Patches:
    """Replacements of attributes that can be undone."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []

    def set(self, owner: object, name: str, value: object) -> object:
        """Replace an attribute and return the old one.

        A property that can be deleted is not read, because it may ask the driver (CuTe DSL's `arch`); undoing deletes
        what was set.
        """
        missing = object()
        found = getattr(type(owner), name, None)
        if isinstance(found, property) and found.fdel is not None:
            old: object = missing
        else:
            old = owner.__dict__.get(name, missing) if isinstance(owner, type) else getattr(owner, name, missing)
        setattr(owner, name, value)
        self.undo.append(lambda: delattr(owner, name) if old is missing else setattr(owner, name, old))
        return old

    def set_all(self, module: ModuleType, values: Mapping[str, object]) -> None:
        """Replace many names of a module, all of which it has."""
        old = {name: getattr(module, name) for name in values}
        vars(module).update(values)
        self.undo.append(lambda: vars(module).update(old))

    def restore(self) -> None:
        """Undo all patches, the last one first."""
        while self.undo:
            self.undo.pop()()

    def apply(self, emulation: Emulation, folder: str) -> None:
        """Patch CuTe DSL, and torch if asked for, to use `emulation`."""
        runtime = _shared_runtime()
        runtime.pending = None
        self.patch_compile_options(folder)
        # CuTe DSL reads the environment variable only once per process
        self.set(CuTeDSL._get_dsl().envar, "arch", emulation.arch)
        for name in ("generate_mlir_function_types", "generate_original_ir", "compile_and_cache"):
            self.set(CuTeDSL, name, hold_during(getattr(CuTeDSL, name)))
        self._patch_engine(emulation, runtime)
        self._patch_tensors(emulation)
        watch_arguments(self.set, emulation.set_arguments)
        memoise_source_locations(self.set)
        if emulation.sanitize:
            poison_fragments(self.set)
        self._patch_driver(emulation)
        if emulation.cuda:
            self._patch_torch(emulation)
        else:
            self._patch_streams(emulation)

    def patch_compile_options(self, folder: str) -> None:
        """Make CuTe DSL keep PTX, cubin and line info in `folder`."""
        options = dsl_compiler.CompileOptions
        plain = options.apply_envar_settings

        def set_options(self: dsl_compiler.CompileOptions, envar: object, function_name: str) -> None:
            for kind in (dsl_compiler.KeepPTX, dsl_compiler.KeepCUBIN, dsl_compiler.GenerateLineInfo):
                self.options[kind].value = True
            self.options[dsl_compiler.DumpDir].value = folder
            plain(self, envar, function_name)

        self.set(options, "apply_envar_settings", set_options)

    def _patch_engine(self, emulation: Emulation, runtime: Runtime) -> None:
        engine = execution_engine.ExecutionEngine
        make = engine.__init__

        def init(self: execution_engine.ExecutionEngine, *args: object, **kwargs: object) -> None:
            make(self, *args, **{**kwargs, "opt_level": 0})  # launching is short: to optimise it takes longer
            runtime.register(self)

        self.set(engine, "__init__", init)
        compiled = cuda_jit_executor.CudaDialectJitCompiledFunction
        self.set(compiled, "num_devices", 1)
        load = compiled._load_cuda_library

        def load_library(self: cuda_jit_executor.CudaDialectJitCompiledFunction) -> list[object]:
            emulation.loading = CompiledModule(self.__ptx__ or "", self.__cubin__ or b"")
            try:
                load(self)
                return []  # no handles to unload: a real driver would crash on ours
            finally:
                emulation.loading = None

        self.set(compiled, "_load_cuda_library", load_library)
        # a launch outside any call that we see has unknown arguments
        forget_arguments = functools.partial(emulation.set_arguments, Arguments())
        for owner in (dsl_executor.JitExecutor, dsl_executor.JitCompiledFunction):
            if "run_compiled_program" in owner.__dict__:
                self.set(
                    owner,
                    "run_compiled_program",
                    _raise_pending(owner.run_compiled_program, runtime, after=forget_arguments),
                )
        if importlib.util.find_spec("tvm_ffi"):
            from workbench.emulator.host import tvm_ffi

            def note_compiled(function: dsl_executor.JitCompiledFunction) -> None:
                emulation.compiled.append(CompiledModule(function.__ptx__ or "", function.__cubin__ or b""))

            tvm_ffi.patch_tvm_ffi(
                self.set,
                functools.partial(_raise_pending, runtime=runtime, after=forget_arguments),
                note_compiled,
                emulation.set_arguments,
                emulation.tags,
                tagged_only=emulation.cuda,
            )
        self.set(
            dsl_cuda,
            "get_device_attribute",
            lambda attribute, device_id=0: emulation.gpu.attribute(int(attribute)) or 0,
        )

    def _patch_tensors(self, emulation: Emulation) -> None:
        tensor = cute_runtime._Tensor
        load = tensor.load_dltensor
        make = tensor.__init__

        def init(self: cute_runtime._Tensor, source: object, *args: object, **kwargs: object) -> None:
            make(self, source, *args, **kwargs)
            if isinstance(source, torch.Tensor) and emulation.tags.kind_of(source) is None:
                emulation.tags.tag(source, "host")

        def load_dltensor(self: cute_runtime._Tensor) -> None:
            if self._dltensor_wrapper is None:
                mark_capsule_cuda(self._dlpack_data)
            load(self)

        self.set(tensor, "__init__", init)
        if not emulation.cuda:
            self.set(tensor, "load_dltensor", load_dltensor)

    def _patch_streams(self, emulation: Emulation) -> None:
        """Answer for streams, events, graphs and the device's figures. Whether there is one is asked of torch."""
        answers = TorchCuda(emulation.gpu, emulation.tags).replacements()
        for name in STAND_IN_NAMES:
            self.set(torch.cuda, name, answers[name])
        self.set(torch.Tensor, "record_stream", lambda tensor, stream: None)

    def _patch_driver(self, emulation: Emulation) -> None:
        """Answer calls of `cuda.bindings`: a kernel asks it for the number of SMs while it is compiled
        (cutlass.utils.HardwareInfo).
        """
        for module, answers in (
            (cuda_driver, cuda_bindings.driver_answers(emulation.gpu)),
            (cuda_runtime, cuda_bindings.runtime_answers(emulation.gpu)),
        ):
            self.set_all(module, answers)

    def _patch_torch(self, emulation: Emulation) -> None:
        answer: object
        for name, answer in tensor_properties(emulation.tags).items():
            self.set(torch.Tensor, name, answer)
        for name, answer in TorchCuda(emulation.gpu, emulation.tags).replacements().items():
            self.set(torch.cuda, name, answer)
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
            self.set(torch.cuda.nvtx, name, lambda *_, **__: 0)  # marks for a profiler, which is absent here
        self.set(torch, "Generator", generator_class())
        self.set(torch.library.Library, "impl", make_library_impl(enter_active_modes))
        for operator in list(torch._library.custom_ops.OPDEFS.values()):  # those of modules that are imported already
            self._patch_kernels(operator._backend_fns)
        self.set(
            torch.autograd,
            "_engine_run_backward",
            restore_modes(enter_active_modes, torch.autograd._engine_run_backward),
        )
        for owner in (cutlass_runtime, cute_runtime):
            self.set(owner, "load_module", _refuse_module)
        self._patch_compile(emulation)
        self._patch_benchmarks(emulation)

    def _patch_kernels(self, kernels: dict[str | None, Callable[..., object]]) -> None:
        """Let the kernels of a custom operator, by device, run within torch's modes."""
        plain = dict(kernels)
        kernels.update({device: restore_modes(enter_active_modes, kernel) for device, kernel in plain.items()})
        self.undo.append(lambda: kernels.update(plain))

    def _patch_compile(self, emulation: Emulation) -> None:
        """Run what torch.compile would compile as it is: its code generators need a GPU."""

        def note() -> None:
            if COMPILE_NOTE not in emulation.notes:
                emulation.notes.append(COMPILE_NOTE)

        def compile_nothing(model: object = None, **_: object) -> object:
            note()
            return model if model is not None else lambda function: function

        def compile_module(module: torch.nn.Module, *_: object, **__: object) -> None:
            note()

        self.set(torch, "compile", compile_nothing)
        self.set(torch.nn.Module, "compile", compile_module)

    def _patch_benchmarks(self, emulation: Emulation) -> None:
        """Run benchmarks once, since their time is modelled, and label it so on standard error, next to the program's
        output.
        """

        def label_modelled(plain: Callable[..., float], **fixed: object) -> Callable[..., float]:
            def benchmark(*args: object, **kwargs: object) -> float:
                microseconds = plain(*args, **{**kwargs, **fixed})
                basis = f"roofline of {emulation.gpu.device.name}: counted bytes and FLOPs against the data sheet"
                if microseconds <= 0:  # a ratio of two benchmarks must not divide by zero
                    constants = fitted_model().constants
                    microseconds = (constants.launch_s + constants.call_s) * 1e6
                    basis = (
                        "no CuTe DSL kernel was launched, and torch's kernels are not modelled: this is the overhead of"
                        " one launch"
                    )
                note = f"modelled, not measured: benchmark = {microseconds:.3f} us ({basis})"
                emulation.notes.append(note)
                print(f"cutegen: {note}", file=sys.stderr)
                return microseconds

            return functools.wraps(plain)(benchmark)

        once = {"warmup_iterations": 0, "iterations": 1}
        timed = label_modelled(cutlass_testing.benchmark, **once, workspace_count=1, use_cupti=False)
        for owner in (cutlass_testing, cute_testing):
            self.set(owner, "benchmark", timed)
        self.set(
            cutlass_testing, "_benchmark_for_autotune", label_modelled(cutlass_testing._benchmark_for_autotune, **once)
        )


@functools.cache
def _shared_runtime() -> Runtime:
    """The callbacks of this process; the active emulation answers them."""
    runtime = Runtime(
        lambda which: current_emulation().gpu.attribute(which) or 0, lambda *launch: current_emulation().launch(*launch)
    )
    runtime.on_load = _on_load
    return runtime


def _on_load(image: bytes) -> None:
    emulation = current_emulation()
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


def _raise_pending(
    plain: Callable[..., R],
    runtime: Runtime,
    after: Callable[[], None] = lambda: None,
) -> Callable[..., R]:
    """Wraps a compiled call: it raises the exception that a callback stored, since none crosses a compiled frame.

    `after` is called in any case.
    """

    def call(*args: object, **kwargs: object) -> R:
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
