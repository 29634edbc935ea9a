"""An expression with reductions over rows -> its passes over a row, and what is computed once per row between them."""

from __future__ import annotations

import dataclasses

from workbench.language.expressions.expressions import leaves
from workbench.language.expressions.reductions import REDUCTIONS, Reduction
from workbench.language.ir import Call
from workbench.records import record


def is_reduction(node: object) -> bool:
    """max(a) is one, max(a, b) is not."""
    return isinstance(node, Call) and node.name in REDUCTIONS and len(node.positional) == 1


@record
class Plan:
    """The walks in order; `whole`: the result has an element for each of the row's, otherwise one per row."""

    value: object
    levels: tuple[tuple[Reduction, ...], ...]
    whole: bool
    plain: tuple[str, ...]
    spread: tuple[str, ...]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """All of them."""
        return tuple(item for level in self.levels for item in level)

    @property
    def places(self) -> bool:
        """Whether the result is a place (argmax), an int64."""
        return is_reduction(self.value) and isinstance(self.value, Call) and self.value.name in ("argmax", "argmin")


def compensate_variances(found: Plan) -> Plan:
    """The plan with variances whose means are compensated, for a thread that walks a row alone."""
    levels = tuple(
        tuple(dataclasses.replace(item, compensated=item.base == "var") for item in level) for level in found.levels
    )
    return dataclasses.replace(found, levels=levels)


def multiply_by_reciprocals(node: object) -> object:
    """Replace division by a value of the row by multiplication by its reciprocal: one division per row."""
    if not isinstance(node, Call) or node.name == "spread":
        return node
    parts = tuple(multiply_by_reciprocals(part) for part in node.positional)
    if node.name == "div" and _per_element(parts[0]) and not _per_element(parts[1]) and _has_reduction(parts[1]):
        return Call(name="mul", positional=(parts[0], Call(name="reciprocal", positional=(parts[1],))))
    return Call(name=node.name, positional=parts, named=node.named)


def plan(value: object) -> Plan:
    """The walks that an expression takes."""
    value = multiply_by_reciprocals(value)
    depths: dict[Call, int] = {}
    _depth(value, depths)
    numbered = {call: Reduction(call=call, number=number) for number, call in enumerate(depths, 1)}
    levels = tuple(
        tuple(numbered[call] for call, depth in depths.items() if depth == level)
        for level in range(1, max(depths.values(), default=0) + 1)
    )
    plain, spread = leaves(value)
    return Plan(value=value, levels=levels, whole=_per_element(value), plain=plain, spread=spread)


def _depth(node: object, depths: dict[Call, int]) -> int:
    if not isinstance(node, Call) or node.name == "spread":
        return 0
    below = max((_depth(part, depths) for part in node.positional), default=0)
    if is_reduction(node):
        depths.setdefault(node, below + 1)
        return depths[node]
    return below


def _per_element(node: object) -> bool:
    """Whether a value differs within a row: it reads a tensor outside every reduction."""
    if is_reduction(node):
        return False
    if isinstance(node, Call):
        return node.name == "spread" or any(_per_element(part) for part in node.positional)
    return isinstance(node, str)


def named_calls(found: Plan, depth: int, index: str = "") -> dict[Call, str]:
    """Calls that have a name once the first `depth` walks are done."""
    return {item.call: item.name + index for level in found.levels[:depth] for item in level}


def per_row(node: object) -> tuple[Call, ...]:
    """The largest calls within `node` that are worked out once per row, reductions themselves apart."""
    if not isinstance(node, Call) or is_reduction(node) or node.name == "spread":
        return ()
    if not _per_element(node) and _has_reduction(node):
        return (node,)
    return tuple(dict.fromkeys(item for part in node.positional for item in per_row(part)))


def _has_reduction(node: object) -> bool:
    return is_reduction(node) or (isinstance(node, Call) and any(_has_reduction(part) for part in node.positional))


def find_prologue(value: object) -> Call | None:
    """What all of an expression reads of the elements of a row, if that is one call which reads a broadcast tensor."""
    found = _element_parts(value)
    (part,) = found if len(found) == 1 else ("",)
    return part if isinstance(part, Call) and all(leaves(part)) else None


def _element_parts(node: object) -> frozenset[object]:
    """The largest parts of an expression that have a value for each element and hold no reduction."""
    if _per_element(node) and not _has_reduction(node):
        return frozenset([node])
    if not isinstance(node, Call):
        return frozenset()
    return frozenset(part for item in node.positional for part in _element_parts(item))


def replace_part(node: object, part: object, name: str) -> object:
    """An expression with a tensor of that name in place of a part."""
    if node == part:
        return name
    if not isinstance(node, Call) or node.name == "spread":
        return node
    return dataclasses.replace(node, positional=tuple(replace_part(item, part, name) for item in node.positional))


def arguments(level: tuple[Reduction, ...]) -> tuple[object, ...]:
    """What a walk reads: the arguments of its reductions."""
    return tuple(item.call.positional[0] for item in level)


def without_reductions(node: object) -> object:
    """The expression with its reductions left out, for the tensors that are read again."""
    if is_reduction(node):
        return 0
    if isinstance(node, Call) and node.name != "spread":
        return Call(name=node.name, positional=tuple(without_reductions(part) for part in node.positional))
    return node
