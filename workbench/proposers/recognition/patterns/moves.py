"""Matches cat, topk, pads, flips, rolls and interpolations of forward's inputs and of parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping

from workbench.language import Call
from workbench.language.operations.top_k import MOST
from workbench.proposers.recognition.epilogue_chain import find_chain, tensor_specs
from workbench.proposers.recognition.graph import Computation, aten_name, names, parse_number, python_expression
from workbench.proposers.recognition.operands import find_argument, list_varied
from workbench.proposers.recognition.rewrites.remaps import CIRCULAR, RESIZES
from workbench.records import Facts, Operation

FLOATS = ("float32", "float16", "bfloat16")
COPIED = (*FLOATS, "bool", "uint8", "int8", "int16", "int32", "int64")  # types that are moved as they are
PADS = {  # ATen's pads -> the language's mode
    "constant_pad_nd": "constant",
    CIRCULAR.removeprefix("aten.").split(".")[0]: "circular",
    **{f"replication_pad{rank}d": "replicate" for rank in (1, 2, 3)},
    **{f"reflection_pad{rank}d": "reflect" for rank in (1, 2, 3)},
}
REMAPS = (*PADS, *RESIZES, "flip", "roll")
EXACT = 1 << 24  # whole numbers up to here are exact in float32


def match_concat(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """Tensors of one dtype side by side; None for any other operation."""
    op = by_name.get(output)
    if op is None or aten_name(op) != "cat" or op.keywords:
        return None
    given, specs = names(op.operands[0]), tensor_specs(facts)
    if len(given) < 2 or any(name not in specs for name in given):
        return None
    if len({specs[name].dtype for name in given}) != 1 or len({len(specs[name].shape) for name in given}) != 1:
        return None
    axis = int(find_argument(op, 1, "dim", "0")) % len(specs[given[0]].shape)
    roles = {name: f"x{n}" for n, name in enumerate(dict.fromkeys(given), 1)}
    return Computation(
        kind="concat",
        operation=Call(name="concat", positional=tuple(roles[name] for name in given), named=(("axis", axis),)),
        operands=tuple((role, python_expression(name)) for name, role in roles.items()),
    )


def match_top_k(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """The largest elements of rows, and their indices: a pair, of which a pipeline takes what it needs."""
    op = by_name.get(output)
    if op is None or aten_name(op) != "topk" or op.operands[0] in by_name:
        return None
    spec = tensor_specs(facts).get(op.operands[0])
    flags = (find_argument(op, 3, "largest", "True"), find_argument(op, 4, "sorted", "True"))
    if spec is None or not spec.shape or spec.dtype not in FLOATS or flags[0] != "True":
        return None
    axis, k = int(find_argument(op, 2, "dim", "-1")) % len(spec.shape), int(op.operands[1])
    if axis != len(spec.shape) - 1 or not 1 <= k <= MOST:
        return None
    return Computation(
        kind="topk",
        operation=Call(name="topk", positional=("x",), named=(("k", k),)),
        operands=(("x", python_expression(op.operands[0])),),
    )


def match_remap(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A read at another index of some axes, with what follows it element by element; None for any other operation."""
    chain = find_chain(facts, by_name, output, _read_whole, reserved=("x",))
    op = chain.source if chain is not None else None
    if chain is None or op is None or aten_name(op) not in REMAPS or op.operands[0] in by_name or not op.result:
        return None
    spec, wanted = tensor_specs(facts).get(op.operands[0]), by_name[output].result[0].dtype
    is_copy = not chain.calls and spec is not None and spec.dtype == wanted and aten_name(op) not in RESIZES
    if (
        spec is None
        or spec.dtype not in (COPIED if is_copy else FLOATS)
        or wanted not in (COPIED if is_copy else FLOATS)
    ):
        return None
    call = _write_remap(op, spec.dtype)
    if call is None or ("size" in dict(call.named) and _may_have_other_extents(facts, op)):
        return None
    return Computation(
        kind="remap",
        operation=call,
        operands=(("x", python_expression(op.operands[0])), *chain.tensors),
        epilogues=chain.calls,
    )


def _may_have_other_extents(facts: Facts, op: Operation) -> bool:
    """Whether an interpolation is to other extents at full size, or may be at a size between the two known ones."""
    full = {spec.name: spec.shape for case in facts.cases[-1:] for spec in case.inputs}
    full |= {spec.name: spec.shape for spec in facts.full}
    x, own = tensor_specs(facts)[op.operands[0]].shape, op.result[0].shape
    if full.get(op.name, own)[2:] != own[2:]:
        return True
    is_known = full.get(op.operands[0], x)[2:] != x[2:]  # the same extents of other ones of x
    return not is_known and not list_varied(facts).isdisjoint(x[2:])


def _read_whole(facts: Facts, op: Operation, value: str) -> tuple[str, str] | None:
    """(expression, "both") of a tensor that has the shape of an operation's result wherever both are known."""
    spec, full = tensor_specs(facts).get(value), {one.name: one.shape for one in facts.full}
    if spec is None or not op.result or spec.shape != op.result[0].shape or spec.dtype not in FLOATS:
        return None
    if full.get(value, spec.shape) != full.get(op.name, full.get(value, spec.shape)):
        return None
    return python_expression(value), "both"


def _write_remap(op: Operation, dtype: str) -> Call | None:
    """A pad, a flip, a roll or an interpolation as a call of the language; None if the language does not have it."""
    name, rank = aten_name(op), len(op.result[0].shape)
    if name in PADS:
        return _write_pad(op, rank, dtype)
    if name in RESIZES:
        return _write_resize(op, rank)
    if name == "flip":
        return _make_remap("flip", {int(axis) % rank - rank: () for axis in names(op.operands[1], numbers=True)}, ())
    shifts = [int(shift) for shift in names(op.operands[1], numbers=True)]
    axes = [int(axis) for axis in names(find_argument(op, 2, "dims", "[]"), numbers=True) if axis]
    if not axes and rank == 1:
        axes = [0]
    if len(axes) != len(shifts) or len({axis % rank for axis in axes}) != len(axes):
        return None
    by_axis = {axis % rank - rank: (shift,) for axis, shift in zip(axes, shifts, strict=True)}
    return _make_remap("roll", by_axis, ("shifts",))


def _write_pad(op: Operation, rank: int, dtype: str) -> Call | None:
    """A pad; None if nothing is padded, or with a value that float32 does not hold."""
    pads = [int(part) for part in names(op.operands[1], numbers=True)]
    by_axis = {-1 - n: (pads[2 * n], pads[2 * n + 1]) for n in range(len(pads) // 2) if any(pads[2 * n : 2 * n + 2])}
    mode, value = PADS[aten_name(op)], parse_number(find_argument(op, 2, "value", "0"))
    if mode != "constant":
        if any(end < 0 for ends in by_axis.values() for end in ends):
            return None
        return _make_remap("pad", by_axis, ("before", "after"), ("mode", mode))
    if value is None or math.isnan(value) or (dtype not in FLOATS and abs(value) > EXACT):
        return None
    number = int(value) if value.is_integer() and abs(value) < EXACT else value
    return _make_remap("pad", by_axis, ("before", "after"), *((("value", number),) if value else ()))


def _write_resize(op: Operation, rank: int) -> Call | None:
    """An interpolation by factors, or to extents where these are given."""
    mode, space = RESIZES[aten_name(op)], rank - 2
    _, extents, *rest = op.operands
    align = rest.pop(0) == "True" if mode == "linear" else False
    more = (*((("mode", mode),) if mode != "nearest" else ()), *((("align_corners", 1),) if align else ()))
    scales = [parse_number(text) for text in rest]
    if len(scales) == space and None not in scales:
        numbers: list[object] = [int(scale) if scale.is_integer() else scale for scale in scales if scale is not None]
        name = "scale"
    elif not [scale for scale in scales if scale is not None]:
        numbers, name = [int(extent) for extent in names(extents, numbers=True)], "size"
    else:
        return None
    return _make_remap("interpolate", {n - space: (one,) for n, one in enumerate(numbers)}, (name,), *more)


def _make_remap(
    name: str, by_axis: Mapping[int, tuple[object, ...]], arguments: tuple[str, ...], *more: tuple[str, object]
) -> Call | None:
    """The call with the numbers of each axis, of which one alone is written without a tuple; None without axes."""
    axes = sorted(by_axis)
    columns: dict[str, list[object]] = {"axes": [*axes]}
    columns |= {argument: [by_axis[axis][n] for axis in axes] for n, argument in enumerate(arguments)}
    named = tuple((key, tuple(column) if len(column) > 1 else column[0]) for key, column in columns.items() if column)
    return Call(name=name, positional=("x",), named=(*named, *more)) if axes else None
