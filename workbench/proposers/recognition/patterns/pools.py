"""Matches max_pool and avg_pool in one to three dimensions, and adaptive pooling of whole planes to one element."""

from __future__ import annotations

import dataclasses

from workbench.language import Call, Stage
from workbench.language.checks import check_stage
from workbench.language.expressions.expressions import rename_tensors
from workbench.proposers.recognition.expressions import match_expressions
from workbench.proposers.recognition.graph import Computation, aten_name, find_producer, python_expression
from workbench.proposers.recognition.pipelines import isolate_after
from workbench.records import Facts, Operation, TensorSpec

# ATen name -> (max or avg, dimensions, its arguments in order with their defaults: native_functions.yaml)
MAX = (("stride", "[]"), ("padding", "[0]"), ("dilation", "[1]"), ("ceil", "False"))
AVG = (("stride", "[]"), ("padding", "[0]"), ("ceil", "False"), ("count_padding", "True"), ("divisor", "None"))
POOLS = {
    "max_pool2d_with_indices": ("max", 2, MAX),
    "max_pool3d_with_indices": ("max", 3, MAX),
    "max_pool2d": ("max", 2, MAX),
    "max_pool3d": ("max", 3, MAX),
    "avg_pool1d": ("avg", 1, AVG[:-1]),
    "avg_pool2d": ("avg", 2, AVG),
    "avg_pool3d": ("avg", 3, AVG),
}
POOLED, PLANES = "pooled", "planes"  # names of a pool's result, and of the values of its planes
KEYWORDS = {"ceil_mode": "ceil", "count_include_pad": "count_padding", "divisor_override": "divisor"}
Lists = dict[str, tuple[int, ...]]
FLOATS = ("float32", "float16", "bfloat16")


def match_pool(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    return _match_window(facts, by_name, output) or _match_whole_plane(facts, by_name, output)


def match_poolwise(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A pool with windows side by side, of which each plane is reduced to one value, with what is done to both.

    A reduction of the axis in front of the planes too is a stage of its own.
    """
    pooled = _find_pooled(facts, output)
    pool = _match_window(facts, by_name, pooled) if pooled is not None else None
    if pooled is None or pool is None or {name for name, _ in pool.operation.named} != {"op", "window"}:
        return None
    rest = _match_rest(facts, pooled, output)
    if rest is None:
        return None
    named, rank = dict(rest.named), len(by_name[pooled].result[0].shape) - 2
    how = str(named.get("op", "")) if rest.name == "reduce" else ""
    axis, keep = named.get("axis"), (("keepdim", 1),) if named.get("keepdim") else ()
    expression = Call(name=how, positional=rest.positional) if how else rest.positional[0]
    operation = Call(name="poolwise", positional=(expression,), named=(*pool.operation.named, *keep))
    if check_stage(Stage(operation=operation)):
        return None
    made = dataclasses.replace(pool, kind="poolwise", operation=operation)
    if axis == Call(name="last", positional=(rank,)):
        return made
    if axis != Call(name="last", positional=(rank + 1,)) or how not in ("sum", "mean", "max", "min") or keep:
        return None
    last = Call(name="reduce", positional=(PLANES,), named=(("op", how), ("axis", "last")))
    return dataclasses.replace(made, result=PLANES, after=(Stage(operation=last),))


def _match_rest(facts: Facts, pooled: str, output: str) -> Call | None:
    """One stage that computes the output from what is pooled, called x there."""
    rest = isolate_after(facts, pooled, output, POOLED)
    found = match_expressions(rest, {op.name: op for op in rest.graph}, output)
    if found is None or found.before or found.after or found.epilogues:
        return None
    if [text for _, text in found.operands] != [POOLED]:
        return None
    value = rename_tensors(found.operation.positional[0], {found.operands[0][0]: "x"})
    return dataclasses.replace(found.operation, positional=(value,))


def _find_pooled(facts: Facts, output: str) -> str | None:
    """The value of the only pool of a graph, unless that is its output."""
    pools = [op for op in facts.graph if aten_name(op) in POOLS]
    if len(pools) != 1:
        return None
    parts = (op.name for op in facts.graph if "getitem" in op.target and op.operands == (pools[0].name, "0"))
    value = pools[0].name if len(pools[0].result) == 1 else next(parts, None)
    return None if value == output else value


def _find_input(facts: Facts, value: str) -> TensorSpec | None:
    return next((spec for spec in facts.cases[0].inputs if spec.name == value and spec.dtype in FLOATS), None)


def _parse_list(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip("[]").split(",") if part.strip())


def _match_window(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A pool with a window."""
    value, squeezed = output, False
    outer = by_name.get(output)
    if outer is not None and aten_name(outer) == "squeeze" and outer.operands[1:] == ("-2",):
        value, squeezed = outer.operands[0], True
    op = find_producer(by_name, value)
    if op is None or aten_name(op) not in POOLS:
        return None
    kind, rank, _ = POOLS[aten_name(op)]
    source = _find_unsqueezed(by_name, op.operands[0], rank) if squeezed else op.operands[0]
    spec, values = None if source is None else _find_input(facts, source), _argument_values(op)
    if source is None or spec is None or values is None:
        return None
    lists = _axis_lists(op, values, rank)
    if lists is not None and squeezed:
        lists = _drop_first_axis(lists)
    if lists is None or len(spec.shape) <= len(lists["window"]):
        return None
    return _make_computation(kind, source, lists, values)


def _find_unsqueezed(by_name: dict[str, Operation], value: str, rank: int) -> str | None:
    """The input of a one-dimensional pool, which torch traces as a pool over a plane of one row."""
    inner = by_name.get(value)
    if inner is None or aten_name(inner) != "unsqueeze" or inner.operands[1] != "-2" or rank != 2:
        return None
    return inner.operands[0]


def _argument_values(op: Operation) -> dict[str, str] | None:
    """The arguments of a pool with their defaults; None if one of them is unknown."""
    arguments = POOLS[aten_name(op)][2]
    given = dict(zip((name for name, _ in arguments), op.operands[2:], strict=False)) | {
        KEYWORDS.get(key, key): text for key, text in op.keywords
    }
    return None if any(key not in dict(arguments) for key in given) else dict(arguments) | given


def _axis_lists(op: Operation, values: dict[str, str], rank: int) -> Lists | None:
    """Window, stride, padding and dilation with a number for each axis."""
    window = _parse_list(op.operands[1])
    window = window * rank if len(window) == 1 else window
    lists: Lists = {
        name: _parse_list(values[name]) or window for name in ("stride", "padding", "dilation") if name in values
    }
    lists = {"window": window, **{name: item * rank if len(item) == 1 else item for name, item in lists.items()}}
    return None if any(len(item) != rank for item in lists.values()) else lists


def _drop_first_axis(lists: Lists) -> Lists | None:
    """The lists without their first axis; None if the pool does something along it."""
    neutral = {"window": 1, "padding": 0, "dilation": 1}
    if any(lists[name][0] != least for name, least in neutral.items() if name in lists):
        return None
    return {name: item[1:] for name, item in lists.items()}


def _make_computation(kind: str, source: str, lists: Lists, values: dict[str, str]) -> Computation:
    named: list[tuple[str, object]] = [("op", kind), ("window", _size_value(lists["window"]))]
    if lists["stride"] != lists["window"]:
        named.append(("stride", _size_value(lists["stride"])))
    if any(lists["padding"]):
        named.append(("padding", _size_value(lists["padding"])))
    if any(item != 1 for item in lists.get("dilation", ())):
        named.append(("dilation", _size_value(lists["dilation"])))
    if values["ceil"] == "True":
        named.append(("ceil", 1))
    if values.get("count_padding", "True") == "False":
        named.append(("count_padding", 0))
    if values.get("divisor", "None") != "None":
        named.append(("divisor", int(values["divisor"])))
    return Computation(
        kind="pool",
        operation=Call(name="pool", positional=("x",), named=tuple(named)),
        operands=(("x", python_expression(source)),),
    )


def _size_value(values: tuple[int, ...]) -> object:
    return values[0] if len(values) == 1 else Call(name="size", positional=values)


def _match_whole_plane(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """Adaptive pooling to one element. torch traces an average as a mean over the spatial axes."""
    op = find_producer(by_name, output)
    if op is None or not op.operands:
        return None
    name, spec = aten_name(op), _find_input(facts, op.operands[0])
    if spec is None or op.keywords:
        return None
    rank = len(spec.shape)
    if name == "mean" and len(op.operands) == 3 and op.operands[2] == "True":
        pooled = sorted(axis % rank for axis in _parse_list(op.operands[1])) == [*range(2, rank)] and rank > 3
        kind = "avg"
    else:
        kind = "avg" if "avg" in name else "max"
        pooled = (
            name in ("adaptive_max_pool2d", "adaptive_max_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
            and set(_parse_list(op.operands[1])) == {1}
            and rank == int(name[-2]) + 2
        )
    if not pooled:
        return None
    return Computation(
        kind="pool",
        operation=Call(name="pool", positional=("x",), named=(("op", kind), ("window", "all"))),
        operands=(("x", python_expression(op.operands[0])),),
        middle=True,
    )
