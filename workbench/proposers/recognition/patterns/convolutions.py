"""Convolutions of one to three dimensions, transposed ones too, with what follows element by element."""

from __future__ import annotations

import math

from workbench.language import Call
from workbench.proposers.recognition.epilogue_chain import find_chain, tensor_specs
from workbench.proposers.recognition.graph import Computation, aten_name, python_expression
from workbench.records import Facts, Operation, TensorSpec


def match_convolution(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A convolution of an input, and what is done to each of its results."""
    chain = find_chain(facts, by_name, output, read_operand)
    op = chain.source if chain is not None else None
    main = _make_call(facts, by_name, op) if op is not None and aten_name(op) == "convolution" else None
    if chain is None or op is None or main is None or op.operands[0] in by_name:
        return None
    role = "bias" if "bias" not in dict(chain.tensors) else "bias0"
    operands, bias = _operands(op, ("w", role))
    calls = (*((Call(name="bias", positional=() if role == "bias" else (role,)),) if bias else ()), *chain.calls)
    return Computation(
        kind="convolution",
        operation=main,
        operands=(("x", python_expression(op.operands[0])), *operands, *chain.tensors),
        epilogues=calls,
    )


def read_operand(facts: Facts, op: Operation, value: str) -> tuple[str, str] | None:
    """(expression, "n" for a value per filter, else "both") of a tensor combined with an (images, filters, ...) one."""
    spec, wanted = tensor_specs(facts).get(value), op.result[0].shape if op.result else ()
    if spec is None or len(wanted) < 3 or len(spec.shape) > len(wanted):
        return None
    shape = (1,) * (len(wanted) - len(spec.shape)) + tuple(spec.shape)
    if any(have not in (1, want) for have, want in zip(shape, wanted, strict=True)):
        return None
    ones = [want for have, want in zip(reversed(spec.shape), reversed(wanted), strict=False) if have == 1]
    if 1 in ones:  # at other sizes either may be more
        return python_expression(value), "both"
    if (
        len(spec.shape) >= len(wanted) - 1
        and all(have == 1 for place, have in enumerate(shape) if place != 1)
        and shape[1] == wanted[1]
    ):
        return f"{python_expression(value)}.reshape(-1)", "n"
    filters = _filter_count(facts, op) if math.prod(spec.shape) == 1 else None
    return (
        (f"{python_expression(value)}.reshape(1).expand({filters}).contiguous()", "n")
        if filters is not None
        else (python_expression(value), "both")
    )


def _filter_count(facts: Facts, op: Operation) -> str | None:
    """Number of filters of the convolution below an operation, as a Python expression in forward."""
    by_name = {other.name: other for other in facts.graph}
    below: Operation | None = op
    while below is not None and aten_name(below) != "convolution":
        below = next((by_name[name] for name in below.operands if name in by_name), None)
    if below is None or len(below.operands) != 9 or below.operands[1] in by_name:
        return None
    weight = python_expression(below.operands[1])
    return f"{weight}.shape[0]" if below.operands[6] == "False" else f"{weight}.shape[1] * {below.operands[8]}"


def _operands(op: Operation, names: tuple[str, str]) -> tuple[tuple[tuple[str, str], ...], bool]:
    """(filters and bias as Python expressions, whether there is a bias)."""
    bias = op.operands[2] != "None"
    return (
        (names[0], python_expression(op.operands[1])),
        *(((names[1], python_expression(op.operands[2])),) if bias else ()),
    ), bias


def _make_call(facts: Facts, by_name: dict[str, Operation], op: Operation) -> Call | None:
    """The convolution as a call of the language.

    None if the filters are computed, or if the language does not have the arguments.
    """
    if not _has_known_form(by_name, op):
        return None
    weight, lists = _find_spec(facts, op.operands[1]), _parse_lists(op)
    if weight is None or lists is None or not op.operands[8].isdigit():
        return None
    space = len(weight.shape) - 2
    if not 1 <= space <= 3 or len(op.result[0].shape) != space + 2:
        return None
    stride, padding, dilation, more = (value * space if len(value) == 1 else value for value in lists)
    if any(len(value) != space for value in (stride, padding, dilation, more)):
        return None
    transposed, groups = op.operands[6] == "True", int(op.operands[8])
    if not transposed and any(more):
        return None
    named = _arguments(stride, padding, dilation, more if transposed else None)
    depthwise = not transposed and groups > 1 and _has_one_channel_each(facts, op.operands[1], groups)
    of = (("groups", "channels" if depthwise else groups),) if groups > 1 else ()
    return Call(name="convtranspose" if transposed else "conv", positional=("x", "w"), named=(*named, *of))


def _has_one_channel_each(facts: Facts, weight: str, groups: int) -> bool:
    """Whether each group of filters has one channel at every size of the filters that is known."""
    specs = [_find_spec(facts, weight), *(spec for spec in facts.full if spec.name == weight)]
    return all(spec is not None and spec.shape[1] == 1 and spec.shape[0] % groups == 0 for spec in specs)


def _has_known_form(by_name: dict[str, Operation], op: Operation) -> bool:
    """Whether the filters and the bias are tensors of forward or of the module, and `transposed` is a constant."""
    return (
        len(op.operands) == 9
        and not op.keywords
        and op.operands[1] not in by_name
        and op.operands[2] not in by_name
        and op.operands[6] in ("True", "False")
    )


def _parse_lists(op: Operation) -> list[tuple[int, ...]] | None:
    """Stride, padding, dilation and output padding; None if one of them is no list of integers."""
    found = [_parse_numbers(op.operands[place]) for place in (3, 4, 5, 7)]
    lists = [value for value in found if value is not None]
    return lists if len(lists) == len(found) else None


def _arguments(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], more: tuple[int, ...] | None
) -> tuple[tuple[str, object], ...]:
    """The arguments that differ from their defaults. Equal values for all axes become one number."""
    arguments = {
        "stride": (stride, 1),
        "padding": (padding, 0),
        "dilation": (dilation, 1),
        **({"output_padding": (more, 0)} if more is not None else {}),
    }
    return tuple(
        (name, value[0] if len(set(value)) == 1 else value)
        for name, (value, usual) in arguments.items()
        if set(value) != {usual}
    )


def _find_spec(facts: Facts, value: str) -> TensorSpec | None:
    """The spec of an input or a parameter, if it is known."""
    name = value.removeprefix("param:")
    return next((spec for spec in (*facts.parameters, *facts.cases[0].inputs) if spec.name == name), None)


def _parse_numbers(text: str) -> tuple[int, ...] | None:
    """The integers in text such as `[1, 2]`; None for other text."""
    parts = text.strip("[]").split(",")
    return tuple(int(part) for part in parts) if all(part.strip().isdigit() for part in parts) else None
