"""Makes tensors without axes of the numbers that forward is given, where element-wise calls read them.

A caller may give forward other numbers, so a kernel must not have them written in: it reads them as it reads any other
tensor. A number of rows of zeros stays an expression of forward.
"""

from __future__ import annotations

import dataclasses
import re

from workbench.proposers.recognition.graph import TORCH_NAMES, YOURSELF, Unrecognised, plain_name
from workbench.records import Facts, GivenNumber, NumberUse, Operation, TensorSpec

# calls -> the places of arguments that may be tensors as well as numbers
PAIRS = ("add", "sub", "mul", "div", "rsub", "pow", "maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne")
PLACES = {
    **dict.fromkeys(PAIRS, ("0", "1", "alpha")),
    **dict.fromkeys(("clamp", "hardtanh"), ("1", "2", "min", "max", "min_val", "max_val")),
    **dict.fromkeys(("clamp_min", "clamp_max"), ("1", "min", "max")),
    **dict.fromkeys(("leaky_relu", "elu"), ("1", "negative_slope", "alpha")),
    "masked_fill": ("2", "value"),
    "scalar_tensor": ("0",),
}
ZEROS = {"zeros": "0.", "new_zeros": "1."}  # calls -> how the places of their extents begin
DTYPE, SUFFIX = "float32", "_value"
BRANCH = "a branch"  # where the number decides which calls there are


def list_scalars(facts: Facts) -> tuple[tuple[str, str], ...]:
    """(name, expression in forward) of each tensor that is made of a number."""
    device = next((spec.name for spec in facts.cases[0].inputs if spec.name in facts.forward_arguments), "")
    return tuple(
        (name, f"torch.full((), {number}, dtype=torch.{DTYPE}, device={device}.device)")
        for number, name in _name_scalars(facts).items()
    )


def write_numbers(facts: Facts) -> Facts:
    """The same computation of such tensors. Raises `Unrecognised` for a number that is used in another way."""
    names = _name_scalars(facts)
    if not any(one.uses or one.full_uses or one.unclear for one in facts.given) or _is_written(facts, names):
        return facts
    for one in facts.given:
        if one.others and one.unclear:
            raise Unrecognised(_refuse(one, one.unclear))
    specs = tuple(TensorSpec(name=name, shape=(), dtype=DTYPE, strides=()) for name in names.values())
    return dataclasses.replace(
        facts,
        forward_arguments=(*facts.forward_arguments, *names.values()),
        graph=_rewrite(facts.graph, [(one, one.uses) for one in _list_clear(facts)], names),
        full_graph=_rewrite(facts.full_graph, [(one, one.full_uses) for one in _list_clear(facts)], names),
        cases=tuple(dataclasses.replace(case, inputs=(*case.inputs, *specs)) for case in facts.cases),
    )


def _list_clear(facts: Facts) -> list[GivenNumber]:
    """The numbers of which it is known what they become. One that follows a size may be used in another way too."""
    return [one for one in facts.given if not one.unclear]


def _name_scalars(facts: Facts) -> dict[str, str]:
    """Expression of a number -> the name of the tensor that is made of it."""
    expressions = [
        (one.name, use.expression)
        for one in _list_clear(facts)
        for use in (*one.uses, *one.full_uses)
        if not re.fullmatch(r"\d+\.\d+", use.place)  # an item of a list
    ]
    found: dict[str, str] = {}
    for argument, text in dict.fromkeys(expressions):
        name = re.sub(r"\W+", "_", argument).strip("_") + SUFFIX
        found.setdefault(text, name if name not in found.values() else f"{name}{len(found)}")
    return found


def _is_written(facts: Facts, names: dict[str, str]) -> bool:
    """Whether the facts are those of `write_numbers`, or of a part of what it gives."""
    return bool(names) and {*names.values()} <= {*facts.forward_arguments}


def _rewrite(
    graph: tuple[Operation, ...], given: list[tuple[GivenNumber, tuple[NumberUse, ...]]], names: dict[str, str]
) -> tuple[Operation, ...]:
    """The graph with a tensor, or in a list an expression, in place of each number."""
    uses: dict[str, list[tuple[GivenNumber, NumberUse]]] = {}
    for one, found in given:
        for use in found:
            uses.setdefault(use.op, []).append((one, use))
    made: list[Operation] = []
    for op in graph:
        for one, use in uses.get(op.name, ()):
            if not _may_read(op, use):
                if one.follows:
                    continue
                raise Unrecognised(_refuse(one, TORCH_NAMES.get(plain_name(op), plain_name(op))))
            op = _replace_argument(op, use, names.get(use.expression, use.expression))
        made += _compose(op) if op.name in uses else [op]
    return tuple(made)


def _may_read(op: Operation, use: NumberUse) -> bool:
    """Whether a call can have a tensor, or in a list of extents an expression, at that place."""
    name = plain_name(op)
    return use.place in PLACES.get(name, ()) or (name in ZEROS and use.place.startswith(ZEROS[name]))


def _replace_argument(op: Operation, use: NumberUse, text: str) -> Operation:
    place, _, item = use.place.partition(".")
    if not place.isdigit():
        return dataclasses.replace(op, keywords=tuple((key, text if key == place else old) for key, old in op.keywords))
    operands = [*op.operands]
    if item:
        items = operands[int(place)].strip("[]").split(", ")
        items[int(item)] = text
        text = f"[{', '.join(items)}]"
    operands[int(place)] = text
    return dataclasses.replace(op, operands=tuple(operands))


def _compose(op: Operation) -> list[Operation]:
    """A call that takes a number only as calls of which one takes the tensor: that of a slope, of a factor `alpha`."""
    name, result = plain_name(op), op.result
    if name == "scalar_tensor":
        return [Operation(name=op.name, target="aten.alias.default", operands=op.operands, result=result)]
    if name in ("leaky_relu", "elu") and len(op.operands) == 2 and not op.keywords:
        x, slope = op.operands
        parts = [("positive", "gt", (x, "0")), ("below", "mul", (x, slope)), ("", "where", ())]
        if name == "elu":
            parts[1:1] = [("less", "expm1", (x,))]
            parts[2] = ("below", "mul", (f"{op.name}_less", slope))
        parts[-1] = ("", "where", (f"{op.name}_positive", x, f"{op.name}_below"))
    elif name in ("add", "sub") and "alpha" in dict(op.keywords) and len(op.operands) == 2:
        x, y = op.operands
        parts = [("scaled", "mul", (y, dict(op.keywords)["alpha"])), ("", name, (x, f"{op.name}_scaled"))]
    else:
        return [op]
    kinds = {"gt": "Scalar", "where": "self", "expm1": "default"}
    return [
        Operation(
            name=f"{op.name}_{part}" if part else op.name,
            target=f"aten.{call}.{kinds.get(call, 'Tensor')}",
            operands=operands,
            result=tuple(dataclasses.replace(one, dtype="bool") for one in result) if call == "gt" else result,
        )
        for part, call, operands in parts
    ]


def _refuse(one: GivenNumber, use: str) -> str:
    where = "decides which calls there are" if use == BRANCH else f"is an argument of {use}"
    return (
        f"forward's argument {one.name} {where}, and a caller may give others than {one.value}: the planner writes no "
        f"kernel that takes it; with --keep {one.name} it may write {one.value} in; {YOURSELF}"
    )
