"""Names the first call of a problem that no kernel takes, where the planner has no kernel for the whole."""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition import Computation, UnknownCalls, Unrecognised, recognise
from workbench.proposers.recognition.graph import aten_name, list_torch_names, names
from workbench.proposers.recognition.mutations import ALIASES
from workbench.records import Facts, Operation

FREE = (*ALIASES, "_to_copy", "clone", "expand_as")
MOST_PARTS = 60  # that are tried, so that a deep module takes no minutes
Graph = tuple[Operation, ...]


def recognise_whole(facts: Facts) -> Computation:
    """The computation of a problem. Raises `Unrecognised`, which names the first call that no kernel takes."""
    try:
        return recognise(facts)
    except UnknownCalls as error:
        found = find_obstacle(facts) or _find_made(facts)
        if found is None:
            raise
        calls = " ".join(list_torch_names((found,))) or "a tensor of constants"
        raise UnknownCalls(calls, error.kind, error.advice, dict(facts.places).get(found.name, "")) from None


def find_obstacle(facts: Facts) -> Operation | None:
    """The first call that is not recognised: neither alone, nor with all before it, nor in a part that goes on after
    it; None if every call is.
    """
    known: dict[object, bool] = {}  # of calls that are alike
    budget = MOST_PARTS
    passed = set[str]()
    for place, op in enumerate(facts.graph[:-1]):
        if op.name in passed or is_free(op) or not _reads_tensors(facts, op):
            continue
        key = _describe(facts, op)
        if key not in known:
            known[key] = _is_recognised(isolate_call(facts, op))
        if known[key]:
            continue
        for later in facts.graph[place:-1]:
            graph = part_before(facts.graph, later.name)
            if len(later.result) != 1 or op not in graph:
                continue
            if not budget:
                return None
            budget -= 1
            full = part_before(facts.full_graph, later.name)
            if _is_recognised(dataclasses.replace(facts, graph=graph, full_graph=full)):
                passed |= {one.name for one in graph}
                break
        else:
            return op
    return None


def _find_made(facts: Facts) -> Operation | None:
    """The first tensor that forward makes of nothing, as torch.rand, without which the others would be recognised."""
    made = [op for op in facts.graph[:-1] if len(op.result) == 1 and not _reads_tensors(facts, op)]
    for op in made[:MOST_PARTS]:
        if not _is_recognised(_take_as_inputs(facts, [other for other in made if other is not op])):
            return op if _is_recognised(_take_as_inputs(facts, made)) else None
    return None


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
    """The facts of one call, which takes the results of earlier calls as inputs; of several results, the first that is
    read.
    """
    made = {one.name: one.result[0] for one in facts.graph if one.result}
    more = tuple(
        dataclasses.replace(made[name], name=name) for text in op.operands for name in names(text) if name in made
    )
    items = tuple(one for one in facts.graph if "getitem" in one.target and one.operands[0] == op.name)[:1]
    last = items[0] if items else op
    case = facts.cases[0]
    return dataclasses.replace(
        facts,
        graph=(op, *items, Operation(name="output", target="output", operands=(last.name,))),
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
