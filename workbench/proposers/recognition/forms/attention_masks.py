"""Reads the masks of attention's scores: causal ones, tensors that hide scores, and tensors that are added to them."""

from __future__ import annotations

import math

from workbench.proposers.recognition.graph import LEADING, aten_name, names, parse_number, python_expression
from workbench.proposers.recognition.views import MOVES, axis_order
from workbench.records import Facts, Operation, record

VIEWS = ("view", "_unsafe_view", "reshape", "expand", "clone", "contiguous", "alias", "detach", "unsqueeze", "squeeze")
INFINITE = -math.inf
ADDED = ("float32", "float16", "bfloat16")  # element types of masks that kernels add to scores
HIDING = (*ADDED, "bool", "uint8", "int8", "int16", "int32", "int64")  # and of those that hide scores
KEEPING = ("unsqueeze", "expand", "alias", "detach")  # views whose elements are those of the tensor, in their order
CONDITIONS = ("eq", "ne", "gt", "logical_not", "bitwise_not", "_to_copy")


@record
class Mask:
    """A tensor that hides scores or is added to them."""

    expression: str  # in forward
    hides: str | None  # which of its elements hide a score, zero or nonzero; None: it is added
    fill: float = INFINITE  # what a hidden score is

    @property
    def arguments(self) -> tuple[tuple[str, object], ...]:
        """What an attention says about it."""
        if self.hides is None:
            return ()
        return (("hide", self.hides), *((("fill", self.fill),) if self.fill != INFINITE else ()))


@record
class Masked:
    """Scores behind scale and masks: the value before them, the scale, and the masks."""

    scores: str
    factor: float
    causal: bool = False
    mask: Mask | None = None


class Shapes:
    """Shapes of values by name, at the sizes of the trace."""

    def __init__(self, facts: Facts, by_name: dict[str, Operation]) -> None:
        self.by_name = by_name
        self.cases = [{spec.name: spec.shape for spec in case.inputs} for case in facts.cases]
        self.inputs = self.cases[0]
        self.dtypes = {spec.name: spec.dtype for spec in facts.cases[0].inputs}
        self.dtypes |= {f"{kind}:{spec.name}": spec.dtype for spec in facts.parameters for kind in ("param", "buffer")}

    def shape_of(self, value: str) -> tuple[int, ...] | None:
        """The shape of a value; None if it is unknown."""
        op = self.by_name.get(value)
        if op is not None:
            return op.result[0].shape if op.result else None
        return self.inputs.get(value)

    def dtype_of(self, value: str) -> str:
        """The element type of a value; empty if it is unknown."""
        op = self.by_name.get(value)
        if op is not None:
            return op.result[0].dtype if op.result else ""
        return self.dtypes.get(value.partition(LEADING)[0], "")

    def shapes_of(self, value: str) -> list[tuple[int, ...]] | None:
        """The shapes of an input, or of one with its axes in another order, at every case; None if they are unknown."""
        op = self.by_name.get(value)
        name = value if op is None else op.operands[0]
        if any(name not in case for case in self.cases) or (op is not None and aten_name(op) not in MOVES):
            return None
        found = [case[name] for case in self.cases]
        order = None if op is None else axis_order(op, len(found[0]))
        return found if order is None else [tuple(shape[axis] for axis in order) for shape in found]

    def last_extents(self, value: str) -> list[int]:
        """The last extents of an input, or of the input behind a view, at the cases where they are known; 0 first."""
        op = self.by_name.get(value)
        name = value if op is None else op.operands[0]
        return [0, *(case[name][-1] for case in self.cases if case.get(name))]

    def skip_views(self, value: str) -> str:
        """The value behind views that keep its last two extents and its number of elements."""
        while (op := self.by_name.get(value)) is not None and aten_name(op) in VIEWS:
            before, after = self.shape_of(op.operands[0]), self.shape_of(value)
            if before is None or after is None or before[-2:] != after[-2:] or math.prod(before) != math.prod(after):
                break
            value = op.operands[0]
        return value


def find_masks(shapes: Shapes, value: str, extents: tuple[int, ...]) -> Masked | None:
    """What is between the scores' product and their softmax; None if it is something else.

    `extents` are queries and keys. The kernel adds or hides first, then hides by the causal mask.
    """
    found = Masked(scores=value, factor=1.0)
    while True:
        value, factor = split_scale(shapes.by_name, found.scores)
        found = Masked(scores=value, factor=found.factor * factor, causal=found.causal, mask=found.mask)
        step = _read_step(shapes, value, extents, found.factor)
        if step is None:
            return found
        scores, causal, mask = step
        hides_less = causal and found.mask is not None and found.mask.fill != INFINITE
        if hides_less or (not causal and (mask is None or found.mask is not None)):
            return None
        found = Masked(
            scores=scores, factor=found.factor, causal=found.causal or causal, mask=found.mask if causal else mask
        )


def _read_step(
    shapes: Shapes, value: str, extents: tuple[int, ...], factor: float
) -> tuple[str, bool, Mask | None] | None:
    """(scores, whether a causal mask is applied to them, another mask) of one call; None if it is no mask.

    Of a mask that is not understood, or whose result is scaled by a factor that changes it, both are nothing.
    """
    op = shapes.by_name.get(value)
    if op is None or op.keywords:
        return None
    if aten_name(op) == "add" and len(op.operands) == 2:
        scores, bias = op.operands if _has_product(shapes.by_name, op.operands[0]) else op.operands[::-1]
        read = read_bias(shapes, bias, extents) if factor == 1.0 and _keeps_shape(shapes, op, scores) else None
        mask, causal = read or (None, False)
        return scores, causal, mask
    hidden = _read_filled(shapes.by_name, op)
    if hidden is None or not _keeps_shape(shapes, op, hidden[0]):
        return None
    scores, condition, hides, fill = hidden
    if _is_causal_mask(shapes, condition, extents, hides=hides) and fill == INFINITE and factor > 0:
        return scores, True, None
    is_same = factor == 1.0 or (fill == INFINITE and factor > 0)
    return scores, False, _read_condition(shapes, condition, hides, fill) if is_same else None


def read_bias(shapes: Shapes, value: str, extents: tuple[int, ...]) -> tuple[Mask | None, bool] | None:
    """(the mask, whether it is causal) of a value that is added to scores; None if it is something else."""
    op = shapes.by_name.get(value)
    hidden = None if op is None else _read_filled(shapes.by_name, op)
    if hidden is not None:
        kept, condition, hides, fill = hidden
        if number_of(shapes.by_name, kept) != 0.0 or fill != INFINITE:
            return None
        if _is_causal_mask(shapes, condition, extents, hides=hides):
            return None, True
        mask = _read_condition(shapes, condition, hides, fill)
        return None if mask is None else (mask, False)
    traced = _trace_views(shapes, value)
    if traced is None or shapes.dtype_of(traced[0]) not in ADDED:
        return None
    return Mask(expression=f"{python_expression(traced[0])}{traced[1]}", hides=None), False


def _read_filled(by_name: dict[str, Operation], op: Operation) -> tuple[str, str, bool, float] | None:
    """(the value, the condition, whether it hides where it holds, the number there) of masked_fill, or of where."""
    if aten_name(op) == "masked_fill" and len(op.operands) == 3:
        fill = number_of(by_name, op.operands[2])
        return None if fill is None else (op.operands[0], op.operands[1], True, fill)
    if aten_name(op) != "where" or len(op.operands) != 3:
        return None
    condition, holds, fails = op.operands
    numbers = number_of(by_name, holds), number_of(by_name, fails)
    if numbers[1] is not None and (numbers[0] is None or numbers[0] == 0.0):
        return holds, condition, False, numbers[1]
    return None if numbers[0] is None else (fails, condition, True, numbers[0])


def _read_condition(shapes: Shapes, value: str, holds_hides: bool, fill: float) -> Mask | None:
    """The mask of a condition on a tensor of forward: whether its elements are 0."""
    views, hides = "", holds_hides  # whether a score is hidden where the value holds
    while (op := shapes.by_name.get(value)) is not None:
        turns = _negates(op, shapes.dtype_of(op.operands[0]))
        if turns is not None:
            hides = hides ^ turns
        elif (view := _view_text(shapes, op)) is not None:
            views = view + views
        else:
            return None
        value = op.operands[0]
    if shapes.dtype_of(value) not in HIDING:
        return None
    return Mask(expression=f"{python_expression(value)}{views}", hides="nonzero" if hides else "zero", fill=fill)


def _trace_views(shapes: Shapes, value: str) -> tuple[str, str] | None:
    """(the tensor of forward, the views as text) of a value."""
    views = ""
    while (op := shapes.by_name.get(value)) is not None:
        view = _view_text(shapes, op)
        if view is None:
            return None
        views, value = view + views, op.operands[0]
    return value, views


def _view_text(shapes: Shapes, op: Operation) -> str | None:
    """A view in Python, without sizes; "" for one that a kernel broadcasts itself; None for any other call."""
    name, before, after = aten_name(op), shapes.shape_of(op.operands[0]), shapes.shape_of(op.name)
    if name in ("alias", "detach") or (name == "expand" and before and after and len(before) == len(after)):
        return ""
    if name == "unsqueeze":
        return f".unsqueeze({op.operands[1]})"
    if name == "transpose":
        return f".transpose({op.operands[1]}, {op.operands[2]})"
    return None


def list_sources(by_name: dict[str, Operation], value: str) -> list[str]:
    """The values, made by other calls, that a mask reads behind its conditions and views."""
    found, stack = [], [value]
    while stack:
        name = stack.pop()
        op = by_name.get(name)
        if op is None or number_of(by_name, name) is not None:
            continue
        if aten_name(op) in ("where", "masked_fill"):
            stack += [part for text in op.operands for part in names(text)]
        elif aten_name(op) in (*CONDITIONS, *KEEPING, "transpose"):
            stack.append(op.operands[0])
        elif not _is_triangle(by_name, op):
            found.append(name)
    return found


def number_of(by_name: dict[str, Operation], value: str) -> float | None:
    """The number that a value is everywhere; None if it is none."""
    op = by_name.get(value)
    if op is None:
        return parse_number(value)
    if aten_name(op) == "scalar_tensor":
        return parse_number(op.operands[0])
    if aten_name(op) in ("full", "full_like"):
        return parse_number(op.operands[1])
    return 0.0 if aten_name(op) in ("zeros", "zeros_like") else None


def _has_product(by_name: dict[str, Operation], value: str) -> bool:
    """Whether a value is made by a product of matrices."""
    stack, seen = [value], set()
    while stack:
        op = by_name.get(stack.pop())
        if op is None or op.name in seen:
            continue
        if aten_name(op) == "bmm":
            return True
        seen.add(op.name)
        stack += [part for text in op.operands for part in names(text)]
    return False


def _keeps_shape(shapes: Shapes, op: Operation, value: str) -> bool:
    """Whether the result has the shape of the scores, so that the mask broadcasts to it."""
    return shapes.shape_of(op.name) == shapes.shape_of(value)


def split_scale(by_name: dict[str, Operation], value: str) -> tuple[str, float]:
    """(the value, the factor) of a value that is multiplied by a number."""
    op, factor = by_name.get(value), 1.0
    while (
        op is not None
        and aten_name(op) in ("mul", "div")
        and len(op.operands) == 2
        and (by := parse_number(op.operands[1])) is not None
        and not op.keywords
    ):
        factor *= by if aten_name(op) == "mul" else 1 / by
        value = op.operands[0]
        op = by_name.get(value)
    return value, factor


def _is_causal_mask(shapes: Shapes, value: str, extents: tuple[int, ...], *, hides: bool) -> bool:
    """Whether a mask hides just above the diagonal: triu(ones, 1) where it holds, or tril(ones) where it does not."""
    while (op := shapes.by_name.get(value)) is not None:
        if aten_name(op) in ("tril", "triu"):
            triangle = ("triu", "1") if hides else ("tril", "0")
            return (aten_name(op), _diagonal(op)) == triangle and _is_triangle_of_ones(shapes, op, extents)
        turns = _negates(op, "bool")  # what triangles of ones are, in any type
        if turns is None and aten_name(op) not in KEEPING:
            return False
        hides = hides ^ bool(turns)
        value = op.operands[0]
    return False


def _diagonal(op: Operation) -> str:
    """The diagonal argument of a call of tril or triu."""
    return op.operands[1] if len(op.operands) > 1 else dict(op.keywords).get("diagonal", "0")


def _is_triangle_of_ones(shapes: Shapes, op: Operation, extents: tuple[int, ...]) -> bool:
    """Whether tril or triu is called on a square of ones."""
    ones = shapes.by_name.get(op.operands[0])
    return (
        ones is not None
        and (aten_name(ones) == "ones" or (aten_name(ones) == "full" and parse_number(ones.operands[1]) == 1.0))
        and shapes.shape_of(op.name) == extents
        and extents[0] == extents[1]
    )


def _is_triangle(by_name: dict[str, Operation], op: Operation) -> bool:
    """Whether a value is a triangle of ones."""
    return aten_name(op) in ("tril", "triu", "ones")


def _negates(op: Operation, dtype: str) -> bool | None:
    """Whether a condition on a tensor of that dtype holds where its elements are 0 (True) or where not (False).

    None if it is anything else.
    """
    name, is_bool = aten_name(op), dtype == "bool"
    number = parse_number(op.operands[1]) if name in ("eq", "ne", "gt") else None
    if name in ("eq", "ne") and number == 0.0:
        return name == "eq"
    if (name == "gt" and number == 0.0 and dtype in ("bool", "uint8")) or (name == "eq" and number == 1.0 and is_bool):
        return False
    if name == "logical_not" or (name == "bitwise_not" and is_bool):
        return True
    return False if name == "_to_copy" and dict(op.keywords).get("dtype") == "torch.bool" else None
