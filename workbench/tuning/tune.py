"""`cutegen tune`: measures a space of configurations on this machine's GPUs and writes the rows of a landscape file.

A run that was interrupted continues with the configurations that the file does not hold yet.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from workbench.analysis import devices
from workbench.codegen import compile_program
from workbench.errors import ProgramError, UserError
from workbench.executors.gpu.presence import Gpu, device_at_hand, gpus_to_use, why_no_gpu
from workbench.landscapes import own_folder, table
from workbench.landscapes.keys import problem_key
from workbench.landscapes.table import Row
from workbench.problems import inspection
from workbench.proposers.binding import binding_of
from workbench.proposers.obstacles import recognise_whole
from workbench.proposers.recognition import Unrecognised
from workbench.records import Facts, Problem, record
from workbench.trust import hash_file, trust
from workbench.tuning.files import start_file
from workbench.tuning.plan import ARCH, DEVICE, TuningPlan, TuningProblem, plan_recognised
from workbench.tuning.space import vary_file, vary_program

Progress = Callable[[int, int, Row | None], None]  # rows done, rows in all, the newest row


@record
class TuneRequest:
    """A problem to tune, with a program, a file or neither, and limits."""

    problem: Problem
    program: str = ""  # muCUTLASS; "" with no file: the planner's configurations of the problem
    over: tuple[tuple[str, tuple[object, ...]], ...] = ()  # settings that vary -> values; () as values: all
    file: Path | None = None  # a ModelNew file with SPACE
    budget: int = 200  # configurations at most
    seconds: float = 600.0
    out: Path | None = None
    dry_run: bool = False  # reduced sizes on the emulator: checks that files compile and are correct, with no times


@record
class Tuned:
    """Result of a tuning run."""

    path: Path
    plan: TuningPlan
    rows: tuple[Row, ...]  # all rows of this problem and this GPU in the file, earlier runs included
    planned: int
    best: Row | None
    best_source: str | None
    eager_s: float | None


def tune(request: TuneRequest, progress: Progress) -> Tuned:
    """Measure every configuration that the file does not hold yet.

    Raises `UserError` without a GPU or for a bad space.
    """
    gpus = () if request.dry_run else gpus_to_use()
    if not gpus and not request.dry_run:
        raise UserError(f"tune measures on a GPU, and none is here ({why_no_gpu()}); --dry-run checks the space")
    here = device_at_hand()
    plan = plan_apart(request, here.name if here is not None else DEVICE)
    folder = Path(tempfile.mkdtemp(prefix="cutegen-tune-")) if request.dry_run else own_folder()
    path = request.out or folder / f"{request.problem.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    device = gpus[0].attributes.name if gpus else ""
    known = measured_rows(path, device)
    done = {(row.key, row.program) for row in known if "OutOfMemory" not in row.failure}
    _measure(request, plan, path, done, gpus, progress)
    return _result(plan, path, device)


def plan_apart(request: TuneRequest, device: str) -> TuningPlan:
    """The plan of a request, made in a process of its own: tracing may start CUDA, and a process with CUDA cannot be
    forked.
    """
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        return pool.submit(make_plan, request, device).result()


def measured_rows(path: Path, device: str) -> list[Row]:
    """The rows of a file that this GPU (by its driver's name) measured; those of another one say nothing about it."""
    if not path.exists():
        return []
    header, rows = table.read(path)
    return [row for row in rows if header["runs"][row.run]["device"] == device]


def _measure(
    request: TuneRequest,
    plan: TuningPlan,
    path: Path,
    done: set[tuple[str, str]],
    gpus: tuple[Gpu, ...],
    progress: Progress,
) -> None:
    from workbench.tuning.run import Run, RunOptions  # imports CuTe DSL and torch, which forked processes then have

    workers = max((os.cpu_count() or 2) - 1, 2)
    number = start_file(path, [plan], gpus)
    options = RunOptions(
        seconds=request.seconds,
        workers=workers,
        measurers=min(3, workers),
        gpus=gpus,
        out=path,
        run_number=number,
        dry_run=request.dry_run,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run([plan], options, Path(folder), done)
        run.on_row = lambda row: progress(len(run.rows), run.total, row)
        progress(0, run.total, None)
        run.run()


def measure_alone(
    request: TuneRequest, plan: TuningPlan, path: Path, number: int, gpus: tuple[Gpu, ...], done: set[str]
) -> list[Row]:
    """The rows of a plan's programs that are not done, measured now and appended to the file as run `number`."""
    from workbench.tuning.run import Run, RunOptions  # imports CuTe DSL and torch, which forked processes then have

    options = RunOptions(
        seconds=request.seconds, workers=2, measurers=1, gpus=gpus[:1], out=path, run_number=number, dry_run=False
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run([plan], options, Path(folder), {(plan.key, program) for program in done})
        run.run()
        return run.rows


def _result(plan: TuningPlan, path: Path, device: str) -> Tuned:
    rows = [row for row in measured_rows(path, device) if row.key == plan.key]
    timed = [row for row in rows if row.correct and row.median_s and row.program]
    best = min(timed, key=lambda row: row.median_s or 0.0, default=None)
    sources = dict(zip(plan.programs, plan.sources, strict=True))
    return Tuned(
        path=path,
        plan=plan,
        rows=tuple(rows),
        planned=len(plan.programs),
        best=best,
        best_source=sources.get(best.program) if best else None,
        eager_s=next((row.median_s for row in rows if not row.program), None),
    )


def make_plan(request: TuneRequest, device: str) -> TuningPlan:
    """The configurations of a request, with their candidate files."""
    opened = inspection.open_problem(request.problem)
    problem, facts = opened.problem, opened.facts
    if Path(problem.origin).is_file():  # the landscape will name it
        trust(Path(problem.origin), hash_file(Path(problem.origin)))
    arch = devices.default_arch(ARCH, device)
    settings = tuple((name, value) for name, value in problem.settings if isinstance(value, int))
    place = TuningProblem(
        name=problem.name, origin=problem.origin, precision=problem.precision, settings=settings, most=request.budget
    )
    if request.file is not None:
        found = vary_file(request.file.read_text(encoding="utf-8"), str(request.file))
        legal = len(found)
    elif request.program:
        found, legal = _programs(request, problem, facts)
    else:
        planned = plan_recognised(place, problem, facts, arch=arch, device=device)
        if isinstance(planned, str):
            raise UserError(f"the planner has no configurations of this problem ({planned}); give --program or a file")
        return planned.limit(request.budget)
    programs = tuple(found)[: request.budget]
    return TuningPlan(
        place=place,
        problem=problem,
        facts=facts,
        key=problem_key(problem),
        programs=programs,
        sources=tuple(found[name] for name in programs),
        legal=legal,
        arch=arch,
        device=device,
    )


def _programs(request: TuneRequest, problem: Problem, facts: Facts) -> tuple[dict[str, str], int]:
    """(program -> candidate file of each variant that fits the problem, number of variants)."""
    try:
        binding = binding_of(problem, facts, recognise_whole(facts))
    except Unrecognised as reason:
        raise UserError(f"a program needs a problem that the planner recognises: {reason}; give --file") from None
    texts = vary_program(request.program, dict(request.over))
    found: dict[str, str] = {}
    refused = ""
    for text in texts:
        try:
            found[text] = compile_program(text, binding)
        except ProgramError as error:
            refused = refused or str(error)
    if not found:
        raise UserError(f"no variant of the program fits the problem: {refused}")
    return found, len(texts)
