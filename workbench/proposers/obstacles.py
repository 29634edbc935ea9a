"""Names the first call of a problem that no kernel takes, where the planner has no kernel for the whole."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator

from workbench.proposers.recognition import Computation, UnknownCalls, Unrecognised, recognise
from workbench.proposers.recognition.graph import aten_name, list_torch_names, names
from workbench.proposers.recognition.mutations import ALIASES
from workbench.records import Facts, Operation

FREE = (*ALIASES, "_to_copy", "clone", "expand_as")
NEIGHBOURS = (0, 4, 16)  # calls before one that are looked at together with it
AFTER = 12  # calls after it
SHOWN = 6  # calls of a part that are named
MOST_WHOLE = 120  # calls of a module that is looked at as a whole several times: a longer one would take minutes
Graph = tuple[Operation, ...]


def recognise_whole(facts: Facts) -> Computation:
    """The computation of a problem. Raises `Unrecognised`, which names the first call that no kernel takes."""
    try:
        return recognise(facts)
    except UnknownCalls as error:
        found = find_obstacle(facts) or _find_made(facts)
        part = (found,) if found is not None else _find_shortest(facts)
        if not part:
            raise
        found = part[-1]
        calls = " -> ".join(list_torch_names(part)[-SHOWN:]) or "a tensor of constants"
        raise UnknownCalls(calls, error.kind, error.advice, dict(facts.places).get(found.name, "")) from None


def find_obstacle(facts: Facts) -> Operation | None:
    """The first call that is not recognised, neither alone nor with its neighbours; None if every call is."""
    known: dict[object, bool] = {}  # of calls that are alike
    passed = set[str]()
    for place, op in enumerate(facts.graph[:-1]):
        if op.name in passed or is_free(op) or not _reads_tensors(facts, op):
            continue
        key = _describe(facts, op)
        if key not in known:
            known[key] = _is_recognised(isolate_call(facts, op))
        if known[key]:
            continue
        part = next(filter(lambda one: _is_recognised(_isolate(facts, one)), _list_parts(facts, place)), None)
        if part is None:
            return op
        passed |= {one.name for one in part}
    return None


def _list_parts(facts: Facts, place: int) -> Iterator[Graph]:
    """Parts around a call: of calls before it, of all that forward makes of nothing, and on to one that needs it."""
    op, made = facts.graph[place], {one.name for one in facts.graph if not _reads_tensors(facts, one)}
    for before in NEIGHBOURS:
        start = max(place - before, 0)
        for later in facts.graph[place : min(place + AFTER, len(facts.graph) - 1)]:
            near = tuple(one for at, one in enumerate(facts.graph[:-1]) if at >= start or one.name in made)
            part = part_before((*near, facts.graph[-1]), later.name)
            if len(later.result) == 1 and op in part:
                yield part


def _find_made(facts: Facts) -> Operation | None:
    """The first tensor that forward makes of nothing, as torch.rand, without which the others would be recognised."""
    made = [op for op in facts.graph[:-1] if len(op.result) == 1 and not _reads_tensors(facts, op)]
    if len(facts.graph) > MOST_WHOLE:
        return None
    for op in made:
        if not _is_recognised(_take_as_inputs(facts, [other for other in made if other is not op])):
            return op if _is_recognised(_take_as_inputs(facts, made)) else None
    return None


def _find_shortest(facts: Facts) -> Graph:
    """The calls up to one with which they are not recognised, and without which they are; () if that is not known."""
    calls = [op for op in facts.graph[:-1] if not is_free(op) and len(op.result) == 1 and _reads_tensors(facts, op)]
    if len(facts.graph) > MOST_WHOLE or not calls:
        return ()

    def is_known(place: int) -> bool:
        graph, full = (part_before(one, calls[place].name) for one in (facts.graph, facts.full_graph))
        return _is_recognised(dataclasses.replace(facts, graph=graph, full_graph=full))

    first = bisect.bisect_left(range(len(calls)), True, key=lambda place: not is_known(place))
    if first == len(calls) or any(map(is_known, range(first + 1, min(first + AFTER, len(calls))))):
        return ()  # it is only the inside of something that is recognised as a whole
    return part_before(facts.graph, calls[first].name)[:-1]


def is_free(op: Operation) -> bool:
    """Whether a call computes nothing."""
    return aten_name(op) in FREE or "getitem" in op.target


def _take_as_inputs(facts: Facts, made: list[Operation]) -> Facts:
    """The facts of a module that gets the results of calls as inputs."""
    inputs = tuple(dataclasses.replace(op.result[0], name=op.name) for op in made)
    case = facts.cases[0]
    return dataclasses.replace(
        facts,
        graph=tuple(op for op in facts.graph if op not in made),
        forward_arguments=(*facts.forward_arguments, *(spec.name for spec in inputs)),
        cases=(dataclasses.replace(case, inputs=(*case.inputs, *inputs)),),
        full=(),
        full_graph=(),
    )


def _reads_tensors(facts: Facts, op: Operation) -> bool:
    """Whether a call has a tensor as operand."""
    made = {one.name for one in facts.graph} | {*facts.forward_arguments}
    return any(name in made or ":" in name for text in op.operands for name in names(text))


def _describe(facts: Facts, op: Operation) -> object:
    """What a call alone depends on: its name, what it reads and what it gives."""
    made = {one.name: one.result for one in facts.graph}
    read = tuple(made.get(name, name) for text in op.operands for name in names(text, numbers=True))
    return op.target, read, op.keywords, tuple((spec.shape, spec.dtype) for spec in op.result)


def _is_recognised(facts: Facts) -> bool:
    try:
        recognise(facts)
    except Unrecognised:
        return False
    return True


def isolate_call(facts: Facts, op: Operation) -> Facts:
    """The facts of one call; of several results, the first that is read."""
    items = tuple(one for one in facts.graph if "getitem" in one.target and one.operands[0] == op.name)[:1]
    last = items[0] if items else op
    return _isolate(facts, (op, *items, Operation(name="output", target="output", operands=(last.name,))))


def _isolate(facts: Facts, part: Graph) -> Facts:
    """The facts of a part of a graph, which takes the results of earlier calls as inputs."""
    own = {one.name for one in part}
    read = {name for op in part for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)}
    more = tuple(
        dataclasses.replace(one.result[0], name=one.name)
        for one in facts.graph
        if one.result and one.name in read - own
    )
    case, last = facts.cases[0], next(op for op in part if op.name == part[-1].operands[0])
    return dataclasses.replace(
        facts,
        graph=part,
        forward_arguments=(*facts.forward_arguments, *(spec.name for spec in more)),
        cases=(dataclasses.replace(case, inputs=(*case.inputs, *more), outputs=last.result),),
        full=(),
        full_graph=(),
    )


def part_before(graph: Graph, result: str) -> Graph:
    """The operations that a value needs, and an output that is this value; () if the graph has no such value."""
    needed, kept = {result}, list[Operation]()
    for op in reversed(graph[:-1]):
        if op.name in needed:
            kept.append(op)
            needed |= {name for text in (*op.operands, *(value for _, value in op.keywords)) for name in names(text)}
    return (*reversed(kept), Operation(name="output", target="output", operands=(result,))) if kept else ()
