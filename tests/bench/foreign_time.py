"""`time` of foreign_kernels.py: one process that compiles cases, and uses the GPU under a lock.

Launches are held while a case is compiled, so that nothing disturbs the process that measures. A dry run does the same
on the emulator, without times.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import torch
from examples_on_gpu import about
from foreign_cases import Arguments, Case, Made, difference

from workbench.analysis.statistics import median_interval
from workbench.executors.workers import timer
from workbench.executors.workers.timer import Stopwatch
from workbench.tuning import compiled_store
from workbench.tuning.compiled_store import HeldFunction

WARM_UP, SAMPLES, SAMPLES_SLOW, SLOW_S = 3, 12, 5, 0.01  # as workbench/tuning/measurer.py
PROTOCOL = (
    "CUDA events around one call, 12 calls (5 where one takes over 10 ms) after 4 more, the same inputs, L2 flushed "
    "before each by writing twice its size, a device-side sleep so that the host is ahead, one process on the GPU at a "
    "time while others compile; the result of the first call is compared with torch's"
)


def describe(dry: bool) -> dict[str, object]:
    """Date, GPU with its driver, versions and protocol."""
    return {**about("emulator" if dry else "cuda"), "protocol": PROTOCOL}


@dataclass(frozen=True)
class Start:
    """Sets a measuring process up; the lock is a file in `folder`."""

    folder: Path
    dry: bool

    def __call__(self) -> Callable[[Case], dict[str, Any]]:
        os.environ["CUTE_DSL_CACHE_DIR"] = str(self.folder / f"cache-{os.getpid()}")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        worker = Worker(self.folder / "lock", self.dry)
        if self.dry:
            from workbench.emulator.hook import emulated

            worker.emulation.enter_context(emulated(arch="sm_90a", device="H200", cuda=True, strict=False))
        with worker.hold_lock():
            torch.zeros(1, device="cuda")  # the context
            compiled_store.answer_clusters(compiled_store.ask_clusters())
        cute.compile = HoldingCompiler(cute.compile)
        return worker.measure


class HoldingCompiler:
    """Replaces cute.compile: what it compiles can be held, `HeldFunction`."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __call__(self, *arguments: Any, **named: Any) -> HeldFunction:
        return HeldFunction(self.plain(*arguments, **named))

    def __getitem__(self, options: Any) -> HoldingCompiler:
        return HoldingCompiler(self.plain[options])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


class Worker:
    """Measures cases."""

    def __init__(self, lock: Path, dry: bool) -> None:
        self.lock, self.dry = lock, dry
        self.emulation = contextlib.ExitStack()  # of a dry run, until the process ends

    @contextlib.contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Keep other processes from using the GPU. The lock ends with the process."""
        with self.lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                torch.cuda.synchronize()

    def measure(self, case: Case) -> dict[str, Any]:
        """Compile, compare and time one case."""
        with torch.no_grad():
            with self.hold_lock():
                torch.manual_seed(0)
                made = case.make(Arguments())
            with HeldFunction.hold_all():
                made.call()
            with self.hold_lock():
                row = self.run(made)
                del made
                self.free_memory()
        return row

    def run(self, made: Made) -> dict[str, Any]:
        """Whether the result is right, and the times."""
        error = difference(made.read(made.call()), made.expected())
        row: dict[str, Any] = {"error": error, "limit": made.limit, "correct": error <= made.limit}
        self.free_memory()
        if self.dry:
            return row
        watch = Stopwatch(lambda _: made.call(), lambda _: [], cold=True)
        said = watch.warm_up(list(range(WARM_UP)))
        number = SAMPLES_SLOW if said["estimate_s"] > SLOW_S else SAMPLES
        samples = [watch.time_call(seed)["s"] for seed in range(number)]
        row["median_s"], row["low_s"], row["high_s"] = median_interval(samples)
        return row | {"samples_s": samples, "host_s": said["host_s"]}

    def free_memory(self) -> None:
        """Give unused memory back, and wait until the driver has cleared it."""
        if self.dry:
            return
        gc.collect()
        torch.cuda.synchronize()
        held = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        timer.PAUSE((held - torch.cuda.memory_reserved()) / timer.CLEARED_PER_S)
