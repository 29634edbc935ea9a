"""What was understood of a problem, as one record, from its operations to what the planner can write."""

from __future__ import annotations

from dataclasses import replace

from workbench.analysis import devices
from workbench.analysis.coverage import fixed_extents
from workbench.analysis.speed_of_light import bound
from workbench.executors.jobs.trials import Run, list_runs, name_numbers
from workbench.proposers.coverage import Coverage, find_coverage
from workbench.records import Bound, Case, Facts, Job, Size, Work, record
from workbench.session import Session
from workbench.views.text.operations import (
    AxisNames,
    OperationLine,
    list_operations,
    list_returned,
    plain_name,
    short_dtype,
    traced_case,
)

ORIGINS = {"shipped": "of the package", "cell": "of a cell", "expression": "an expression"}  # else it is a path


@record
class TensorLine:
    """A tensor of the problem. `shape` has names of sizes where they decide, else numbers."""

    role: str  # input, parameter, buffer or output
    name: str
    dtype: str
    shape: tuple[str, ...]


@record
class CaseLine:
    """A case: its inputs' shapes, its sizes, and how often and with which values a candidate runs it."""

    name: str
    shapes: str
    sizes: tuple[tuple[str, int], ...]
    trials: int  # 0: it is not run
    values: str  # of the inputs


@record
class Card:
    """What was understood of a problem."""

    name: str
    headline: str
    origin: str
    kind: str
    precision: str
    mode: str
    device: str
    executor: str
    arch: str
    operations: tuple[OperationLine, ...]
    traced: str  # the case at which the operations, and so the numbers in their calls, were seen
    returned: tuple[str, ...]  # the names of the values that forward returns
    form: str  # in which they are returned, if not as tensors
    tensors: tuple[TensorLine, ...]
    # name, type and value of those of forward that hold no tensor; how cases vary them
    arguments: tuple[tuple[str, str, str, str], ...]
    sizes: tuple[Size, ...]
    cases: tuple[CaseLine, ...]
    coverage: Coverage
    work: Work | None = None  # at full size
    bound: Bound | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def describe_problem(session: Session) -> Card:
    """The card of a session's problem."""
    facts, job = session.facts, session.job(None)
    names = AxisNames(facts)
    tensors = _list_tensors(facts, names)  # first: operations take names from them
    work = next((work for work in facts.work if work.case == "full"), None)
    return Card(
        name=session.problem.name,
        headline=headline(session),
        origin=session.problem.origin,
        kind=facts.kind,
        precision=session.problem.precision,
        mode=session.problem.mode,
        device=session.device,
        executor=session.executor_name,
        arch=session.arch,
        operations=list_operations(facts, names),
        traced=traced_case(facts),
        returned=list_returned(facts),
        form=facts.form,
        tensors=tensors,
        arguments=tuple((*one, _describe_others(session, one[0])) for one in facts.plain_arguments),
        sizes=tuple(_with_shorter(size, facts) for size in facts.sizes),
        cases=tuple(_describe_case(job, case) for case in facts.cases),
        coverage=find_coverage(session.problem, facts, arch=session.arch, device=session.device),
        work=work,
        bound=bound(work, devices.find(session.device)) if work else None,
        warnings=list_warnings(session),
        notes=(
            *(note for note in facts.notes if note not in {size.why for size in facts.sizes}),
            *(
                f"{', '.join(extents)}: {value} in every case, a number of the text that no size decides"
                for value, extents in fixed_extents(facts).items()
            ),
        ),
    )


def headline(session: Session) -> str:
    """The problem in a line: kind, where it comes from, precision, mode, where it runs."""
    problem = session.problem
    return (
        f"{session.facts.kind}, {ORIGINS.get(problem.origin, problem.origin)}; precision {problem.precision}, "
        f"{problem.mode} mode; runs on {session.executor_name}, code for {session.arch}, judged as {session.device}"
    )


def list_warnings(session: Session) -> tuple[str, ...]:
    """Why a time or a comparison of this problem means less: no room on the device, trivial outputs that pass."""
    works = [work for work in session.facts.work if work.case == "full"]
    rooms = [memory_warning(work.least_bytes, session.device) for work in works]
    unreached = session.facts.unreached if session.executor_name == "emulator" else ()
    return tuple(filter(None, (*rooms, *(item.message for item in session.facts.degeneracies), *unreached)))


def format_shapes(case: Case) -> str:
    """The shapes of a case's inputs: `x [64, 128], w [128, 32]`."""
    return ", ".join(f"{spec.name} {list(spec.shape)}" for spec in case.inputs)


def memory_warning(least_bytes: int, device: str) -> str:
    """A warning if inputs, parameters and results together exceed the device's memory; "" if they fit."""
    memory = devices.find(device).memory_bytes
    if least_bytes <= memory:
        return ""
    return (
        f"the full case does not fit the device: inputs, parameters and results take {least_bytes / 1e9:,.1f} GB, "
        f"{device} has {memory / 1e9:,.1f} GB; the bound belongs to no possible run; "
        "make sizes smaller with --set NAME=VALUE"
    )


def _list_tensors(facts: Facts, names: AxisNames) -> tuple[TensorLine, ...]:
    """Inputs, parameters, buffers and outputs."""
    buffers = _buffer_names(facts)
    found = [
        TensorLine(role="input", name=spec.name, dtype=short_dtype(spec.dtype), shape=names.of_input(spec.name))
        for spec in facts.cases[-1].inputs
    ]
    for spec in facts.parameters:
        role, prefix = ("buffer", "buffer") if spec.name in buffers else ("parameter", "param")
        shape = names.of_state(spec, prefix)
        found.append(TensorLine(role=role, name=spec.name, dtype=short_dtype(spec.dtype), shape=shape))
    for n, spec in enumerate(facts.cases[-1].outputs):
        found.append(TensorLine(role="output", name=spec.name, dtype=short_dtype(spec.dtype), shape=names.of_output(n)))
    return tuple(found)


def _with_shorter(size: Size, facts: Facts) -> Size:
    """The size, and of inputs' extents that are shorter than it how long they are: steps of a range decide too."""
    lengths = {f"{spec.name}[{axis}]": n for spec in facts.cases[-1].inputs for axis, n in enumerate(spec.shape)}
    extents = (f"{one} is {lengths[one]}" if lengths.get(one, size.value) < size.value else one for one in size.extents)
    return replace(size, extents=tuple(extents))


def _buffer_names(facts: Facts) -> set[str]:
    read = {text for op in facts.graph for text in (*op.operands, *(value for _, value in op.keywords))}
    known = {spec.name for spec in facts.full}
    return {plain_name(name) for name in (*read, *known) if name.startswith("buffer:")}


def _describe_others(session: Session, name: str) -> str:
    """How cases vary an argument of forward that holds no tensor; "" for one that is no number."""
    one = next((one for one in session.facts.given if one.name == name), None)
    if one is None:
        return ""
    if one.others:
        return f"varied: also {', '.join(map(str, one.others))}"
    if one.follows:
        return "as the size that it follows"
    is_kept = {one.name, one.key}.intersection(session.problem.keep)
    other = "no other value that was tried runs and changes the results visibly"
    return f"not varied: {'it is kept' if is_kept else other}"


def _kinds_of(run: Run) -> tuple[str, ...]:
    if run.repeats:
        return ("repeated calls for the law of random numbers",)
    return (run.layout,) if run.layout else run.values


def _describe_case(job: Job, case: Case) -> CaseLine:
    runs = [run for run in list_runs(job) if run.case == case.name]
    usual = name_numbers(job.facts, case.name) or "random"
    kinds = [kind or usual for run in runs for kind in _kinds_of(run)]
    return CaseLine(
        name=case.name,
        shapes=format_shapes(case),
        sizes=tuple(job.facts.size_values(case.name).items()),
        trials=len(runs),
        values=", ".join(dict.fromkeys(kinds)),
    )
