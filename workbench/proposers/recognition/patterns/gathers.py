"""Matches gather, index_select, embedding, scatter_add and index_add of forward's inputs and of parameters."""

from __future__ import annotations

from workbench.language import Call
from workbench.proposers.recognition.epilogue_chain import tensor_specs
from workbench.proposers.recognition.graph import Computation, aten_name, names, parse_number, python_expression
from workbench.records import Case, Facts, Operation

Shapes = dict[str, tuple[int, ...]]
INTEGERS = ("int64", "int32")
FLOATS = ("float32", "float16", "bfloat16")


def match_gather(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A gather or a scatter of tensors of forward or of the module; None for any other operation."""
    op = by_name.get(output)
    if op is None or any(name in by_name for value in op.operands for name in names(value)) or not op.result:
        return None
    if any(aten_name(other).endswith("_") for other in facts.graph):
        return None  # something is changed in place: embedding's max_norm
    name = aten_name(op)
    if name == "embedding":  # padding_idx, scale_grad_by_freq and sparse change gradients only
        return _make_computation("gather", (("x", op.operands[0]), ("index", op.operands[1])), 0, True)
    if name == "index":
        return _match_index(facts, op)
    if name in ("gather", "index_select") and not op.keywords and len(op.operands) == 3:
        match = _match_gather
    elif name in ("scatter_add", "index_add") and not op.keywords and len(op.operands) == 4:
        match = _match_scatter
    else:
        return None
    # extents that are equal in one case may differ in another
    found = [match(op, _shapes(facts, case)) for case in _list_known(facts, op)]
    return found[0] if all(one == found[0] for one in found) else None


def _list_known(facts: Facts, op: Operation) -> list[Case]:
    """The cases at which the shapes of all operands are known; those of parameters are in the first one."""
    if any(value.startswith(("param:", "buffer:")) for value in op.operands):
        return [facts.cases[0]]
    inputs = {spec.name for spec in facts.cases[0].inputs} & {*op.operands}
    return [case for case in facts.cases if inputs <= {spec.name for spec in case.inputs}]


def _shapes(facts: Facts, case: Case) -> Shapes:
    """The shapes of forward's inputs in a case, of parameters and buffers in the first, by their names in the graph."""
    return (
        {spec.name: spec.shape for spec in case.inputs}
        | {f"param:{spec.name}": spec.shape for spec in facts.parameters}
        | {f"buffer:{spec.name}": spec.shape for spec in facts.parameters}
    )


def _match_index(facts: Facts, op: Operation) -> Computation | None:
    """`x[index]` with integers that count from 0, for rows of the first axis."""
    index = names(op.operands[1])
    spec = tensor_specs(facts).get(index[0]) if len(index) == 1 else None
    if spec is None or spec.dtype not in INTEGERS or not spec.shape:
        return None
    return _make_computation("gather", (("x", op.operands[0]), ("index", index[0])), 0, True)


def _match_gather(op: Operation, shapes: Shapes) -> Computation | None:
    """`match_gather` or `index_select`."""
    x, axis, index = op.operands
    shape = shapes.get(x)
    if shape is None or parse_number(axis) is None or not shape:
        return None
    at, whole = int(axis) % len(shape), aten_name(op) == "index_select"
    if not whole and not _differ_only_along(shape, shapes.get(index), at):
        return None
    return _make_computation("gather", (("x", x), ("index", index)), at, whole)


def _match_scatter(op: Operation, shapes: Shapes) -> Computation | None:
    """`scatter_add` or `index_add`."""
    out, axis, index, src = op.operands
    shape, other = shapes.get(out), shapes.get(src)
    if shape is None or other is None or not shape or op.result[0].dtype not in FLOATS:
        return None
    at, whole = int(axis) % len(shape), aten_name(op) == "index_add"
    if not _differ_only_along(shape, other, at) or (not whole and shapes.get(index) != other):
        return None
    return _make_computation("scatter_add", (("out", out), ("index", index), ("src", src)), at, whole)


def _differ_only_along(shape: tuple[int, ...], other: tuple[int, ...] | None, axis: int) -> bool:
    """Whether two shapes differ at most along the axis."""
    return (
        other is not None
        and len(other) == len(shape)
        and shape[:axis] == other[:axis]
        and shape[axis + 1 :] == other[axis + 1 :]
    )


def _make_computation(name: str, operands: tuple[tuple[str, str], ...], axis: int, whole: bool) -> Computation:
    call = Call(
        name=name,
        positional=tuple(role for role, _ in operands),
        named=(("axis", axis), *((("layers", 1),) if whole else ())),
    )
    return Computation(
        kind=name, operation=call, operands=tuple((role, python_expression(value)) for role, value in operands)
    )
