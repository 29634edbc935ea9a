"""Finds what numbers that are given to forward become in its graph, by tracing it with other numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from workbench.records import NumberUse, Operation, aten_name

Graph = tuple[Operation, ...]
Slot = tuple[str, str]  # an operation's name, the place of its argument
Number = bool | int | float

BRANCH = "a branch"
CLOSE = 1e-9  # relative difference of a number from what an expression says


def find_uses(name: str, traced: Sequence[tuple[Number, Graph]]) -> tuple[tuple[NumberUse, ...], str]:
    """(the arguments of calls that are made of a number, the call of the first that is not understood).

    `traced` has the number's values and the graph with each. The call is BRANCH where the calls themselves differ.
    """
    values = [value for value, _ in traced]
    slots = [dict(list_slots(graph)) for _, graph in traced]
    calls = [[(op.name, op.target) for op in graph] for _, graph in traced]
    if any(one != calls[0] for one in calls) or any(one.keys() != slots[0].keys() for one in slots):
        return (), BRANCH
    called = {op.name: aten_name(op) for op in traced[0][1]}
    uses: list[NumberUse] = []
    for slot in slots[0]:
        texts = [one[slot] for one in slots]
        if len({*texts}) == 1:
            continue
        expression = _express(name, values, texts)
        if not expression:
            return tuple(uses), called[slot[0]]
        uses.append(NumberUse(op=slot[0], place=slot[1], expression=expression))
    return tuple(uses), ""


def list_slots(graph: Graph) -> Iterator[tuple[Slot, str]]:
    """(place, text) of each argument, and of each item of one that is a list."""
    for op in graph:
        for place, text in (*((str(n), text) for n, text in enumerate(op.operands)), *op.keywords):
            items = text[1:-1].split(", ") if text.startswith("[") and "[" not in text[1:] else [text]
            for n, item in enumerate(items):
                yield (op.name, f"{place}.{n}" if text.startswith("[") else place), item


def _express(name: str, values: Sequence[Number], texts: Sequence[str]) -> str:
    """The expression of the number that has these values; "" if it is none of the kinds that are known."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return ""
    points = [float(value) for value in values]
    if len(points) < 3 or not all(map(math.isfinite, (*points, *numbers))):
        return ""
    is_whole = all(type(value) is int for value in values) and not any("." in text for text in texts)
    slope = (numbers[1] - numbers[0]) / (points[1] - points[0])
    offset = numbers[0] - slope * points[0]
    if agree(numbers, [slope * point + offset for point in points]):
        return _write_line(name, slope, offset, is_whole)
    if all(points) and agree(numbers, [numbers[0] * points[0] / point for point in points]) and not is_whole:
        return f"{write_number(numbers[0] * points[0], False)} / {name}"
    return ""


def agree(numbers: Sequence[float], wanted: Sequence[float]) -> bool:
    """Whether numbers are those that an expression says."""
    least = max(map(abs, numbers)) * 1e-15
    return all(math.isclose(*pair, rel_tol=CLOSE, abs_tol=least) for pair in zip(numbers, wanted, strict=True))


def _write_line(name: str, slope: float, offset: float, is_whole: bool) -> str:
    """slope * name + offset, shortened."""
    scaled = {1.0: name, -1.0: f"-{name}"}.get(round(slope, 12), f"{write_number(slope, is_whole)} * {name}")
    if abs(offset) <= CLOSE * max(abs(slope), 1e-30) and offset != round(offset):
        offset = 0.0
    if not offset:
        return scaled
    if scaled == f"-{name}":
        return f"{write_number(offset, is_whole)} - {name}"
    return f"{scaled} {'-' if offset < 0 else '+'} {write_number(abs(offset), is_whole)}"


def write_number(number: float, is_whole: bool) -> str:
    """The number in 12 digits."""
    short = float(f"{number:.12g}")
    return str(int(short)) if is_whole and short.is_integer() else repr(short)
