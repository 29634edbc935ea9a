"""LLVM through llvmlite: IR text -> object code -> addresses in this process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import platform
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from workbench.emulator.compiled import cache
from workbench.emulator.compiled.codegen.arithmetic import LOOP_NAMES
from workbench.emulator.compiled.codegen.emitter import EXPORTED

KERNEL_LEVEL = 0  # LLVM's code generation level for kernels: 1 takes twice as long

_LOCK = threading.Lock()
_LINKED: list[Any] = []  # what was linked; code lives as long as its entry


@functools.cache
def target() -> Any:
    """LLVM's target for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple())


def machine(level: int) -> Any:
    """A code generator for this CPU; level 0 compiles fastest, 3 makes the fastest code."""
    return target().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        reloc="pic",
        codemodel="small",
    )


def missing_support() -> str | None:
    """Why code cannot be compiled for this machine; None if it can."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"compiled code is for x86-64, not {platform.machine()}"
    features = llvm.get_host_cpu_features()
    missing = [name for name in ("avx2", "fma", "f16c") if not features.get(name)]
    return f"the CPU lacks {', '.join(missing)}" if missing else None


@functools.cache
def identity() -> str:
    """The inputs of object code besides its source: CPU, LLVM, and the text of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return repr(
        (
            llvm.get_host_cpu_name(),
            llvm.get_host_cpu_features().flatten(),
            llvmlite.__version__,
            llvm.llvm_version_info,
            digest.hexdigest(),
        )
    )


def compile_object(text: str, level: int, *, passes: bool) -> bytes:
    """Compiles IR text to object code; `passes` runs LLVM's optimisations first. It is thread-safe."""
    module = llvm.parse_assembly(text, llvm.create_context())
    generator = machine(level)
    if passes:
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = options.slp_vectorization = True
        builder = llvm.create_pass_builder(generator, options)
        builder.getModulePassManager().run(module, builder)
    return bytes(generator.emit_object(module))


def compile_all(texts: list[str]) -> list[bytes]:
    """Object code of the parts of a kernel, each compiled on its own thread."""
    target()
    with ThreadPoolExecutor(len(texts)) as pool:
        return list(pool.map(lambda text: compile_object(text, KERNEL_LEVEL, passes=False), texts))


@functools.cache
def _linker() -> Any:
    """Links object code. JITLink puts an object's code and data side by side, within reach of 32-bit offsets."""
    return llvm.create_lljit_compiler(machine(0), use_jit_link=True)


def load_object(code: bytes, *names: str) -> list[int]:
    """Link object code into this process; returns the addresses of the named symbols.

    Raises RuntimeError if the code cannot be used or lacks one of the symbols.
    """
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in names:
        builder.export_symbol(name)
    with _LOCK:
        linked = builder.link(_linker(), f"object_{len(_LINKED)}")
        _LINKED.append(linked)
    return [linked[name] for name in names]


class _Ufunc(ctypes.Structure):
    """The beginning of numpy's PyUFuncObject (numpy/ufuncobject.h)."""

    _fields_ = [
        ("count", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
    ]


@functools.cache
def numpy_loops() -> tuple[int, ...]:
    """(function, data) of numpy's double-precision inner loops, in the order of `LOOP_NAMES`; the interpreter uses the
    same code.
    """
    import numpy as np

    found: list[int] = []
    for name in LOOP_NAMES:
        function = getattr(np, name)
        loop = _Ufunc.from_address(id(function))
        if (loop.nin, loop.nout, loop.nargs, loop.ntypes) != (1, 1, 2, len(function.types)):
            raise RuntimeError(f"numpy {np.__version__} lays its functions out differently")
        at = function.types.index("d->d")
        found += [loop.functions[at] or 0, (loop.data[at] or 0) if loop.data else 0]
    return tuple(found)


def estimate_compile_s(instructions: int) -> float:
    """Estimated seconds to compile a kernel, with the helpers if they are not loaded yet (measured on two EPYC cores;
    AVX2 needs more code).
    """
    wide = bool(llvm.get_host_cpu_features().get("avx512f"))
    helpers = 0.0 if load_library.cache_info().currsize or cache.load(_helpers_key()) is not None else 0.7
    return helpers + 0.01 + instructions * (0.00011 if wide else 0.0004)


def _helpers_key() -> str:
    return cache.make_key("helpers", identity())


@functools.cache
def load_library() -> tuple[int, ...]:
    """Addresses of the helpers in the order of `EXPORTED`, then of `run_ctas`."""
    from workbench.emulator.compiled.runtime import access, helper_compiler, schedule, start, warp

    assert access and schedule and start and warp  # imported so that their helpers are registered
    name = _helpers_key()
    wanted = (*EXPORTED, "run_ctas")
    kept = cache.load(name)
    if kept is not None:
        with contextlib.suppress(RuntimeError):
            return tuple(load_object(kept[0], *wanted))
    target()
    code = compile_object(helper_compiler.translate_helpers(), 2, passes=True)
    cache.save(name, [code])
    return tuple(load_object(code, *wanted))
