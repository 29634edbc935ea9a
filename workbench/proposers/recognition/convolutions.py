"""Convolutions of one to three dimensions, transposed ones too, with what follows element by element; two in a row become two stages."""

from __future__ import annotations

from workbench.dsl import Call, Stage
from workbench.proposers.recognition.graph import Computation, epilogue, python, short
from workbench.records import Facts, Operation, TensorSpec

HIDDEN = "h"


def convolution(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A convolution of an input, or of a convolution of an input."""
    epilogues: list[Call] = []
    op = by_name.get(output)
    while op is not None and short(op) != "convolution":
        call = epilogue(op)
        if call is None:
            return None
        epilogues.insert(0, call)
        op = by_name.get(op.operands[0])
    main = _call(facts, by_name, op, ("x", "w")) if op is not None else None
    if op is None or main is None:
        return None
    operands, bias = _operands(op, ("w", "bias"))
    inner = by_name.get(op.operands[0])
    calls = (*((Call(name="bias"),) if bias else ()), *epilogues)
    if inner is None:
        return Computation(kind="convolution", operation=main, operands=(("x", python(op.operands[0])), *operands), epilogues=calls)
    first = _call(facts, by_name, inner, ("x", "w1")) if short(inner) == "convolution" and inner.operands[0] not in by_name else None
    if first is None or _uses(facts, inner.name) != 1:
        return None
    early, early_bias = _operands(inner, ("w1", "bias1"))
    settings = (Call(name="threads", positional=(128,)), Call(name="rows", positional=(8,))) if dict(first.named).get("groups") == "channels" else ()
    before = Stage(operation=first, settings=settings, epilogues=(Call(name="bias", positional=("bias1",)),) if early_bias else (), result=HIDDEN)
    main = Call(name=main.name, positional=(HIDDEN, "w"), named=main.named)
    return Computation(kind="convolution", operation=main, operands=(("x", python(inner.operands[0])), *operands, *early), epilogues=calls, before=(before,))


def _uses(facts: Facts, name: str) -> int:
    return sum(operand == name for op in facts.graph for operand in op.operands)


def _operands(op: Operation, names: tuple[str, str]) -> tuple[tuple[tuple[str, str], ...], bool]:
    """(filters and bias as Python expressions, whether there is a bias)."""
    bias = op.operands[2] != "None"
    return ((names[0], python(op.operands[1])), *(((names[1], python(op.operands[2])),) if bias else ())), bias


def _call(facts: Facts, by_name: dict[str, Operation], op: Operation, names: tuple[str, str]) -> Call | None:
    """The convolution as the language writes it; None where its filters are computed, or its arguments are none that it knows."""
    if len(op.operands) != 9 or op.keywords or op.operands[1] in by_name or op.operands[2] in by_name or op.operands[6] not in ("True", "False"):
        return None
    weight = _spec(facts, op.operands[1])
    numbers = [_numbers(op.operands[place]) for place in (3, 4, 5, 7)]
    if weight is None or any(value is None for value in numbers) or not op.operands[8].isdigit():
        return None
    space = len(weight.shape) - 2
    stride, padding, dilation, more = (value * space if len(value) == 1 else value for value in numbers if value is not None)
    if not 1 <= space <= 3 or any(len(value) != space for value in (stride, padding, dilation, more)) or len(op.result[0].shape) != space + 2:
        return None
    transposed, groups = op.operands[6] == "True", int(op.operands[8])
    if not transposed and any(more):
        return None
    depthwise = not transposed and groups > 1 and weight.shape[1] == 1 and weight.shape[0] % groups == 0
    arguments = {"stride": (stride, 1), "padding": (padding, 0), "dilation": (dilation, 1), **({"output_padding": (more, 0)} if transposed else {})}
    named = tuple((name, value[0] if len(set(value)) == 1 else value) for name, (value, usual) in arguments.items() if set(value) != {usual})
    of = (("groups", "channels" if depthwise else groups),) if groups > 1 else ()
    return Call(name="convtranspose" if transposed else "conv", positional=names, named=(*named, *of))


def _spec(facts: Facts, value: str) -> TensorSpec | None:
    """What is known of an input or a parameter."""
    name = value.removeprefix("param:")
    return next((spec for spec in (*facts.parameters, *facts.cases[0].inputs) if spec.name == name), None)


def _numbers(text: str) -> tuple[int, ...] | None:
    """The whole numbers of `[1, 2]`."""
    parts = text.strip("[]").split(",")
    return tuple(int(part) for part in parts) if all(part.strip().isdigit() for part in parts) else None
