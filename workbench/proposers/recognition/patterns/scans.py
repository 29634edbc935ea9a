"""Matches cumsum, cumprod, cummax, cummin and logcumsumexp.

Also reversed by two flips, exclusive, or of a product of two tensors.
"""

from __future__ import annotations

from workbench.language import Call
from workbench.proposers.recognition.graph import Computation, aten_name, find_producer, parse_number, python_expression
from workbench.records import Facts, Operation, TensorSpec

SCANS = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min", "logcumsumexp": "logsumexp"}
FLOATS = ("float32", "float16", "bfloat16")
IDENTITY = {"sum": 0.0, "prod": 1.0}  # the identity element of each scan


def match_scan(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    for attempt in (_match_plain, _match_reversed, _match_shifted_result, _match_subtracted):
        found = attempt(facts, by_name, output)
        if found is not None:
            return found
    return None


def _find_spec(facts: Facts, value: str) -> TensorSpec | None:
    return next((spec for spec in facts.cases[0].inputs if spec.name == value), None)


def _shape_of(facts: Facts, by_name: dict[str, Operation], value: str) -> tuple[int, ...]:
    op, spec = by_name.get(value), _find_spec(facts, value)
    return op.result[0].shape if op is not None and op.result else spec.shape if spec is not None else ()


def _scan_op(by_name: dict[str, Operation], value: str) -> tuple[Operation, int] | None:
    """A scan, and its axis from 0."""
    op = find_producer(by_name, value)
    if op is None or aten_name(op) not in SCANS or op.keywords or len(op.operands) != 2 or not op.result:
        return None
    rank = len(op.result[0].shape)
    return (op, int(op.operands[1]) % rank) if rank else None


def _expression(
    facts: Facts, by_name: dict[str, Operation], value: str, rest: str = ""
) -> tuple[object, tuple[tuple[str, str], ...]] | None:
    """(the scanned expression, its operands): an input, or the product of two inputs of one shape.

    `rest` is appended to each operand's Python expression.
    """
    op, spec = by_name.get(value), _find_spec(facts, value)
    if spec is not None and spec.dtype in FLOATS:
        return "x", (("x", python_expression(value) + rest),)
    if op is None or aten_name(op) != "mul" or op.keywords:
        return None
    left, right = (_find_spec(facts, name) for name in op.operands)
    if left is not None and right is not None and left.dtype not in FLOATS:
        left, right = right, left
    if (
        left is None
        or right is None
        or left.name == right.name
        or left.shape != right.shape
        or left.dtype not in FLOATS
        or right.dtype not in ("bool", left.dtype)
    ):
        return None
    return Call(name="mul", positional=("x", "mask")), (
        ("x", python_expression(left.name) + rest),
        ("mask", python_expression(right.name) + rest),
    )


def _make_computation(
    op: Operation, axis: int, what: tuple[object, tuple[tuple[str, str], ...]] | None, **more: object
) -> Computation | None:
    if what is None or not op.result or op.result[0].dtype not in FLOATS:
        return None
    last = axis == len(op.result[0].shape) - 1
    named = (("op", SCANS[aten_name(op)]), ("axis", "last" if last else axis), *more.items())
    return Computation(
        kind="scan", operation=Call(name="scan", positional=(what[0],), named=named), operands=what[1], middle=not last
    )


def _match_plain(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A scan of an input, of a product, or of zeros (cumprod: ones) before either."""
    found = _scan_op(by_name, output)
    if found is None:
        return None
    op, axis = found
    what = _expression(facts, by_name, op.operands[0])
    if what is not None:
        return _make_computation(op, axis, what)
    return _match_shifted_input(facts, by_name, op, axis)


def _match_shifted_input(facts: Facts, by_name: dict[str, Operation], op: Operation, axis: int) -> Computation | None:
    """cumsum(cat((zeros, x), axis)) in full, without its last column, or without its last row (as in KernelBench)."""
    source, cut = by_name.get(op.operands[0]), None
    if source is not None and aten_name(source) == "slice":
        cut = _sliced_axis(facts, by_name, source)
        source = by_name.get(source.operands[0]) if cut is not None else None
    if source is None or aten_name(source) != "cat":
        return None
    x = _strip_identity(facts, by_name, source, axis, SCANS[aten_name(op)])
    last = axis == len(op.result[0].shape) - 1
    if x is None:
        return None
    if cut == axis:
        return _make_computation(op, axis, _expression(facts, by_name, x), exclusive=1)
    if not last or (cut is not None and cut != 0):
        return None
    return _make_computation(op, axis, _expression(facts, by_name, x, "" if cut is None else "[:-1]"), exclusive=2)


def _sliced_axis(facts: Facts, by_name: dict[str, Operation], op: Operation) -> int | None:
    """The axis along which a slice drops the last element; None for other slices."""
    before, after = _shape_of(facts, by_name, op.operands[0]), _shape_of(facts, by_name, op.name)
    if len(op.operands) != 4 or not before or op.operands[2] not in ("0", "None"):
        return None
    axis = int(op.operands[1]) % len(before)
    return axis if after == (*before[:axis], before[axis] - 1, *before[axis + 1 :]) else None


def _strip_identity(facts: Facts, by_name: dict[str, Operation], op: Operation, axis: int, kind: str) -> str | None:
    """x of cat((identity, x), axis), if the first part is one layer of zeros (ones for products)."""
    shape = _shape_of(facts, by_name, op.name)
    parts = [part.strip() for part in op.operands[0].strip("[]").split(",")]
    along = int(op.operands[1]) % len(shape) if len(op.operands) > 1 and shape else 0
    if len(parts) != 2 or along != axis or kind not in IDENTITY:
        return None
    first = by_name.get(parts[0])
    wanted = "zeros" if kind == "sum" else "ones"
    names = (wanted, f"{wanted}_like", f"new_{wanted}")
    layer = (*shape[:axis], 1, *shape[axis + 1 :])
    if first is None or _shape_of(facts, by_name, first.name) != layer:
        return None
    filled = aten_name(first) in names or (
        aten_name(first) in ("full", "new_full", "full_like") and parse_number(first.operands[-1]) == IDENTITY[kind]
    )
    return parts[1] if filled else None


def _match_reversed(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """flip(scan(flip(x))), all along one axis; the product in it may be flipped as a whole."""
    found = _find_reversed(by_name, output)
    if found is None:
        return None
    op, axis, scanned = found
    return _make_computation(op, axis, _expression(facts, by_name, scanned), reverse=1)


def _find_reversed(by_name: dict[str, Operation], output: str) -> tuple[Operation, int, str] | None:
    """(the scan, its axis, what is scanned from its end) of flip(scan(flip(x)))."""
    outer = by_name.get(output)
    found = _scan_op(by_name, outer.operands[0]) if outer is not None and aten_name(outer) == "flip" else None
    inner = by_name.get(found[0].operands[0]) if found is not None else None
    if outer is None or found is None or inner is None or aten_name(inner) != "flip":
        return None
    op, axis = found
    rank = len(op.result[0].shape)
    if any([int(part) % rank for part in flip.operands[1].strip("[]").split(",")] != [axis] for flip in (outer, inner)):
        return None
    return op, axis, inner.operands[0]


def _match_shifted_result(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """cat((zeros, scan(x) without its last element), axis), or that of scan(x without its last element)."""
    op = by_name.get(output)
    if op is None or aten_name(op) != "cat":
        return None
    for kind, axis in ((kind, axis) for kind in IDENTITY for axis in range(len(_shape_of(facts, by_name, output)))):
        first = _strip_identity(facts, by_name, op, axis, kind) or ""
        found = _scan_op(by_name, first)
        cut = by_name.get(first if found is None else found[0].operands[0])
        if cut is None or aten_name(cut) != "slice" or _sliced_axis(facts, by_name, cut) != axis:
            continue
        whole = cut.operands[0]
        if found is None:
            found = _scan_op(by_name, whole)
            whole = found[0].operands[0] if found is not None else ""
        if found is not None and found[1] == axis and SCANS[aten_name(found[0])] == kind:
            return _make_computation(found[0], axis, _expression(facts, by_name, whole), exclusive=1)
    return None


def _match_subtracted(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """cumsum(x) - x, or flip(cumsum(flip(x))) - x."""
    op = by_name.get(output)
    if op is None or aten_name(op) != "sub" or op.keywords or len(op.operands) != 2:
        return None
    total, x = op.operands
    plain, turned = _scan_op(by_name, total), _find_reversed(by_name, total)
    found = (*plain, plain[0].operands[0]) if plain is not None else turned
    if found is None or aten_name(found[0]) != "cumsum" or found[2] != x:
        return None
    more = {"exclusive": 1} if plain is not None else {"exclusive": 1, "reverse": 1}
    return _make_computation(found[0], found[1], _expression(facts, by_name, x), **more)
