"""Any expression, element by element."""

from __future__ import annotations

from workbench.dsl import Call
from workbench.proposers.recognition.graph import BINARY, Computation, Unrecognised, epilogue, number, same, short
from workbench.records import Facts, Operation


def elementwise(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    shapes = {spec.name: spec.shape for spec in facts.cases[0].inputs}
    wanted = facts.cases[0].outputs[0].shape
    used: list[str] = []

    def build(value: str) -> object:
        op = by_name.get(value)
        if op is None:
            spelt = number(value)
            if spelt is not None:
                return int(spelt) if spelt.is_integer() else spelt
            if shapes.get(value) != wanted:
                raise Unrecognised(value)
            if value not in used:
                used.append(value)
            return value
        name = short(op)
        if name in ("detach", "alias", "clone"):
            return build(op.operands[0])
        if name in BINARY and len(op.operands) == 2 and not op.keywords:
            return Call(name=BINARY[name], positional=(build(op.operands[0]), build(op.operands[1])))
        call = epilogue(op)
        if call is None or call.name == "scale":
            raise Unrecognised(name)
        return Call(name=call.name, positional=(build(op.operands[0]),))

    try:
        expression = build(output)
    except Unrecognised:
        return None
    if not used:
        return None
    return Computation(kind="elementwise", operation=Call(name="elementwise", positional=(expression,)), operands=same(used))
