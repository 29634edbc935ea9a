"""Matches computations over rows: softmax, norms, reductions."""

from __future__ import annotations

from workbench.language import Call
from workbench.proposers.recognition.graph import Computation, aten_name, find_producer, is_last, python_expression
from workbench.records import Facts, Operation

REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}


def match_softmax(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = by_name.get(output)
    if op is None or aten_name(op) != "_softmax" or not is_last(op.operands[1], op) or op.operands[0] in by_name:
        return None
    return Computation(
        kind="softmax",
        operation=Call(name="softmax", positional=("x",)),
        operands=(("x", python_expression(op.operands[0])),),
    )


def match_layernorm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = find_producer(by_name, output)
    if (
        op is None
        or aten_name(op) != "native_layer_norm"
        or op.operands[0] in by_name
        or op.operands[1].count(",")
        or "None" in op.operands[2:4]
    ):
        return None
    operands = (
        ("x", python_expression(op.operands[0])),
        ("weight", python_expression(op.operands[2])),
        ("bias", python_expression(op.operands[3])),
    )
    return Computation(
        kind="layernorm",
        operation=Call(name="layernorm", positional=("x",), named=(("eps", float(op.operands[4])),)),
        operands=operands,
    )


def match_rmsnorm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """x * rsqrt(mean(x * x or x ** 2, -1, keepdim) + eps) * weight, in this order."""
    scaled = by_name.get(output)
    if scaled is None or aten_name(scaled) != "mul" or not scaled.operands[1].startswith(("param:", "buffer:")):
        return None
    normal = _find_named_producer(by_name, scaled, 0, "mul")
    inverse = _find_named_producer(by_name, normal, 1, "rsqrt")
    shifted = _find_named_producer(by_name, inverse, 0, "add")
    mean = _find_named_producer(by_name, shifted, 0, "mean")
    if normal is None or shifted is None or mean is None or mean.operands[1:] != ("[-1]", "True") or mean.keywords:
        return None
    x, square = normal.operands[0], by_name.get(mean.operands[0])
    if x in by_name or square is None or not _is_square(square, x):
        return None
    weight = next((spec for spec in facts.parameters if spec.name == scaled.operands[1].split(":", 1)[1]), None)
    if weight is None or weight.shape != square.result[0].shape[-1:]:
        return None
    call = Call(name="rmsnorm", positional=("x",), named=(("eps", float(shifted.operands[1])),))
    return Computation(
        kind="rmsnorm",
        operation=call,
        operands=(("x", python_expression(x)), ("weight", python_expression(scaled.operands[1]))),
    )


def _find_named_producer(
    by_name: dict[str, Operation], op: Operation | None, place: int, name: str
) -> Operation | None:
    """The operation that computes an operand, if it has this name."""
    found = by_name.get(op.operands[place]) if op is not None else None
    return found if found is not None and aten_name(found) == name else None


def _is_square(op: Operation, x: str) -> bool:
    """Whether an operation is x * x or x ** 2."""
    return op.operands[:2] in ((x, x), (x, "2")) and aten_name(op) in ("mul", "pow")


def match_reduction(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = by_name.get(output)
    if (
        op is None
        or aten_name(op) not in REDUCTIONS
        or len(op.operands) < 2
        or op.operands[0] in by_name
        or op.keywords
    ):
        return None
    spec = next((spec for spec in facts.cases[0].inputs if spec.name == op.operands[0]), None)
    axes = [int(part) for part in op.operands[1].strip("[]").split(",") if part.strip()]
    if spec is None or len(axes) != 1:
        return None
    rank, axis = len(spec.shape), axes[0] % len(spec.shape)
    keep = len(op.operands) > 2 and op.operands[2] == "True"
    if axis == rank - 1:
        place = "last"
    elif rank == 3 and axis == 1 and not keep:
        place = "middle"
    else:
        return None
    named = (("op", REDUCTIONS[aten_name(op)]), ("axis", place), *((("keepdim", 1),) if keep else ()))
    return Computation(
        kind="reduce",
        operation=Call(name="reduce", positional=("x",), named=named),
        operands=(("x", python_expression(op.operands[0])),),
        middle=place == "middle",
    )
