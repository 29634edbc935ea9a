"""Writes tensors of zeros and of ones that forward makes, with extents in terms of its arguments and of parameters."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.proposers.recognition.graph import LEADING, names, parse_number, plain_name, python_expression
from workbench.records import Facts, Operation, TensorSpec

ZEROS, ONES = ("zeros", "new_zeros", "zeros_like"), ("ones", "new_ones", "ones_like")


def describe_filled(facts: Facts, op: Operation | None, specs: Mapping[str, TensorSpec]) -> str:
    """The expression in forward of an operation that makes zeros or ones; "" for others, and for unknown extents."""
    if op is None or plain_name(op) not in (*ZEROS, *ONES) or not op.result:
        return ""
    full = next((spec for spec in facts.full if spec.name == op.name), None)
    written = next((text for text in op.operands if text.startswith("[")), "")  # zeros_like has none
    given = names(written, numbers=True) if written else []
    extents = [  # one that is no number is an expression of numbers given to forward
        given[axis]
        if len(given) > axis and parse_number(given[axis]) is None
        else _describe_extent(facts, [spec.shape[axis] for spec in (op.result[0], full) if spec is not None], specs)
        for axis in range(len(op.result[0].shape))
    ]
    tensor = next((spec.name for spec in facts.cases[0].inputs if spec.name in facts.forward_arguments), "")
    if not all(extents) or not tensor:
        return ""
    fill = "zeros" if plain_name(op) in ZEROS else "ones"
    return f"torch.{fill}({', '.join(extents)}, dtype=torch.{op.result[0].dtype}, device={tensor}.device)"


def _describe_extent(facts: Facts, wanted: list[int], specs: Mapping[str, TensorSpec]) -> str:
    """An extent, at the emulated sizes and perhaps at full size, in terms of shapes; "" if it is none of these, one
    more or one less.
    """
    cases = (facts.cases[0], facts.cases[-1])[: len(wanted)]
    known = [
        (spec.name, [case.inputs[number].shape for case in cases])
        for number, spec in enumerate(cases[0].inputs)
        if spec.name in facts.forward_arguments
    ]
    known += [
        (python_expression(spec.name), [specs[spec.name].shape, spec.shape])
        for spec in facts.full
        if spec.name.startswith("param:") and LEADING not in spec.name and spec.name in specs
    ]
    for more in (0, -1, 1):
        for name, shapes in known:
            for place in range(len(shapes[0])):
                if [shape[place] + more for shape in shapes] == wanted:
                    return f"{name}.shape[{place}]" + (f" {'-' if more < 0 else '+'} 1" if more else "")
    return str(wanted[0]) if len({*wanted}) == 1 < len(wanted) else ""
