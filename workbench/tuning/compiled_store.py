"""Stores compiled functions: a tuning run's compilers write them, its measurers load them without tracing or compiling.

`toolchain.compiled.reuse_compiled` saves only the compiler's part, but half the time of a Hopper product is the tracing
before it. Here one entry is the result of one call of `cute.compile`: the compiled MLIR module with the host function
and the cubin in it. Its key is the function's name, the types of its arguments and the values of its constants. A call
with another key finds nothing and is compiled as always. The module uses private names of CuTe DSL 4.8, hence the
pinned version.
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

CLUSTERS = (1, 2, 4, 8)  # cluster sizes for which the device is asked how many are active at once

Function: TypeAlias = Callable[..., object]
Loaded: TypeAlias = Callable[[Function], Function]  # takes the jit function, returns the compiled one


class Compiled(Protocol):
    """The result of cute.compile."""

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
    seconds: float  # spent in cute.compile


def folder_of(root: Path, source: str) -> Path:
    """Folder of a source's entries, for these versions of the compiler and of torch."""
    made_by = "/".join(version(name) for name in ("nvidia-cutlass-dsl", "torch"))
    return root / hashlib.sha256(f"{made_by}\n{source}".encode()).hexdigest()[:32]


def key_of(function: Function, arguments: tuple[object, ...]) -> str:
    """Hash of a call of cute.compile; "" if an argument is of a kind that has no key.

    Tensors enter by dtype, alignment and layout, numbers of CuTe and streams by type, constants by value.
    """
    try:
        return hashlib.sha256(
            "\n".join([function.__qualname__, *map(_describe_argument, arguments)]).encode()
        ).hexdigest()[:32]
    except TypeError:
        return ""


def _describe_argument(value: object) -> str:
    known = getattr(value, "__cache_key__", None)
    if isinstance(value, (cutlass.Numeric, CUstream)):
        return f"{type(value).__module__}.{type(value).__name__}"
    if value is None or isinstance(value, (bool, int, float, str, type, torch.dtype, enum.Enum)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(_describe_argument, value))})"
    if known is None:
        raise TypeError(f"{type(value)} has no key")
    return str(known)


def entry_of(compiled: Compiled, seconds: float) -> Entry:
    """The entry for a result of cute.compile."""
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
    """Write an entry atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(pickle.dumps(entry))
    os.replace(temporary, path)


def read(path: Path) -> Entry:
    """Read an entry. Raises if there is none or it cannot be read."""
    found: Entry = pickle.loads(path.read_bytes())
    return found


def load_function(entry: Entry) -> Loaded:
    """Load a compiled function. The result takes the jit function, for its signature, and returns the compiled one.

    This is the slow part. It uses neither the GPU nor the source.
    """
    dsl = CuTeDSL._get_dsl()
    with ir.Context() as context, ir.Location.unknown():
        context.enable_multithreading(False)
        module = ir.Module.parse(entry.module)
        engine = execution_engine.ExecutionEngine(module, opt_level=2, shared_libs=dsl.get_shared_libs())
        pointer = engine.lookup(entry.name)
    artifacts = JitFunctionArtifacts(PTX=entry.ptx, CUBIN=entry.cubin, SASS=None, MLIR=None)

    def bind(function: Function) -> Function:
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

    return bind


class HeldFunction:
    """A result of cute.compile.

    While `holding`, a call does nothing, so forward compiles its kernels and launches none.
    """

    holding = False

    def __init__(self, function: Function | None) -> None:
        self.function = function

    def __call__(self, *arguments: object, **named: object) -> object:
        if HeldFunction.holding:
            return None
        assert self.function is not None, "another process compiled this function; it cannot be launched here"
        return self.function(*arguments, **named)

    def __getattr__(self, name: str) -> object:
        return getattr(self.function, name)

    @classmethod
    @contextlib.contextmanager
    def hold_all(cls) -> Iterator[None]:
        """Hold all launches inside the `with` block."""
        cls.holding = True
        try:
            yield
        finally:
            cls.holding = False


class Compiler:
    """Replaces cute.compile: counts seconds, stores results in the folder `keep`, and uses `loaded` results first."""

    def __init__(self, plain: CuteCompile) -> None:
        self.plain = plain
        self.seconds = 0.0
        self.keep: Path | None = None
        self.keys: list[str] = []  # keys of the calls since begin()
        self.loaded: dict[str, Loaded] = {}
        self.counts: Counter[str] = Counter()  # "loaded", "compiled"

    def begin(self, keep: Path | None = None) -> None:
        """Start a new target: reset its seconds and keys."""
        self.seconds, self.keep, self.keys = 0.0, keep, []

    def __call__(self, function: Function, *arguments: object, **named: object) -> HeldFunction:
        key = key_of(function, arguments) if not named else ""
        self.keys.append(key)
        if key and key in self.loaded:
            self.counts["loaded"] += 1
            return HeldFunction(self.loaded[key](function))
        path = self.keep / f"{key}.pickle" if self.keep is not None and key else None
        if path is not None and path.exists():
            with contextlib.suppress(Exception):
                self.seconds += read(path).seconds
                return HeldFunction(None)
        self.counts["compiled"] += 1
        start = time.perf_counter()
        made = self.plain(function, *arguments, **named)
        taken = time.perf_counter() - start
        self.seconds += taken
        if path is not None:
            write(path, entry_of(made, taken))
        return HeldFunction(made)

    def __getitem__(self, options: object) -> object:
        return self.plain[options]

    def __getattr__(self, name: str) -> object:
        return getattr(self.plain, name)


def ask_clusters() -> dict[int, int]:
    """Ask the device how many clusters of each size are active at once. Each question costs a compilation."""
    found = {}
    for size in CLUSTERS:
        with contextlib.suppress(Exception):  # the device does not support this size
            found[size] = cutlass.utils.HardwareInfo().get_max_active_clusters(size)
    return found


def answer_clusters(known: dict[int, int]) -> None:
    """Answer CuTe's questions from `known`: every candidate asks again, and compilers have no device to ask."""
    plain = cutlass.utils.HardwareInfo.get_max_active_clusters

    @functools.wraps(plain)
    def answer(self: object, size: int, stream: object = None) -> int:
        return known[size] if size in known else plain(self, size, stream)

    cutlass.utils.HardwareInfo.get_max_active_clusters = answer
