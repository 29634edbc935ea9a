"""Finds the calls of nn.MultiheadAttention in a graph: its projections, their parts, attention and its result."""

from __future__ import annotations

import dataclasses
import math

from workbench.proposers.recognition.graph import aten_name, parse_number
from workbench.proposers.recognition.patterns.attention import FUSED
from workbench.proposers.recognition.rewrites.rewriting import GETITEM, Graph
from workbench.proposers.recognition.views import MOVES, RESHAPES, axis_order
from workbench.records import Operation, TensorSpec

SWAPPED = "_swapped"  # of a value's name: the same with the batch first
HEADS = "_by_heads"  # of the name of attention's result (batch * heads, rows, dim): the same with four axes
TO_ROWS = (2, 0, 1, 3)  # axes of attention's result as the module moves them


@dataclasses.dataclass(frozen=True)
class Product:
    """x (T, B, k) @ matrix (k, n) + bias, with one matrix for all of T."""

    x: str
    matrix: str
    bias: str


def find_swapped(value: str, graph: Graph) -> str | None:
    """The name of a value (B, T, ...) that is this value (T, B, ...) with the batch first; None if there is none."""
    op = graph.by_name.get(value)
    if op is None:
        return None
    if swaps_first(op, graph):
        return op.operands[0]
    product, packed = find_product(op, graph), find_packed(op, graph)
    thirds = None if packed is None else find_thirds(packed, graph)
    source = product.x if product is not None else packed if thirds is None else thirds[0]
    return value + SWAPPED if source is not None and find_swapped(source, graph) is not None else None


def find_product(op: Operation, graph: Graph) -> Product | None:
    """The product whose result an operation makes, of three axes, from a batched one with the same matrix for all."""
    shape, bias = (op.result[0].shape if op.result else ()), ""
    if len(shape) != 3:
        return None
    if op.target == "aten.add.Tensor" and not op.keywords and _is_vector(op.operands[1], op.result[0], graph):
        source, bias = graph.by_name.get(op.operands[0]), op.operands[1]
    else:
        source = op
    if source is None or aten_name(source) not in RESHAPES:
        return None
    bmm = graph.producer(source.operands[0], "bmm")
    if bmm is None or bmm.result[0].shape != shape:
        return None
    x, matrix = (_skip_same(value, graph) for value in bmm.operands)
    repeated = graph.producer(matrix, "expand")
    if repeated is None or len(graph.shape(repeated.operands[0]) or ()) != 2:
        return None
    return Product(x, repeated.operands[0], bias)


def _is_vector(value: str, like: TensorSpec, graph: Graph) -> bool:
    """Whether a value has one element for each column of another, of its dtype."""
    spec = graph.specs.get(value)
    return spec is not None and (spec.shape, spec.dtype) == (like.shape[-1:], like.dtype)


def _skip_same(value: str, graph: Graph) -> str:
    """The value behind views that change nothing."""
    while (op := graph.producer(value, "expand", *RESHAPES)) is not None:
        if graph.shape(op.operands[0]) != op.result[0].shape:
            break
        value = op.operands[0]
    return value


def find_packed(op: Operation, graph: Graph) -> str | None:
    """The projection (..., parts * E) of which an operation takes one part as torch.nn.functional's
    _in_projection_packed does.
    """
    if op.target != "aten.select.int" or op.operands[1] != "0":
        return None
    value = op.operands[0]
    for kind, texts in (("clone", ()), ("squeeze", ("-2",)), ("transpose", ("0", "-2")), ("unsqueeze", ("0",))):
        call = graph.producer(value, kind)
        if call is None or call.operands[1:] != texts:
            return None
        value = call.operands[0]
    apart = graph.producer(value, *RESHAPES)
    if apart is None:
        return None
    shape, own = graph.shape(apart.operands[0]) or (), apart.result[0].shape
    return apart.operands[0] if own[:-2] == shape[:-1] and math.prod(own[-2:]) == shape[-1] else None


def find_thirds(value: str, graph: Graph) -> tuple[str, str, str] | None:
    """(x, matrix, bias) where a value is the product of x and the last two thirds of a matrix (3 E, k)."""
    op = graph.by_name.get(value)
    product = None if op is None else find_product(op, graph) or _find_row_product(op, graph)
    turned = None if product is None else graph.producer(product.matrix, "t")
    if product is None or turned is None:
        return None
    matrix = _skip_first_third(turned.operands[0], graph)
    bias = _skip_first_third(product.bias, graph) if product.bias else ""
    return None if matrix is None or bias is None else (product.x, matrix, bias)


def _find_row_product(op: Operation, graph: Graph) -> Product | None:
    """The product of all rows of x (T, B, k) whose result an operation views as (T, B, n)."""
    product = graph.producer(op.operands[0], "addmm", "mm") if aten_name(op) in RESHAPES else None
    rows = None if product is None else graph.producer(product.operands[-2], *RESHAPES)
    if product is None or rows is None or (graph.shape(rows.operands[0]) or ())[:-1] != op.result[0].shape[:-1]:
        return None
    return Product(rows.operands[0], product.operands[-1], product.operands[0] if len(product.operands) == 3 else "")


def _skip_first_third(value: str, graph: Graph) -> str | None:
    """The parameter of which a value is what follows the first third of the rows."""
    item = graph.by_name.get(value)
    split = (
        graph.producer(item.operands[0], "split_with_sizes") if item is not None and item.target == GETITEM else None
    )
    if item is None or split is None or item.operands[1] != "1" or split.operands[2:]:
        return None
    rows = (graph.shape(split.operands[0]) or (0,))[0]
    return split.operands[0] if len(split.result) == 2 and rows == 3 * split.result[0].shape[0] else None


def find_joined(value: str, graph: Graph) -> str | None:
    """The value (T, B, E) of which this one is the view (B * heads, T, E / heads)."""
    moved = graph.by_name.get(value)
    if moved is None or not swaps_first(moved, graph):
        return None
    joined = graph.producer(moved.operands[0], *RESHAPES)
    if joined is None:
        return None
    before, after = graph.shape(joined.operands[0]) or (), joined.result[0].shape
    is_split = len(before) == 3 and len(after) == 3 and before[0] == after[0] and after[1] % before[1] == 0
    return joined.operands[0] if is_split else None


def skip_repeat(mask: str, graph: Graph) -> str:
    """The mask (B, 1, 1, keys) that the module repeats for all heads; else the mask itself."""
    value, call = mask, graph.by_name.get(mask)
    while call is not None and aten_name(call) in (*RESHAPES, "clone", "expand"):
        value = call.operands[0]
        if aten_name(call) == "expand":
            wanted, own = graph.shape(mask) or (), graph.shape(value) or ()
            is_same = call.result[0].shape == wanted and own == (*wanted[:1], 1, *wanted[2:])
            return value if is_same else mask
        call = graph.by_name.get(value)
    return mask


def find_view_of_joined(value: str, graph: Graph) -> str | None:
    """The value (T, B, E) of which this one is the view (B, heads, T, E / heads)."""
    op, shape = graph.producer(value, *RESHAPES), graph.shape(value) or ()
    joined = find_joined(op.operands[0], graph) if op is not None and len(shape) == 4 else None
    return joined if joined is not None and (graph.shape(joined) or ())[1] == shape[0] else None


def find_written_out(op: Operation, graph: Graph) -> tuple[str, str, str] | None:
    """(q, k, v), each (batch * heads, rows, dim), of which a product is the attention."""
    shares = graph.producer(op.operands[0], "_softmax") if op.target.startswith("aten.bmm.") else None
    scores = (
        None if shares is None or shares.operands[1] not in ("-1", "2") else graph.producer(shares.operands[0], "bmm")
    )
    scaled = None if scores is None else graph.producer(scores.operands[0], "mul")
    turned = None if scores is None else graph.producer(scores.operands[1], "transpose")
    if scaled is None or turned is None or axis_order(turned, 3) != (0, 2, 1):
        return None
    factor, shape = parse_number(scaled.operands[1]), graph.shape(scaled.operands[0])
    if factor is None or shape is None or not math.isclose(factor, shape[-1] ** -0.5, rel_tol=1e-6):
        return None
    return scaled.operands[0], turned.operands[0], op.operands[1]


def find_projection(op: Operation, graph: Graph) -> tuple[Operation, str] | None:
    """(product, attention's result with four axes) where an operation views the product of the rows as (T, B, n)."""
    shape = op.result[0].shape if op.result else ()
    product = graph.producer(op.operands[0], "addmm", "mm") if aten_name(op) in RESHAPES and len(shape) == 3 else None
    rows = None if product is None else graph.producer(product.operands[-2], *RESHAPES)
    if product is None or rows is None:
        return None
    copied = graph.producer(rows.operands[0], "clone")
    moved = graph.by_name.get(rows.operands[0] if copied is None else copied.operands[0])
    found = None if moved is None or not moved.result else _find_moved(moved, graph)
    return (product, found[0]) if found is not None and found[1] == shape[:2] else None


def _find_moved(moved: Operation, graph: Graph) -> tuple[str, tuple[int, ...]] | None:
    """(attention's result with four axes, (T, B)) where an operation moves its rows to the front."""
    value = moved.operands[0]
    source = graph.by_name.get(value)
    if source is None:
        return None
    if aten_name(moved) == "permute" and axis_order(moved, 4) == TO_ROWS:
        is_fused = graph.producer_of_item(source, *FUSED) is not None
        return (value, moved.result[0].shape[:2]) if is_fused else None
    found = find_written_out(source, graph) if swaps_first(moved, graph) else None
    joined = [find_joined(one, graph) for one in found or ()]
    if not joined or joined[0] is None or None in joined:
        return None
    return value + HEADS, (graph.shape(joined[0]) or ())[:2]


def swaps_first(op: Operation, graph: Graph) -> bool:
    """Whether an operation swaps the first two of three axes."""
    shape = graph.shape(op.operands[0]) if op.operands else None
    return aten_name(op) in MOVES and shape is not None and len(shape) == 3 and axis_order(op, 3) == (1, 0, 2)
