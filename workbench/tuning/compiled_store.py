"""What one process compiled, loaded by another without tracing or compiling: a tuning run's compilers keep, its measurers load.

`toolchain.compiled.reuse_compiled` saves only the compiler's part: half the time of a Hopper product is the tracing before it. Here one entry is what `cute.compile` gave for one call, the compiled MLIR module with
the host function and the cubin in it, under the function's name and the types of its arguments with the values of its constants; a call that asks for anything else finds nothing and is compiled as always.
Private names of CuTe DSL 4.8 are used, hence the pinned version.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import inspect
import io
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, TypeAlias

import cutlass
import cutlass.utils
import torch
from cuda.bindings.driver import CUstream
from cutlass._mlir import execution_engine, ir
from cutlass.base_dsl.jit_executor import JitFunctionArtifacts
from cutlass.cutlass_dsl import CuTeDSL, cuda_jit_executor

from workbench.records import record
from workbench.toolchain.compiled import MlirModule

CLUSTERS = (1, 2, 4, 8)  # sizes for which the device is asked how many are active at once

Function: TypeAlias = Callable[..., object]
Loaded: TypeAlias = Callable[[Function], Function]  # a compiled function, given the one that it was compiled from


class Compiled(Protocol):
    """What cute.compile gives."""

    ir_module: MlirModule
    function_name: str
    kernel_info: dict[str, object]
    has_gpu_module: bool
    __ptx__: str | None
    __cubin__: bytes | None

    def __call__(self, *arguments: object, **named: object) -> object:
        """Launch it."""


class CuteCompile(Protocol):
    """cute.compile."""

    def __call__(self, function: Function, *arguments: object, **named: object) -> Compiled:
        """Compile a function for these arguments."""

    def __getitem__(self, options: object) -> object:
        """The same with options."""


@record
class Entry:
    """One compiled function: MLIR bytecode, the host function's name, its kernels, and the binaries."""

    module: bytes
    name: str
    kernels: dict[str, object]
    on_device: bool
    ptx: str
    cubin: bytes
    seconds: float  # that cute.compile took


def folder_of(root: Path, source: str) -> Path:
    """Where a source's entries lie: for these versions of the compiler and of torch."""
    made_by = "/".join(version(name) for name in ("nvidia-cutlass-dsl", "torch"))
    return root / hashlib.sha256(f"{made_by}\n{source}".encode()).hexdigest()[:32]


def key_of(function: Function, arguments: tuple[object, ...]) -> str:
    """The call of cute.compile by what decides its result: tensors by dtype, alignment and layout, numbers of CuTe and streams by type, constants by value; "" where an argument is something else."""
    try:
        return hashlib.sha256("\n".join([function.__qualname__, *map(_said, arguments)]).encode()).hexdigest()[:32]
    except TypeError:
        return ""


def _said(value: object) -> str:
    known = getattr(value, "__cache_key__", None)
    if isinstance(value, (cutlass.Numeric, CUstream)):
        return f"{type(value).__module__}.{type(value).__name__}"
    if value is None or isinstance(value, (bool, int, float, str, type, torch.dtype, enum.Enum)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(_said, value))})"
    if known is None:
        raise TypeError(f"{type(value)} has no key")
    return str(known)


def entry_of(compiled: Compiled, seconds: float) -> Entry:
    """An entry from what cute.compile gave."""
    text = io.BytesIO()
    compiled.ir_module.operation.write_bytecode(text)
    return Entry(
        module=text.getvalue(),
        name=compiled.function_name,
        kernels=dict(compiled.kernel_info),
        on_device=compiled.has_gpu_module,
        ptx=compiled.__ptx__ or "",
        cubin=compiled.__cubin__ or b"",
        seconds=seconds,
    )


def write(path: Path, entry: Entry) -> None:
    """Put an entry where it is found whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(pickle.dumps(entry))
    os.replace(temporary, path)


def read(path: Path) -> Entry:
    """The entry. Raises where there is none or it cannot be read."""
    found: Entry = pickle.loads(path.read_bytes())
    return found


def callable_of(entry: Entry) -> Loaded:
    """The compiled function but for its signature, which is the jit function's: the slow part, which uses neither the GPU nor the source."""
    dsl = CuTeDSL._get_dsl()
    with ir.Context() as context, ir.Location.unknown():
        context.enable_multithreading(False)
        module = ir.Module.parse(entry.module)
        engine = execution_engine.ExecutionEngine(module, opt_level=2, shared_libs=dsl.get_shared_libs())
        pointer = engine.lookup(entry.name)
    artifacts = JitFunctionArtifacts(PTX=entry.ptx, CUBIN=entry.cubin, SASS=None, MLIR=None)

    def finished(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        made = cuda_jit_executor.CudaDialectJitCompiledFunction(
            module,
            engine,
            pointer,
            signature,
            entry.name,
            entry.kernels,
            False,
            artifacts,
            has_gpu_module=entry.on_device,
        )
        made.execution_args.set_adapter_scope(dsl._jit_arg_adapter_scope)
        launch: Function = made
        return launch

    return finished


class Held:
    """What cute.compile gave; while `holding`, calling it does nothing, so that forward compiles all its kernels and launches none."""

    holding = False

    def __init__(self, function: Function | None) -> None:
        self.function = function

    def __call__(self, *arguments: object, **named: object) -> object:
        if Held.holding:
            return None
        assert self.function is not None, "it was compiled by another process and cannot be launched here"
        return self.function(*arguments, **named)

    def __getattr__(self, name: str) -> object:
        return getattr(self.function, name)

    @classmethod
    @contextlib.contextmanager
    def all(cls) -> Iterator[None]:
        """Nothing is launched within."""
        cls.holding = True
        try:
            yield
        finally:
            cls.holding = False


class Compiler:
    """Stands for cute.compile: counts its seconds; keeps what it gives where `keep` says so, and takes what is in `loaded` instead of compiling."""

    def __init__(self, plain: CuteCompile) -> None:
        self.plain = plain
        self.seconds = 0.0
        self.keep: Path | None = None
        self.keys: list[str] = []  # of the calls since begin()
        self.loaded: dict[str, Loaded] = {}
        self.counts: Counter[str] = Counter()  # "loaded", "compiled"

    def begin(self, keep: Path | None = None) -> None:
        """A new target."""
        self.seconds, self.keep, self.keys = 0.0, keep, []

    def __call__(self, function: Function, *arguments: object, **named: object) -> Held:
        key = key_of(function, arguments) if not named else ""
        self.keys.append(key)
        if key and key in self.loaded:
            self.counts["loaded"] += 1
            return Held(self.loaded[key](function))
        path = self.keep / f"{key}.pickle" if self.keep is not None and key else None
        if path is not None and path.exists():
            with contextlib.suppress(Exception):
                self.seconds += read(path).seconds
                return Held(None)
        self.counts["compiled"] += 1
        start = time.perf_counter()
        made = self.plain(function, *arguments, **named)
        taken = time.perf_counter() - start
        self.seconds += taken
        if path is not None:
            write(path, entry_of(made, taken))
        return Held(made)

    def __getitem__(self, options: object) -> object:
        return self.plain[options]

    def __getattr__(self, name: str) -> object:
        return getattr(self.plain, name)


def ask_clusters() -> dict[int, int]:
    """How many clusters of each size are active at once; asking costs a compilation for each."""
    found = {}
    for size in CLUSTERS:
        with contextlib.suppress(Exception):  # a size that the device does not do
            found[size] = cutlass.utils.HardwareInfo().get_max_active_clusters(size)
    return found


def answer_clusters(known: dict[int, int]) -> None:
    """From now on the numbers are these: every candidate asks anew, and compilers have no device to ask."""
    plain = cutlass.utils.HardwareInfo.get_max_active_clusters

    @functools.wraps(plain)
    def answer(self: object, size: int, stream: object = None) -> int:
        return known[size] if size in known else plain(self, size, stream)

    cutlass.utils.HardwareInfo.get_max_active_clusters = answer
