"""How much of a problem the planner can write: all of it, or why not and the largest part from the inputs on."""

from __future__ import annotations

import dataclasses
import itertools

from workbench.codegen import check_program
from workbench.errors import ProgramError
from workbench.proposers.binding import binding_of, plain_program
from workbench.proposers.obstacles import find_obstacle, is_free, isolate_call, part_before
from workbench.proposers.planner import list_rungs
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.proposers.recognition.forms.state import COUNTER
from workbench.proposers.recognition.graph import YOURSELF
from workbench.proposers.recognition.mutations import list_written, why_not
from workbench.proposers.rung_programs import write_program
from workbench.records import Ask, Facts, Operation, Problem, record

MOST_TRIED = 40  # parts, so that a deep module takes no minutes


@record
class Coverage:
    """The problem as a program without settings, or the reason why there is none and the largest part that has one.

    The part begins at the inputs; if no such part is recognised, it is one call alone.
    """

    program: str = ""
    reason: str = ""
    part: str = ""  # the program of that part
    result: str = ""  # the value that it computes, by its name in the graph
    calls: int = 0  # calls of the part that compute something
    of: int = 0  # calls of the whole that compute something


def find_coverage(problem: Problem, facts: Facts, *, arch: str, device: str) -> Coverage:
    """What the planner would write first for the problem, from the same ladder and checks as `generate` uses."""
    whole = _count_computing(facts.graph)
    try:
        found, rungs = list_rungs(Ask(problem=problem, facts=facts, arch=arch, device=device))
    except Unrecognised as reason:
        return _largest_part(facts, _shorten(str(reason)))
    binding, rejected = binding_of(problem, facts, found), list[str]()
    for rung in rungs:
        try:
            check_program(write_program(found, rung, arch), binding)
        except ProgramError as error:
            rejected.append(f"{rung.title}: {error}")
        else:
            return Coverage(program=plain_program(found), calls=whole, of=whole)
    return _largest_part(facts, _shorten("; ".join(rejected)))


def _shorten(reason: str) -> str:
    """A reason without the advice that follows it."""
    return reason.removesuffix(YOURSELF).rstrip("; ")


def _largest_part(facts: Facts, reason: str) -> Coverage:
    """The part with the most calls that is recognised by itself."""
    whole = _count_computing(facts.graph)
    calls, obstacle = _list_before_writes(facts), find_obstacle(facts)
    parts = sorted(
        ((part_before(facts.graph, op.name), op.name) for op in calls if len(op.result) == 1),
        key=lambda item: -_count_computing(item[0]),
    )
    for graph, result in [one for one in parts if obstacle not in one[0]][:MOST_TRIED]:
        count = _count_computing(graph)
        part = _plain_part(dataclasses.replace(facts, graph=graph, full_graph=part_before(facts.full_graph, result)))
        if count and part:
            return Coverage(reason=reason, part=part, result=result, calls=count, of=whole)
    for op in calls[:MOST_TRIED]:
        if not is_free(op) and len(op.result) == 1 and (part := _plain_part(isolate_call(facts, op))):
            return Coverage(reason=reason, part=part, result=op.name, calls=1, of=whole)
    return Coverage(reason=reason, of=whole)


def _list_before_writes(facts: Facts) -> tuple[Operation, ...]:
    """The calls of which a part may consist: those before a write that a kernel would not do."""
    calls = facts.graph[:-1]
    if why_not(facts) is None:
        return calls
    return tuple(itertools.takewhile(lambda op: all(name.endswith(COUNTER) for name in list_written(op)), calls))


def _plain_part(facts: Facts) -> str:
    """The program of a part of a problem; "" if it is not recognised."""
    try:
        return plain_program(recognise(facts))
    except Unrecognised:
        return ""


def _count_computing(graph: tuple[Operation, ...]) -> int:
    return sum(op.target != "output" and not is_free(op) for op in graph)
