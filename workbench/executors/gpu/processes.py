"""The processes of a GPU run: candidate, parent version, and the referee, which lives between runs of a problem."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from workbench.errors import Stopped, WorkerLost
from workbench.executors.jobs.client import DISK_BYTES, Server
from workbench.executors.jobs.rpc import LOOK_S, Ended, SocketChannel, draw_seed
from workbench.executors.jobs.trials import count_calls
from workbench.records import Job

REFEREE_BYTES = 64 << 30


class WorkerProcess:
    """One process that answers requests on a socket and works in its folder."""

    def __init__(
        self,
        workers: Server,
        role: str,
        folder: Path,
        *,
        wall_s: float,
        memory_bytes: int,
        disk_bytes: int = DISK_BYTES,
        tools: bool = False,
        stop: threading.Event | None,
        gpu: str = "",
        trusted: bool = False,
    ) -> None:
        """`gpu` is the UUID of the GPU that it works on; "" leaves that to the environment.

        `tools` says that it starts programs (nvdisasm).
        """
        self.workers, self.folder = workers, folder
        extra = {"trusted": True} if trusted else {}
        mine, theirs = socket.socketpair()
        with theirs:
            self.number = workers.start_job(
                role,
                str(folder),
                wall_s=wall_s,
                memory_bytes=memory_bytes,
                disk_bytes=disk_bytes,
                tools=tools,
                connection=theirs,
                device="cuda",
                gpu=gpu,
                **extra,
            )
        self.stop = stop
        self.channel = SocketChannel(mine, self.alive)

    def alive(self) -> bool:
        """Whether the process still runs. Raises `Stopped` if the run was stopped."""
        if self.stop is not None and self.stop.is_set():
            raise Stopped
        return self.workers.is_running(self.number)

    def wait_for_end(self, limit_s: float) -> None:
        """Wait for the end of a process that has closed its connection: what it held on the GPU is freed after that.

        One that goes on is not waited for longer than the limit.
        """
        deadline = time.monotonic() + limit_s
        while self.alive() and time.monotonic() < deadline:
            time.sleep(LOOK_S)

    def end(self) -> None:
        """Kill the process; returns when it is gone."""
        self.workers.cancel(self.number)
        self.channel.close()


Begun = dict[tuple[str, int], int]  # the seeds of trials that a candidate makes already, by case and number


@dataclass(slots=True, eq=False)
class Candidates:
    """The confined processes of a run: the candidate's, another one for `small` cases, the rival's."""

    candidate: WorkerProcess
    small: WorkerProcess | None = None
    rival: WorkerProcess | None = None

    def list(self) -> list[WorkerProcess]:
        """All of them."""
        return [one for one in (self.candidate, self.small, self.rival) if one is not None]

    def begin(self, job: Job, seed: int) -> Begun:
        """Let each process of the candidate compile and make the calls of its first trial, and wait until it has done
        so or has ended. The replies are not read. Raises `Stopped` if the run is stopped.
        """
        known = [name for name in job.cases if any(case.name == name for case in job.facts.cases)]
        begun: Begun = {}
        for case, seat in ((known[0], self.small), (job.cases[-1], self.candidate)):
            if seat is not None:
                begun[case, 0] = seed
                calls = count_calls(job, case, 0)
                seat.channel.send({"do": "trial", "case": case, "seed": seed, "calls": calls})
        for seat in self.list():
            seat.channel.wait()
        return begun


class RefereePool:
    """Keeps one referee between runs, and starts a new one for another problem or GPU."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # one run at a time: two would disturb each other's times
        self.referee: WorkerProcess | None = None
        self.problem = self.gpu = ""
        self.place: tempfile.TemporaryDirectory[str] | None = None
        self.seeds: dict[str, int] = {}  # of the trials of quick jobs, by problem

    @property
    def is_idle(self) -> bool:
        """Whether the referee owes no answer."""
        return self.referee is not None and self.referee.channel.sent == self.referee.channel.received

    def seed_of(self, problem: str) -> int:
        """The seed of the trials of all quick jobs for a problem: what is right is computed once for them."""
        return self.seeds.setdefault(problem, draw_seed())

    def get(self, workers: Server, problem: str, stop: threading.Event | None, gpu: str = "") -> WorkerProcess:
        """The referee for a problem (its content hash) on a GPU (its UUID), started if there is none."""
        if (
            self.referee is not None
            and self.referee.workers is workers
            and (self.problem, self.gpu) == (problem, gpu)
            and workers.is_running(self.referee.number)
        ):
            self.referee.stop = stop
            return self.referee
        self.clear()
        self.place = tempfile.TemporaryDirectory(
            prefix="cutegen-referee-", ignore_cleanup_errors=True
        )  # not in shared memory, where candidates can write
        folder = Path(self.place.name)
        for name in ("given", "scratch"):
            (folder / name).mkdir(mode=0o700)
        self.referee = WorkerProcess(
            workers, "referee", folder, wall_s=1e9, memory_bytes=REFEREE_BYTES, stop=stop, gpu=gpu, trusted=True
        )
        self.problem, self.gpu = problem, gpu
        return self.referee

    def clear(self) -> None:
        """End the referee and remove its folder."""
        if self.referee is not None:
            with contextlib.suppress(WorkerLost, Ended):
                self.referee.end()
        if self.place is not None:
            self.place.cleanup()
        self.referee, self.place, self.problem, self.gpu = None, None, "", ""


def process_ids(workers: Server) -> Callable[[], set[int]]:
    """A function that returns the ids of the server and of all its descendants at the time of the call."""

    def ids() -> set[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(workers.process.pid)
            return {root.pid, *(child.pid for child in root.children(recursive=True))}
        return set()

    return ids
