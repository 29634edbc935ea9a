"""Turns element-wise operations on the result of a product or a convolution into epilogues.

The epilogues are calls in order, with the tensors that they read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from workbench.language import Call
from workbench.language.expressions.expressions import VALUE
from workbench.language.operation import MAP
from workbench.language.operations.epilogue import NAMES
from workbench.proposers.recognition.graph import BINARY, Unrecognised, aten_name, parse_number, plain_name
from workbench.proposers.recognition.operands import parse_constant
from workbench.proposers.recognition.scalars import THROUGH, scalar_expression
from workbench.records import Facts, Operation, TensorSpec, record

COMMUTING = ("add", "mul", "maximum", "minimum")
FLOATS = ("float32", "float16", "bfloat16")
MOST_MAPPED = 24  # calls in one map
Gate = tuple[object, ...]
Step = tuple[tuple[Call, ...], str, list[tuple[str, str]]]  # calls in order, the value to which they apply, tensors
# reads a tensor that is combined with an operation's result: (its expression, "n", "m" or "both" as its axes)
Read = Callable[[Facts, Operation, str], tuple[str, str] | None]


@record
class EpilogueChain:
    """The element-wise calls between an operation and a value, and the tensors they read: name -> Python expression."""

    source: Operation
    calls: tuple[Call, ...]
    tensors: tuple[tuple[str, str], ...]


def tensor_specs(facts: Facts) -> dict[str, TensorSpec]:
    """Specs of forward's tensors, parameters and buffers by their names in the graph."""
    return {
        **{spec.name: spec for spec in facts.cases[0].inputs},
        **{f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in facts.parameters},
    }


def find_chain(
    facts: Facts, by_name: dict[str, Operation], value: str, read: Read, reserved: tuple[str, ...] = ()
) -> EpilogueChain | None:
    """The element-wise calls that lead to `value`, from the last operation that is not element-wise.

    `reserved` are names that the tensors must not have. Where a value is used several times, as in h * (h + r), the
    calls until it is one value again become one map.
    """
    calls: list[Call] = []
    tensors: list[tuple[str, str]] = []
    op = by_name.get(value)
    while op is not None:
        taken = (*reserved, *(name for name, _ in tensors))
        step = _epilogue_step(facts, by_name, op, taken, read) or _map_step(facts, by_name, op, taken, read)
        if step is None:
            return EpilogueChain(source=op, calls=tuple(reversed(calls)), tensors=tuple(tensors))
        new, below, more = step
        calls += reversed(new)
        tensors += more
        op = by_name.get(below)
    return None


def _epilogue_step(
    facts: Facts, by_name: dict[str, Operation], op: Operation, taken: tuple[str, ...], read: Read
) -> Step | None:
    """The step of one operation; None if it is not element-wise."""
    name = aten_name(op)
    if name in ("detach", "alias", "clone") and op.target.startswith("aten."):
        return None if op.keywords else ((), op.operands[0], [])
    if name in ("clamp", "hardtanh") and len(op.operands) <= 3 and not op.keywords:
        given = [
            *op.operands[1:],
            *(["-1.0", "1.0"] if name == "hardtanh" else ["None", "None"])[len(op.operands) - 1 :],
        ]
        low, high = (parse_number(text) for text in given)
        if low is not None and high is not None and low <= high:
            return (Call(name="clamp", positional=(low, high)),), op.operands[0], []
        if (low is None) != (high is None) and "None" in given:
            return (
                (Call(name="max" if high is None else "min", positional=(low if high is None else high,)),),
                op.operands[0],
                [],
            )
        return None
    if name in BINARY and len(op.operands) == 2 and not op.keywords:
        found = _binary(facts, by_name, op, taken, read)
        return None if found is None else ((found[0],), *found[1:])
    return _function(by_name, op)


def _function(by_name: dict[str, Operation], op: Operation) -> Step | None:
    """A function of one value and numbers, as one call or several after one another."""
    if not op.operands or op.operands[0] not in by_name or plain_name(op) in THROUGH:
        return None
    try:
        made = scalar_expression(op, lambda text: "value" if text == op.operands[0] else parse_constant(text))
    except Unrecognised:
        return None
    calls: list[Call] = []
    while isinstance(made, Call):
        first, *rest = made.positional
        if made.name not in NAMES or any(not isinstance(item, int | float) for item in rest):
            return None
        calls.insert(0, Call(name=made.name, positional=tuple(rest)))
        made = first
    is_cast = plain_name(op) == "_to_copy"
    return (tuple(calls), op.operands[0], []) if made == "value" and (calls or is_cast) else None


def _map_step(
    facts: Facts, by_name: dict[str, Operation], op: Operation, taken: tuple[str, ...], read: Read
) -> Step | None:
    """A step of several calls as one expression of the nearest value below on which all of them depend."""
    below = _find_common(facts, by_name, op)
    if below is None:
        return None
    expression = _MapExpression(facts, by_name, below, taken, read)
    try:
        made = expression.write(op.name)
    except Unrecognised:
        return None
    if not isinstance(made, Call) or len({*expression.along} - {"both"}) > 1:
        return None
    named = (("along", "m"),) if "m" in expression.along else ()
    return (Call(name=MAP, positional=(made,), named=named),), below, list(expression.tensors)


def _find_common(facts: Facts, by_name: dict[str, Operation], op: Operation) -> str | None:
    """The nearest value on which an element-wise value depends alone, beside tensors of forward; of its shape."""
    order = {other.name: place for place, other in enumerate(facts.graph)}
    front = {op.name}
    for _ in range(MOST_MAPPED):
        last = by_name[max(front, key=order.__getitem__)]
        if not _has_shape_of(last, op):
            return None
        if len(front) == 1 and last is not op:
            return last.name
        front = front - {last.name} | {text for text in last.operands if text in by_name}
        if not front:
            return None
    return None


def _has_shape_of(op: Operation, last: Operation) -> bool:
    """Whether an operation has one floating or, between others, boolean value of the shape of the last one."""
    if len(op.result) != 1 or len(last.result) != 1 or op.result[0].shape != last.result[0].shape:
        return False
    return op.result[0].dtype in (FLOATS if op is last else (*FLOATS, "bool"))


class _MapExpression:
    """Writes the expression of a map, and collects the tensors that it reads: (role, Python expression)."""

    def __init__(
        self, facts: Facts, by_name: dict[str, Operation], below: str, taken: tuple[str, ...], read: Read
    ) -> None:
        self.facts, self.by_name, self.below, self.read = facts, by_name, below, read
        self.taken = set(taken)
        self.leaves: dict[str, object] = {}  # tensor of the graph -> its name in the expression, or a spread of it
        self.tensors: list[tuple[str, str]] = []
        self.along: list[str] = []
        self.calls = 0

    def write(self, value: str) -> object:
        """The expression of a value. Raises `Unrecognised`."""
        op = self.by_name[value]
        self.calls += 1
        if self.calls > MOST_MAPPED:  # values that are used twice are written twice
            raise Unrecognised(value)
        return scalar_expression(op, lambda text: self.write_operand(op, text))

    def write_operand(self, op: Operation, text: str) -> object:
        """The expression of an operand: the value below, a call, a number or a tensor."""
        if text == self.below:
            return VALUE
        if text in self.by_name:
            return self.write(text)
        return parse_constant(text) if parse_number(text) is not None else self.write_tensor(op, text)

    def write_tensor(self, op: Operation, text: str) -> object:
        """The name of a tensor of forward or of the module, or a spread of it."""
        if text not in self.leaves:
            found = self.read(self.facts, op, text)
            if found is None:
                raise Unrecognised(text)
            name = next(f"t{n}" for n in itertools.count(1) if f"t{n}" not in self.taken)
            self.taken.add(name)
            self.tensors.append((name, found[0]))
            self.along.append(found[1])
            self.leaves[text] = name if found[1] == "both" else Call(name="spread", positional=(name,))
        return self.leaves[text]


def _binary(
    facts: Facts, by_name: dict[str, Operation], op: Operation, taken: tuple[str, ...], read: Read
) -> tuple[Call, str, list[tuple[str, str]]] | None:
    """(call, the value to which it applies, the tensors it reads) of an operation on two values."""
    name, (left, right) = aten_name(op), op.operands
    for a, b in ((left, right), (right, left)):
        gates = MUL_GATES if name == "mul" else DIV_GATES if name == "div" and (a, b) == (left, right) else {}
        if a in by_name and (gated := _gate(by_name, a, b, gates)) is not None:
            return Call(name=gated), a, []
    if left not in by_name:
        if name not in COMMUTING or right not in by_name:
            return None
        left, right = right, left
    below = by_name[left].result
    if below and op.result and below[0].shape != op.result[0].shape:  # the result is broadcast to another shape
        return None
    value = parse_number(right)
    if value is not None:
        call = _with_number(name, value)
        return None if call is None else (call, left, [])
    found = None if right in by_name else read(facts, op, right)
    if found is None:
        return None
    call = _with_tensor(name, found[1], taken)
    role = call.name if not call.positional else str(call.positional[0])
    return call, left, [(role, found[0])]


def _with_number(name: str, value: float) -> Call | None:
    """An operation with a number; None for a division by zero."""
    if name == "div":
        return Call(name="scale", positional=(1 / value,)) if value else None
    return Call(name="scale" if name == "mul" else BINARY[name], positional=(value,))


def _with_tensor(name: str, along: str, taken: tuple[str, ...]) -> Call:
    """An operation with a tensor: `bias` or `residual` if that name is free, else a call that names its tensor."""
    if name == "add" and along in ("n", "both"):
        usual = "bias" if along == "n" else "residual"
        if usual not in taken:
            return Call(name=usual)
    role = next(f"t{number}" for number in itertools.count(1) if f"t{number}" not in taken)
    return Call(name=BINARY[name], positional=(role,), named=() if along == "both" else (("along", along),))


def _gate(by_name: dict[str, Operation], a: str, b: str, gates: Mapping[tuple[Gate, ...], str]) -> str | None:
    """The function of a * b if b is a gate of a: sigmoid(a), tanh(softplus(a)), clamp((a + 3) / 6, 0, 1).

    Likewise of a / b: 1 + abs(a).
    """
    calls: list[Operation] = []
    while b != a and b in by_name and len(calls) < 4:
        calls.append(by_name[b])
        b = calls[-1].operands[0] if calls[-1].operands else ""
    if b != a or not calls:
        return None
    return (
        None
        if any(op.keywords for op in calls)
        else gates.get(tuple((aten_name(op), *(parse_number(text) for text in op.operands[1:])) for op in calls))
    )


THREE: Gate = ("add", 3.0)
DIV_GATES: dict[tuple[Gate, ...], str] = {(("add", 1.0), ("abs",)): "softsign"}
MUL_GATES: dict[tuple[Gate, ...], str] = {  # the last step first
    (("sigmoid",),): "silu",
    (("tanh",), ("softplus",)): "mish",
    (("tanh",), ("softplus", 1.0, 20.0)): "mish",
    (("hardsigmoid",),): "hardswish",
    (("clamp", 0.0, 1.0), ("div", 6.0), THREE): "hardswish",
    (("div", 6.0), ("hardtanh", 0.0, 6.0), THREE): "hardswish",
    (("div", 6.0), ("clamp", 0.0, 6.0), THREE): "hardswish",
}
