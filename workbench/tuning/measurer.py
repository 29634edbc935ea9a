"""One measuring process of a tuning run: loads what a compiling process kept, and uses the GPU only under the lock.

It is given batches: some programs of one problem, whose inputs and reference it makes once. Messages to the parent, in
order for each program: ("phase", target, "load" or "wait" or "gpu"), then ("row", target, fields, seconds by phase,
whether all was kept); at the end of a batch ("ready", {counts}). A process whose CUDA context is broken sends
("leaving",) and ends. It sends ("broken", target) before, where the program was a kept one and is to be tried again
without. What was kept and cannot be used is compiled here. Candidates come from our own emitter, so nothing confines
them.
"""

from __future__ import annotations

import contextlib
import fcntl
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

from workbench.analysis import correctness
from workbench.emulator.emulation import CompiledModule
from workbench.emulator.hook import recording
from workbench.emulator.run_script import emulated
from workbench.executors.workers.referee import compare_on_device
from workbench.executors.workers.timer import Stopwatch, as_list
from workbench.landscapes.table import RowFields, timed
from workbench.problems import loading
from workbench.records import record
from workbench.tuning import compiled_store
from workbench.tuning.compiler import Made, built, forget, load
from workbench.tuning.plan import TuningPlan
from workbench.tuning.reference_cache import Data, ReferenceCache, set_tf32, spoil
from workbench.wire import Json

WARM_UP, SAMPLES, SAMPLES_SLOW = 3, 12, 5  # timed calls; of what takes longer than SLOW_S fewer
SLOW_S = 0.01
KEPT_BYTES = 4 << 30  # unused memory that a process keeps from the others at the end of a batch
DOUBTS = 5  # kept results that failed where the same, compiled here, did not: from then on none is used
PHASES = ("load", "compile", "wait", "inputs", "model", "first", "time", "check", "free")


@record
class Item:
    """One program to be measured; "" is torch eager."""

    program: str
    source: str
    made: Made | None = None


@record
class Batch:
    """Programs of one problem (by number), to be begun before `until` on the monotonic clock."""

    number: int
    items: tuple[Item, ...]
    until: float


class Worker:
    """What a process keeps between batches."""

    def __init__(
        self, plans: list[TuningPlan], lock: Path, folder: Path, case: str, says: Callable[[tuple[object, ...]], object]
    ) -> None:
        self.plans, self.folder, self.case, self.says = plans, folder, case, says
        self.lock = lock.open("w")
        self.modules: list[CompiledModule] = []
        self.dry = case != "full"
        self.compiler = compiled_store.Compiler(cute.compile)
        self.seconds: dict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self.references = ReferenceCache(plans, case, counts=self.counts, clock=self.clock)
        self.as_kept = False  # whether the row at hand was measured with nothing compiled here

    @contextlib.contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        """Count the seconds of a phase, of PHASES."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start

    @contextlib.contextmanager
    def gpu(self) -> Iterator[None]:
        """Alone on the GPU."""
        with self.clock("wait"):
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)

    # ---- one batch ----------------------------------------------------------------------------------------------------

    def do(self, batch: Batch) -> None:
        """Measure programs of a problem; raises `Broken` when the CUDA context is lost. Those for which no time is left are not begun."""
        try:
            for item in batch.items:
                if time.monotonic() > batch.until:
                    return
                self._item((batch.number, item.program), item)
        finally:
            with self.clock("free"):
                if self.references.is_large(self.plans[batch.number]):
                    self.references.kept.pop(batch.number, None)
                self.compiler.loaded = {}
                gc.collect()
            if not self.dry and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > KEPT_BYTES:
                with self.gpu(), self.clock("free"):
                    torch.cuda.empty_cache()

    def _item(self, target: tuple[int, str], item: Item) -> None:
        fields = self._measured(target, item, item.made)
        if (
            item.made is not None and self.compiler.loaded and fields.get("failure")
        ):  # the program's fault, or that of keeping it?
            again = self._measured(target, item, None)
            self.counts["again"] += 1
            self.counts["doubts"] += not again.get("failure")
            fields = again
        self.says(("row", target, fields, dict(self.seconds), self.as_kept))
        self.seconds.clear()

    def _measured(self, target: tuple[int, str], item: Item, made: Made | None) -> RowFields:
        """The fields of a row, with what was kept or, where that is None, all compiled here."""
        module: ModuleType | None = None
        fields: RowFields = {"correct": False}
        self.modules.clear()
        self.compiler.begin()
        before = self.compiler.counts["compiled"]
        self.says(("phase", target, "load"))
        try:
            with self.clock("load"):
                self.compiler.loaded = self._kept(made)
                module = load(item.source, self.folder) if item.source else None
            self._twice(target, module, fields)
        except Exception as error:
            fields |= {"correct": False, "failure": described(error)}
            if broken():
                self.says(
                    ("broken", target) if self.compiler.loaded else ("row", target, fields, dict(self.seconds), False)
                )
                raise Broken from error
        finally:
            if module is not None:
                forget(module)
        self.as_kept = bool(self.compiler.loaded) and self.compiler.counts["compiled"] == before
        if self.as_kept and made is not None:
            fields |= made.fields
        elif item.source:
            fields |= {
                "compile_s": self.compiler.seconds,
                **built([(one.ptx, one.cubin) for one in self.modules], target[1], self.plans[target[0]].arch),
            }
        return fields

    def _kept(self, made: Made | None) -> dict[str, compiled_store.Loaded]:
        """What a compiler kept, ready to be launched; {} where there is nothing that can be used."""
        if made is None or not made.keys or self.counts["doubts"] >= DOUBTS:
            return {}
        try:
            return {
                key: compiled_store.callable_of(compiled_store.read(made.folder / f"{key}.pickle")) for key in made.keys
            }
        except Exception as error:
            self.counts["unreadable"] += 1
            if self.counts["unreadable"] == 1:
                print(f"# what was kept cannot be loaded: {type(error).__name__}: {error}", flush=True)
            return {}

    def _twice(self, target: tuple[int, str], module: ModuleType | None, fields: RowFields) -> None:
        """Measure, once more with nothing cached if memory runs out."""
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
                with self.gpu():
                    data = self.references.get(target[0])
                    model = self._model(plan, module, data)
                    self.synchronize()
                with self.clock("compile"), compiled_store.Held.all():
                    model(*data.inputs)
            self.says(("phase", target, "wait"))
            with self.gpu():
                self.says(("phase", target, "gpu"))
                data = self.references.get(target[0])
                model = data.reference if module is None else self._model(plan, module, data)
                set_tf32(plan)
                self._run(plan, model, data, fields)
                self.synchronize()

    def synchronize(self) -> None:
        """Wait until the GPU has done everything."""
        torch.cuda.synchronize()

    def _model(self, plan: TuningPlan, module: ModuleType, data: Data) -> torch.nn.Module:
        with self.clock("model"):
            model = loading.build_model(module, "ModelNew", plan.problem, device="cuda", init_from=data.module)
            loading.copy_parameters(data.reference, model)
        return model

    def _run(self, plan: TuningPlan, model: torch.nn.Module, data: Data, fields: RowFields) -> None:
        """Time, then check the output of the last timed call; outputs are overwritten with NaN before their memory is used again."""
        last: list[list[torch.Tensor]] = []

        def keep(output: list[torch.Tensor]) -> None:
            if last:
                spoil(last.pop())
            last.append(output)

        with self.clock("first"):
            keep(as_list(model(*data.inputs)))
            self.synchronize()
        samples: list[float] = []
        with self.clock("time"):
            if not self.dry:
                watch = Stopwatch(lambda inputs: model(*inputs), lambda number: data.inputs, cold=True)
                slow = watch.warm_up(list(range(WARM_UP)))["estimate_s"] > SLOW_S
                for number in range(SAMPLES_SLOW if slow else SAMPLES):
                    samples.append(watch.time_call(number)["s"])
                    keep(watch.outputs[0])
                watch.drop()
        with self.clock("check"):
            got = last.pop()
            self._check(plan, got, data.expected, fields)
            spoil(got)
        if samples and fields["correct"]:
            fields |= timed(samples)

    def _check(
        self, plan: TuningPlan, got: list[torch.Tensor], expected: list[torch.Tensor], fields: RowFields
    ) -> None:
        case = self.references.find_case(plan)
        length = correctness.summed_terms(case, plan.facts)
        if len(got) != len(expected):
            fields["failure"] = f"check/wrong_outputs: {len(got)} outputs, expected {len(expected)}"
            return
        worst = 0.0
        for value, wanted, spec in zip(got, expected, case.outputs, strict=True):
            if tuple(value.shape) != spec.shape or str(value.dtype) != f"torch.{spec.dtype}":
                fields["failure"] = (
                    f"check/wrong_shape: {list(value.shape)} {value.dtype}, expected {list(spec.shape)} {spec.dtype}"
                )
                return
            found = self._compare(value, wanted, spec.dtype, plan.problem.precision, length)
            worst = max(worst, found["max_error"])
            if not found["passed"]:
                fields |= {"failure": f"check/wrong_result: {found['message']}", "error": worst}
                return
        fields |= {"correct": True, "error": worst}

    def _compare(self, value: torch.Tensor, wanted: torch.Tensor, dtype: str, precision: str, length: int) -> Json:
        if self.dry:
            return correctness.compare(
                value.cpu().to(wanted.dtype).numpy(),
                wanted.cpu().double().numpy() if wanted.is_floating_point() else wanted.cpu().numpy(),
                dtype=dtype,
                precision=precision,
                length=length,
            )
        return compare_on_device(value, wanted, dtype, precision, length)


class Broken(Exception):
    """The CUDA context of this process cannot be used any more."""


def broken() -> bool:
    """Whether the CUDA context still answers."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def described(error: Exception) -> str:
    """An exception as stage/kind: message."""
    stage = "compile" if "compil" in type(error).__name__.lower() or "DSL" in type(error).__name__ else "run"
    return f"{stage}/{type(error).__name__}: {' '.join(str(error).split())}"


def main(connection: Connection, plans: list[TuningPlan], gpu: int, folder: Path, case: str) -> None:
    """Serve batches on a GPU, by number, until the parent closes the connection; first says how many clusters the device runs at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes itself
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    os.environ["CUTE_DSL_CACHE_DIR"] = str(folder / f"cache-{os.getpid()}")
    torch.set_num_threads(1)
    dry = case != "full"
    with recording() if not dry else emulated(device=plans[0].device) as found:
        worker = Worker(plans, folder / f"lock-{gpu}", folder, case, connection.send)
        torch.zeros(1, device="cuda")  # the context, before anybody waits for the lock
        worker.modules = (
            found if isinstance(found, list) else found.modules
        )  # of the emulation, or the list of what is compiled
        with worker.gpu():
            clusters = compiled_store.ask_clusters()
        compiled_store.answer_clusters(clusters)
        cute.compile = worker.compiler = compiled_store.Compiler(cute.compile)
        gc.freeze()  # what has been imported is not looked through each time: that took 0.1 s
        connection.send(("clusters", clusters))
        connection.send(("ready", {}))
        while True:
            try:
                batch = connection.recv()
            except EOFError:
                return
            try:
                worker.do(batch)
            except Broken:
                connection.send(("leaving",))
                return
            connection.send(("ready", dict(worker.counts + worker.compiler.counts)))
