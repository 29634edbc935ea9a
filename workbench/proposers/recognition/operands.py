"""Reads the arguments of ATen's calls, and says which sizes vary."""

from __future__ import annotations

import math
from collections.abc import Collection

from workbench.language.expressions.scalars import ATEN
from workbench.proposers.recognition.graph import Unrecognised, parse_number, plain_name
from workbench.records import Facts, Operation

LIMIT = 3.4028234663852886e38  # the largest number of float32


def parse_constant(text: str) -> object:
    """A number as the language writes it. Raises `Unrecognised` for other text, NaN and numbers beyond float32."""
    value = {"True": 1.0, "False": 0.0}.get(text, parse_number(text))
    if value is not None and math.isinf(value):
        return value
    if value is None or not abs(value) <= LIMIT:
        raise Unrecognised(text)
    return int(value) if value.is_integer() and abs(value) < 1 << 24 else value


def find_argument(op: Operation, place: int, name: str, default: str) -> str:
    """The text of an argument, given by position or by name."""
    return op.operands[place] if len(op.operands) > place else dict(op.keywords).get(name, default)


def scalar_argument(op: Operation, name: str) -> str:
    """The text of an argument of an element-wise call, given by position or by name, or its default."""
    function, call_of = ATEN[plain_name(op)]
    names = [argument for argument, _ in call_of.numbers]
    return find_argument(op, function.values + names.index(name), name, dict(call_of.numbers)[name])


def list_varied(facts: Facts, seen: Collection[str] = ()) -> set[int]:
    """Sizes that are one number in the first and the last case and another in one between them, of which the graphs
    know nothing; without those that are another at a case that was `seen`.
    """
    known = [facts.size_values(case.name) for case in facts.cases if case.name in seen]
    values = [facts.size_values(case.name) for case in facts.cases]
    return {
        size
        for name, size in values[0].items()
        if values[-1][name] == size
        and all(one[name] == size for one in known)
        and any(between[name] != size for between in values)
    }
