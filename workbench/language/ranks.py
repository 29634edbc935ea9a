"""Rejects axes that a program names of a tensor with fewer axes, where their number is known, before it is emitted."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.language.expressions import axes
from workbench.language.expressions.expressions import leaves
from workbench.language.expressions.reduction_passes import plan
from workbench.language.ir import Binding, Call, Program, Rejection, Stage
from workbench.language.operations.remap.operation import REMAPS, values
from workbench.language.parser import format_value

OVER_ROWS = ("softmax", "log_softmax", "layernorm", "rmsnorm", "reduce", "rowwise")
SAME = (
    "softmax",
    "log_softmax",
    "layernorm",
    "rmsnorm",
    "batchnorm",
    "groupnorm",
    "instancenorm",
    "scan",
    "elementwise",
    *REMAPS,
)  # the result has its operand's axes


def check_ranks(program: Program, binding: Binding) -> tuple[Rejection, ...]:
    """Rejections of axes that an operand does not have; of operands whose axes are not known nothing is said."""
    known = dict(binding.axes)
    found: list[Rejection] = []
    for stage in program.stages:
        name, count = _widest(stage, known)
        if count is not None:
            found += _check_stage(stage, name, count)
        if stage.result is not None:
            own = _result(stage, count)
            known = {other: number for other, number in known.items() if other != stage.result} | (
                {stage.result: own} if own is not None else {}
            )
    return tuple(found)


def _widest(stage: Stage, known: Mapping[str, int]) -> tuple[str, int | None]:
    """The operand whose shape the stage works over, and its number of axes.

    None where the axes of an operand that could be it are not known.
    """
    plain, spread = leaves(stage.operation.positional[0])
    names = plain or spread
    if not names or any(name not in known for name in names):
        return "", None
    name = max(names, key=lambda name: known[name])
    return name, known[name]


def _check_stage(stage: Stage, name: str, count: int) -> list[Rejection]:
    operation, named = stage.operation.name, dict(stage.operation.named)
    if operation in OVER_ROWS:
        axis = named.get("axis", "last")
        if axis == "middle":
            return (
                _reject("axis", axis, name, count, _axes(count), ", and middle is the second of three")
                if count != 3
                else []
            )
        return _reject("axis", axis, name, count, _axes(count)) if axes.view(axis).least > count else []
    if operation in ("gather", "scatter_add", "scatter_max", "scan"):
        axis = named.get("axis", "last" if operation == "scan" else 0)
        least = 1 if axis == "last" else int(str(axis)) + 1
        last = ["last"] if operation == "scan" else []
        return (
            _reject("axis", axis, name, count, ", ".join([*last, *_numbers(count)]) if count else "")
            if least > count
            else []
        )
    if operation in REMAPS and -min(values(named["axes"])) > count:
        return _reject("axes", named["axes"], name, count, f"-{count} to -1" if count else "")
    return []


def _axes(count: int) -> str:
    """What may be said of a tensor of so many axes."""
    if not count:
        return "all"
    middle = ["middle"] if count == 3 else []
    several = [f"last(n) for n up to {count}", f"over(i, j) and but(i) of axes up to {count - 1}"] if count > 1 else []
    return ", ".join(["last", "first", *middle, "all", *_numbers(count), *several])


def _numbers(count: int) -> list[str]:
    return ["0"] if count == 1 else [f"0 to {count - 1}"]


def _reject(field: str, value: object, name: str, count: int, legal: str, more: str = "") -> list[Rejection]:
    return [
        Rejection(
            field=field,
            value=format_value(value),
            reason=f"{name} has {count} {'axis' if count == 1 else 'axes'} in this problem{more}",
            legal=legal or f"none of {name}",
        )
    ]


def _result(stage: Stage, count: int | None) -> int | None:
    """How many axes the stage's result has, where that is known."""
    operation, named = stage.operation, dict(stage.operation.named)
    if count is None or operation.name in SAME:
        return count
    if operation.name == "gemm" and not any(
        call.name.startswith(("row", "col")) for call in stage.epilogues
    ):  # what reduces rows or columns
        return count
    if operation.name in ("reduce", "rowwise"):
        if named.get("keepdim") or (operation.name == "rowwise" and plan(operation.positional[0]).whole):
            return count
        return count - _count_reduced(named.get("axis", "last"), count)
    return None


def _count_reduced(axis: object, count: int) -> int:
    """How many of the axes go."""
    if axis == "all":
        return count
    if isinstance(axis, Call) and axis.name == "last":
        return int(str(axis.positional[0]))
    if isinstance(axis, Call) and axis.name == "but":
        return count - 1
    if axis == "last":
        return 1
    first, last = axes.axis_range(axis)
    return last - first + 1
