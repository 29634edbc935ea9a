"""Finds what the numbers given to forward become in its graph, also where an argument is made of two of them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence

from workbench.problems.tracing.uses import (
    BRANCH,
    CLOSE,
    Graph,
    Number,
    Slot,
    agree,
    find_uses,
    list_slots,
    write_number,
)
from workbench.records import GivenNumber, NumberUse, Settings, aten_name

TRACES = 3  # values of a number that show what it becomes
Trace = Callable[[Settings], Graph]  # the graph where numbers have other values; () if forward does not run
Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Traced:
    """A number with its graphs, and what it becomes in them as long as the other numbers stay."""

    one: GivenNumber
    graphs: tuple[tuple[Number, Graph], ...]
    uses: tuple[NumberUse, ...]
    unclear: str


def trace_uses(
    given: Sequence[GivenNumber],
    start: Mapping[str, Number],
    base: Graph,
    trace: Trace,
    others: Mapping[str, tuple[Sequence[Number], Sequence[Number]]],
) -> dict[str, tuple[tuple[NumberUse, ...], str]]:
    """Name -> (the arguments made of the number, the call in which it is used otherwise).

    `start` are the values in `base`. `others` are further ones by name: some to choose from, and some of which each
    counts, since forward may turn to something else there.
    """
    found = [_trace_one(one, start[one.name], base, trace, *others[one.name]) for one in given] if base else []
    result = {traced.one.name: (traced.uses, traced.unclear) for traced in found}
    made: dict[Slot, list[Traced]] = {}
    for traced in found:
        for slot in _changed_slots(traced):
            made.setdefault(slot, []).append(traced)
    shared = {slot: group for slot, group in made.items() if len(group) > 1}
    targets = {op.name: aten_name(op) for op in base}
    pairs: dict[tuple[str, ...], dict[Point, Graph]] = {}
    for slot, group in shared.items():
        names = tuple(traced.one.name for traced in group)
        if len(group) == 2 and names not in pairs:
            pairs[names] = _trace_pair(group[0], group[1], trace)
        text = _express_slot(slot, group[0], group[1], pairs[names]) if len(group) == 2 else ""
        more = (NumberUse(op=slot[0], place=slot[1], expression=text),) if text else ()
        for name in names:
            uses, unclear = result[name]
            kept = (*(use for use in uses if (use.op, use.place) != slot), *more)
            result[name] = (kept, unclear or ("" if text else targets[slot[0]]))
    call = _find_unforeseen(found, result, trace)
    return {name: (uses, unclear or call) for name, (uses, unclear) in result.items()}


def _trace_one(
    one: GivenNumber, start: Number, base: Graph, trace: Trace, some: Sequence[Number], each: Sequence[Number]
) -> Traced:
    graphs = [(start, base)]
    for value in (*some, *each):
        graph = trace(((one.key, value),)) if len(graphs) < TRACES or value in each else ()
        graphs += [(value, graph)] if graph else []
    uses, unclear = find_uses(one.name, graphs)
    return Traced(one=one, graphs=tuple(graphs), uses=uses, unclear=unclear)


def _find_unforeseen(
    found: Sequence[Traced], result: Mapping[str, tuple[tuple[NumberUse, ...], str]], trace: Trace
) -> str:
    """The call whose argument is another than the uses say where all numbers have other values (`max(alpha, beta)`);
    "" if there is none.
    """
    if len(found) < 2 or any(unclear for _, unclear in result.values()):
        return ""
    foreseen = {(use.op, use.place): use.expression for uses, _ in result.values() for use in uses}
    base = found[0].graphs[0][1]
    known = dict(list_slots(base))
    for at in range(1, TRACES):
        values = {one.one.name: one.graphs[min(at, len(one.graphs) - 1)][0] for one in found}
        graph = trace(tuple((one.one.key, values[one.one.name]) for one in found))
        if not graph:
            continue
        slots = dict(list_slots(graph))
        if [op.target for op in graph] != [op.target for op in base] or slots.keys() != known.keys():
            return BRANCH
        for slot, text in slots.items():
            said = _evaluate(foreseen[slot], values) if slot in foreseen else known[slot]
            if text != said and not _is_near(text, said):
                return next(aten_name(op) for op in graph if op.name == slot[0])
    return ""


def _evaluate(expression: str, values: Mapping[str, Number]) -> str:
    """The value of an expression of `write_number` and names."""
    pattern = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(values, key=len, reverse=True))
    return repr(eval(re.sub(pattern, lambda found: f"({values[found.group()]!r})", expression)))  # sums and products


def _is_near(text: str, other: str) -> bool:
    try:
        return agree([float(text)], [float(other)])
    except ValueError:
        return False


def _changed_slots(traced: Traced) -> list[Slot]:
    """The arguments that are others for other values of a number."""
    if traced.unclear == BRANCH or len(traced.graphs) < 2:
        return []
    slots = [dict(list_slots(graph)) for _, graph in traced.graphs]
    return [slot for slot in slots[0] if len({one.get(slot) for one in slots}) > 1]


def _trace_pair(first: Traced, second: Traced, trace: Trace) -> dict[Point, Graph]:
    """Graphs by the values of two numbers: each alone at other values, and both."""
    (start, base), (other, _) = first.graphs[0], second.graphs[0]
    found = {(float(value), float(other)): graph for value, graph in first.graphs}
    found |= {(float(start), float(value)): graph for value, graph in second.graphs}
    for (one, _), (two, _) in zip(first.graphs[1:], second.graphs[1:], strict=False):
        graph = trace(((first.one.key, one), (second.one.key, two)))
        if graph and [(op.name, op.target) for op in graph] == [(op.name, op.target) for op in base]:
            found[float(one), float(two)] = graph
    return found


def _express_slot(slot: Slot, first: Traced, second: Traced, graphs: Mapping[Point, Graph]) -> str:
    """The expression in two numbers of an argument; "" if it is none of the kinds that are known."""
    texts = {point: dict(list_slots(graph)).get(slot, "") for point, graph in graphs.items()}
    try:
        numbers = {point: float(text) for point, text in texts.items()}
    except ValueError:
        return ""
    values = [value for traced in (first, second) for value, _ in traced.graphs]
    is_whole = all(type(value) is int for value in values) and not any("." in text for text in texts.values())
    for inverse in ((False, False), (False, True), (True, False), (True, True)):
        if any(inverse) and (is_whole or not all(value for point in numbers for value in point)):
            continue
        text = _express(numbers, inverse, (first.one.name, second.one.name), is_whole)
        if text:
            return text
    return ""


def _express(numbers: Mapping[Point, float], inverse: tuple[bool, bool], names: tuple[str, str], is_whole: bool) -> str:
    """c0 + c1 a + c2 b + c3 a b with those coefficients that are not 0, where a or b may be inverse; "" if it is not
    that.
    """
    turned = [tuple(1 / v if turn else v for v, turn in zip(point, inverse, strict=True)) for point in numbers]
    wanted = [*numbers.values()]
    if not all(map(math.isfinite, wanted)) or len(wanted) < 2 * TRACES + 1:
        return ""
    coefficients = _solve(turned, wanted)
    if coefficients is None:
        return ""
    largest = max(map(abs, wanted))
    powers = ((), (0,), (1,), (0, 1))
    terms = []
    for factor, term in zip(coefficients, powers, strict=True):
        reach = max(
            math.prod(point[n] for n in term) if term else 1.0 for point in [tuple(map(abs, p)) for p in turned]
        )
        if abs(factor) * reach > CLOSE * largest:
            terms.append((float(f"{factor:.10g}"), term))
    said = [sum(factor * math.prod(point[n] for n in term) for factor, term in terms) for point in turned]
    if not agree(wanted, said) or (is_whole and not all(factor.is_integer() for factor, _ in terms)):
        return ""
    return _write(terms, inverse, names, is_whole)


def _solve(points: Sequence[tuple[float, ...]], wanted: Sequence[float]) -> list[float] | None:
    """The coefficients by the first point, one each that differs from it in one number, and that of both; None if these
    do not decide.
    """
    known = dict(zip(points, wanted, strict=True))
    (a0, b0), start = points[0], wanted[0]
    for (a1, b1), both in list(known.items())[::-1]:
        if a1 != a0 and b1 != b0 and (a1, b0) in known and (a0, b1) in known:
            slope_a, slope_b = (known[a1, b0] - start) / (a1 - a0), (known[a0, b1] - start) / (b1 - b0)
            mixed = (both - known[a1, b0] - known[a0, b1] + start) / (a1 - a0) / (b1 - b0)
            constant = start - slope_a * a0 - slope_b * b0 + mixed * a0 * b0
            return [constant, slope_a - mixed * b0, slope_b - mixed * a0, mixed]
    return None


def _write(
    terms: Sequence[tuple[float, tuple[int, ...]]], inverse: tuple[bool, bool], names: tuple[str, str], is_whole: bool
) -> str:
    """The sum, the products first: `1.0 - lr * wd` as `-lr * wd + 1.0`."""
    parts: list[str] = []
    for factor, term in reversed(terms):
        above = [names[n] for n in term if not inverse[n]]
        below = [names[n] for n in term if inverse[n]]
        if abs(factor) != 1.0 or not above:
            above = [write_number(abs(factor), is_whole), *above]
        text = " / ".join((" * ".join(above), *below))
        sign = "-" if factor < 0 else "+"
        parts.append(f"{sign} {text}" if parts else text if sign == "+" else f"-{text}")
    return " ".join(parts)
