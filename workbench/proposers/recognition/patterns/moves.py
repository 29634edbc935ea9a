"""Matches cat and topk of forward's inputs and of parameters."""

from __future__ import annotations

from workbench.language import Call
from workbench.language.operations.top_k import MOST
from workbench.proposers.recognition.epilogue_chain import tensor_specs
from workbench.proposers.recognition.graph import Computation, aten_name, names, python_expression
from workbench.proposers.recognition.operands import find_argument
from workbench.records import Facts, Operation

FLOATS = ("float32", "float16", "bfloat16")


def match_concat(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """Tensors of one dtype side by side; None for any other operation."""
    op = by_name.get(output)
    if op is None or aten_name(op) != "cat" or op.keywords:
        return None
    given, specs = names(op.operands[0]), tensor_specs(facts)
    if len(given) < 2 or any(name not in specs for name in given):
        return None
    if len({specs[name].dtype for name in given}) != 1 or len({len(specs[name].shape) for name in given}) != 1:
        return None
    axis = int(find_argument(op, 1, "dim", "0")) % len(specs[given[0]].shape)
    roles = {name: f"x{n}" for n, name in enumerate(dict.fromkeys(given), 1)}
    return Computation(
        kind="concat",
        operation=Call(name="concat", positional=tuple(roles[name] for name in given), named=(("axis", axis),)),
        operands=tuple((role, python_expression(name)) for name, role in roles.items()),
    )


def match_top_k(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """The largest elements of rows, and their indices: a pair, of which a pipeline takes what it needs."""
    op = by_name.get(output)
    if op is None or aten_name(op) != "topk" or op.operands[0] in by_name:
        return None
    spec = tensor_specs(facts).get(op.operands[0])
    flags = (find_argument(op, 3, "largest", "True"), find_argument(op, 4, "sorted", "True"))
    if spec is None or not spec.shape or spec.dtype not in FLOATS or flags[0] != "True":
        return None
    axis, k = int(find_argument(op, 2, "dim", "-1")) % len(spec.shape), int(op.operands[1])
    if axis != len(spec.shape) - 1 or not 1 <= k <= MOST:
        return None
    return Computation(
        kind="topk",
        operation=Call(name="topk", positional=("x",), named=(("k", k),)),
        operands=(("x", python_expression(op.operands[0])),),
    )
