"""One measuring process of landscape_on_gpu.py: compiles beside the others, and uses the GPU only while it holds the lock.

Messages to the parent, in order for each target: ("phase", target, "compile" or "wait" or "gpu"), then ("row", target, fields); at the end of a task ("ready",). A
process whose CUDA context is broken says ("leaving",) and ends. Candidates are those of our own emitter, so nothing confines them.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import gc
import importlib.util
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import torch
from landscape_plan import ARCH, Mapped, Task

from workbench.analysis import correctness
from workbench.dsl import parse
from workbench.dsl.hopper_plan import plan_of
from workbench.dsl.ir import setting
from workbench.emulator.hook import recording
from workbench.emulator.program import emulated
from workbench.executors.clock import Stopwatch, listed
from workbench.executors.referee import compare_on_device
from workbench.landscapes.table import timed
from workbench.problems import loading
from workbench.records import Case, TensorSpec
from workbench.toolchain import describe_module

WARM_UP, SAMPLES, SAMPLES_SLOW = 3, 12, 5  # timed calls; of what takes longer than SLOW_S fewer
SLOW_S = 0.01
SEED = 20
LARGE_BYTES = 3 << 30  # inputs and outputs: beyond, they are compiled for under the lock and not kept between tasks
SMALL_BYTES, CACHED_BYTES = 700 << 20, 3 << 30  # inputs and reference of one problem: up to here the reference is in float64; and of all problems that a process keeps
KEPT_BYTES = 4 << 30  # memory that a process keeps from the others at the end of a task


class Held:
    """What cute.compile gave; while held, calling it does nothing, so that forward compiles all its kernels and launches none."""

    holding = False
    seconds = 0.0

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return None if Held.holding else self.function(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


class HoldingCompiler:
    """cute.compile, giving `Held` and counting its seconds."""

    def __init__(self, compiler: Any) -> None:
        self.compiler = compiler

    def __call__(self, *arguments: Any, **named: Any) -> Held:
        start = time.perf_counter()
        made = Held(self.compiler(*arguments, **named))
        Held.seconds += time.perf_counter() - start
        return made

    def __getitem__(self, options: Any) -> HoldingCompiler:
        return HoldingCompiler(self.compiler[options])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiler, name)


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


class Worker:
    """What a process keeps between tasks."""

    def __init__(self, plans: list[Mapped], lock: Path, folder: Path, case: str, says: Any) -> None:
        self.plans, self.folder, self.case, self.says = plans, folder, case, says
        self.lock = lock.open("w")
        self.cache: OrderedDict[int, Data] = OrderedDict()
        self.modules: list[Any] = []
        self.dry = case != "full"

    @contextlib.contextmanager
    def gpu(self) -> Iterator[None]:
        """Alone on the GPU."""
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
        if number in self.cache:
            self.cache.move_to_end(number)
            return self.cache[number]
        plan = self.plans[number]
        case, problem = self.case_of(plan), plan.problem
        module = loading.load_module(problem, case.settings)
        torch.manual_seed(SEED)
        reference = loading.build_model(module, "Model", problem, device="cuda")
        inputs = loading.make_inputs(module, problem, SEED + 1, "cuda")
        expected = self._expected(plan, reference, inputs)
        kept = [value for value in (*inputs, *expected) if isinstance(value, torch.Tensor)]
        made = Data(module, reference, inputs, expected, sum(value.numel() * value.element_size() for value in kept))
        if not self.large(plan):
            self.cache[number] = made
            while sum(one.bytes for one in self.cache.values()) > CACHED_BYTES and len(self.cache) > 1:
                self.cache.popitem(last=False)
        return made

    def _expected(self, plan: Mapped, reference: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
        policy(plan, strict=True)
        model, wide = copy.deepcopy(reference), torch.float64 if self.small(plan) else torch.float32
        result = model.to(wide)(*[value.to(wide) if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs])
        results = listed(result)
        policy(plan)
        return [value.float() if spec.dtype in ("float16", "bfloat16") else value for value, spec in zip(results, self.case_of(plan).outputs, strict=True)]

    # ---- one task -----------------------------------------------------------------------------------------------------

    def do(self, task: Task) -> None:
        """Measure a candidate on all its problems; raises `Broken` when the CUDA context is lost."""
        module = None
        Held.seconds = 0.0
        try:
            for target in task.targets:
                self.says(("phase", target, "compile"))
                fields: dict[str, Any] = {"correct": False}
                try:
                    if task.source and module is None:
                        module = load(task.source, self.folder)
                    self._twice(target, module, fields)
                except Exception as error:
                    fields["failure"] = described(error)
                    if broken():
                        self.says(("row", target, fields))
                        raise Broken from error
                if task.source:
                    fields |= {"compile_s": Held.seconds, **self._built(target[1])}
                self.says(("row", target, fields))
        finally:
            if module is not None:
                sys.modules.pop(module.__name__, None)
            del module
            gc.collect()
            if not self.dry and torch.cuda.memory_reserved() > KEPT_BYTES:
                torch.cuda.empty_cache()
            self.modules.clear()

    def _twice(self, target: tuple[int, str], module: Any, fields: dict[str, Any]) -> None:
        """Measure, once more with nothing cached if memory runs out."""
        try:
            return self._measure(target, module, fields)
        except torch.OutOfMemoryError:
            pass
        self.cache.clear()
        gc.collect()
        torch.cuda.empty_cache()
        return self._measure(target, module, fields)

    def _measure(self, target: tuple[int, str], module: Any, fields: dict[str, Any]) -> None:
        plan = self.plans[target[0]]
        data = None
        with torch.no_grad():
            if module is not None and not self.large(plan):
                with self.gpu():
                    data = self.data(target[0])
                    model = self._model(plan, module, data)
                    torch.cuda.synchronize()
                self._compile(model, data)
            self.says(("phase", target, "wait"))
            with self.gpu():
                self.says(("phase", target, "gpu"))
                data = data or self.data(target[0])
                model = data.reference if module is None else self._model(plan, module, data)
                if module is not None and self.large(plan):
                    self._compile(model, data)
                policy(plan)
                self._run(plan, model, data, fields)
                torch.cuda.synchronize()
                if self.large(plan):
                    del model, data
                    torch.cuda.empty_cache()

    def _model(self, plan: Mapped, module: Any, data: Data) -> torch.nn.Module:
        model = loading.build_model(module, "ModelNew", plan.problem, device="cuda", init_from=data.module)
        loading.copy_parameters(data.reference, model)
        return model

    @staticmethod
    def _compile(model: torch.nn.Module, data: Data) -> None:
        Held.holding = True
        try:
            model(*data.inputs)
        finally:
            Held.holding = False

    def _run(self, plan: Mapped, model: torch.nn.Module, data: Data, fields: dict[str, Any]) -> None:
        """Time, then check the output of the last timed call; outputs are overwritten with NaN before their memory is used again."""
        last: list[list[torch.Tensor]] = []

        def keep(output: list[torch.Tensor]) -> None:
            if last:
                spoil(last.pop())
            last.append(output)

        keep(listed(model(*data.inputs)))
        samples: list[float] = []
        if not self.dry:
            watch = Stopwatch(lambda inputs: model(*inputs), lambda number: data.inputs, cold=True)
            slow = watch.warm_up(list(range(WARM_UP)))["estimate_s"] > SLOW_S
            for number in range(SAMPLES_SLOW if slow else SAMPLES):
                samples.append(watch.timed(number)["s"])
                keep(watch.outputs[0])
            watch.drop()
        got = last.pop()
        self._check(plan, got, data.expected, fields)
        spoil(got)
        if samples and fields["correct"]:
            fields |= timed(samples)

    def _check(self, plan: Mapped, got: list[torch.Tensor], expected: list[torch.Tensor], fields: dict[str, Any]) -> None:
        case = self.case_of(plan)
        length = max([max(spec.shape, default=1) for spec in case.inputs], default=1)
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

    def _built(self, program: str) -> dict[str, Any]:
        builds = [build for item in self.modules for build in describe_module(item.ptx, item.cubin, ARCH)]
        shared = max((build.static_shared_bytes for build in builds), default=0)
        for stage in parse(program).stages:
            if stage.operation.name == "gemm" and setting(stage, "schedule") is not None:
                shared = max(shared, plan_of(stage).shared_bytes)  # asked for at the launch, which the binary does not say
        found = {"registers": max((build.registers or 0 for build in builds), default=None), "spill_bytes": max((build.spill_bytes or 0 for build in builds), default=None), "shared_bytes": shared or None}
        return found if builds else {}


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
    stage = "compile" if Held.holding or "compil" in type(error).__name__.lower() or "DSL" in type(error).__name__ else "run"
    return f"{stage}/{type(error).__name__}: {' '.join(str(error).split())}"


def load(source: str, folder: Path) -> Any:
    """The candidate's module, from a file of its own."""
    path = folder / f"candidate_{os.getpid()}_{time.monotonic_ns()}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def main(connection: Any, plans: list[Mapped], lock: Path, folder: Path, case: str) -> None:
    """Serve tasks until the parent closes the connection or sends None."""
    os.environ["CUTE_DSL_CACHE_DIR"] = str(folder / f"cache-{os.getpid()}")
    torch.set_num_threads(1)
    dry = case != "full"
    with recording() if not dry else emulated(device="H200") as kept:
        cute.compile = HoldingCompiler(cute.compile)
        worker = Worker(plans, lock, folder, case, connection.send)
        torch.zeros(1, device="cuda")  # the context, before anybody waits for the lock
        worker.modules = kept.modules if dry else kept
        connection.send(("ready",))
        while True:
            try:
                task = connection.recv()
            except EOFError:
                return
            if task is None:
                return
            try:
                worker.do(task)
            except Broken:
                connection.send(("leaving",))
                return
            connection.send(("ready",))
