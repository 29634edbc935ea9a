"""Plans a tuning run: the legal configurations of a problem in order, and their candidate files. Needs no GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench import problems
from workbench.codegen import compile_program
from workbench.codegen.canonical import canonical, code
from workbench.errors import ProgramError
from workbench.landscapes.keys import problem_key
from workbench.language import OPERATIONS, Binding, Call, Program, Stage, configurations, format_program, parse
from workbench.language.checks import check_stage
from workbench.language.limits import check_limits
from workbench.problems import inspection
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, Rung, ladder
from workbench.proposers.ladders.products import WGMMA
from workbench.proposers.obstacles import recognise_whole
from workbench.proposers.recognition import Computation, Unrecognised
from workbench.proposers.recognition.arguments import name_inputs
from workbench.proposers.rung_programs import list_program_stages, write_program
from workbench.records import Facts, Problem
from workbench.wire import Json

ROOT = Path(__file__).parents[1]  # the package
ARCH, DEVICE = "sm_90a", "H200"
# configurations of a product, of a problem of rows, of one of the nineteen; of more, the planner's own and a sample
MOST, MOST_ROWS, MOST_OTHERS = 480, 200, 60
ALL = 30_000  # up to so many combinations of settings, each one is tried
DRAWN = 6_000  # of more combinations, so many are drawn
VARIED = ("stages", "raster", "splitk", "swap", "launch", "store")
RULE = (
    "every rung of the planner's ladder; then in the order of a hash: "
    "of gemm on tensor cores all tiles x clusters x schedules with other settings left out, and "
    + ", ".join(VARIED)
    + " one at a time on the planner's first six; of gemm in fp32 all tiles x thread tiles; "
    "of other operations every combination of settings, of more than "
    f"{ALL} combinations {DRAWN} drawn at random; programs with the same code once; "
    "left out: what the language's checks say does not go with the problem's sizes and types"
)


@dataclass(frozen=True)
class TuningProblem:
    """One problem to tune: a shipped one or a file, with its sizes and precision."""

    name: str
    origin: str
    precision: str = "fp32"
    settings: tuple[tuple[str, int], ...] = ()
    most: int = MOST

    @property
    def problem(self) -> Problem:
        """The record, with its sizes written into its source, so that the emulator may shrink them."""
        problem = problems.load(self.origin, name=self.name, precision=self.precision)  # type: ignore[arg-type]
        return dataclasses.replace(problem, source=problems.with_settings(problem.source, self.settings))


@dataclass(frozen=True)
class TuningPlan:
    """A recognised problem with the programs to measure, in order, and the number of legal combinations seen."""

    place: TuningProblem
    problem: Problem
    facts: Facts
    key: str
    programs: tuple[str, ...]
    sources: tuple[str, ...]  # their candidate files
    legal: int
    arch: str = ARCH
    device: str = DEVICE

    @property
    def header(self) -> Json:
        """The entry of this problem in the file's header."""
        work = next(work for work in self.facts.work if work.case == "full")
        return {
            "name": self.place.name,
            "origin": self.place.origin,
            "settings": dict(self.place.settings),
            "precision": self.place.precision,
            "mode": self.problem.mode,
            "kind": self.facts.kind,
            "flops": work.flops,
            "least_bytes": work.least_bytes,
            "dtype": work.dtype,
            "tensor_cores": work.tensor_cores,
            "legal": self.legal,
            "planned": len(self.programs),
        }

    def limit(self, most: int) -> TuningPlan:
        """The plan with at most so many programs."""
        return dataclasses.replace(self, programs=self.programs[:most], sources=self.sources[:most])


def plan_problem(place: TuningProblem) -> TuningPlan | str:
    """The plan of one problem, or a sentence that says why there is none."""
    opened = inspection.open_problem(place.problem)
    return plan_recognised(place, opened.problem, opened.facts)


def plan_recognised(
    place: TuningProblem, problem: Problem, facts: Facts, *, arch: str = ARCH, device: str = DEVICE
) -> TuningPlan | str:
    """The planner's ladder, then a sample of the other legal configurations.

    Returns a sentence if the planner does not recognise the problem.
    """
    try:
        found = recognise_whole(facts)
    except Unrecognised as reason:
        return str(reason)
    named = name_inputs(facts)
    ladder_rungs = ladder(Context(found=found, precision=place.precision, arch=arch, device=device, facts=named))
    steps = [canonical(write_program(found, rung, arch)) for rung in ladder_rungs]
    rungs = list({code(step): step for step in reversed(steps)}.values())[::-1]
    binding = binding_of(problem, facts, found)
    rest, legal = _sample_rest(_find_varied(found, ladder_rungs, arch), place.precision, rungs, place.most, binding)
    sources: dict[str, str] = {}
    bodies: set[str] = set()
    for program in dict.fromkeys([*rungs, *rest]):
        with contextlib.suppress(ProgramError):
            source = compile_program(program, binding)
            body = source.split('"""', 2)[2]  # without the program's text at its head
            if body not in bodies:
                bodies.add(body)
                sources[program] = source
    most = max(place.most, len(rungs))
    return TuningPlan(
        place,
        problem,
        facts,
        problem_key(problem),
        tuple(sources)[:most],
        tuple(sources.values())[:most],
        legal,
        arch,
        device,
    )


def _find_varied(found: Computation, rungs: Sequence[Rung], arch: str) -> Computation:
    """The computation whose main stage is varied: of a pipeline the piece with the most work, with the stages that the
    first rung of the ladder has for the other pieces before and after it.
    """
    if not found.pieces:
        return found
    place = max(range(len(found.pieces)), key=lambda at: found.pieces[at].work)
    stages = [
        list_program_stages(piece.named, part, arch) for piece, part in zip(found.pieces, rungs[0].parts, strict=True)
    ]
    main = found.pieces[place].named
    return dataclasses.replace(
        main,
        before=(*itertools.chain(*stages[:place]), *main.before),
        after=(*main.after, *itertools.chain(*stages[place + 1 :])),
    )


def _sample_rest(
    found: Computation, precision: str, rungs: list[str], most: int, binding: Binding
) -> tuple[list[str], int]:
    """(the ladder and at most so many programs in all, in the order of a hash; number of legal combinations seen)."""
    texts = sorted(
        {_format_stage(found, stage) for stage in _legal_stages(found, precision, rungs)},
        key=lambda text: hashlib.sha256(text.encode()).hexdigest(),
    )
    programs = {code(rung): rung for rung in rungs}
    for text in texts:
        with contextlib.suppress(ProgramError):  # settings that do not go with the other stages
            short = canonical(text)
            if not check_limits(parse(short), binding):
                programs.setdefault(code(short), short)
        if len(programs) >= most:
            break
    return list(programs.values()), len(texts)


def _format_stage(found: Computation, stage: Stage) -> str:
    return format_program(Program(stages=(*found.before, stage, *found.after)))


def _legal_stages(found: Computation, precision: str, rungs: list[str]) -> Iterator[Stage]:
    layout = (Call(name="layout", named=found.layout),) if found.layout else ()
    base = Stage(
        operation=found.operation,
        settings=(Call(name="arch", positional=(ARCH,)), *layout),
        epilogues=found.epilogues,
        result=found.result,
    )
    if found.operation.name != "gemm":
        yield from _draw_stages(base)
    elif precision == "fp32":
        yield from configurations(base, only=("tile", "thread_tile"))
    else:
        on_tensor_cores = dataclasses.replace(
            base, settings=(*base.settings, Call(name="mma", positional=(WGMMA[precision],)))
        )
        yield from configurations(on_tensor_cores, only=("tile", "cluster", "schedule"))
        for rung in [rung for rung in rungs if "schedule" in rung][:6]:
            stages = parse(rung).stages[len(found.before) :]
            if not stages or stages[0].operation.name != "gemm":
                continue  # this rung fuses other stages than the first one
            stage = stages[0]
            for name in VARIED:
                yield from configurations(
                    dataclasses.replace(stage, settings=tuple(call for call in stage.settings if call.name != name)),
                    only=(name,),
                )


def _draw_stages(base: Stage) -> Iterator[Stage]:
    """Every legal combination of settings; of more than ALL, some that are drawn from a fixed seed."""
    operation = OPERATIONS[base.operation.name]
    free = [
        item for item in operation.settings if item.values and item.name not in {call.name for call in base.settings}
    ]
    if math.prod(len(item.values) + 1 for item in free) <= ALL:
        yield from configurations(base)
        return
    numbers = random.Random(0)
    for _ in range(DRAWN):
        picked = numbers.sample(free, numbers.randint(1, len(free)))
        chosen = [(item.name, numbers.choice(item.values)) for item in picked]
        calls = tuple(
            Call(name=name, positional=value if isinstance(value, tuple) else (value,)) for name, value in chosen
        )
        stage = dataclasses.replace(base, settings=(*base.settings, *calls))
        if not check_stage(stage):
            yield stage


def code_hash() -> str:
    """Hash of all code that a plan depends on. A plan made with other code is not used."""
    files = sorted(ROOT.rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


@dataclass(frozen=True)
class Task:
    """One candidate file and its targets: problems (by number), each with the program's text."""

    source: str
    targets: tuple[tuple[int, str], ...]


def list_tasks(plans: list[TuningPlan], done: set[tuple[str, str]]) -> list[Task]:
    """All tasks of a run: torch eager first, then the programs of all problems in turn.

    A file that several problems share is one task, so it is compiled once.
    """
    grouped: dict[str, list[tuple[int, str]]] = {}
    for rank in range(max((len(plan.programs) for plan in plans), default=0)):
        for number, plan in enumerate(plans):
            if rank < len(plan.programs) and (plan.key, plan.programs[rank]) not in done:
                grouped.setdefault(plan.sources[rank], []).append((number, plan.programs[rank]))
    eager = [Task("", ((number, ""),)) for number, plan in enumerate(plans) if (plan.key, "") not in done]
    return eager + [Task(source, tuple(targets)) for source, targets in grouped.items()]
