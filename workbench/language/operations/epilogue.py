"""Epilogues of a product: calls on each sum in float32 before it is stored, and a reduction of rows or columns.

Element by element: bias(c), residual(r), add, sub, mul, div, max, min with a number or a tensor, scale(s),
clamp(lo, hi) and any function of `expressions.scalars`. A tensor is (m, n), or with along=n or along=m a vector.
map(expression) computes an expression of value(), of tensors (m, n) and of vectors spread(b) along n (along=m: m). Then
follows at most one of rowsum, rowmean, rowmax, rowmin, colsum, colmean, colmax, colmin, which is the result; calls
after it work on that. cast(f16 | bf16 | f32) comes last. Input: a stage; output: its Chain, or Rejections.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from workbench.kernels.operands import Read
from workbench.language.expressions.expressions import check_expression, leaves, rename_tensors, replace_value
from workbench.language.expressions.scalars import UNARY, arity
from workbench.language.ir import Call, Rejection, Stage, names_in, setting
from workbench.language.operation import COMBINERS, MAP, READERS, epilogue_tensors
from workbench.records.base import record

REDUCTIONS = tuple(side + how for side, how in itertools.product(("row", "col"), ("sum", "mean", "max", "min")))
NAMES = (*READERS, "scale", "clamp", *COMBINERS, MAP, *UNARY, *REDUCTIONS, "cast")
CAST_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "bool": 1}

Step = tuple[Call, tuple[Read, ...]]  # an epilogue with the tensors that it reads
Reason = tuple[str, str]


@record
class Chain:
    """The epilogues of a stage in order: element by element, then a reduction, then calls on its results."""

    calls: tuple[Step, ...] = ()
    reduction: Call | None = None
    after: tuple[Step, ...] = ()
    cast: str | None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        """The tensors."""
        return tuple(read for _, reads in self.calls for read in reads)

    @property
    def by_rows(self) -> bool:
        """Whether rows are reduced, not columns."""
        return self.reduction is not None and self.reduction.name.startswith("row")

    @property
    def how(self) -> str:
        """sum, mean, max or min; empty without a reduction."""
        return self.reduction.name[3:] if self.reduction is not None else ""

    @property
    def keepdim(self) -> bool:
        """Whether the reduced extent stays, as 1."""
        return self.reduction is not None and bool(dict(self.reduction.named).get("keepdim", 0))


def chain_of(stage: Stage) -> Chain:
    """The epilogues of a checked stage."""
    calls: list[Step] = []
    after: list[Step] = []
    reduction, cast = None, None
    for call, tensors in zip(stage.epilogues, epilogue_tensors(stage), strict=True):
        if call.name in REDUCTIONS:
            reduction = call
        elif call.name == "cast":
            cast = str(call.positional[0])
        else:
            reads = tuple(Read(role=role, along=_find_extent(call, name)) for role, name in tensors)
            (calls if reduction is None else after).append((call, reads))
    return Chain(calls=tuple(calls), reduction=reduction, after=tuple(after), cast=cast)


def _find_extent(call: Call, name: str) -> str:
    """Along which extent a tensor that an epilogue reads lies: n, m or both."""
    is_vector = name in leaves(call)[1] if call.name == MAP else call.name == "bias"
    usual = "n" if is_vector else "both"
    return usual if call.name == MAP and not is_vector else str(dict(call.named).get("along", usual))


def write_expression(steps: Iterable[Step], value: object) -> object:
    """The expression of epilogues that are applied to a value; tensors are called by their roles."""
    for call, reads in steps:
        value = _apply(call, dict(zip(names_in(call) or (call.name,), reads, strict=False)), value)
    return value


def _apply(call: Call, reads: dict[str, Read], value: object) -> object:
    if call.name == MAP:
        return replace_value(
            rename_tensors(call.positional[0], {name: read.role for name, read in reads.items()}), value
        )
    given: list[object] = [_as_leaf(read) for read in reads.values()] or list(call.positional)
    if call.name == "clamp":
        return Call(name="min", positional=(Call(name="max", positional=(value, given[0])), given[1]))
    name = {"scale": "mul", "bias": "add", "residual": "add"}.get(call.name, call.name)
    return Call(name=name, positional=(value, *given))


def _as_leaf(read: Read) -> object:
    return read.role if read.along == "both" else Call(name="spread", positional=(read.role,))


def check(stage: Stage) -> list[Rejection]:
    """Rejections of arguments and of the order."""
    found: list[Rejection] = []
    closed = False
    for index, call in enumerate(stage.epilogues):
        found += _check_order(stage, index, closed)
        closed = closed or call.name in REDUCTIONS
        reason = _find_wrong_arguments(call)
        if reason is not None:
            found.append(Rejection(field=call.name, value=_arguments_text(call), reason=reason[0], legal=reason[1]))
    return found + (_check_reduction(stage) if closed else [])


def _check_order(stage: Stage, index: int, closed: bool) -> list[Rejection]:
    """Rejections of one call for its place; `closed`: a reduction stands before it."""
    found: list[Rejection] = []
    call, tensors = stage.epilogues[index], epilogue_tensors(stage)[index]
    if call.name == "cast" and index != len(stage.epilogues) - 1:
        reason = "the result's type, decided when all maths is done"
        found.append(Rejection(field="cast", value=_arguments_text(call), reason=reason, legal="as the last epilogue"))
    if call.name == "cast" and call.positional == ("bool",) and stage.operation.name != "elementwise":
        reason = "only elementwise writes bools"
        found.append(Rejection(field="cast", value="bool", reason=reason, legal="f16, bf16, f32"))
    if call.name in REDUCTIONS and closed:
        legal = "only one; write reduce(...) as a stage after it"
        found.append(Rejection(field=call.name, value="", reason="one reduction closes the epilogues", legal=legal))
    if closed and tensors:
        reason = "after a reduction there is one value per row or column"
        legal = "a number, or elementwise(...) as a stage after it"
        found.append(Rejection(field=call.name, value=_arguments_text(call), reason=reason, legal=legal))
    return found


def _check_reduction(stage: Stage) -> list[Rejection]:
    """Rejections of settings that do not go with a reduction."""
    if setting(stage, "schedule") is None:
        return [
            Rejection(
                field="epilogue",
                value=next(call.name for call in stage.epilogues if call.name in REDUCTIONS),
                reason="only kernels with a schedule reduce in their epilogue",
                legal="add .schedule(cooperative) and .arch(sm_90a), or write "
                f"h = {stage.operation.name}(...) |> reduce(h, ...)",
            )
        ]
    if setting(stage, "splitk") is not None:
        return [
            Rejection(
                field="splitk",
                value=str(setting(stage, "splitk")),
                reason="a part of k is no value to reduce yet",
                legal="leave it out where the epilogue reduces",
            )
        ]
    return []


def _arguments_text(call: Call) -> str:
    return ", ".join([*(str(value) for value in call.positional), *(f"{name}={value}" for name, value in call.named)])


def _find_wrong_arguments(call: Call) -> Reason | None:
    """(reason, legal) where a call's arguments are not what it takes."""
    names = [value for value in call.positional if isinstance(value, str)]
    keywords = dict(call.named)
    along = keywords.pop("along", None)
    vector = call.name == "bias" or (call.name in COMBINERS and bool(names)) or bool(leaves(call)[1])
    if along is not None and (not vector or along not in ("m", "n")):
        legal = "along=n or along=m, of bias or of a tensor that is added, multiplied, ..."
        return "which extent a vector goes along", legal
    if call.name in REDUCTIONS:
        keepdim = keywords.keys() <= {"keepdim"} and keywords.get("keepdim", 0) in (0, 1)
        return None if not call.positional and keepdim else ("it takes no tensor", "nothing, or keepdim=1")
    if keywords:
        return "it has no such argument", "along=m for a vector along m" if vector else "none by name"
    return _find_wrong_expression(call) if call.name == MAP else _find_wrong_values(call, names)


def _find_wrong_expression(call: Call) -> Reason | None:
    """(reason, legal) where the argument of a map is no expression of the value."""
    given = call.positional[0] if len(call.positional) == 1 else None
    applied = replace_value(given, "value")
    if applied == given or not isinstance(applied, Call):
        return (
            "an expression of the value that is stored",
            "one expression with value(), as in mul(value(), silu(value()))",
        )
    plain, vectors = leaves(given)
    if both := [name for name in plain if name in vectors]:
        return (
            f"{both[0]} is a tensor in one place and a vector in another",
            f"{both[0]} or spread({both[0]}) everywhere",
        )
    found = check_expression(applied)
    return (f"{found[0].value}: {found[0].reason}", found[0].legal) if found else None


def _find_wrong_values(call: Call, names: list[str]) -> Reason | None:
    """(reason, legal) where the positional arguments are not what a call takes."""
    numbers = [float(value) for value in call.positional if isinstance(value, int | float)]
    count = len(call.positional)
    if call.name in READERS:
        good, reason, legal = count == len(names) <= 1, "the tensor that is added", "its name, or nothing"
    elif call.name == "cast":
        good = count == 1 and bool(names) and names[0] in CAST_BYTES
        reason, legal = "the type of the result", ", ".join(CAST_BYTES)
    elif call.name == "clamp":
        good = count == len(numbers) == 2 and numbers[0] <= numbers[1]
        reason, legal = "the least and the largest value", "two numbers, the smaller one first"
    elif call.name == "scale":
        good, reason, legal = count == len(numbers) == 1, "a factor", "one number"
    elif call.name in COMBINERS:
        good = count == 1 and len(numbers) + len(names) == 1
        reason, legal = "what it is combined with", "one number, or a tensor's name"
    else:
        further = arity(call.name)[1] - 1
        good = count == len(numbers) and count <= further
        reason = f"a function of the value and {further or 'nothing'} more"
        legal = f"at most {further} numbers" if further else "no argument"
    return None if good else (reason, legal)
