"""Runs jobs on a CUDA device (see benchmark.py).

The candidate runs in one confined process, its parent version in another. The reference, the checks and torch eager run
in a third, trusted process. Of a quick job (a search's trial) there may be several at a time: their candidates compile
and make their first calls side by side, and take turns at the checks and at timing.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from workbench.errors import GpuMemoryError, ProblemError, Stopped
from workbench.executors.gpu import telemetry
from workbench.executors.gpu.benchmark import Run
from workbench.executors.gpu.memory import check_fits, choose_folder, explain_shortage, lacks_memory, needs_turns
from workbench.executors.gpu.presence import device_at_hand, gpu_at_hand, why_no_gpu
from workbench.executors.gpu.processes import Begun, Candidates, RefereePool, WorkerProcess, process_ids
from workbench.executors.gpu.rounds import RunResult
from workbench.executors.gpu.turns import GpuTurns, share_memory
from workbench.executors.jobs.client import Server, server
from workbench.executors.jobs.folder import JobFolder, candidate_outcome, disk_limit, prepare
from workbench.executors.jobs.rpc import Ended, Gone
from workbench.executors.wrong_result import wrong_result
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Event, Facts, Failure, Job, Outcome, Problem
from workbench.wire import Json, content_hash

QUIET_S = 3.0  # NVML's utilisation covers less time, so after so many seconds it shows no run of ours
ENDING_S = 10.0  # that a process may take to end after it closed its connection (inferred: under 1 s with a GPU)
_POOL = RefereePool()
_last_run = [float("-inf")]
_at_work: set[Candidates] = set()  # whose processes are on a device or about to be


@contextlib.contextmanager
def _hold_device(context: RunContext) -> Iterator[None]:
    """Wait until no other run of this process has the referee, and have it. A run that is broken off ends it, unless
    the referee has answered all that it was asked.
    """
    while not _POOL.lock.acquire(timeout=0.2):
        context.raise_if_stopped()
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, Stopped) and _POOL.is_idle):
            _POOL.clear()
        raise
    finally:
        _last_run[0] = time.monotonic()
        _POOL.lock.release()


class GpuExecutor(Executor):
    """Runs candidates on the CUDA device at the problem's full size, and times them."""

    name = "gpu"
    full_size = True
    times_rivals = True
    runs_quick = True
    default_arch = "sm_90a"
    auto_rank = 2

    def why_not(self) -> str | None:
        """Needs Linux, and an NVIDIA GPU with its driver."""
        if platform.system() != "Linux":
            return "it needs Linux"
        missing = why_no_gpu()
        return missing and f"{missing}; use the emulator"

    def device_name(self) -> str | None:
        """The name of the GPU that this process works on (`presence.select`)."""
        found = device_at_hand()
        return found.name if found is not None else None

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Raise `ProblemError` for a problem that does not fit the memory of the device at hand."""
        check_fits(facts, ("full",), telemetry.memory_bytes())

    def run(self, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        """Run, check and time the candidate at the job's cases, in turns with torch eager and the job's rival.

        The outcome names the GPU that ran it. What found too little memory beside other runs is run again alone. Raises
        `ProblemError` if the problem does not fit the device.
        """
        check_fits(job.facts, job.cases, telemetry.memory_bytes())
        here = self.device_name()
        if here is not None:
            job = replace(job, device=here)
        turns = GpuTurns(gpu_at_hand(), context)
        start = time.perf_counter()
        try:
            outcome = self._run_beside_others(job, context, turns)
        except GpuMemoryError:
            outcome = None
        if outcome is None or lacks_memory(outcome):
            with share_memory(turns.gpu, context, alone=True):
                outcome = explain_shortage(self._run_in_folders(job, context, turns))
        return replace(outcome, phases=(*outcome.phases, ("total", time.perf_counter() - start)))

    def _run_beside_others(self, job: Job, context: RunContext, turns: GpuTurns) -> Outcome:
        """Run while others hold tensors on the GPU too."""
        with share_memory(turns.gpu, context):
            outcome = self._run_in_folders(job, context, turns)
            if turns.waited_s and outcome.failure is not None and outcome.failure.kind == "timeout":
                outcome = self._run_in_folders(job, context, turns)  # its time passed while it waited for its turn
            return outcome

    def _run_in_folders(self, job: Job, context: RunContext, turns: GpuTurns) -> Outcome:
        """Run with folders of its own, while no other run of this process does, but for quick ones."""
        place = choose_folder([spec for case in job.facts.cases if case.name in job.cases for spec in case.outputs])
        with (
            contextlib.nullcontext() if job.quick else _hold_device(context),
            JobFolder(place=place) as name,
            JobFolder(place=place) as small,
            JobFolder("cutegen-rival-") as other,
        ):
            context.progress(Event(kind="running", message="compiling, checking and timing on the GPU", fraction=0.1))
            return self._run(job, Path(name), Path(small), Path(other), context, turns)

    def _run(
        self, job: Job, folder: Path, small_folder: Path, other: Path, context: RunContext, turns: GpuTurns
    ) -> Outcome:
        """Run with the processes of the job. No process of a candidate is left on return."""
        workers = server()
        plain = replace(job, rival=None)
        limits: Json = {
            "wall_s": job.wall_limit_s,
            "memory_bytes": job.memory_limit_bytes,
            "disk_bytes": disk_limit(job),
            "tools": job.want_sass,
            "stop": context.stop,
            "gpu": turns.gpu.uuid,
        }

        def start(folder: Path, job: Job) -> WorkerProcess:
            return WorkerProcess(workers, "candidate", prepare(folder, job), **limits)

        ours = Candidates(start(folder, plain))
        _at_work.add(ours)
        try:
            if any(case.name in job.cases[:-1] for case in job.facts.cases):
                ours.small = start(small_folder, plain)
            if job.rival is not None and job.timed_calls:
                ours.rival = start(other, replace(plain, candidate=job.rival))
            begun = ours.begin(job, _POOL.seed_of(content_hash(job.problem))) if job.quick else {}
            return self._measure(job, workers, ours, turns, begun)
        finally:
            _at_work.discard(ours)
            for process in ours.list():
                process.end()

    def _measure(self, job: Job, workers: Server, processes: Candidates, turns: GpuTurns, begun: Begun) -> Outcome:
        start, small = time.perf_counter(), processes.small
        with _hold_device(turns.context) if job.quick else contextlib.nullcontext():
            waited = time.perf_counter() - start
            run, lost = self._take_turns(job, workers, processes, turns, begun)
        outcome = None
        if small is not None:
            outcome = self._read_outcome(job, small, "" if run.small_is_done else lost)
        if run.small_is_done and (outcome is None or outcome.failure is None):
            refusals = outcome.refusals if outcome is not None else ()
            outcome = self._read_outcome(job, processes.candidate, lost)
            outcome = replace(outcome, refusals=(*refusals, *outcome.refusals))
        assert outcome is not None
        run.result.phases["waiting"] = waited + turns.waited_s
        return _fill(job, outcome, run.result, run.about, time.perf_counter() - start)

    def _take_turns(
        self, job: Job, workers: Server, processes: Candidates, turns: GpuTurns, begun: Begun
    ) -> tuple[Run, str]:
        """Check and time with the referee. Returns the run, and why a process gave no answer, "" if all did."""
        candidate, small, rival = processes.candidate, processes.small, processes.rival

        def count_contexts() -> int:
            """Processes that may be on the device: the referee and the candidate with its rival, those of others."""
            beside = [one.list() for one in tuple(_at_work) if one is not processes]
            return 2 + (rival is not None) + sum(map(len, beside))

        look = telemetry.observer(turns.gpu, process_ids(workers), count_contexts)
        referee = _POOL.get(workers, content_hash(job.problem), turns.context.stop, turns.gpu.uuid)
        run = Run(
            job,
            candidate.folder,
            candidate.channel,
            referee.channel,
            rival.channel if rival else None,
            small=(small.channel, small.folder) if small else None,
            look=look,
            hold=turns.hold,
            busy_before=not job.quick and time.monotonic() - _last_run[0] > QUIET_S,
            in_turns=needs_turns(job, telemetry.memory_bytes()),
            begun=begun,
        )
        run.result.notes += [telemetry.why_not()] if telemetry.why_not() else []
        lost = ""

        def at_work() -> WorkerProcess:
            """The candidate's process whose answer is waited for."""
            return candidate if small is None or run.small_is_done else small

        try:
            run.run()
            if rival is not None:
                rival.channel.send({"do": "end"})  # it leaves the device at the same time as the candidate
            at_work().channel.call({"do": "end"})
            referee.channel.call({"do": "close"})
        except Ended as ended:
            lost = str(ended)
            if isinstance(ended, Gone):
                at_work().wait_for_end(ENDING_S)
        if not workers.is_running(referee.number):
            raise ProblemError(
                "the process that checks results ended in the middle of a job: is the device's memory full?"
            )
        return run, lost

    def _read_outcome(self, job: Job, process: WorkerProcess, lost: str) -> Outcome:
        """What a process of the candidate left; `lost` says why it gave no answer."""
        if lost and process.workers.is_running(process.number):  # its answer cannot be read, or it gave none
            process.end()
            return replace(
                candidate_outcome(job, process.folder, {"end": "exit"}, self.name),
                failure=Failure(stage="integrity", kind="bad_reply", message=f"the candidate's process: {lost}"),
            )
        return candidate_outcome(job, process.folder, process.workers.wait(process.number, process.stop), self.name)


def _fill(job: Job, outcome: Outcome, found: RunResult, about: Json, ran: float) -> Outcome:
    """The outcome with checks, times and versions of the run."""
    wrong = wrong_result(found.checks, outcome.unmapped_parameters, facts=job.facts)
    failure = outcome.failure or found.failure or wrong
    timings = found.timings if failure is None else {}
    versions = (*outcome.versions, ("cuda", str(about.get("cuda"))), ("gpu", str(about.get("gpu"))))
    return replace(
        outcome,
        failure=failure,
        checks=tuple(found.checks),
        versions=versions,
        quick=job.quick,
        phases=(*outcome.phases, *found.phases.items(), ("candidate", ran)),
        timing=timings.get("candidate"),
        reference_timing=timings.get("eager"),
        rival_timing=timings.get("parent"),
        compiled_timing=timings.get("compiled"),
        ratios=found.ratios if failure is None else (),
    )
