"""Runs jobs of candidates ahead in worker processes, while another one is judged. What they give does not depend on
when they ran.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooEarly

import psutil

from workbench.analysis import devices
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Event, Facts, Job, Outcome, Problem
from workbench.wire import content_hash

CORES, HOST_BYTES = 2, 3 << 30  # that one run takes: compiling and emulating, small and at full size (inferred)
MOST, MOST_ON_GPU = 12, 8  # runs ahead
AHEAD_SHARE = 1 / 4  # of a GPU's memory that the tensors of what is run ahead may take (inferred)
POLL_S = 0.1


def choose_workers() -> int:
    """How many runs fit beside the one that is waited for, by cores and memory; 0 on a small machine."""
    cores, memory = len(os.sched_getaffinity(0)) // CORES, int(psutil.virtual_memory().available) // HOST_BYTES
    return max(0, min(MOST, cores - 1, memory - 1))


def choose_on_gpu(facts: Facts, device: str, workers: int) -> int:
    """How many of so many runs may be on the GPU, as its memory allows."""
    least = max((work.least_bytes for work in facts.work if work.case == "full"), default=0)
    fitting = int(AHEAD_SHARE * devices.find(device).memory_bytes / max(least, 1))
    return max(0, min(MOST_ON_GPU, workers, fitting))


class Prefetching(Executor):
    """An executor that may have run a job already. Use as a context manager: what still runs is stopped at the end."""

    def __init__(self, inner: Executor, workers: int) -> None:
        self.inner, self.workers = inner, workers
        self.name, self.full_size, self.default_arch = inner.name, inner.full_size, inner.default_arch
        self.times_rivals, self.runs_quick = False, inner.runs_quick
        self.meanwhile: Callable[[], None] = lambda: None  # called now and then while a run is waited for
        self._stop = threading.Event()
        self._made: dict[str, Future[Outcome]] = {}
        self._pool = ThreadPoolExecutor(workers + 1, thread_name_prefix="cutegen-ahead") if workers else None

    def __enter__(self) -> Prefetching:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def why_not(self) -> str | None:
        """As the executor that it holds."""
        return self.inner.why_not()

    def device_name(self) -> str | None:
        """As the executor that it holds."""
        return self.inner.device_name()

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """As the executor that it holds."""
        self.inner.admit(problem, facts, device)

    @property
    def is_free(self) -> bool:
        """Whether something may be begun ahead."""
        return sum(not future.done() for future in self._made.values()) < self.workers

    def begin(self, key: str, job: Job) -> bool:
        """Begin with a job, whose content hash is `key`, if a worker is free. Returns whether it runs or has run."""
        if key not in self._made:
            if self._pool is None or not self.is_free:
                return False
            self._made[key] = self._pool.submit(self.inner.run, job, RunContext(stop=self._stop))
        return True

    def find(self, key: str) -> Outcome | None:
        """The outcome of a job that was run ahead to its end; None for others."""
        future = self._made.get(key)
        done = future is not None and future.done() and not future.cancelled() and future.exception() is None
        return future.result() if done and future is not None else None

    def run(self, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        """The outcome that was made ahead, or is being made; else that of a run now."""
        if self._pool is None:
            return self.inner.run(job, context)
        said: deque[Event] = deque()  # in the thread that runs it; views hear of it in this one
        future = self._made.pop(content_hash(job), None)
        if future is None:
            plain = RunContext(stop=context.stop, progress=said.append)
            future = self._pool.submit(self.inner.run, job, plain)
        else:
            said.append(Event(kind="running", message="running, begun ahead", fraction=0.1))
        while True:
            context.raise_if_stopped()
            self.meanwhile()
            while said:
                context.progress(said.popleft())
            try:
                return future.result(POLL_S)
            except TooEarly:
                continue
