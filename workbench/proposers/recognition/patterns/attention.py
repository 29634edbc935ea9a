"""Attention: torch's scaled_dot_product_attention, and softmax(scale * q @ k^T) @ v as separate operations.

Both with or without a causal mask.
"""

from __future__ import annotations

import math

from workbench.language import Call
from workbench.proposers.recognition.graph import Computation, number, python, short, through_getitem
from workbench.records import Facts, Operation

# ATen name -> where the mask, the dropout and is_causal stand among its operands (native_functions.yaml)
FUSED = {
    "_scaled_dot_product_flash_attention_for_cpu": (None, 3, 4),
    "_scaled_dot_product_flash_attention": (None, 3, 4),
    "_scaled_dot_product_efficient_attention": (3, 5, 6),
    "_scaled_dot_product_cudnn_attention": (3, 5, 6),
    "_scaled_dot_product_attention_math": (3, 4, 5),
    "scaled_dot_product_attention": (3, 4, 5),
    "_scaled_dot_product_fused_attention_overrideable": (3, 4, 5),
}
VIEWS = ("view", "_unsafe_view", "reshape", "expand", "clone", "contiguous", "alias", "detach", "unsqueeze", "squeeze")


class Shapes:
    """Shapes of values by name, at the sizes of the trace."""

    def __init__(self, facts: Facts, by_name: dict[str, Operation]) -> None:
        self.by_name = by_name
        self.inputs = {spec.name: spec.shape for spec in facts.cases[0].inputs}

    def of(self, value: str) -> tuple[int, ...] | None:
        """The shape of a value, where it is known."""
        op = self.by_name.get(value)
        if op is not None:
            return op.result[0].shape if op.result else None
        return self.inputs.get(value)

    def unwrapped(self, value: str) -> str:
        """The value behind views that keep its matrices: the last two extents, and all elements."""
        while (op := self.by_name.get(value)) is not None and short(op) in VIEWS:
            before, after = self.of(op.operands[0]), self.of(value)
            if before is None or after is None or before[-2:] != after[-2:] or math.prod(before) != math.prod(after):
                break
            value = op.operands[0]
        return value


def attention(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    return _fused(facts, by_name, output) or _written_out(facts, by_name, output)


def _fused(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = through_getitem(by_name, output)
    if op is None or short(op) not in FUSED:
        return None
    keywords, shapes = dict(op.keywords), Shapes(facts, by_name)
    mask, dropout, causal = (
        op.operands[at] if at is not None and at < len(op.operands) else default
        for at, default in zip(FUSED[short(op)], ("None", "0.0", "False"), strict=True)
    )
    if (
        mask != "None"
        or keywords.get("attn_mask", "None") != "None"
        or number(dropout) != 0.0
        or number(keywords.get("dropout_p", "0.0")) != 0.0
    ):
        return None
    q, k, v = op.operands[:3]
    scale = keywords.get("scale", "None")
    return _computation(
        shapes, (q, k, v), keywords.get("is_causal", causal) == "True", None if scale == "None" else number(scale)
    )


def _computation(shapes: Shapes, values: tuple[str, str, str], causal: bool, scale: float | None) -> Computation | None:
    """An attention of operands that forward can name.

    A scale that is 1 / sqrt(dim) at the sizes of the trace is taken to be that at every size.
    """
    expressions = [_expression(shapes, value) for value in values]
    found = [shapes.of(value) for value in values]
    q, k, v = found
    if any(item is None for item in expressions) or q is None or k is None or v is None or len(q) not in (3, 4):
        return None
    if len(k) != len(q) or k != v or q[0] != k[0] or q[-1] != k[-1] or (len(q) == 4 and q[1] % max(k[1], 1)):
        return None
    named: tuple[tuple[str, object], ...] = (("causal", 1),) if causal else ()
    if scale is not None and not math.isclose(scale, q[-1] ** -0.5, rel_tol=1e-6):
        named += (("scale", scale),)
    operands = tuple((name, str(expression)) for name, expression in zip("qkv", expressions, strict=True))
    return Computation(
        kind="attention", operation=Call(name="attention", positional=("q", "k", "v"), named=named), operands=operands
    )


def _expression(shapes: Shapes, value: str) -> str | None:
    """The Python expression of an operand: an input, or one with two axes exchanged."""
    op = shapes.by_name.get(value)
    if op is None:
        return python(value) if number(value) is None else None
    if op.operands[0] in shapes.by_name:
        return None
    if short(op) == "transpose":
        return f"{python(op.operands[0])}.transpose({op.operands[1]}, {op.operands[2]})"
    if short(op) == "permute":
        return f"{python(op.operands[0])}.permute({op.operands[1].strip('[]')})"
    return None


def _scaled(by_name: dict[str, Operation], value: str) -> tuple[str, float]:
    """A value, and by what number it is multiplied."""
    op, factor = by_name.get(value), 1.0
    while (
        op is not None
        and short(op) in ("mul", "div")
        and len(op.operands) == 2
        and (by := number(op.operands[1])) is not None
        and not op.keywords
    ):
        factor *= by if short(op) == "mul" else 1 / by
        value = op.operands[0]
        op = by_name.get(value)
    return value, factor


def _written_out(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """softmax(scale * q @ k^T) @ v as separate operations."""
    shapes = Shapes(facts, by_name)
    product = by_name.get(shapes.unwrapped(output))
    if product is None or short(product) != "bmm":
        return None
    soft = by_name.get(shapes.unwrapped(product.operands[0]))
    if soft is None or short(soft) not in ("_softmax", "softmax", "_safe_softmax"):
        return None
    shape = shapes.of(soft.name)
    if shape is None or soft.operands[1] not in ("-1", str(len(shape) - 1)):
        return None
    unmasked = _without_mask(shapes, soft.operands[0], shape[-2:])
    if unmasked is None:
        return None
    value, factor, causal = unmasked
    scores = by_name.get(shapes.unwrapped(value))
    if scores is None or short(scores) != "bmm":
        return None
    q, of_q = _scaled(by_name, shapes.unwrapped(scores.operands[0]))
    turned, of_k = _scaled(by_name, shapes.unwrapped(scores.operands[1]))
    q, k, v = shapes.unwrapped(q), _turned_back(shapes, turned), shapes.unwrapped(product.operands[1])
    if k is None or not _fit_together(shapes, (q, k, v), output):
        return None
    return _computation(shapes, (q, k, v), causal, factor * of_q * of_k)


def _without_mask(shapes: Shapes, value: str, extents: tuple[int, ...]) -> tuple[str, float, bool] | None:
    """(the scores before scale and mask, the scale, whether the mask is causal); None for any other mask."""
    value, factor = _scaled(shapes.by_name, value)
    masked = shapes.by_name.get(value)
    if masked is None or short(masked) != "masked_fill":
        return value, factor, False
    if (
        len(masked.operands) != 3
        or masked.operands[2] != "-inf"
        or not _hides_later(shapes, masked.operands[1], extents)
    ):
        return None
    value, more = _scaled(shapes.by_name, masked.operands[0])
    return value, factor * more, True


def _fit_together(shapes: Shapes, values: tuple[str, str, str], output: str) -> bool:
    """Whether the output has the shape of q, k that of v, and all have the same leading extents."""
    q, k, v = (shapes.of(value) for value in values)
    return q is not None and shapes.of(output) == q and k == v and q[:-2] == (k or ())[:-2]


def _turned_back(shapes: Shapes, value: str) -> str | None:
    """What a value is the transpose of, in its last two axes."""
    op, shape = shapes.by_name.get(value), shapes.of(value)
    if op is None or shape is None or short(op) not in ("transpose", "permute"):
        return None
    rank = len(shape)
    if short(op) == "transpose":
        swapped = sorted(int(text) % rank for text in op.operands[1:3]) == [rank - 2, rank - 1]
    else:
        swapped = [int(text) % rank for text in op.operands[1].strip("[]").split(",")] == [
            *range(rank - 2),
            rank - 1,
            rank - 2,
        ]
    return shapes.unwrapped(op.operands[0]) if swapped else None


def _hides_later(shapes: Shapes, value: str, extents: tuple[int, ...]) -> bool:
    """Whether a mask is true just above the diagonal: triu(ones, 1), or tril(ones) == 0."""
    hides = True
    while (op := shapes.by_name.get(value)) is not None:
        if short(op) in ("tril", "triu"):
            triangle = ("triu", "1") if hides else ("tril", "0")
            return (short(op), _diagonal(op)) == triangle and _is_triangle_of_ones(shapes, op, extents)
        turns = _negates(op)
        if turns is None:
            return False
        hides = hides ^ turns
        value = op.operands[0]
    return False


def _diagonal(op: Operation) -> str:
    """The diagonal that a call of tril or triu is given."""
    return op.operands[1] if len(op.operands) > 1 else dict(op.keywords).get("diagonal", "0")


def _is_triangle_of_ones(shapes: Shapes, op: Operation, extents: tuple[int, ...]) -> bool:
    """Whether tril or triu is called on a square of ones."""
    ones = shapes.by_name.get(op.operands[0])
    return (
        ones is not None
        and (short(ones) == "ones" or (short(ones) == "full" and number(ones.operands[1]) == 1.0))
        and shapes.of(op.name) == extents
        and extents[0] == extents[1]
    )


def _negates(op: Operation) -> bool | None:
    """Whether an operation on a mask negates it; None where it does something else than that or keep it."""
    name = short(op)
    if name in ("eq", "ne", "gt") and number(op.operands[1]) == 0.0:
        return name == "eq"
    if name == "eq" and number(op.operands[1]) == 1.0:
        return False
    if name in ("logical_not", "bitwise_not"):
        return True
    keeps = name in ("unsqueeze", "expand", "alias", "detach") or (
        name == "_to_copy" and dict(op.keywords).get("dtype") == "torch.bool"
    )
    return False if keeps else None
