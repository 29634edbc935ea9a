"""Compares a graph at full size with the shrunk one.

If they differ, a kernel written for one may be wrong at the other.
"""

from __future__ import annotations

import dataclasses
import math

from workbench.language.expressions.scalars import ATEN
from workbench.records import Operation, plain_name

# calls that calculate with numbers: those of the language's functions, and others
ARITHMETIC = (
    *(name for name, (function, call) in ATEN.items() if function.values > 1 or call.numbers),
    *("addmm", "baddbmm", "rrelu"),
    *("scalar_tensor", "full_like", "var", "var_mean", "std", "topk"),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"),
)
PARTS = (
    "glu",
    "slice",
    "select",
    "narrow",
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "tril",
    "triu",
    "as_strided",
)
GROUPS = {"native_group_norm": 6, "convolution": 8}  # position of the operand that holds the number of groups
CONVOLUTION_WINDOW = slice(3, 8)  # stride, padding, dilation, transposed, output padding


CONSTANT = "constant"  # target of a tensor that forward makes from numbers; the keyword `value` lists them


def differs(shrunk: tuple[Operation, ...], full: tuple[Operation, ...]) -> bool:
    """Whether the graph may do something else at full size.

    It may if its calls or the numbers in its arithmetic differ, or if it takes parts of tensors: a part may be the
    whole of a shrunk tensor.
    """
    return reads_parts(shrunk) or reads_parts(full) or calculates_differently(shrunk, full)


def calculates_differently(shrunk: tuple[Operation, ...], full: tuple[Operation, ...]) -> bool:
    """Whether the calls of the graph, or the numbers in its arithmetic, are others at full size.

    A slice may be no call where it is the whole.
    """
    shrunk, full = _without_slices(shrunk), _without_slices(full)
    return [op.target for op in shrunk] != [op.target for op in full] or uses_other_numbers(shrunk, full)


def uses_other_numbers(one: tuple[Operation, ...], other: tuple[Operation, ...]) -> bool:
    """Whether two graphs have the same calls, aside from slices, with other numbers in their arithmetic."""
    one, other = _without_smoothing(_without_slices(one)), _without_smoothing(_without_slices(other))
    return [op.target for op in one] == [op.target for op in other] and any(
        _uses_other_numbers(*pair) for pair in zip(one, other, strict=True)
    )


def _without_slices(graph: tuple[Operation, ...]) -> tuple[Operation, ...]:
    return tuple(op for op in graph if plain_name(op) not in ("slice", "alias", "detach"))


def _without_smoothing(graph: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The graph with the smoothing of cross entropy, which ATen divides by the number of classes, as it was given."""
    losses = {op.operands[0] for op in graph if plain_name(op) == "nll_loss_forward"}
    classes = {op.result[0].shape[-1] for op in graph if op.name in losses and op.result}
    if len(classes) != 1:
        return graph
    count = classes.pop()
    factors = {
        op.name: float(op.operands[1])
        for op in graph
        if plain_name(op) == "mul" and len(op.operands) == 2 and _is_number(op.operands[1])
    }
    smoothed = {  # the other term of the loss has the factor 1 - smoothing
        name: count * factor
        for name, factor in factors.items()
        if any(math.isclose(other, 1 - count * factor, rel_tol=1e-6) for other in factors.values())
    }
    return tuple(
        dataclasses.replace(op, operands=(op.operands[0], f"{smoothed[op.name]:.6g}")) if op.name in smoothed else op
        for op in graph
    )


def reads_parts(graph: tuple[Operation, ...]) -> bool:
    """Whether the graph takes parts of tensors, or rows of a table by their positions: it may depend on every size."""
    found = {plain_name(op) for op in graph}
    return bool(found.intersection(PARTS)) or found >= {"arange", "embedding"}


def list_windows(graph: tuple[Operation, ...]) -> list[tuple[str, ...]]:
    """What a kernel of this graph has written into it: strides, paddings, dilations, widths of pools, groups, the k
    of topk, how far a tensor is padded or rolled, factors of interpolations.

    The groups of a convolution by channel (depthwise) are its channels, which are a size.
    """
    found = []
    for op in graph:
        if "convolution" in op.target:
            found.append(op.operands[CONVOLUTION_WINDOW])
        elif "_pool" in op.target and "adaptive" not in op.target:
            found.append(op.operands[1:])
        elif plain_name(op) == "topk" or _moves(op):
            found.append(op.operands[1:2])
        elif "upsample" in op.target:
            found.append(op.operands[2:])
        position = GROUPS.get(plain_name(op))
        if position is not None and len(op.operands) > position and not _is_depthwise(op, op):
            found.append((op.operands[position],))
    return found


def _moves(op: Operation) -> bool:
    """Whether a call is a pad or a roll, whose second argument says how far."""
    return plain_name(op) == "roll" or "_pad" in op.target


def _uses_other_numbers(one: Operation, other: Operation) -> bool:
    if one.target == CONSTANT:
        return one.keywords != other.keywords or dict(one.keywords).get("value") == "unknown"
    pairs = list(zip(_list_numbers(one), _list_numbers(other), strict=False))
    if pairs and len(one.operands) != len(other.operands):  # trailing defaults are left out
        return True
    return not _is_depthwise(one, other) and any(
        a != b and ({a, b} <= {"True", "False"} or (_is_numeric(a) and _is_numeric(b))) for a, b in pairs
    )


def _list_numbers(op: Operation) -> tuple[str, ...]:
    """The arguments of a call with which it calculates if they are numbers."""
    name = plain_name(op)
    if name in GROUPS:
        return op.operands[GROUPS[name] : GROUPS[name] + 1]
    if _moves(op):
        return op.operands[1:2]
    return (*op.operands, *(value for _, value in op.keywords)) if name in ARITHMETIC else ()


def _is_numeric(text: str) -> bool:
    """Whether an argument is a number, or a list of numbers."""
    return all(map(_is_number, text.strip("[]").split(",")))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_depthwise(one: Operation, other: Operation) -> bool:
    """Whether each channel of a convolution is a group of its own, at both sizes."""
    return one.target.startswith("aten.convolution") and all(
        op.result and op.operands[8] == str(op.result[0].shape[1]) for op in (one, other)
    )
