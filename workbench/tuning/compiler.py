"""One compiling process of a tuning run: compiles files for the shapes of their problems, with no GPU, and keeps the results for the measuring processes.

Tensors have the problem's own size and no memory behind them: forward only looks at shapes, strides and alignment, and launches are held. Messages to the parent: ("phase", target, "compile"), then
("compiled", target, Made); at the end of a file ("ready",), or ("leaving",) when the process has grown too large and ends. What fails here is given to a measurer all the same, which compiles it
itself: only what happens on the GPU machine's own tensors is a result.
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
from workbench.language.operations.gemm_sm90 import config_of
from workbench.problems import loading
from workbench.records import record
from workbench.toolchain import describe_module
from workbench.tuning import compiled_store
from workbench.tuning.plan import Task, TuningPlan

MOST_BYTES = 5 << 30  # resident, beyond which the process ends: the next one starts small


@record
class Made:
    """A file compiled for one problem: the folder and keys of what was kept, none where it failed; fields of the row; seconds that this process took."""

    folder: Path
    keys: tuple[str, ...] = ()
    fields: RowFields
    why: str = ""
    seconds: float


def built(pairs: list[tuple[str, bytes]], program: str, arch: str) -> RowFields:
    """Registers, spills and shared memory of the kernels in (PTX, cubin) pairs, the largest of each."""
    builds = [build for ptx, cubin in pairs for build in describe_module(ptx, cubin, arch)]
    shared = max((build.static_shared_bytes for build in builds), default=0)
    for stage in parse(program).stages:
        if stage.operation.name == "gemm" and setting(stage, "schedule") is not None:
            shared = max(
                shared, config_of(stage).shared_bytes
            )  # asked for at the launch, which the binary does not say
    found: RowFields = {
        "registers": max((build.registers or 0 for build in builds), default=None),
        "spill_bytes": max((build.spill_bytes or 0 for build in builds), default=None),
        "shared_bytes": shared or None,
    }
    return found if builds else {}


def load(source: str, folder: Path) -> ModuleType:
    """The candidate's module, from a file of its own, which says nothing of the process: its place is part of what is compiled."""
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
    return module


def forget(module: ModuleType) -> None:
    """A candidate's module is not needed any more, nor the tensors and functions in its dictionaries; the rest is for the garbage collector."""
    sys.modules.pop(module.__name__, None)
    for name in ("compiled", "known"):
        getattr(module, name, {}).clear()


def resident_bytes() -> int:
    """Memory of this process."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def compile_for(plan: TuningPlan, case: str, module: ModuleType) -> None:
    """Call forward on tensors of the problem's size: all its kernels are compiled and none is launched."""
    specs = next(one for one in plan.facts.cases if one.name == case)
    reference = loading.load_module(plan.problem, specs.settings)
    with torch.device("meta"):
        model = module.ModelNew(*reference.get_init_inputs())
    model = model.to_empty(device="cpu").requires_grad_(False).train(plan.problem.mode == "train")
    if plan.problem.precision in ("fp16", "bf16"):
        model = model.to(loading.DTYPES[plan.problem.precision])
    with torch.no_grad(), compiled_store.Held.all():
        model(*(loading.cast(loading.untouched(item), plan.problem) for item in specs.inputs))


def do(
    task: Task,
    plans: list[TuningPlan],
    folder: Path,
    case: str,
    compiler: compiled_store.Compiler,
    says: Callable[[tuple[object, ...]], object],
) -> None:
    """Compile one file for all its problems."""
    module = None
    for target in task.targets:
        start = time.perf_counter()
        says(("phase", target, "compile"))
        place = compiled_store.folder_of(folder, task.source)
        keys: tuple[str, ...] = ()
        why, fields = "", RowFields()
        compiler.begin(keep=place)
        try:
            module = module or load(task.source, folder)
            compile_for(plans[target[0]], case, module)
            keys = tuple(dict.fromkeys(compiler.keys))
            entries = [compiled_store.read(place / f"{key}.pickle") for key in keys]
            fields = {
                "compile_s": sum(entry.seconds for entry in entries),
                **built([(entry.ptx, entry.cubin) for entry in entries], target[1], plans[target[0]].arch),
            }
        except Exception as error:
            keys, why = (), f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        if module is not None:
            getattr(module, "compiled", {}).clear()  # the next problem's calls are its own
        says(
            (
                "compiled",
                target,
                Made(folder=place, keys=keys, fields=fields, why=why, seconds=time.perf_counter() - start),
            )
        )
    if module is not None:
        forget(module)
    gc.collect()


def main(connection: Connection, plans: list[TuningPlan], folder: Path, case: str) -> None:
    """Serve (task, clusters) until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes itself
    os.environ["CUTE_DSL_CACHE_DIR"] = str(folder / f"cache-{os.getpid()}")
    torch.set_num_threads(1)
    told = False
    os.nice(5)  # those that measure go first
    with hook.emulated(arch=plans[0].arch, device=plans[0].device, sample=1):
        cute.compile = compiler = compiled_store.Compiler(cute.compile)
        gc.freeze()  # what has been imported is not looked through each time: that took 0.1 s
        connection.send(("ready",))
        while True:
            try:
                task, clusters = connection.recv()
            except EOFError:
                return
            if not told:
                compiled_store.answer_clusters(clusters)
                told = True
            do(task, plans, folder, case, compiler, connection.send)
            if resident_bytes() > MOST_BYTES:
                connection.send(("leaving",))
                return
            connection.send(("ready",))
