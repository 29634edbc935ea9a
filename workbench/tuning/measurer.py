"""One measuring process of a tuning run: loads stored results of compiling processes, and uses the GPU under a lock.

It receives batches. A batch is some programs of one problem, whose inputs and reference the process makes once. For
each program it sends its parent ("phase", target, "load" or "wait" or "gpu"), then ("row", target, fields, seconds by
phase, whether everything came from the store). At the end of a batch it sends ("ready", {counts}). If its CUDA context
breaks, it sends ("leaving",) and ends. If that program came from the store, it sends ("broken", target) first, so that
the program is tried again without the store. Stored results that cannot be used are compiled here. Candidates come from
our own emitter, so nothing confines them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import cutlass.cute as cute
import torch

from workbench.emulator.emulation import CompiledModule
from workbench.emulator.hook import record_modules
from workbench.emulator.run_script import emulated
from workbench.executors.gpu.presence import VISIBLE, Gpu
from workbench.executors.gpu.turns import GpuTurns
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.timer import Stopwatch
from workbench.landscapes.table import RowFields, timing_fields
from workbench.problems import loading
from workbench.problems.results import tensors_of
from workbench.records import record
from workbench.tuning import compiled_store
from workbench.tuning.compiler import CompiledFile, build_fields, load_candidate, unload
from workbench.tuning.plan import TuningPlan
from workbench.tuning.reference_cache import Data, ReferenceCache, set_tf32, spoil

WARM_UP, SAMPLES, SAMPLES_SLOW = 3, 12, 5  # calls; SAMPLES_SLOW if one takes longer than SLOW_S
SLOW_S = 0.01
KEPT_BYTES = 4 << 30  # unused device memory that a process may hold at the end of a batch
DOUBTS = 5  # after so many stored results that failed, but ran when compiled here, the store is no longer used
PHASES = ("load", "compile", "wait", "inputs", "model", "first", "time", "check", "free")


@record
class Item:
    """One program to measure; "" is torch eager."""

    program: str
    source: str
    made: CompiledFile | None = None


@record
class Batch:
    """Programs of one problem (by number). None is started after `until` on the monotonic clock."""

    number: int
    items: tuple[Item, ...]
    until: float


class Worker:
    """The state of a measuring process between batches."""

    def __init__(
        self,
        plans: list[TuningPlan],
        gpu: Gpu | None,
        folder: Path,
        case: str,
        send: Callable[[tuple[object, ...]], object],
    ) -> None:
        self.plans, self.folder, self.case, self.send = plans, folder, case, send
        self.turns = GpuTurns(gpu) if gpu is not None else None
        self.modules: list[CompiledModule] = []
        self.dry = case != "full"
        self.compiler = compiled_store.Compiler(cute.compile)
        self.seconds: dict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self.references = ReferenceCache(plans, case, counts=self.counts, clock=self.time_phase)
        self.as_kept = False  # whether the current row needed no compilation here

    @contextlib.contextmanager
    def time_phase(self, phase: str) -> Iterator[None]:
        """Count the seconds of a phase, of PHASES."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start

    @contextlib.contextmanager
    def lock_gpu(self) -> Iterator[None]:
        """Hold the lock of the GPU: one process uses it at a time, of this run and of other sessions."""
        with contextlib.ExitStack() as stack:
            with self.time_phase("wait"):
                if self.turns is not None:
                    stack.enter_context(self.turns.hold())
            yield

    # ---- one batch ---------------------------------------------------------------------------------------------------

    def measure_batch(self, batch: Batch) -> None:
        """Measure the programs of a batch. Raises `Broken` if the CUDA context is lost.

        Programs for which no time is left are not started.
        """
        try:
            for item in batch.items:
                if time.monotonic() > batch.until:
                    return
                self._measure_item((batch.number, item.program), item)
        finally:
            with self.time_phase("free"):
                if self.references.is_large(self.plans[batch.number]):
                    self.references.kept.pop(batch.number, None)
                self.compiler.loaded = {}
                gc.collect()
            if not self.dry and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > KEPT_BYTES:
                with self.lock_gpu(), self.time_phase("free"):
                    torch.cuda.empty_cache()

    def _measure_item(self, target: tuple[int, str], item: Item) -> None:
        fields = self._measure_fields(target, item, item.made)
        if (
            item.made is not None and self.compiler.loaded and fields.get("failure")
        ):  # the program's fault, or that of keeping it?
            again = self._measure_fields(target, item, None)
            self.counts["again"] += 1
            self.counts["doubts"] += not again.get("failure")
            fields = again
        self.send(("row", target, fields, dict(self.seconds), self.as_kept))
        self.seconds.clear()

    def _measure_fields(self, target: tuple[int, str], item: Item, made: CompiledFile | None) -> RowFields:
        """The fields of a row. The stored results `made` are used; if it is None, everything is compiled here."""
        module: ModuleType | None = None
        fields: RowFields = {"correct": False}
        self.modules.clear()
        self.compiler.begin()
        before = self.compiler.counts["compiled"]
        self.send(("phase", target, "load"))
        try:
            with self.time_phase("load"):
                self.compiler.loaded = self._load_kept(made)
                module = load_candidate(item.source, self.folder) if item.source else None
            self._measure_with_retry(target, module, fields)
        except Exception as error:
            fields |= {"correct": False, "failure": describe_error(error)}
            if is_context_broken():
                self.send(
                    ("broken", target) if self.compiler.loaded else ("row", target, fields, dict(self.seconds), False)
                )
                raise Broken from error
        finally:
            if module is not None:
                unload(module)
        self.as_kept = bool(self.compiler.loaded) and self.compiler.counts["compiled"] == before
        if self.as_kept and made is not None:
            fields |= made.fields
        elif item.source:
            fields |= {
                "compile_s": self.compiler.seconds,
                **build_fields([(one.ptx, one.cubin) for one in self.modules], target[1], self.plans[target[0]].arch),
            }
        return fields

    def _load_kept(self, made: CompiledFile | None) -> dict[str, compiled_store.Loaded]:
        """Load what a compiling process stored; {} if nothing can be used."""
        if made is None or not made.keys or self.counts["doubts"] >= DOUBTS:
            return {}
        try:
            return {
                key: compiled_store.load_function(compiled_store.read(made.folder / f"{key}.pickle"))
                for key in made.keys
            }
        except Exception as error:
            self.counts["unreadable"] += 1
            if self.counts["unreadable"] == 1:
                print(f"# what was kept cannot be loaded: {type(error).__name__}: {error}", flush=True)
            return {}

    def _measure_with_retry(self, target: tuple[int, str], module: ModuleType | None, fields: RowFields) -> None:
        """Measure; if memory runs out, empty the caches and measure once more."""
        try:
            return self._measure(target, module, fields)
        except torch.OutOfMemoryError:
            pass
        self.counts["out of memory"] += 1
        self.references.kept.clear()
        gc.collect()
        torch.cuda.empty_cache()
        return self._measure(target, module, fields)

    def _measure(self, target: tuple[int, str], module: ModuleType | None, fields: RowFields) -> None:
        plan = self.plans[target[0]]
        with torch.no_grad():
            if module is not None and not self.compiler.loaded:
                with self.lock_gpu():
                    data = self.references.get(target[0])
                    model = self._model(plan, module, data)
                    self.synchronize()
                with self.time_phase("compile"), compiled_store.HeldFunction.hold_all():
                    model(*data.inputs)
            self.send(("phase", target, "wait"))
            with self.lock_gpu():
                self.send(("phase", target, "gpu"))
                data = self.references.get(target[0])
                model = data.reference if module is None else self._model(plan, module, data)
                set_tf32(plan)
                self._run(plan, model, data, fields)
                self.synchronize()

    def synchronize(self) -> None:
        """Wait until the GPU has finished all its work."""
        torch.cuda.synchronize()

    def _model(self, plan: TuningPlan, module: ModuleType, data: Data) -> torch.nn.Module:
        with self.time_phase("model"):
            model = loading.build_model(module, "ModelNew", plan.problem, device="cuda", init_from=data.module)
            loading.copy_parameters(data.reference, model)
        return model

    def _run(self, plan: TuningPlan, model: torch.nn.Module, data: Data, fields: RowFields) -> None:
        """Time, then check the output of the last timed call.

        Outputs are overwritten with NaN before their memory is used again.
        """
        last: list[list[torch.Tensor]] = []

        def keep(output: list[torch.Tensor]) -> None:
            if last:
                spoil(last.pop(), data.inputs)
            last.append(output)

        with self.time_phase("first"):
            keep(tensors_of(model(*data.inputs)))
            self.synchronize()
        samples: list[float] = []
        with self.time_phase("time"):
            if not self.dry:
                watch = Stopwatch(lambda inputs: model(*inputs), lambda number: data.inputs, cold=True)
                slow = watch.warm_up(list(range(WARM_UP)))["estimate_s"] > SLOW_S
                for number in range(SAMPLES_SLOW if slow else SAMPLES):
                    samples.append(watch.time_call(number)["s"])
                    keep(watch.outputs[0])
                watch.drop()
        with self.time_phase("check"):
            got = last.pop()
            self._check(plan, got, data, fields)
            spoil(got, data.inputs)
        if samples and fields["correct"]:
            fields |= timing_fields(samples)

    def _check(self, plan: TuningPlan, got: list[torch.Tensor], data: Data, fields: RowFields) -> None:
        if len(got) != len(data.expected):
            fields["failure"] = f"check/wrong_outputs: {len(got)} outputs, expected {len(data.expected)}"
            return
        worst = 0.0
        outputs = self.references.find_case(plan).outputs
        for value, wanted, tolerance, spec in zip(got, data.expected, data.tolerances, outputs, strict=True):
            if tuple(value.shape) != spec.shape or str(value.dtype) != f"torch.{spec.dtype}":
                fields["failure"] = (
                    f"check/wrong_shape: {list(value.shape)} {value.dtype}, expected {list(spec.shape)} {spec.dtype}"
                )
                return
            found = compare(value, wanted, tolerance)
            worst = max(worst, found["max_error"])
            if not found["passed"]:
                fields |= {"failure": f"check/wrong_result: {found['message']}", "error": worst}
                return
        fields |= {"correct": True, "error": worst}


class Broken(Exception):
    """The CUDA context of this process can no longer be used."""


def is_context_broken() -> bool:
    """Whether the CUDA context no longer answers."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def describe_error(error: Exception) -> str:
    """An exception as text: stage/kind: message."""
    stage = "compile" if "compil" in type(error).__name__.lower() or "DSL" in type(error).__name__ else "run"
    return f"{stage}/{type(error).__name__}: {' '.join(str(error).split())}"


def main(connection: Connection, plans: list[TuningPlan], gpu: Gpu | None, folder: Path, case: str) -> None:
    """Serve batches on a GPU, or on the emulator, until the parent closes the connection.

    The first message to the parent says how many clusters the device runs at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes itself
    if gpu is not None:
        os.environ[VISIBLE] = gpu.uuid
    os.environ["CUTE_DSL_CACHE_DIR"] = str(folder / f"cache-{os.getpid()}")
    torch.set_num_threads(1)
    dry = case != "full"
    with record_modules() if not dry else emulated(device=plans[0].device) as found:
        worker = Worker(plans, gpu, folder, case, connection.send)
        torch.zeros(1, device="cuda")  # the context, before anybody waits for the lock
        worker.modules = found if isinstance(found, list) else found.modules  # recorded, or of the emulation
        with worker.lock_gpu():
            clusters = compiled_store.ask_clusters()
        compiled_store.answer_clusters(clusters)
        cute.compile = worker.compiler = compiled_store.Compiler(cute.compile)
        gc.freeze()  # without it, each collection looks through all imported modules for 0.1 s
        connection.send(("clusters", clusters))
        connection.send(("ready", {}))
        while True:
            try:
                batch = connection.recv()
            except EOFError:
                return
            try:
                worker.measure_batch(batch)
            except Broken:
                connection.send(("leaving",))
                return
            connection.send(("ready", dict(worker.counts + worker.compiler.counts)))
