"""Emulates candidates ahead in worker processes, while another one is judged. An outcome does not depend on when."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooEarly

from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Event, Facts, Job, Outcome, Problem
from workbench.wire import content_hash

CORES = 3  # that one run on the emulator takes: reference, candidate and full size have a process each
MOST = 4  # runs ahead
POLL_S = 0.2


def choose_workers() -> int:
    """How many runs fit beside the one that is waited for; 0 on a small machine."""
    return max(0, min(MOST, (os.cpu_count() or 1) // CORES - 1))


class Prefetching(Executor):
    """An executor that may have run a job already. Use as a context manager: what still runs is stopped at the end."""

    def __init__(self, inner: Executor, workers: int) -> None:
        self.inner, self.workers = inner, workers
        self.name, self.full_size, self.default_arch = inner.name, inner.full_size, inner.default_arch
        self.times_rivals = False
        self._stop = threading.Event()
        self._made: dict[str, Future[Outcome]] = {}
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="cutegen-ahead") if workers else None

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

    def run_ahead(self, jobs: Iterable[Job]) -> None:
        """Begin with jobs, the most likely first, as far as workers are free."""
        if self._pool is None:
            return
        context = RunContext(stop=self._stop)
        running = sum(not future.done() for future in self._made.values())
        for job in jobs:
            key = content_hash(job)
            if key not in self._made and running < self.workers:
                self._made[key] = self._pool.submit(self.inner.run, job, context)
                running += 1

    def run(self, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        """The outcome that was made ahead, or is being made; else that of a run now."""
        future = self._made.pop(content_hash(job), None)
        if future is None:
            return self.inner.run(job, context)
        context.progress(Event(kind="running", message="emulating, begun ahead", fraction=0.1))
        while True:
            context.raise_if_stopped()
            try:
                return future.result(POLL_S)
            except TooEarly:
                continue
