"""Finds which ways a graph takes for its positions: which of its comparisons with `torch.arange` are true and false.

A window of 128 is none for 64 columns, so `i - j < 128` is true for all of them. Intervals of values are followed
through the calls that make positions; a value that depends on an input has none, and nothing is said of it.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

from workbench.problems.numbers import CONSTANT
from workbench.records import Operation, plain_name

Graph = tuple[Operation, ...]
Shape = tuple[int, ...]

# calls whose result has values of their first argument only
SAME = frozenset(
    (
        *("unsqueeze", "squeeze", "view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "alias"),
        *("clone", "slice", "select", "detach", "repeat", "flip", "lift_fresh", "_to_copy", "copy", "narrow"),
    )
)
FILLED = {"ones": 1.0, "ones_like": 1.0, "new_ones": 1.0, "zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0}
RISING: dict[str, Callable[[float], float]] = {
    "log": lambda v: math.log(v) if v > 0 else -math.inf,
    "log2": lambda v: math.log2(v) if v > 0 else -math.inf,
    "exp": lambda v: math.exp(min(v, 700.0)),
    "sqrt": lambda v: math.sqrt(max(v, 0.0)),
    "floor": lambda v: math.floor(v) if math.isfinite(v) else v,
    "ceil": lambda v: math.ceil(v) if math.isfinite(v) else v,
    "round": lambda v: round(v) if math.isfinite(v) else v,
    "trunc": lambda v: math.trunc(v) if math.isfinite(v) else v,
}
# comparisons -> whether they are true for some values of two intervals
CAN_BE: dict[str, Callable[[Interval, Interval], bool]] = {
    "lt": lambda a, b: a.low < b.high,
    "le": lambda a, b: a.low <= b.high,
    "gt": lambda a, b: a.high > b.low,
    "ge": lambda a, b: a.high >= b.low,
    "eq": lambda a, b: a.low <= b.high and b.low <= a.high,
    "ne": lambda a, b: not a.low == a.high == b.low == b.high,
}
CUT = "cut"  # the way of a slice
CHOOSE: dict[str, Callable[[float, float], float]] = {"minimum": min, "maximum": max}
LIMITS = ("clamp", "clamp_min", "clamp_max")
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "rsub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
}
OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


@dataclasses.dataclass(frozen=True)
class Branch:
    """A way that a call takes for some positions: a comparison is true, a limit is smaller, columns are cut off."""

    call: str  # its name, of a slice what is cut
    way: str
    numbers: tuple[float, ...] = dataclasses.field(default=(), compare=False)  # of the text, from which it is made


@dataclasses.dataclass(frozen=True)
class Interval:
    """The least and the largest value of a tensor, whether it is made of positions, and the numbers it is made of."""

    low: float
    high: float
    has_positions: bool = False
    numbers: frozenset[float] = frozenset()

    def with_ends(self, *ends: float) -> Interval | None:
        """The interval of these values, made of the same; None if any is no number."""
        if any(map(math.isnan, ends)):
            return None
        return dataclasses.replace(self, low=min(ends), high=max(ends))


def list_branches(graph: Graph, shapes: Mapping[str, Shape]) -> frozenset[Branch]:
    """The ways that the calls of a graph take for positions. `shapes` are those of inputs, parameters and buffers."""
    known: dict[str, Interval] = {}
    extents = dict(shapes)
    found: set[Branch] = set()
    for op in graph:
        if op.result:
            extents[op.name] = op.result[0].shape
        found |= {*_cut_branches(op, extents)}
        found |= {*_choose_branches(op, known)}
        made = None
        with contextlib.suppress(ValueError, ArithmeticError):  # an argument that a call makes, or no finite number
            made = _follow(op, known, extents)
        if made is not None:
            texts = (*op.operands, *(text for _, text in op.keywords))[: 1 if plain_name(op) in SAME else None]
            values = [
                one for one in (_read(text, known) for text in texts if plain_name(op) != "arange") if one is not None
            ]
            known[op.name] = dataclasses.replace(
                made,
                has_positions=made.has_positions or any(one.has_positions for one in values),
                numbers=made.numbers.union(*(one.numbers for one in values)),
            )
    return frozenset(found)


def _read(text: str, known: Mapping[str, Interval]) -> Interval | None:
    """The interval of an argument; None if nothing is known of it."""
    if text in known:
        return known[text]
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else Interval(value, value, numbers=frozenset([value]))


def _argument(op: Operation, place: int, *names: str) -> str:
    """The text of an argument by its position or keyword; "" if it is not given."""
    given = dict(op.keywords)
    return (
        op.operands[place] if place < len(op.operands) else next((given[name] for name in names if name in given), "")
    )


def _choose_branches(op: Operation, known: Mapping[str, Interval]) -> Iterator[Branch]:
    """The ways of comparisons, limits and choices between two values."""
    name = plain_name(op)
    one, other = (_read(_argument(op, n, "other"), known) for n in (0, 1))
    if name in LIMITS:
        lower, upper = _read_limits(op, known)
        if one is not None and one.has_positions:
            numbers = tuple(limit.low for limit in (lower, upper) if limit is not None)
            yield from _make_branches(op.name, numbers, below=lower is not None and one.low < lower.low)
            yield from _make_branches(op.name, numbers, above=upper is not None and one.high > upper.high)
    elif one is not None and other is not None and (one.has_positions or other.has_positions):
        numbers = tuple(sorted(one.numbers | other.numbers, reverse=True))
        if name in CAN_BE:
            is_true, is_false = CAN_BE[name](one, other), CAN_BE[OPPOSITE[name]](one, other)
            yield from _make_branches(op.name, numbers, true=is_true, false=is_false)
        elif name in CHOOSE:
            yield from _make_branches(op.name, numbers, less=one.low < other.high, more=one.high > other.low)


def _make_branches(call: str, numbers: tuple[float, ...], **ways: bool) -> Iterator[Branch]:
    yield from (Branch(call=call, way=way, numbers=numbers) for way, is_taken in ways.items() if is_taken)


def _cut_branches(op: Operation, extents: Mapping[str, Shape]) -> Iterator[Branch]:
    """The ways of a triangle, which leaves elements out or none, and of a slice that ends before its axis does."""
    name, shape = plain_name(op), extents.get(op.operands[0] if op.operands else "", ())
    try:
        if name in ("tril", "triu") and len(shape) > 1:
            diagonal = int(_argument(op, 1, "diagonal") or 0)
            low, high = -(shape[-2] - 1), shape[-1] - 1
            drops = high > diagonal if name == "tril" else low < diagonal
            keeps = low <= diagonal if name == "tril" else high >= diagonal
            yield from _make_branches(op.name, (abs(float(diagonal)),), drops=drops, keeps=keeps)
        elif name == "slice":
            axis, end = int(_argument(op, 1, "dim") or 0), int(_argument(op, 3, "end") or -1)
            is_cut = -len(shape) <= axis < len(shape) and 0 < end < shape[axis]
            yield from _make_branches(f"{op.operands[0]}[{axis}] to {end}", (float(end),), **{CUT: is_cut})
    except ValueError:  # a number that a call makes
        return


def _follow(op: Operation, known: Mapping[str, Interval], extents: Mapping[str, Shape]) -> Interval | None:
    """The values of a call's result; None if nothing is known of them."""
    name = plain_name(op)
    if op.target == CONSTANT:
        return _read_constant(dict(op.keywords).get("value", ""))
    if name == "arange":
        return _read_range([_read(text, known) for text in op.operands])
    if name in ("full", "full_like", "new_full", "scalar_tensor"):
        return _read(_argument(op, {"full": 1, "full_like": 1, "new_full": 2}.get(name, 0), "fill_value"), known)
    if name in FILLED:
        return Interval(FILLED[name], FILLED[name])
    one = _read(op.operands[0], known) if op.operands else None
    if name == "where":
        one, other = (_read(_argument(op, n), known) for n in (1, 2))
        return one.with_ends(one.low, one.high, other.low, other.high) if one and other else None
    if one is None:
        return None
    if name == "cumsum" and one.low == one.high and extents.get(op.operands[0]):
        last = one.low * extents[op.operands[0]][int(_argument(op, 1, "dim"))]
        return Interval(min(one.low, last), max(one.low, last), has_positions=True)
    if name in LIMITS:
        return _clamp(one, *_read_limits(op, known))
    return _follow_one(op, one) or _combine(op, one, _read(_argument(op, 1, "other"), known))


def _clamp(one: Interval, lower: Interval | None, upper: Interval | None) -> Interval | None:
    ends = [max(end, lower.low) if lower else end for end in (one.low, one.high)]
    return one.with_ends(*(min(end, upper.high) if upper else end for end in ends))


def _follow_one(op: Operation, one: Interval) -> Interval | None:
    """The values of a function of one argument; None if it is none that is known."""
    name = plain_name(op)
    if name in SAME:
        is_whole = name == "_to_copy" and "int" in dict(op.keywords).get("dtype", "")
        return one.with_ends(RISING["trunc"](one.low), RISING["trunc"](one.high)) if is_whole else one
    if name in RISING:
        return one.with_ends(RISING[name](one.low), RISING[name](one.high))
    if name == "abs":
        return one.with_ends(abs(one.low), abs(one.high), *((0.0,) if one.low < 0 < one.high else ()))
    return one.with_ends(-one.low, -one.high) if name == "neg" else None


def _read_limits(op: Operation, known: Mapping[str, Interval]) -> tuple[Interval | None, Interval | None]:
    """The lower and the upper limit of a clamp."""
    name = plain_name(op)
    lower = _read(_argument(op, 1, "min"), known) if name != "clamp_max" else None
    upper = _read(_argument(op, 2 if name == "clamp" else 1, "max"), known) if name != "clamp_min" else None
    return lower, upper


def _combine(op: Operation, one: Interval, other: Interval | None) -> Interval | None:
    """The values of a function of two arguments."""
    name = plain_name(op)
    if other is None:
        return None
    if name in CAN_BE:
        ends = [0.0] * CAN_BE[OPPOSITE[name]](one, other) + [1.0] * CAN_BE[name](one, other)
        return one.with_ends(*ends) if ends else None
    if name in CHOOSE:
        return one.with_ends(CHOOSE[name](one.low, other.low), CHOOSE[name](one.high, other.high))
    scale = float(dict(op.keywords).get("alpha", "1")) if name in ("add", "sub", "rsub") else 1.0
    one, other = (other, one) if name == "rsub" else (one, other)
    pairs = [(a, b * scale) for a in (one.low, one.high) for b in (other.low, other.high)]
    has_zero = other.low <= 0 <= other.high
    if name == "remainder" and not has_zero and other.low == other.high:
        is_once = math.floor(one.low / other.low) == math.floor(one.high / other.low)
        return one.with_ends(
            *((a % b for a, b in pairs) if is_once else (0.0, other.low - math.copysign(1, other.low)))
        )
    if name not in ARITHMETIC or (has_zero and name in ("div", "floor_divide")):
        return None
    ends = [ARITHMETIC[name](*pair) for pair in pairs]
    rounding = _argument(op, 2, "rounding_mode").strip("'") if name == "div" else ""
    return one.with_ends(*map(RISING[rounding], ends)) if rounding in RISING else one.with_ends(*ends)


def _read_constant(text: str) -> Interval | None:
    """The interval of a tensor that forward makes of numbers."""
    try:
        listed = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    values = [float(value) for value in _flatten(listed)]
    return Interval(min(values), max(values)) if values else None


def _flatten(listed: object) -> Iterator[float]:
    if isinstance(listed, list):
        for item in listed:
            yield from _flatten(item)
    elif isinstance(listed, (int, float)):
        yield listed


def _read_range(arguments: Sequence[Interval | None]) -> Interval | None:
    """The interval of an arange."""
    given = [one.low for one in arguments if one is not None]
    if len(given) != len(arguments) or not given:
        return None
    start, end, step = (0.0, given[0], 1.0) if len(given) == 1 else (*given[:2], *(given[2:3] or [1.0]))
    count = math.ceil((end - start) / step) if step else 0
    last = start + (count - 1) * step
    return Interval(min(start, last), max(start, last), has_positions=True) if count > 0 else None
