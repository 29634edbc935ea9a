"""Products: matrix times matrix or vector, with what follows element by element."""

from __future__ import annotations

from workbench.dsl import Call
from workbench.proposers.recognition.graph import Computation, epilogue, operand, python, short
from workbench.records import Facts, Operation


def gemm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    epilogues: list[Call] = []
    op = by_name.get(output)
    while op is not None and short(op) not in ("mm", "bmm", "addmm", "mv"):
        call = epilogue(op)
        if call is None:
            return None
        epilogues.insert(0, call)
        op = by_name.get(op.operands[0])
    if op is None:
        return None
    names = op.operands
    bias: tuple[tuple[str, str], ...] = ()
    if short(op) == "addmm":
        if len(op.operands) != 3 or names[0] in by_name:
            return None
        bias, names = (("bias", python(names[0])),), names[1:]
        epilogues.insert(0, Call(name="bias"))
    a, b = operand(by_name, names[0]), operand(by_name, names[1])
    if a is None or b is None:
        return None
    if (short(op) == "mv" or (short(op) == "mm" and op.result[0].shape[-1] == 1)) and not a[1]:
        if epilogues:
            return None
        keep = (("keepdim", 1),) if short(op) == "mm" else ()
        return Computation(kind="matvec", operation=Call(name="matvec", positional=("x", "vector"), named=keep), operands=(("x", a[0]), ("vector", b[0])))
    if short(op) == "mv":
        return None
    layout = tuple((name, "column") for name, (_, column) in (("a", a), ("b", b)) if column)
    return Computation(kind="gemm", operation=Call(name="gemm", positional=("a", "b")), operands=(("a", a[0]), ("b", b[0]), *bias), epilogues=tuple(epilogues), layout=layout)
