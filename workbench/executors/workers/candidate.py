"""The role `candidate`: import and run a candidate at every case and trial, on the emulator or on a GPU."""

from __future__ import annotations

import copy
import math
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench.emulator import EmulationFault
from workbench.emulator.emulation import Emulation
from workbench.emulator.hook import emulated
from workbench.emulator.origins import Origins
from workbench.executors.jobs.exchange import read_values, write_outputs
from workbench.executors.jobs.journal import Journal
from workbench.executors.jobs.replaced import remember_functions
from workbench.executors.jobs.trials import (
    EMPTY,
    FEWEST_LAW_CALLS,
    NOT_FINITE,
    NUMBERS,
    REFUSABLE,
    REFUSALS,
    SHRUNK,
    Run,
    list_runs,
    name_numbers,
)
from workbench.executors.workers import (  # before the candidate, which could replace what times it
    effects,
    gpu_candidate,
)
from workbench.executors.workers.inputs import special_values
from workbench.executors.workers.outputs import (
    OUTPUTS,
    Rejected,
    Returned,
    check_untouched,
    explain_failure,
    find_case,
    import_candidate,
    load_case,
    source_path,
    validate,
)
from workbench.problems import loading
from workbench.problems.counting import ComputeCount
from workbench.records import Job, Launch, Stage
from workbench.toolchain import describe_module
from workbench.toolchain.compiled import reuse_compiled
from workbench.wire import Json, to_plain

READY_LIMIT_S = 600.0
CONVERSION = "/cutlass/cute/runtime.py"  # from_dlpack, mark_layout_dynamic
NOTICED = ("misaligned", "bad_launch")  # faults with which a GPU ends the program too
LAW_SECONDS = 6.0  # that the calls for a law take, about
# instructions of a CTA's threads, after which a kernel counts as endless; a shipped kernel takes under a tenth of the
# least at its emulated size
LEAST_STEPS, MOST_STEPS = 8_000_000, 32_000_000
STEPS_PER_FLOP = 16_384  # of one result: 256 threads of a CTA with 16 results each, 4 instructions (inferred)


def attempt(
    job: Job,
    folder: Path,
    *,
    gpu: bool = False,
    connection: socket.socket | None = None,
    journal: Journal | None = None,
) -> Json:
    """Import and run the candidate in this process. A failure is in the reply.

    On a GPU, `connection` brings the requests (jobs/rpc.py). On the emulator, `journal` is told of all work.
    """
    with reuse_compiled(folder / "given" / "compiled", folder / "scratch" / "compiled", str(folder)) as counts:
        reply = _attempt(job, folder, gpu, connection, journal or Journal(None))
    reply["phases"]["compiling"] = counts["seconds"]  # 0 when all was compiled in an earlier run of the same source
    return reply


def _attempt(job: Job, folder: Path, gpu: bool, connection: socket.socket | None, journal: Journal) -> Json:
    reply: Json = {"failure": None, "launches": [], "builds": [], "unmapped": [], "phases": {}, "trials": []}
    reply |= {"refusals": [], "reused": False}
    source_file = source_path(folder)
    stage: Stage = "import"
    find_replaced, origins = remember_functions(), Origins(journal.note_unseen)
    others = ""  # numbers given to forward
    try:
        start = time.perf_counter()
        loading.provide_modules(job.problem)
        module = import_candidate(source_file)
        reply["phases"]["import"] = time.perf_counter() - start
        stage = "run"
        if gpu:
            assert connection is not None, "a job on a GPU needs a connection"
            gpu_candidate.run_candidate(job, folder, module, reply, connection)
        else:
            for run in list_runs(job):
                journal.place, others = run.place, name_numbers(job.facts, run.case)
                _run_trial(job, folder, module, run, reply, find_replaced, journal, origins)
        check_untouched(find_replaced)
    except BaseException as error:  # whatever a candidate raises is its failure
        reply["failure"] = explain_failure(error, source_file, stage)
        reply["failure"]["message"] += f" (at {others})" if others else ""
    return reply


def limit_steps(job: Job, case: str) -> int:
    """The limit of a CTA's instructions at a case: larger where a result is a sum of thousands of products."""
    known = [work for work in job.facts.work if work.case != "full"]
    most = LEAST_STEPS
    for work in [one for one in known if one.case == case] or known:
        results = sum(math.prod(spec.shape) for spec in find_case(job, work.case).outputs)
        most = max(most, STEPS_PER_FLOP * work.flops // max(results, 1))
    return min(most, MOST_STEPS)


def _wait_for_values(path: Path) -> list[Any]:
    """Values that the reference's process writes."""
    deadline = time.monotonic() + READY_LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the reference did not deliver {path.name}")
        time.sleep(0.002)
    return read_values(path)


def _run_trial(
    job: Job,
    folder: Path,
    module: ModuleType,
    run: Run,
    reply: Json,
    find_replaced: Callable[[], str],
    journal: Journal,
    origins: Origins,
) -> None:
    """The calls of a trial on the emulator. The launches and builds of the first call of all are kept."""
    given, first = folder / "given", not reply["trials"]
    problem_module, reference = _load_reference(job, given, run)
    calls = [_wait_for_values(given / f"{run.place}-call{call}") for call in range(len(run.values))]
    if special_values.is_left_out(folder, run.place):
        return
    usual = _read_usual(job, given, run)
    start, counted = time.perf_counter(), ComputeCount(journal.note_torch)
    with (
        emulated(
            arch=job.arch,
            device=job.device,
            counters=first,
            source_file=source_path(folder),
            step_limit=limit_steps(job, run.case),
            note_launch=journal.note_launch if first else None,
            note_fault=journal.note_fault,
        ) as emulation,
        torch.no_grad(),
    ):
        try:
            emulation.watch.origins = origins
            model = loading.build_model(
                module, "ModelNew", job.problem, init_from=problem_module, changed=effects.list_returned(job.facts)
            )
            unmapped = loading.copy_parameters(reference, model)
            if run.repeats:
                _sample_law(job, folder, (module, problem_module), (reference, model), calls[0], run, reply, emulation)
                return
            pairs = loading.pair_parameters(reference, model)
            for inputs in usual:  # what it keeps of these numbers shows in the calls below
                _begin_call(origins, counted, model, pairs, inputs)
                model(*inputs)
                loading.copy_parameters(reference, model)
            watch = effects.Watch(reference, model, pairs)
            values: list[torch.Tensor] = []
            kept: list[Launch] = []  # of the first call
            returned = Returned()
            for inputs in calls:
                watch.before(inputs)
                _begin_call(origins, counted, model, pairs, inputs)
                loading.seed_generators(effects.generator_seed(inputs))
                with counted:
                    output = model(*inputs)
                if emulation.faults:  # also one that the candidate caught: a GPU would have ended the program
                    raise emulation.faults[0]
                check_untouched(find_replaced)
                kept = kept or list(emulation.launches)
                with counted:  # a container's methods are the candidate's
                    found = validate(
                        job, run.case, output, emulation.watch.count_unwritten_bytes, any_strides=bool(run.layout)
                    )
                origins.check_results(found)
                values += [value.clone() for value in found]  # before more of the candidate's methods run
                returned.add(found, (*loading.state_of(model).values(), *inputs))
                reply["reused"] |= returned.reused
                watch.after(inputs)
        except Exception as error:
            if not _may_refuse(run, error, bool(emulation.launches), source_path(folder)):
                raise
            said = explain_failure(error, source_path(folder), "run")["message"]
            reply["refusals"].append({"case": run.case, "trial": run.trial, "message": said, "layout": run.layout})
            return
    seconds = time.perf_counter() - start
    reply["trials"].append([run.case, run.trial, seconds])
    if first:
        reply["phases"]["compile and emulate"], reply["unmapped"] = seconds, list(unmapped)
        reply["launches"], reply["builds"] = [to_plain(launch) for launch in kept], plain_builds(emulation, job)
    watch.write(folder / "scratch" / effects.EFFECTS / run.place)
    write_outputs(folder / "scratch" / OUTPUTS / run.place, values)


def _load_reference(job: Job, given: Path, run: Run) -> tuple[ModuleType, torch.nn.Module]:
    """The problem's module at the sizes of a trial, and its model with the trial's parameters and buffers."""
    problem_module = load_case(job, run.case)
    reference = loading.build_model(problem_module, "Model", job.problem)
    with torch.no_grad():
        state = _wait_for_values(given / f"{run.place}-state")
        for value, stored in zip(loading.state_of(reference).values(), state, strict=True):
            value.copy_(stored)
    return problem_module, reference


def _begin_call(
    origins: Origins, counted: ComputeCount, model: torch.nn.Module, pairs: Mapping[str, str], inputs: list[Any]
) -> None:
    """Mark what a call is given: the inputs, and the state that the reference has too."""
    with counted:  # a model's methods are the candidate's
        state = loading.state_of(model)
    origins.begin_call([*inputs, *(state[name] for name in pairs.values() if name in state)])


def _sample_law(
    job: Job,
    folder: Path,
    modules: tuple[ModuleType, ModuleType],
    models: tuple[torch.nn.Module, torch.nn.Module],
    inputs: list[Any],
    run: Run,
    reply: Json,
    emulation: Emulation,
) -> None:
    """Write the outputs of repeated calls with the same inputs and state. Torch's generator is seeded once for each of
    the two halves, of which the second has an instance of its own.
    """
    (own, problem_module), (reference, model) = modules, models
    values: list[torch.Tensor] = []
    made, calls, seed = 0, run.repeats, effects.generator_seed(inputs)
    start = time.process_time()
    while made < calls:
        if made == calls // 2:
            model = loading.build_model(own, "ModelNew", job.problem, init_from=problem_module)
        if made in (0, calls // 2):
            loading.seed_generators(seed + made)
        loading.copy_parameters(reference, model)
        output = model(*copy.deepcopy(inputs))
        if emulation.faults:
            raise emulation.faults[0]
        values += [value.clone() for value in validate(job, run.case, output, emulation.watch.count_unwritten_bytes)]
        made += 1
        if made == 1:  # which compiles
            start = time.process_time()
        if made == 3:
            fitting = int(LAW_SECONDS / max((time.process_time() - start) / 2, 1e-3)) // 2 * 2
            calls = min(max(fitting, FEWEST_LAW_CALLS), run.repeats)
    reply["law_calls"] = made
    write_outputs(folder / "scratch" / OUTPUTS / run.place, values)


def _read_usual(job: Job, given: Path, run: Run) -> list[list[Any]]:
    """The calls with the problem's own numbers before a trial with others: one, unless an instance goes on from it."""
    keeps_state = any(one.kind == "state_assigned" for one in job.facts.degeneracies)
    if run.case not in NUMBERS or SHRUNK not in job.cases or keeps_state:
        return []
    return [read_values(given / f"{SHRUNK}-0-call0")]


def _may_refuse(run: Run, error: Exception, launched: bool, source_file: str) -> bool:
    """Whether an exception is a refusal of a trial's inputs, not a failure.

    Inputs of another layout and empty ones may end in any exception, since it cannot go unnoticed.
    """
    if run.values == (NOT_FINITE,):
        return True
    if run.layout or run.case == EMPTY:
        noticed = isinstance(error, EmulationFault) and error.failure.kind in NOTICED
        return noticed or not isinstance(error, (EmulationFault, Rejected))
    return run.case in REFUSABLE and not launched and _is_own_refusal(error, source_file)


def _is_own_refusal(error: Exception, source_file: str) -> bool:
    """Whether the candidate's own text raised an error by which host code refuses what it is given.

    So does CuTe DSL's conversion of a tensor, which cannot tell the leading axis of one whose extents are all 1.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename if frames else ""
    return last.endswith(CONVERSION) or (type(error).__name__ in REFUSALS and last == source_file)


def plain_builds(emulation: Emulation, job: Job) -> list[Json]:
    """The builds of an emulation as plain data."""
    return [
        to_plain(build)
        for item in emulation.modules
        for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=job.want_sass)
    ]
