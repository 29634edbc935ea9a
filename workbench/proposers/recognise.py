"""Traced reference (ATen calls) -> what the planner can write: an operation, its operands, its epilogues.

Values are named as in `Facts.graph`: forward's arguments by their names, parameters `param:<name>`, intermediates by node names.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.dsl import Call
from workbench.records import Facts, Operation, record

UNARY = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "neg": "neg", "abs": "abs", "silu": "silu"}
BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "max", "minimum": "min"}
TRANSPOSES = ("t", "permute", "transpose", "numpy_T")
REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}


@record
class Computation:
    """kind: elementwise, softmax, layernorm, rmsnorm, reduce, matvec, crossentropy or gemm; operands name -> Python expression in forward."""

    kind: str
    operation: Call
    operands: tuple[tuple[str, str], ...]
    epilogues: tuple[Call, ...] = ()
    layout: tuple[tuple[str, str], ...] = ()  # gemm: which operand is stored by columns
    middle: bool = False


class Unrecognised(Exception):
    """The graph holds something that the planner cannot write; the text names it."""


def _short(op: Operation) -> str:
    return op.target.removeprefix("aten.").split(".")[0]


def _python(value: str) -> str:
    return f"self.{value.removeprefix('param:').removeprefix('buffer:')}" if ":" in value else value


def recognise(facts: Facts) -> Computation:
    """The computation of a graph; raises `Unrecognised` with the operation that is in the way."""
    by_name = {op.name: op for op in facts.graph}
    output = facts.graph[-1].operands[0]
    for attempt in (_crossentropy, _softmax, _layernorm, _rmsnorm, _reduce, _gemm, _elementwise):
        found = attempt(facts, by_name, output)
        if found is not None:
            return found
    calls = [_short(op) for op in facts.graph if op.target.startswith("aten.")]
    raise Unrecognised(f"the planner has no kernel for {' -> '.join(calls) or 'this module'}; write one yourself below %%cutegen edit")


def _through_getitem(by_name: dict[str, Operation], value: str) -> Operation | None:
    op = by_name.get(value)
    if op is not None and "getitem" in op.target:
        op = by_name.get(op.operands[0]) if op.operands[1] == "0" else None
    return op


def _crossentropy(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    loss = _through_getitem(by_name, output)
    if loss is None or _short(loss) != "nll_loss_forward" or loss.operands[2:4] != ("None", "1"):
        return None
    soft = by_name.get(loss.operands[0])
    if soft is None or _short(soft) != "_log_softmax" or soft.operands[1] not in ("1", "-1"):
        return None
    return Computation(kind="crossentropy", operation=Call(name="crossentropy", positional=("x", "target")), operands=(("x", _python(soft.operands[0])), ("target", _python(loss.operands[1]))))


def _is_last(facts: Facts, axis: str, op: Operation) -> bool:
    rank = len(op.result[0].shape)
    return axis in ("-1", str(rank - 1))


def _softmax(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = by_name.get(output)
    if op is None or _short(op) != "_softmax" or not _is_last(facts, op.operands[1], op) or op.operands[0] in by_name:
        return None
    return Computation(kind="softmax", operation=Call(name="softmax", positional=("x",)), operands=(("x", _python(op.operands[0])),))


def _layernorm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = _through_getitem(by_name, output)
    if op is None or _short(op) != "native_layer_norm" or op.operands[0] in by_name or op.operands[1].count(",") or "None" in op.operands[2:4]:
        return None
    operands = (("x", _python(op.operands[0])), ("weight", _python(op.operands[2])), ("bias", _python(op.operands[3])))
    return Computation(kind="layernorm", operation=Call(name="layernorm", positional=("x",), named=(("eps", float(op.operands[4])),)), operands=operands)


def _rmsnorm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """x * rsqrt(mean(x * x or x ** 2, -1, keepdim) + eps) * weight, in this order."""
    scaled = by_name.get(output)
    if scaled is None or _short(scaled) != "mul" or not scaled.operands[1].startswith(("param:", "buffer:")):
        return None
    normal = by_name.get(scaled.operands[0])
    inverse = by_name.get(normal.operands[1]) if normal is not None and _short(normal) == "mul" else None
    shifted = by_name.get(inverse.operands[0]) if inverse is not None and _short(inverse) == "rsqrt" else None
    mean = by_name.get(shifted.operands[0]) if shifted is not None and _short(shifted) == "add" else None
    square = by_name.get(mean.operands[0]) if mean is not None and _short(mean) == "mean" and mean.operands[1:] == ("[-1]", "True") else None
    if normal is None or shifted is None or square is None:
        return None
    x = normal.operands[0]
    if square.operands[:2] not in ((x, x), (x, "2")) or x in by_name:
        return None
    call = Call(name="rmsnorm", positional=("x",), named=(("eps", float(shifted.operands[1])),))
    return Computation(kind="rmsnorm", operation=call, operands=(("x", _python(x)), ("weight", _python(scaled.operands[1]))))


def _reduce(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    op = by_name.get(output)
    if op is None or _short(op) not in REDUCTIONS or len(op.operands) < 2 or op.operands[0] in by_name:
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
    named = (("op", REDUCTIONS[_short(op)]), ("axis", place), *((("keepdim", 1),) if keep else ()))
    return Computation(kind="reduce", operation=Call(name="reduce", positional=("x",), named=named), operands=(("x", _python(op.operands[0])),), middle=place == "middle")


def _operand(by_name: dict[str, Operation], value: str) -> tuple[str, bool] | None:
    """(Python expression, whether it is stored by columns) of a matrix operand, looking through one transposition."""
    op = by_name.get(value)
    if op is None:
        return _python(value), False
    if _short(op) in TRANSPOSES and op.operands[0] not in by_name:
        if _short(op) == "permute" and op.operands[1].replace(" ", "") not in ("[1,0]", "[0,2,1]"):
            return None
        return f"{_python(op.operands[0])}.transpose(-2, -1)", True
    if _short(op) in ("detach", "alias"):
        return _operand(by_name, op.operands[0])
    return None


def _epilogue(op: Operation) -> Call | None:
    name = _short(op)
    if name == "gelu":
        return Call(name="gelu_tanh" if "'tanh'" in dict(op.keywords).values() else "gelu")
    if name in UNARY:
        return Call(name=UNARY[name])
    if name in ("mul", "div") and len(op.operands) == 2 and _number(op.operands[1]) is not None:
        value = float(op.operands[1])
        return Call(name="scale", positional=(value if name == "mul" else 1 / value,))
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _gemm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    epilogues: list[Call] = []
    op = by_name.get(output)
    while op is not None and _short(op) not in ("mm", "bmm", "addmm", "mv"):
        call = _epilogue(op)
        if call is None:
            return None
        epilogues.insert(0, call)
        op = by_name.get(op.operands[0])
    if op is None:
        return None
    names = op.operands
    bias: tuple[tuple[str, str], ...] = ()
    if _short(op) == "addmm":
        if len(op.operands) != 3 or names[0] in by_name:
            return None
        bias, names = (("bias", _python(names[0])),), names[1:]
        epilogues.insert(0, Call(name="bias"))
    a, b = _operand(by_name, names[0]), _operand(by_name, names[1])
    if a is None or b is None:
        return None
    if (_short(op) == "mv" or (_short(op) == "mm" and op.result[0].shape[-1] == 1)) and not a[1]:
        if epilogues:
            return None
        keep = (("keepdim", 1),) if _short(op) == "mm" else ()
        return Computation(kind="matvec", operation=Call(name="matvec", positional=("x", "vector"), named=keep), operands=(("x", a[0]), ("vector", b[0])))
    if _short(op) == "mv":
        return None
    layout = tuple((name, "column") for name, (_, column) in (("a", a), ("b", b)) if column)
    return Computation(kind="gemm", operation=Call(name="gemm", positional=("a", "b")), operands=(("a", a[0]), ("b", b[0]), *bias), epilogues=tuple(epilogues), layout=layout)


def _elementwise(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    shapes = {spec.name: spec.shape for spec in facts.cases[0].inputs}
    wanted = facts.cases[0].outputs[0].shape
    used: list[str] = []

    def build(value: str) -> object:
        op = by_name.get(value)
        if op is None:
            number = _number(value)
            if number is not None:
                return int(number) if number.is_integer() else number
            if shapes.get(value) != wanted:
                raise Unrecognised(value)
            if value not in used:
                used.append(value)
            return value
        name = _short(op)
        if name in ("detach", "alias", "clone"):
            return build(op.operands[0])
        if name in BINARY and len(op.operands) == 2 and not op.keywords:
            return Call(name=BINARY[name], positional=(build(op.operands[0]), build(op.operands[1])))
        call = _epilogue(op)
        if call is None or call.name == "scale":
            raise Unrecognised(name)
        return Call(name=call.name, positional=(build(op.operands[0]),))

    try:
        expression = build(output)
    except Unrecognised:
        return None
    if not used:
        return None
    return Computation(kind="elementwise", operation=Call(name="elementwise", positional=(expression,)), operands=_same(used))


def _same(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)
