"""One measuring process of landscape_on_gpu.py: loads what a compiling process kept, and uses the GPU only while it holds the lock.

It is given batches: some programs of one problem, whose inputs and reference it makes once. Messages to the parent, in order for each program: ("phase", target, "load" or "wait" or "gpu"), then
("row", target, fields, seconds by phase, whether all was kept); at the end of a batch ("ready", {counts}). A process whose CUDA context is broken says ("leaving",) and ends; ("broken", target) before it, where the program
was a kept one and is to be tried again without. What was kept and cannot be used is compiled here. Candidates are those of our own emitter, so nothing confines them.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import gc
import os
import signal
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import landscape_kept as kept
import torch
from landscape_compiler import Made, built, forget, load
from landscape_plan import DEVICE, Mapped

from workbench.analysis import correctness
from workbench.emulator.hook import recording
from workbench.emulator.program import emulated
from workbench.executors.clock import Stopwatch, listed
from workbench.executors.referee import compare_on_device
from workbench.landscapes.table import timed
from workbench.problems import loading
from workbench.records import Case, TensorSpec, record

WARM_UP, SAMPLES, SAMPLES_SLOW = 3, 12, 5  # timed calls; of what takes longer than SLOW_S fewer
SLOW_S = 0.01
SEED = 20
LARGE_BYTES = 3 << 30  # inputs and outputs: beyond, they are not kept between batches
SMALL_BYTES, CACHED_BYTES = 700 << 20, 12 << 30  # inputs and reference of one problem: up to here the reference is in float64; and of all problems that a process keeps
KEPT_BYTES = 4 << 30  # unused memory that a process keeps from the others at the end of a batch
DOUBTS = 5  # kept results that failed where the same, compiled here, did not: from then on none is used
PHASES = ("load", "compile", "wait", "inputs", "model", "first", "time", "check", "free")


@dataclass
class Data:
    """A problem's tensors on the GPU."""

    module: Any
    reference: torch.nn.Module
    inputs: list[Any]
    expected: list[torch.Tensor]
    bytes: int


def size_of(spec: TensorSpec) -> int:
    """Bytes of a dense tensor."""
    return int(torch.Size(spec.shape).numel() * getattr(torch, spec.dtype).itemsize)


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

    def __init__(self, plans: list[Mapped], lock: Path, folder: Path, case: str, says: Any) -> None:
        self.plans, self.folder, self.case, self.says = plans, folder, case, says
        self.lock = lock.open("w")
        self.cache: OrderedDict[int, Data] = OrderedDict()
        self.modules: list[Any] = []
        self.dry = case != "full"
        self.compiler = kept.Compiler(None)
        self.seconds: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
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

    def case_of(self, plan: Mapped) -> Case:
        """The case that is measured: full, or shrunk in a dry run."""
        return next(case for case in plan.facts.cases if case.name == self.case)

    def large(self, plan: Mapped) -> bool:
        """Whether the problem is too large to be kept."""
        case = self.case_of(plan)
        return sum(map(size_of, (*case.inputs, *case.outputs))) > LARGE_BYTES

    def small(self, plan: Mapped) -> bool:
        """Whether the reference is in float64."""
        case = self.case_of(plan)
        return sum(map(size_of, case.inputs)) + 8 * sum(int(torch.Size(spec.shape).numel()) for spec in case.outputs) < SMALL_BYTES

    def data(self, number: int) -> Data:
        """Inputs and reference results of a problem; under the lock."""
        if number not in self.cache:
            with self.clock("inputs"):
                self.cache[number] = self._made(number)
                self.synchronize()
                self.counts["inputs made"] += 1
        self.cache.move_to_end(number)
        others = [one for one in self.cache if one != number]
        while sum(one.bytes for n, one in self.cache.items() if not self.large(self.plans[n])) > CACHED_BYTES and others:
            del self.cache[others.pop(0)]
        return self.cache[number]

    def _made(self, number: int) -> Data:
        plan = self.plans[number]
        case, problem = self.case_of(plan), plan.problem
        module = loading.load_module(problem, case.settings)
        torch.manual_seed(SEED)
        reference = loading.build_model(module, "Model", problem, device="cuda")
        inputs = loading.make_inputs(module, problem, SEED + 1, "cuda")
        expected = self._expected(plan, reference, inputs)
        tensors = [value for value in (*inputs, *expected) if isinstance(value, torch.Tensor)]
        return Data(module, reference, inputs, expected, sum(value.numel() * value.element_size() for value in tensors))

    def _expected(self, plan: Mapped, reference: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
        policy(plan, strict=True)
        model, wide = copy.deepcopy(reference), torch.float64 if self.small(plan) else torch.float32
        result = model.to(wide)(*[value.to(wide) if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs])
        results = listed(result)
        policy(plan)
        return [value.float() if spec.dtype in ("float16", "bfloat16") else value for value, spec in zip(results, self.case_of(plan).outputs, strict=True)]

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
                if self.large(self.plans[batch.number]):
                    self.cache.pop(batch.number, None)
                self.compiler.loaded = {}
                gc.collect()
            if not self.dry and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > KEPT_BYTES:
                with self.gpu(), self.clock("free"):
                    torch.cuda.empty_cache()

    def _item(self, target: tuple[int, str], item: Item) -> None:
        fields = self._measured(target, item, item.made)
        if item.made is not None and self.compiler.loaded and fields.get("failure"):  # the program's fault, or that of keeping it?
            again = self._measured(target, item, None)
            self.counts["again"] += 1
            self.counts["doubts"] += not again.get("failure")
            fields = again
        self.says(("row", target, fields, dict(self.seconds), self.as_kept))
        self.seconds.clear()

    def _measured(self, target: tuple[int, str], item: Item, made: Made | None) -> dict[str, Any]:
        """The fields of a row, with what was kept or, where that is None, all compiled here."""
        module, fields = None, {"correct": False}
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
                self.says(("broken", target) if self.compiler.loaded else ("row", target, fields, dict(self.seconds), False))
                raise Broken from error
        finally:
            if module is not None:
                forget(module)
        self.as_kept = bool(self.compiler.loaded) and self.compiler.counts["compiled"] == before
        if self.as_kept and made is not None:
            fields |= made.fields
        elif item.source:
            fields |= {"compile_s": self.compiler.seconds, **built([(one.ptx, one.cubin) for one in self.modules], target[1])}
        return fields

    def _kept(self, made: Made | None) -> dict[str, Callable[[Any], Any]]:
        """What a compiler kept, ready to be launched; {} where there is nothing that can be used."""
        if made is None or not made.keys or self.counts["doubts"] >= DOUBTS:
            return {}
        try:
            return {key: kept.callable_of(kept.read(made.folder / f"{key}.pickle")) for key in made.keys}
        except Exception as error:
            self.counts["unreadable"] += 1
            if self.counts["unreadable"] == 1:
                print(f"# what was kept cannot be loaded: {type(error).__name__}: {error}", flush=True)
            return {}

    def _twice(self, target: tuple[int, str], module: Any, fields: dict[str, Any]) -> None:
        """Measure, once more with nothing cached if memory runs out."""
        try:
            return self._measure(target, module, fields)
        except torch.OutOfMemoryError:
            pass
        self.counts["out of memory"] += 1
        self.cache.clear()
        gc.collect()
        torch.cuda.empty_cache()
        return self._measure(target, module, fields)

    def _measure(self, target: tuple[int, str], module: Any, fields: dict[str, Any]) -> None:
        plan = self.plans[target[0]]
        with torch.no_grad():
            if module is not None and not self.compiler.loaded:
                with self.gpu():
                    data = self.data(target[0])
                    model = self._model(plan, module, data)
                    self.synchronize()
                with self.clock("compile"), kept.Held.all():
                    model(*data.inputs)
            self.says(("phase", target, "wait"))
            with self.gpu():
                self.says(("phase", target, "gpu"))
                data = self.data(target[0])
                model = data.reference if module is None else self._model(plan, module, data)
                policy(plan)
                self._run(plan, model, data, fields)
                self.synchronize()

    def synchronize(self) -> None:
        """Wait until the GPU has done everything."""
        torch.cuda.synchronize()

    def _model(self, plan: Mapped, module: Any, data: Data) -> torch.nn.Module:
        with self.clock("model"):
            model = loading.build_model(module, "ModelNew", plan.problem, device="cuda", init_from=data.module)
            loading.copy_parameters(data.reference, model)
        return model

    def _run(self, plan: Mapped, model: torch.nn.Module, data: Data, fields: dict[str, Any]) -> None:
        """Time, then check the output of the last timed call; outputs are overwritten with NaN before their memory is used again."""
        last: list[list[torch.Tensor]] = []

        def keep(output: list[torch.Tensor]) -> None:
            if last:
                spoil(last.pop())
            last.append(output)

        with self.clock("first"):
            keep(listed(model(*data.inputs)))
            self.synchronize()
        samples: list[float] = []
        with self.clock("time"):
            if not self.dry:
                watch = Stopwatch(lambda inputs: model(*inputs), lambda number: data.inputs, cold=True)
                slow = watch.warm_up(list(range(WARM_UP)))["estimate_s"] > SLOW_S
                for number in range(SAMPLES_SLOW if slow else SAMPLES):
                    samples.append(watch.timed(number)["s"])
                    keep(watch.outputs[0])
                watch.drop()
        with self.clock("check"):
            got = last.pop()
            self._check(plan, got, data.expected, fields)
            spoil(got)
        if samples and fields["correct"]:
            fields |= timed(samples)

    def _check(self, plan: Mapped, got: list[torch.Tensor], expected: list[torch.Tensor], fields: dict[str, Any]) -> None:
        case = self.case_of(plan)
        length = correctness.terms(case, plan.facts)
        if len(got) != len(expected):
            fields["failure"] = f"check/wrong_outputs: {len(got)} outputs, expected {len(expected)}"
            return
        worst = 0.0
        for value, wanted, spec in zip(got, expected, case.outputs, strict=True):
            if tuple(value.shape) != spec.shape or str(value.dtype) != f"torch.{spec.dtype}":
                fields["failure"] = f"check/wrong_shape: {list(value.shape)} {value.dtype}, expected {list(spec.shape)} {spec.dtype}"
                return
            found = self._compare(value, wanted, spec.dtype, plan.problem.precision, length)
            worst = max(worst, found["max_error"])
            if not found["passed"]:
                fields |= {"failure": f"check/wrong_result: {found['message']}", "error": worst}
                return
        fields |= {"correct": True, "error": worst}

    def _compare(self, value: torch.Tensor, wanted: torch.Tensor, dtype: str, precision: str, length: int) -> dict[str, Any]:
        if self.dry:
            return correctness.compare(value.cpu().to(wanted.dtype).numpy(), wanted.cpu().double().numpy() if wanted.is_floating_point() else wanted.cpu().numpy(), dtype=dtype, precision=precision, length=length)
        return compare_on_device(value, wanted, dtype, precision, length)


class Broken(Exception):
    """The CUDA context of this process cannot be used any more."""


def policy(plan: Mapped, *, strict: bool = False) -> None:
    """TF32 only where the problem's precision says so, and never for references."""
    allowed = plan.problem.precision == "tf32" and not strict
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def spoil(values: list[torch.Tensor]) -> None:
    """Overwrite results, so that none is taken for that of a kernel which writes nothing."""
    for value in values:
        if isinstance(value, torch.Tensor):
            value.detach().fill_(float("nan") if value.is_floating_point() else -1)


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


def main(connection: Any, plans: list[Mapped], gpu: int, folder: Path, case: str) -> None:
    """Serve batches on a GPU, by number, until the parent closes the connection; first says how many clusters the device runs at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes itself
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    os.environ["CUTE_DSL_CACHE_DIR"] = str(folder / f"cache-{os.getpid()}")
    torch.set_num_threads(1)
    dry = case != "full"
    with recording() if not dry else emulated(device=DEVICE) as found:
        worker = Worker(plans, folder / f"lock-{gpu}", folder, case, connection.send)
        torch.zeros(1, device="cuda")  # the context, before anybody waits for the lock
        worker.modules = found.modules if dry else found
        with worker.gpu():
            clusters = kept.ask_clusters()
        kept.answer_clusters(clusters)
        cute.compile = worker.compiler = kept.Compiler(cute.compile)
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
