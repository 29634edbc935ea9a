"""Finds the `Facts` of a problem: shapes that fit the emulator, a traced graph, counted work, degeneracies.

Runs in a worker (imports torch).
"""

from __future__ import annotations

import contextlib
import dataclasses
from types import ModuleType

from workbench.errors import ProblemError
from workbench.problems import blame, cases, degenerate, dtypes, loading, numbers, ties, variants, with_settings
from workbench.problems.cases import ELEMENT_BUDGET, FLOP_BUDGET, Measured, Search
from workbench.problems.inputs.given import list_further, list_given, list_turned, read_numbers, vary_numbers
from workbench.problems.inputs.init_arguments import list_init_numbers, note_arguments, with_init_arguments
from workbench.problems.model_class import init_source
from workbench.problems.tracing import Trace, trace_graph
from workbench.problems.tracing.between import find_between
from workbench.problems.tracing.branch_search import BranchSearch
from workbench.problems.tracing.joint import trace_uses
from workbench.problems.tracing.kinds import find_kind, operation_names
from workbench.problems.tracing.positions import Branch, list_branches
from workbench.problems.tracing.shape_derived import find_shape_derived
from workbench.problems.tracing.uncompiled import note_compile
from workbench.problems.tracing.whole import Full, trace_at, trace_full
from workbench.problems.work import count_work, note_partial_reads
from workbench.records import Case, Facts, GivenNumber, NumberUse, Opened, Operation, Problem, Settings, TensorSpec
from workbench.wire import content_hash

__all__ = ["ELEMENT_BUDGET", "FLOP_BUDGET", "inspect", "open_problem"]

# operations that mix what they draw with their inputs, so that float64 cannot have the same draws (reference/draws.py)
RANDOM = ("rrelu_with_noise",)
# what the CPU computes in seconds: the search for trivial results runs the reference
CPU_ELEMENTS, CPU_FLOPS = 1 << 25, 1 << 32


@dataclasses.dataclass(frozen=True)
class _Small:
    """The reference at the sizes for the emulator."""

    settings: Settings
    notes: tuple[str, ...]
    case: Case
    graph: tuple[Operation, ...]
    parameters: tuple[TensorSpec, ...]
    places: tuple[tuple[str, str], ...]


def open_problem(problem: Problem) -> Opened:
    """The problem as it is understood, and its facts. Raises `ProblemError` with file and line.

    First its precision, its ties and its mode are decided. Then sizes are shrunk for the emulator; those that the
    person set are shrunk only if the others are not enough. If forward calculates with a number made of a size
    (1 / sqrt(size)), that size stays, provided that the others can be shrunk. A problem that is too large for the
    emulator at its smallest sizes has the full case only, and the first note says so.
    """
    in_init, of_file = list_init_numbers(problem.source)
    lifted = _open_lifted(problem) if of_file else None  # no kernel of one text fits all sizes otherwise
    if lifted is not None and any(size.varied and of_file & {size.name, *size.tied} for size in lifted.facts.sizes):
        return lifted
    try:
        opened = _open(problem)
    except cases.TooLarge as error:
        return lifted or _open_lifted(problem) or _open(problem, error)
    if any(not size.varied and size.value in in_init and size.name not in problem.keep for size in opened.facts.sizes):
        lifted = lifted or _open_lifted(problem)
        if lifted is not None and _count_kept(lifted) < _count_kept(opened):
            return lifted
        return _explain_kept(opened, lifted) if lifted is not None else opened
    return opened


def _explain_kept(opened: Opened, lifted: Opened) -> Opened:
    """The problem with the reasons for which sizes stay even if the numbers of `Model.__init__` vary with them."""
    reasons = {size.name: size.why for size in lifted.facts.sizes if not size.varied and size.why}
    other = {size.why: reasons.get(size.name, size.why) for size in opened.facts.sizes if size.why}
    sizes = tuple(dataclasses.replace(size, why=other.get(size.why, size.why)) for size in opened.facts.sizes)
    notes = tuple(other.get(note, note) for note in opened.facts.notes)
    return dataclasses.replace(opened, facts=dataclasses.replace(opened.facts, sizes=sizes, notes=notes))


def _open_lifted(problem: Problem) -> Opened | None:
    """The problem with the numbers of `Model.__init__` as its arguments; None if it has none or does not open so."""
    source = with_init_arguments(problem.source)
    if source is None:
        return None
    try:
        opened = _open(dataclasses.replace(problem, source=source))
    except ProblemError:
        return None
    notes = (*opened.facts.notes, note_arguments(problem.source, source))
    return dataclasses.replace(opened, facts=dataclasses.replace(opened.facts, notes=notes))


def _count_kept(opened: Opened) -> tuple[int, int]:
    """(how many axes of inputs, how many sizes have one value in all cases)."""
    kept = [size for size in opened.facts.sizes if not size.varied]
    inputs = {spec.name for spec in opened.facts.cases[-1].inputs}
    axes = [extent for size in kept for extent in size.extents if extent.rpartition("[")[0] in inputs]
    return len(axes), len(kept)


def _open(problem: Problem, too_large: cases.TooLarge | None = None) -> Opened:
    """The problem and its facts, those at full size alone if it is known to be too large for the emulator."""
    decided, said = dtypes.decide_precision(problem)
    decided, mode = dtypes.decide_mode(ties.tie_sizes(decided))
    facts = _inspect(decided, too_large)
    sizes = ties.describe_sizes(decided, facts.cases, facts.notes, facts.graph)
    notes = (*facts.notes, *said, *mode, *note_compile(problem.source))
    facts = dataclasses.replace(facts, notes=notes, sizes=sizes)
    return Opened(problem=decided, facts=dataclasses.replace(facts, between=find_between(decided, facts)))


def inspect(problem: Problem) -> Facts:
    """The facts of a problem, as `open_problem` finds them."""
    return open_problem(problem).facts


def _inspect(problem: Problem, too_large: cases.TooLarge | None) -> Facts:
    measured = blame.measure_full(problem)
    full = trace_full(problem)
    if too_large is not None:
        return _facts_at_full_size(problem, measured, full, too_large, Search(len(full.graph)))
    held = _hold_windows(problem, full)
    search = Search(len(full.graph))
    said: tuple[str, ...] = ()
    try:
        held, small = _inspect_held(problem, held, measured, search)
    except cases.TooLarge:
        if not problem.settings:
            raise
        held = dataclasses.replace(problem, source=with_settings(problem.source, problem.settings), settings=())
        held = _hold_windows(held, full)
        small = _inspect_small(problem, held, measured, search)
        said = _note_smaller(problem, small)
    if full.calculates_differently(small.graph):
        for name, value in cases.sizes(held).items():
            keeping = dataclasses.replace(held, settings=(*held.settings, (name, value)))
            with contextlib.suppress(ProblemError):
                other = _inspect_small(problem, keeping, measured, search)
                if not full.calculates_differently(other.graph):
                    said = (*said, f"{name} stays {value}: forward calculates with a number made of it")
                    small, held = other, keeping
                    break
    for name, value in _list_calculated(held, full, small):
        with contextlib.suppress(ProblemError):
            keeping = dataclasses.replace(held, settings=(*held.settings, (name, value)))
            small, held = _inspect_small(problem, keeping, measured, search), keeping
            said = (*said, f"{name} stays {value}: forward calculates with a number made of it")
    return _make_facts(problem, held, measured, full, small, said, search)


def _inspect_held(problem: Problem, held: Problem, measured: Measured, search: Search) -> tuple[Problem, _Small]:
    """(the problem with what stays in its settings, the problem at small sizes): numbers that are no extent stay, such
    as a number of heads, unless only other ones let the problem become small enough.
    """
    attributes = tuple(ties.list_attributes(held).items())
    if attributes:
        whole = dataclasses.replace(held, settings=(*held.settings, *attributes))
        with contextlib.suppress(cases.TooLarge):
            return whole, _inspect_small(problem, whole, measured, search)
    return held, _inspect_small(problem, held, measured, search)


def _hold_windows(problem: Problem, full: Full) -> Problem:
    """The problem with what is no size set: strides, paddings, widths of pools, numbers of groups, lengths of lists of
    tensors.
    """
    counts = tuple(ties.list_counts(problem).items())
    problem = dataclasses.replace(problem, settings=(*problem.settings, *counts)) if counts else problem
    windows = numbers.list_windows(full.graph)
    names = cases.sizes(problem, 2) if windows else {}
    held = tuple((name, value) for name, value in names.items() if _is_window(problem, name, value, windows))
    return dataclasses.replace(problem, settings=(*problem.settings, *held)) if held else problem


def _is_window(problem: Problem, name: str, value: int, windows: list[tuple[str, ...]]) -> bool:
    """Whether another value of a number gives other windows or groups."""
    graph = _trace_other(problem, name, value)
    return bool(graph) and numbers.list_windows(graph) != windows


def _list_calculated(held: Problem, full: Full, small: _Small) -> list[tuple[str, int]]:
    """The sizes, and their values, that are not shrunk and with which forward calculates. Other cases vary them, so the
    numbers of the two graphs, which are alike, are not those of every case.
    """
    if not full.graph or numbers.calculates_differently(full.graph, full.graph):  # numbers that nobody knows
        return []
    now, left = dict(small.settings), Search(len(full.graph)).left
    unmoved = [(name, value) for name, value in cases.sizes(held, 2).items() if now.get(name, value) == value]
    found = []
    for name, value in unmoved[:left]:
        graph = _trace_other(held, name, value)
        if graph and numbers.uses_other_numbers(full.graph, graph):
            found.append((name, value))
    return found


def _trace_other(problem: Problem, name: str, value: int) -> tuple[Operation, ...]:
    """The graph with another value of a number, the nearest with which forward runs."""
    others = (value + 1, value - 1, 2 * value, value // 2)
    return next(filter(None, (trace_at(problem, ((name, other),)).graph for other in others)), ())


def _note_smaller(problem: Problem, small: _Small) -> tuple[str, ...]:
    """Notes on sizes that the person set and that the emulator has smaller."""
    now = dict(small.settings)
    return tuple(
        f"{name} is {value} at full size, and {now[name]} on the emulator, which cannot take so much"
        for name, value in problem.settings
        if now.get(name, value) != value
    )


def _facts_at_full_size(
    problem: Problem, measured: Measured, full: Full, error: cases.TooLarge, search: Search
) -> Facts:
    """The facts of a problem that only a GPU can run. Its graph is traced on fake tensors."""
    try:
        smallest = cases.measure(problem, "smallest", error.settings)
        is_runnable = smallest.elements + smallest.state_elements <= CPU_ELEMENTS and smallest.total <= CPU_FLOPS
    except ProblemError:
        is_runnable = False
    said = () if is_runnable else ("nobody looked for trivial results that would pass: the reference is too large",)
    state = [(spec.name.split(":", 1)[1], spec) for spec in full.values if spec.name.startswith(("param:", "buffer:"))]
    work, named = count_work(problem, measured, full.graph)
    return Facts(
        problem_hash=content_hash(problem),
        kind=find_kind(full.graph),
        init_source=init_source(problem.source),
        forward_arguments=loading.forward_arguments(loading.load_module(problem)),
        graph=full.graph,
        parameters=tuple(dataclasses.replace(spec, name=name) for name, spec in state),
        cases=(measured.case,),
        work=(work,),
        degeneracies=degenerate.find_degeneracies(problem, error.settings, search) if is_runnable else (),
        notes=(str(error), *said, *note_partial_reads(full.graph, named, "full")),
        full=full.all_specs(),
        form=measured.form,
        structure=measured.structure,
        plain_arguments=measured.plain_arguments,
        places=_places_of_text(problem, full.places),
    )


def _places_of_text(problem: Problem, places: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Places in a text that a person has; an expression's module is not one."""
    return places if problem.origin != "expression" else ()


def _inspect_small(problem: Problem, held: Problem, measured: Measured, search: Search) -> _Small:
    """Shrink, run and trace the problem. `held` is the problem with the sizes that must stay in its settings."""
    settings, notes = cases.shrink(held, measured, search)
    settings, case = variants.grow(problem, settings)
    module = loading.load_module(problem, case.settings)
    try:
        traced = _trace(module, problem)
    except Exception as error:
        raise loading.problem_error(problem, module, error, "the reference cannot be traced: ") from error
    _refuse_random(problem, traced.graph)
    return _Small(settings, notes, case, traced.graph, traced.parameters, traced.places)


def _make_facts(
    problem: Problem,
    held: Problem,
    measured: Measured,
    full: Full,
    small: _Small,
    more: tuple[str, ...],
    search: Search,
) -> Facts:
    graph, differing = small.graph, full.differing_graph(small.graph)
    odd, said = variants.odd_case(held, small.settings)
    drawn = (small.case, odd) if odd is not None else (small.case,)
    edges = variants.edge_cases(held, small.settings, drawn, measured)
    beyond, unreached = _go_beyond(held, full, small, (*drawn, *edges), measured, search)
    edges = (*edges, *beyond)
    given, others = _vary_given(problem, measured, full, small)
    derived = find_shape_derived(held, measured.case, full.graph, (*drawn, *edges), graph)
    work = [count_work(problem, cases.measure(problem, case.name, case.settings), graph)[0] for case in drawn]
    whole, named = count_work(problem, measured, full.graph or graph)
    return Facts(
        problem_hash=content_hash(problem),
        kind=find_kind(graph),
        init_source=init_source(problem.source),
        forward_arguments=loading.forward_arguments(loading.load_module(problem, small.settings)),
        graph=graph,
        parameters=small.parameters,
        cases=(*drawn, *others, *edges, measured.case),
        work=(*work, whole),
        degeneracies=degenerate.find_degeneracies(problem, small.settings, search),
        notes=(*small.notes, *said, *note_partial_reads(graph, named, "full"), *more),
        full=full.specs(small.graph),
        full_graph=differing,
        form=measured.form,
        structure=measured.structure,
        plain_arguments=measured.plain_arguments,
        given=given,
        unreached=unreached,
        made=derived.made,
        constants=derived.constants,
        places=_places_of_text(problem, small.places),
    )


def _go_beyond(
    held: Problem, full: Full, small: _Small, known: tuple[Case, ...], measured: Measured, search: Search
) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """(a case with positions beyond the numbers with which forward compares them, if the known ones have none; a
    sentence for each number that no case reaches).
    """

    def list_branches_at(at: Settings) -> frozenset[Branch]:
        return trace_at(held, at).list_branches()

    missing = full.list_branches()
    missing -= list_branches(small.graph, {spec.name: spec.shape for spec in small.case.inputs}) if missing else missing
    for case in known[1:]:
        missing -= list_branches_at(case.settings) if missing else missing
    search_beyond = BranchSearch(held, list_branches_at, Search(len(full.graph)))
    found, unreached = search_beyond.find_case(missing, small.settings, known) if missing else (None, ())
    return (found,) if found is not None else (), unreached


def _vary_given(
    problem: Problem, measured: Measured, full: Full, small: _Small
) -> tuple[tuple[GivenNumber, ...], tuple[Case, ...]]:
    """(the numbers given to forward, with what they become in its graph; the cases in which they have other values)."""
    if not any(kind in ("bool", "int", "float") for _, kind, _ in measured.plain_arguments):
        return (), ()
    given, found = vary_numbers(problem, small.settings, list_given(problem, small.settings))
    traced = [one for one in given if one.others or one.follows]
    further = {one.name: ((*one.others, *list_further(one)), list_turned(problem, one)) for one in traced}
    values = read_numbers(problem, small.settings)

    def trace_small(changed: Settings) -> tuple[Operation, ...]:
        with contextlib.suppress(Exception):  # the person's code raises what it likes for a number
            return _trace(loading.load_module(problem, (*small.case.settings, *changed)), problem).graph
        return ()

    def trace_whole(changed: Settings) -> tuple[Operation, ...]:
        return trace_full(dataclasses.replace(problem, settings=(*problem.settings, *changed))).graph

    uses = trace_uses(traced, values, small.graph, trace_small, further)
    full_uses = trace_uses(traced, {one.name: one.value for one in traced}, full.graph, trace_whole, further)
    nothing: tuple[tuple[NumberUse, ...], str] = ((), "")
    made = []
    for one in given:
        (at_small, unclear), (at_full, unclear_full) = (every.get(one.name, nothing) for every in (uses, full_uses))
        made.append(dataclasses.replace(one, uses=at_small, full_uses=at_full, unclear=unclear or unclear_full))
    return tuple(made), found


def _refuse_random(problem: Problem, graph: tuple[Operation, ...]) -> None:
    """Raise `ProblemError` for a graph that draws random numbers which nothing can follow."""
    training = [op for op in graph if "True" in (*op.operands[4:5], dict(op.keywords).get("training"))]
    drawn = next((name for name in operation_names(tuple(training)) if name.rstrip("_") in RANDOM), "")
    if drawn:
        raise ProblemError(
            f"{problem.origin}: forward draws random numbers with aten.{drawn}: float64 and {problem.precision} draw "
            "different ones, so no result can be compared; draw them with torch.rand_like, or make them in get_inputs()"
        )


def _trace(module: ModuleType, problem: Problem) -> Trace:
    """The reference as ATen calls.

    Inputs keep forward's names, parameters are `param:<name>`, buffers `buffer:<name>`.
    """
    inputs = loading.make_inputs(module, problem, 0)
    return trace_graph(loading.build_model(module, "Model", problem), inputs, loading.find_call(module, problem).names)
