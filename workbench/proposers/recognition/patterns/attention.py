"""Matches attention: torch's scaled_dot_product_attention, and softmax(scale * q @ k^T) @ v as separate operations.

Both may have a causal mask, and a mask that is a tensor.
"""

from __future__ import annotations

import math

from workbench.language import Call
from workbench.language.limits import HEAD_MOST
from workbench.proposers.recognition.forms.attention_masks import (
    VIEWS,
    Mask,
    Shapes,
    find_masks,
    read_bias,
    split_scale,
)
from workbench.proposers.recognition.graph import (
    MASK,
    Computation,
    aten_name,
    find_producer,
    parse_number,
    python_expression,
)
from workbench.records import Facts, Operation

# ATen name -> positions of the mask, the dropout and is_causal among its operands (native_functions.yaml)
FUSED = {
    "_scaled_dot_product_flash_attention_for_cpu": (None, 3, 4),
    "_scaled_dot_product_flash_attention": (None, 3, 4),
    "_scaled_dot_product_efficient_attention": (3, 5, 6),
    "_scaled_dot_product_cudnn_attention": (3, 5, 6),
    "_scaled_dot_product_attention_math": (3, 4, 5),
    "scaled_dot_product_attention": (3, 4, 5),
    "_scaled_dot_product_fused_attention_overrideable": (3, 4, 5),
}


def find_unequal_heads(facts: Facts) -> str | None:
    """A line on inputs whose head dimensions differ in some case, though the traced one has one; None without them.

    The kernels have one head dimension for q, k and v.
    """
    by_name = {op.name: op for op in facts.graph}
    for op in facts.graph:
        if aten_name(op) not in FUSED:
            continue
        sources = [_last_axis_of(by_name, value) for value in op.operands[:3]]
        for case in facts.cases:
            extents = {spec.name: spec.shape[-1] for spec in case.inputs if spec.shape}
            found = {name: extents[name] for name in sources if name in extents}
            if len(set(found.values())) > 1:
                said = ", ".join(f"{name} has {extent}" for name, extent in found.items())
                return (
                    f"the planner has no kernel for attention whose inputs have several head dimensions ({said} in the "
                    f"case {case.name}); if they are always equal, tie their sizes"
                )
    return None


def _last_axis_of(by_name: dict[str, Operation], value: str) -> str:
    """The value behind operations that keep the last axis."""
    keep = (*VIEWS, "repeat_interleave", "repeat", "index_select")
    while (op := by_name.get(value)) is not None and aten_name(op) in keep and op.result and op.operands:
        value = op.operands[0]
    return value


def match_attention(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    return _match_fused(facts, by_name, output) or _match_unfused(facts, by_name, output)


def _match_fused(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = find_producer(by_name, output)
    if op is None or aten_name(op) not in FUSED:
        return None
    keywords, shapes = dict(op.keywords), Shapes(facts, by_name)
    mask, dropout, causal = (
        op.operands[at] if at is not None and at < len(op.operands) else default
        for at, default in zip(FUSED[aten_name(op)], ("None", "0.0", "False"), strict=True)
    )
    if parse_number(dropout) != 0.0 or parse_number(keywords.get("dropout_p", "0.0")) != 0.0:
        return None
    mask = keywords.get(MASK, mask)
    is_causal = keywords.get("is_causal", causal) == "True"
    q, k, v = op.operands[:3]
    found = None
    if mask != "None":
        read = read_bias(shapes, mask, _score_shape(shapes, q, k)[-2:])
        if read is None:
            return None
        found, hides_later = read
        is_causal = is_causal or hides_later
    text = keywords.get("scale", "None")
    scale = None if text == "None" else parse_number(text)
    if text != "None" and scale is None:
        return None
    return _make_computation(shapes, (q, k, v), is_causal, scale, found, (("empty", "zero"),))


def _score_shape(shapes: Shapes, q: str, k: str) -> tuple[int, ...]:
    """The shape of the scores; () if it is unknown."""
    own, other = shapes.shape_of(q), shapes.shape_of(k)
    return () if own is None or other is None else (*own[:-1], other[-2])


def _make_computation(
    shapes: Shapes,
    values: tuple[str, str, str],
    causal: bool,
    scale: float | None,
    mask: Mask | None = None,
    masked: tuple[tuple[str, object], ...] = (),
) -> Computation | None:
    """An attention whose operands are expressions of forward; None if the shapes do not fit.

    `masked` are arguments that it has with a mask only. A scale that equals 1 / sqrt(dim) at the sizes of the trace is
    assumed to do so at every size.
    """
    values = (values[0], _skip_repeat(shapes, values[1]), _skip_repeat(shapes, values[2]))
    expressions = [_expression(shapes, value) for value in values]
    found = [shapes.shape_of(value) for value in values]
    q, k, v = found
    if any(item is None for item in expressions) or q is None or k is None or v is None or not _fit(q, k, v):
        return None
    named: tuple[tuple[str, object], ...] = (("causal", 1),) if causal else ()
    if scale is not None and not math.isclose(scale, q[-1] ** -0.5, rel_tol=1e-6):
        named += (("scale", scale),)
    operands = tuple((name, str(expression)) for name, expression in zip("qkv", expressions, strict=True))
    if mask is not None:
        if max(q[-1], *shapes.last_extents(values[0])) > HEAD_MOST:
            return None  # no kernel keeps that many columns of the result in registers
        named += (("mask", "mask"), *mask.arguments, *masked)
        operands += (("mask", mask.expression),)
    call = Call(name="attention", positional=("q", "k", "v"), named=named)
    return Computation(kind="attention", operation=call, operands=operands)


def _fit(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> bool:
    """Whether the kernels take operands of these shapes; several heads of q may share one of k and v."""
    if len(q) not in (3, 4) or len(k) != len(q) or k != v:
        return False
    return q[0] == k[0] and q[-1] == k[-1] and (len(q) == 3 or q[1] % max(k[1], 1) == 0)


def _skip_repeat(shapes: Shapes, value: str) -> str:
    """The keys or values behind a repetition of each head (repeat_interleave), as the kernel reads them for a group."""
    op, expanded = shapes.by_name.get(value), None
    while op is not None and aten_name(op) in ("view", "_unsafe_view", "reshape", "clone", "contiguous", "expand"):
        expanded, op = op, shapes.by_name.get(op.operands[0])
    if op is None or expanded is None or aten_name(op) != "unsqueeze" or aten_name(expanded) != "expand":
        return value
    before, after, wide = shapes.shape_of(op.operands[0]), shapes.shape_of(value), shapes.shape_of(expanded.name)
    if before is None or after is None or wide is None or len(before) != 4 or op.operands[1] not in ("2", "-3"):
        return value
    b, heads, rows, columns = before
    repeats = wide[2] if len(wide) == 5 else 0
    is_group = wide == (b, heads, repeats, rows, columns) and after == (b, heads * repeats, rows, columns)
    return op.operands[0] if is_group else value


def _expression(shapes: Shapes, value: str) -> str | None:
    """The Python expression of an operand: an input, or one with two axes exchanged."""
    op = shapes.by_name.get(value)
    if op is None:
        return python_expression(value) if parse_number(value) is None else None
    if op.operands[0] in shapes.by_name:
        return None
    if aten_name(op) == "transpose":
        return f"{python_expression(op.operands[0])}.transpose({op.operands[1]}, {op.operands[2]})"
    if aten_name(op) == "permute":
        return f"{python_expression(op.operands[0])}.permute({op.operands[1].strip('[]')})"
    return None


def _match_unfused(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """softmax(scale * q @ k^T) @ v as separate operations."""
    shapes = Shapes(facts, by_name)
    product = by_name.get(shapes.skip_views(output))
    if product is None or aten_name(product) != "bmm":
        return None
    soft = by_name.get(shapes.skip_views(product.operands[0]))
    if soft is None or aten_name(soft) not in ("_softmax", "softmax", "_safe_softmax"):
        return None
    shape = shapes.shape_of(soft.name)
    if shape is None or soft.operands[1] not in ("-1", str(len(shape) - 1)):
        return None
    unmasked = find_masks(shapes, soft.operands[0], shape[-2:])
    if unmasked is None:
        return None
    scores = by_name.get(shapes.skip_views(unmasked.scores))
    if scores is None or aten_name(scores) != "bmm":
        return None
    q, of_q = split_scale(by_name, shapes.skip_views(scores.operands[0]))
    turned, of_k = split_scale(by_name, shapes.skip_views(scores.operands[1]))
    q, k, v = shapes.skip_views(q), _untranspose(shapes, turned), shapes.skip_views(product.operands[1])
    if k is None or not _have_matching_shapes(shapes, (q, k, v), output):
        return None
    if unmasked.mask is not None and shape != _score_shape(shapes, q, k):
        return None  # the mask has other axes than the heads of q
    empty = (("empty", "zero"),) if aten_name(soft) == "_safe_softmax" else ()
    return _make_computation(shapes, (q, k, v), unmasked.causal, unmasked.factor * of_q * of_k, unmasked.mask, empty)


def _have_matching_shapes(shapes: Shapes, values: tuple[str, str, str], output: str) -> bool:
    """Whether the output has the shape of q, k that of v, and all have the same leading extents.

    Where the shapes at every case are known, all must match, for extents that are equal in one may differ in another.
    """
    q, k, v = (shapes.shape_of(value) for value in values)
    if q is None or k is None or shapes.shape_of(output) != q or k != v or q[:-2] != k[:-2]:
        return False
    everywhere = [shapes.shapes_of(value) for value in values]
    return None in everywhere or all(
        q[-1] == k[-1] and k == v and q[:-2] == k[:-2]
        for q, k, v in zip(*(item or [] for item in everywhere), strict=True)
    )


def _untranspose(shapes: Shapes, value: str) -> str | None:
    """The value of which this one is the transpose in the last two axes; None if it is no transpose."""
    op, shape = shapes.by_name.get(value), shapes.shape_of(value)
    if op is None or shape is None or aten_name(op) not in ("transpose", "permute"):
        return None
    rank = len(shape)
    if aten_name(op) == "transpose":
        swapped = sorted(int(text) % rank for text in op.operands[1:3]) == [rank - 2, rank - 1]
    else:
        swapped = [int(text) % rank for text in op.operands[1].strip("[]").split(",")] == [
            *range(rank - 2),
            rank - 1,
            rank - 2,
        ]
    return shapes.skip_views(op.operands[0]) if swapped else None
