"""Writes distances of rows as a matrix product whose epilogue adds the rows' squares, or as sums of differences.

torch.cdist takes |x|^2 - 2 x.y + |y|^2 for Euclidean distances of many rows, which loses the digits of small distances
of large rows, and differences otherwise. A kernel does at all sizes what torch does at full size. What forward writes
itself, `x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1) - 2 * x @ y.t()`, stays in that form; the product comes before
the sums, so that they are its epilogue.
"""

from __future__ import annotations

import dataclasses
import math

from workbench.proposers.recognition.graph import DISTANCES, YOURSELF, Unrecognised, aten_name, parse_number
from workbench.proposers.recognition.rewrites.rewriting import Graph, make_operation, reshape_spec, rewrite
from workbench.proposers.recognition.views import RESHAPES
from workbench.records import Facts, Operation, TensorSpec

# torch.cdist of at most 25 rows, and with p other than 2; with p=2 of more rows on either side (ATen's Distance.cpp)
DIFFERENCES, PRODUCT = "_cdist_forward", "_euclidean_dist"
PRODUCTS = ("mm", "bmm")
SQUARED = 0.0  # in place of p: the sum of squares
METRICS = {1.0: "l1", 2.0: "l2", math.inf: "linf", SQUARED: "l2"}  # of gemm
BATCHES = "several or unequal batch axes: flatten them, and expand what is broadcast"
Shape = tuple[int, ...]


def write_distances(facts: Facts) -> Facts:
    """The same facts with products or differences for each call of torch.cdist, and squares added behind products."""
    multiplies = any(aten_name(op) == PRODUCT for op in (*facts.graph, *facts.full_graph))

    def write(op: Operation, graph: Graph) -> list[Operation] | None:
        if aten_name(op) in RESHAPES and graph.producer(op.operands[0], PRODUCT) is not None:
            is_same = graph.shape(op.operands[0]) == graph.shape(op.name)
            return [dataclasses.replace(op, target="aten.alias.default", operands=op.operands[:1])] if is_same else None
        if aten_name(op) not in (PRODUCT, DIFFERENCES):
            return _find_differences(op, graph) or _add_behind_product(op, graph)
        given = [_strip_views(value, graph) for value in op.operands[:2]]
        op = dataclasses.replace(op, operands=(*given, *op.operands[2:]))
        shapes = [shape for value in given if (shape := graph.shape(value)) is not None]
        if len(shapes) != 2:
            return None
        if multiplies and _is_euclidean(op):
            return _multiply(op, shapes)
        if shapes[0][:-2] != shapes[1][:-2] or len(shapes[0]) > 3:
            raise Unrecognised(f"the planner has no kernel for torch.cdist of {BATCHES}; {YOURSELF}")
        made = _write_differences(op, (given[0], given[1]), float(op.operands[2]), graph)
        return [*made, *_take_root(op, made[-1])]

    return rewrite(facts, write)


def why_not(graph: tuple[Operation, ...]) -> str | None:
    """Why there is no kernel for a call of torch.cdist; None if there is one."""
    for op in graph:
        if aten_name(op) == DIFFERENCES and parse_number(op.operands[2]) not in (1.0, 2.0, math.inf):
            p = op.operands[2]
            return f"the planner has no kernel for torch.cdist with p={p}; it has p=1, p=2 and p=inf; {YOURSELF}"
    return None


def _strip_views(value: str, graph: Graph) -> str:
    """The value of which torch.cdist makes an operand of the same shape, by expand, clone and view.

    Raises `Unrecognised` if it expands batch axes.
    """
    found = value
    for kinds in (RESHAPES, ("clone",), ("expand",)):
        op = graph.producer(value, *kinds)
        if op is None:
            continue
        is_same = graph.shape(op.operands[0]) == graph.shape(value)
        if kinds == ("expand",) and not is_same:
            raise Unrecognised(f"the planner has no kernel for torch.cdist of {BATCHES}; {YOURSELF}")
        found = op.operands[0] if is_same and found == value else found
        value = op.operands[0]
    return found


def _is_euclidean(op: Operation) -> bool:
    """Whether torch.cdist multiplies at this size, or would with more rows."""
    return aten_name(op) == PRODUCT or (parse_number(op.operands[2]) == 2 and op.operands[3] in ("None", "0"))


def _multiply(op: Operation, shapes: list[Shape]) -> list[Operation]:
    """sqrt(max(-2 x.y + |x|^2 + |y|^2, 0)) of x (batch, m, k) and y (batch, n, k), or without batch."""
    (x, y), whole = op.operands[:2], op.result[0]
    *batch, n, k = shapes[1]
    made: list[Operation] = []

    def add(part: str, kind: str, operands: tuple[str, ...], shape: Shape) -> str:
        made.append(make_operation(f"{op.name}_{part}", kind, operands, reshape_spec(whole, shape)))
        return made[-1].name

    def add_squares(part: str, of: str, shape: Shape, keep: tuple[str, ...]) -> str:
        squares = add(f"{part}_squares", "pow.Tensor_Scalar", (of, "2"), shape)
        sums = shape[:-1] + (1,) * len(keep)
        return add(part, "sum.dim_IntList", (squares, "[-1]", *keep), sums)

    left = add_squares("x", x, shapes[0], ("True",))
    right = add_squares("y", y, shapes[1], ())
    if batch:
        right = add("y_rows", "unsqueeze", (right, "1"), (*batch, 1, n))
    turned = add("turned", "transpose.int", (y, "-2", "-1"), (*batch, k, n))
    product = add("product", "bmm" if batch else "mm", (x, turned), whole.shape)
    value = add("twice", "mul.Tensor", (product, "-2"), whole.shape)
    value = add("x_added", "add.Tensor", (value, left), whole.shape)
    value = add("y_added", "add.Tensor", (value, right), whole.shape)
    value = add("least", "clamp", (value, "0"), whole.shape)
    return [*made, dataclasses.replace(op, target="aten.sqrt.default", operands=(value,))]


def _write_differences(op: Operation, rows: tuple[str, str], p: float, graph: Graph) -> list[Operation]:
    """The norms of the differences of the rows of x (batch, m, k) and y (batch, n, k), or without batch."""
    (x, y), whole = rows, op.result[0]
    *batch, n, k = graph.specs[y].shape
    kind, norm = METRICS[p], reshape_spec(whole, whole.shape)
    columns = reshape_spec(whole, (*batch, k, n))
    turned = make_operation(f"{op.name}_turned", "transpose.int", (y, "-2", "-1"), columns)
    name = f"{op.name}_{kind}" if kind == "l2" else op.name
    made = Operation(
        name=name, target=DISTANCES, operands=(x, turned.name), keywords=(("metric", kind),), result=(norm,)
    )
    return [turned, made]


def _find_differences(op: Operation, graph: Graph) -> list[Operation] | None:
    """The norm, or the sum of squares, over the last axis of x[:, None] - y[None], as distances.

    Not the largest difference: there a norm keeps NaN, and torch.cdist does not.
    """
    if not op.result or aten_name(op) not in ("linalg_vector_norm", "sum") or op.keywords:
        return None
    of, axis, keep = op.operands[0], *(*op.operands[1:], "", "")[:2]
    p: float | None = None
    if aten_name(op) == "linalg_vector_norm":
        p, axis, keep = parse_number(axis), *(*op.operands[2:], "", "")[:2]
    elif (inner := graph.producer(of, "pow", "mul", "square", "abs")) is not None:
        is_square = aten_name(inner) == "square" or inner.operands[1:] in (("2",), inner.operands[:1])
        p = 1.0 if aten_name(inner) == "abs" else SQUARED if is_square else None
        of = inner.operands[0]
    rows = _find_rows(of, graph)
    rank = len(op.result[0].shape)
    if (
        rows is None
        or p not in METRICS
        or p == math.inf
        or keep not in ("", "False")
        or axis not in ("[-1]", f"[{rank}]")
    ):
        return None
    made = _write_differences(op, rows, p, graph)
    if p == SQUARED:
        return [made[0], dataclasses.replace(made[1], name=op.name)]
    return [*made, *_take_root(op, made[-1])]


def _take_root(op: Operation, squares: Operation) -> list[Operation]:
    """The root of squared distances; nothing behind other ones."""
    if squares.name == op.name:
        return []
    return [dataclasses.replace(op, target="aten.sqrt.default", operands=(squares.name,))]


def _find_rows(value: str, graph: Graph) -> tuple[str, str] | None:
    """x and y of x[..., :, None, :] - y[..., None, :, :], matrices or batches of matrices of one size."""
    away = graph.producer(value, "sub")
    sides = [graph.producer(text, "unsqueeze") for text in away.operands] if away is not None else []
    shape = graph.shape(value) or ()
    if away is None or away.keywords or len(sides) != 2 or len(shape) not in (3, 4):
        return None
    axes = {int(side.operands[1]) % len(shape): side.operands[0] for side in sides if side is not None}
    for text, side in zip(away.operands, sides, strict=True):
        if side is None and len(shape) == 3 and len(graph.shape(text) or ()) == 2:
            axes.setdefault(0, text)  # x[:, None] - y
    x, y = axes.get(len(shape) - 2, ""), axes.get(len(shape) - 3, "")
    first, second = graph.shape(x), graph.shape(y)
    if first is None or second is None or (*first[:-1], second[-2], first[-1]) != shape or first[:-2] != second[:-2]:
        return None
    return x, y


def _add_behind_product(op: Operation, graph: Graph) -> list[Operation] | None:
    """(a - p) + b for (a + b) - p, where p is a product, perhaps times a number, and a and b are broadcast to it."""
    if aten_name(op) != "sub" or op.keywords or len(op.operands) != 2:
        return None
    sums, value = graph.producer(op.operands[0], "add"), op.operands[1]
    scaled = graph.producer(value, "mul")
    product = graph.producer(scaled.operands[0] if scaled is not None else value, *PRODUCTS)
    if sums is None or sums.keywords or product is None or not op.result:
        return None
    if scaled is not None and parse_number(scaled.operands[1]) is None:
        return None
    shape = op.result[0].shape
    if graph.shape(value) != shape or any(graph.shape(part) in (None, shape) for part in sums.operands):
        return None
    whole = reshape_spec(op.result[0], shape)
    made = _scale_behind_product(op, product, graph, whole) if scaled is None else []
    value = made[-1].name if made else value
    less = make_operation(f"{op.name}_less", "sub.Tensor", (sums.operands[0], value), whole)
    return [*made, less, dataclasses.replace(op, target="aten.add.Tensor", operands=(less.name, sums.operands[1]))]


def _scale_behind_product(op: Operation, product: Operation, graph: Graph, whole: TensorSpec) -> list[Operation]:
    """c * (x @ b) for (c * x) @ b, which is `2 * x @ b`; equal for powers of two. () if it is another product."""
    scaled = graph.producer(product.operands[0], "mul")
    factor = parse_number(scaled.operands[1]) if scaled is not None else None
    if scaled is None or factor is None or abs(math.frexp(factor)[0]) != 0.5:
        return []
    plain = make_operation(f"{op.name}_product", aten_name(product), (scaled.operands[0], product.operands[1]), whole)
    return [plain, make_operation(f"{op.name}_scaled", "mul.Tensor", (plain.name, scaled.operands[1]), whole)]
