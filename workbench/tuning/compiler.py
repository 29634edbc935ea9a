"""One compiling process of a tuning run: compiles files for the shapes of their problems, with no GPU.

Tensors have the problem's own size and no memory behind them: forward only looks at shapes, strides and alignment, and
launches are held. The process sends its parent ("phase", target, "compile"), then ("compiled", target, CompiledFile).
At the end of a file it sends ("ready",), or ("leaving",) if it has grown too large and ends. A file that fails here
still goes to a measurer, which compiles it itself: only a failure on the GPU is a result.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import cutlass.cute as cute
import torch

from workbench.emulator import hook
from workbench.landscapes.table import RowFields
from workbench.language import parse
from workbench.language.ir import setting
from workbench.language.operations.gemm.sm90 import config_of
from workbench.problems import loading
from workbench.records import record
from workbench.toolchain import describe_module
from workbench.tuning import compiled_store
from workbench.tuning.plan import Task, TuningPlan

MOST_BYTES = 5 << 30  # resident bytes at which the process ends, so that a small one replaces it


@record
class CompiledFile:
    """A file compiled for one problem: folder and keys of its entries in the store, fields of its row.

    `keys` is empty if compiling failed; `why` then holds the error. `seconds` is the time that this process took.
    """

    folder: Path
    keys: tuple[str, ...] = ()
    fields: RowFields
    why: str = ""
    seconds: float


def build_fields(pairs: list[tuple[str, bytes]], program: str, arch: str) -> RowFields:
    """Largest registers, spills and shared memory of the kernels in (PTX, cubin) pairs."""
    builds = [build for ptx, cubin in pairs for build in describe_module(ptx, cubin, arch)]
    shared = max((build.static_shared_bytes for build in builds), default=0)
    for stage in parse(program).stages:
        if stage.operation.name == "gemm" and setting(stage, "schedule") is not None:
            shared = max(shared, config_of(stage).shared_bytes)  # requested at the launch: not in the binary
    found: RowFields = {
        "registers": max((build.registers or 0 for build in builds), default=None),
        "spill_bytes": max((build.spill_bytes or 0 for build in builds), default=None),
        "shared_bytes": shared or None,
    }
    return found if builds else {}


def load_candidate(source: str, folder: Path) -> ModuleType:
    """Import the candidate from a file of its own. It launches without TVM FFI.

    The path is the same in every process, because it is part of the compiled code.
    """
    place = compiled_store.folder_of(folder, source)
    place.mkdir(parents=True, exist_ok=True)
    path = place / "candidate.py"
    if not path.exists():
        temporary = place / f"candidate.{os.getpid()}"
        temporary.write_text(source)
        os.replace(temporary, path)
    spec = importlib.util.spec_from_file_location(f"candidate_{place.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    module.with_tvm_ffi = False  # type: ignore[attr-defined]  # its functions cannot be handed to another process
    return module


def unload(module: ModuleType) -> None:
    """Drop a candidate's module, and the tensors and functions in its dictionaries."""
    sys.modules.pop(module.__name__, None)
    for name in ("compiled", "known"):
        getattr(module, name, {}).clear()


def resident_bytes() -> int:
    """Resident memory of this process; 0 if it cannot be read."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def compile_for(plan: TuningPlan, case: str, module: ModuleType) -> None:
    """Call forward on tensors of the problem's size. All its kernels are compiled, none is launched."""
    specs = next(one for one in plan.facts.cases if one.name == case)
    reference = loading.load_module(plan.problem, specs.settings)
    with torch.device("meta"):
        model = loading.construct(module.ModelNew, reference)
    model = loading.set_mode(model.to_empty(device="cpu").requires_grad_(False), plan.problem)
    model = loading.adapt_model(loading.cast_model(model, plan.problem), reference, plan.problem)
    with torch.no_grad(), compiled_store.HeldFunction.hold_all():
        model(*(loading.cast(loading.lazy_zeros(item), plan.problem) for item in specs.inputs))


def compile_task(
    task: Task,
    plans: list[TuningPlan],
    folder: Path,
    case: str,
    compiler: compiled_store.Compiler,
    send: Callable[[tuple[object, ...]], object],
) -> None:
    """Compile one file for all its problems."""
    module = None
    for target in task.targets:
        start = time.perf_counter()
        send(("phase", target, "compile"))
        place = compiled_store.folder_of(folder, task.source)
        keys: tuple[str, ...] = ()
        why, fields = "", RowFields()
        compiler.begin(keep=place)
        try:
            module = module or load_candidate(task.source, folder)
            compile_for(plans[target[0]], case, module)
            keys = tuple(dict.fromkeys(compiler.keys))
            entries = [compiled_store.read(place / f"{key}.pickle") for key in keys]
            fields = {
                "compile_s": sum(entry.seconds for entry in entries),
                **build_fields([(entry.ptx, entry.cubin) for entry in entries], target[1], plans[target[0]].arch),
            }
        except Exception as error:
            keys, why = (), f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        if module is not None:
            getattr(module, "compiled", {}).clear()  # the next problem's calls are its own
        send(
            (
                "compiled",
                target,
                CompiledFile(folder=place, keys=keys, fields=fields, why=why, seconds=time.perf_counter() - start),
            )
        )
    if module is not None:
        unload(module)
    gc.collect()


def main(connection: Connection, plans: list[TuningPlan], folder: Path, case: str) -> None:
    """Serve messages (task, clusters) until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes itself
    os.environ["CUTE_DSL_CACHE_DIR"] = str(folder / f"cache-{os.getpid()}")
    torch.set_num_threads(1)
    told = False
    os.nice(5)  # measuring processes go first
    with hook.emulated(arch=plans[0].arch, device=plans[0].device, sample=1):
        cute.compile = compiler = compiled_store.Compiler(cute.compile)
        gc.freeze()  # without it, each collection looks through all imported modules for 0.1 s
        connection.send(("ready",))
        while True:
            try:
                task, clusters = connection.recv()
            except EOFError:
                return
            if not told:
                compiled_store.answer_clusters(clusters)
                told = True
            compile_task(task, plans, folder, case, compiler, connection.send)
            if resident_bytes() > MOST_BYTES:
                connection.send(("leaving",))
                return
            connection.send(("ready",))
