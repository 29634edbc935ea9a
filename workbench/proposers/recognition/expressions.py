"""Turns any graph of element-wise calls and reductions into stages. A reduction's kernel fuses its neighbours.

An iteration space is the shape over whose elements an expression runs. A smaller tensor is broadcast to it, and a
reduction over its axes is part of the expression. Any other reduction becomes a stage of its own, and its result is
then a tensor like any other.
"""

from __future__ import annotations

import dataclasses

from workbench.language import Call, Stage
from workbench.language.expressions.expressions import leaves
from workbench.language.expressions.lowering import call, log_softmax, normalise, put_float_first
from workbench.language.expressions.lowering import softmax as soft
from workbench.language.expressions.reduction_passes import is_reduction
from workbench.proposers.recognition.graph import Computation, Unrecognised, aten_name, parse_number, plain_name
from workbench.proposers.recognition.iteration_space import (
    IterationSpace,
    axis_of,
    default_settings,
    is_broadcastable,
)
from workbench.proposers.recognition.operands import find_argument, parse_constant
from workbench.proposers.recognition.patterns.positions import check_integers, find_positions, write_positions
from workbench.proposers.recognition.patterns.reductions import Reduced, find_reduction, unreduced_loss
from workbench.proposers.recognition.scalars import scalar_expression
from workbench.proposers.recognition.tensors import EXACT, FLOATS, Tensors, is_contiguous
from workbench.proposers.recognition.types import CASTS
from workbench.records import Facts, Operation

INTEGERS = ("int32", "int64")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Builder(Tensors):
    """Builds expressions and stages from a graph, starting at its output."""

    def cast(self, value: str, operation: Call) -> tuple[Call, ...]:
        """The cast that gives a stage's result the type of the value; () if its kernel does that by itself.

        A kernel of rows stores the type of its first tensor, an elementwise one the type to which torch promotes all.
        """
        wanted = CASTS.get(self.dtype(value))
        plain, spread = leaves(operation.positional[0])
        read = [self.operand_dtypes[name] for name in (*plain, *spread)]
        if read and read[0] in (*EXACT, *INTEGERS) and read[0] not in CASTS and wanted is not None:
            return (Call(name="cast", positional=(wanted,)),)
        if not read or read[0] not in CASTS:
            raise Unrecognised(f"{next(iter((*plain, *spread)), value)} as the first tensor")
        own = [kind for kind in read if kind in CASTS]
        by_rows = operation.name != "elementwise"
        natural = own[:1] if by_rows else list(dict.fromkeys(own))
        if wanted is None or natural == [self.dtype(value)]:
            return ()
        return (Call(name="cast", positional=(wanted,)),)

    def element(self, value: str, frame: IterationSpace) -> object:
        """The expression of a value within a frame."""
        op = self.by_name.get(value)
        if op is None or value in self.made or self.is_aligning_view(op):
            return self.leaf(value, frame)
        shape = self.shape(value)
        if shape is None or not is_broadcastable(shape, frame.shape):
            raise Unrecognised(aten_name(op))
        found = self.reduction_of(value)
        if found is not None:
            made = self.inline_reduction(found, frame, shape)
            return made if made is not None else self.write_stage(value, frame)
        if (
            "getitem" in op.target
            and aten_name(of := self.by_name.get(op.operands[0], op)) == "log_sigmoid_forward"
            and op.operands[1] == "0"
        ):
            return call("logsigmoid", self.element(of.operands[0], frame))
        if (row_expression := self.row_function(value, frame)) is not None:
            return row_expression
        if (loss := unreduced_loss(op, lambda item: self.element(item, frame))) is not None:
            return loss
        if shape == frame.shape and self.has_foreign_reduction(value, frame):
            try:
                return self.write_stage(value, frame, rows_only=True)
            except Unrecognised:
                pass
        if plain_name(op) == "bernoulli":
            return self.draw(op, frame)
        if plain_name(op) == "unsqueeze" and op.operands[1] == "0":  # broadcasting aligns the last axes
            return self.element(op.operands[0], frame)
        placed = self.position_expression(op, frame)
        return placed if placed is not None else self.scalar(op, frame)

    def position_expression(self, op: Operation, frame: IterationSpace) -> object | None:
        """What depends on where an element is: positions along an axis, triu and tril; None for other operations."""
        if (arange := find_positions(op, self.by_name)) is not None:
            count = max(self.full_shape(op))
            return write_positions(
                op, arange, len(frame.shape), count, lambda axis: self.index(self.find_full_shape_tensor(frame), axis)
            )
        if plain_name(op) in ("triu", "tril"):
            return self.triangle(op, self.element(op.operands[0], frame), frame)
        return None

    def draw(self, op: Operation, frame: IterationSpace) -> object:
        """Zeros and ones in the shape of a value, which torch draws: a stage without a kernel after that value."""
        reserved = self.by_name.get(op.operands[0])
        share = parse_number(find_argument(op, 1, "p", "0.5"))
        if reserved is None or aten_name(reserved) != "empty_like" or share is None or not is_contiguous(op.result[0]):
            raise Unrecognised(aten_name(op))
        like = reserved.operands[0]
        own = IterationSpace(shape=op.result[0].shape)
        if like in self.by_name and like not in self.made:
            self.write_stage(like, own)
        self.add_view(op.name, str(self.leaf(like, own)), ("draw", share), own.shape)
        return self.leaf(op.name, frame)

    def scalar(self, op: Operation, frame: IterationSpace) -> object:
        """An element-wise call; it reads integers where rounding them to float32 is what torch does, or no harm."""
        check_integers(op)
        with self.reading(INTEGERS if _rounds_integers(op) else ()):
            return scalar_expression(op, lambda item: self.element(item, frame))

    def reduction_of(self, value: str) -> Reduced | None:
        """The reduction whose result is the value, if there is one."""
        op = self.by_name.get(value)
        if op is None or value in self.made:
            return None
        return find_reduction(op) if "getitem" not in op.target else self.max_or_argmax(op)

    def max_or_argmax(self, op: Operation) -> Reduced | None:
        """The reduction of max(x, dim)[0], the largest element, or of max(x, dim)[1], its index."""
        of = self.by_name.get(op.operands[0])
        if of is None or aten_name(of) not in ("max", "min") or op.operands[1] not in ("0", "1"):
            return None
        found = find_reduction(of)
        if found is None or op.operands[1] == "0":
            return found
        return dataclasses.replace(found, make=lambda x: call(f"arg{aten_name(of)}", x))

    def inline_reduction(self, found: Reduced, frame: IterationSpace, shape: tuple[int, ...]) -> object | None:
        """A reduction as part of an expression, if it reduces the frame's own axes."""
        if any(self.shape(item) != frame.shape or self.differs_elsewhere(item, frame) for item in found.of[:1]):
            return None
        trial = dataclasses.replace(frame)
        if not trial.unify_axes(found.axes) or not (found.keep or shape in ((), frame.shape)):
            return None
        frame.axes = trial.axes
        return found.make(*(self.reduced_argument(item, frame) for item in found.of))

    def differs_elsewhere(self, value: str, frame: IterationSpace) -> bool:
        """Whether a tensor of forward below a value has the frame's shape at the sizes of the trace only."""
        op = self.by_name.get(value)
        if op is not None and value not in self.made:
            return any(self.differs_elsewhere(item, frame) for item in op.operands)
        own = self.at_all_cases.get(value)
        return own is not None and frame.shapes not in (None, own) and self.shape(value) == frame.shape

    def reduced_argument(self, value: str, frame: IterationSpace) -> object:
        """The operand of a reduction. If it has reductions of another frame, a stage writes it first."""
        if value in self.by_name and value not in self.made and self.has_foreign_reduction(value, frame):
            try:
                return self.write_stage(value, frame, rows_only=True)
            except Unrecognised:
                pass
        with self.reading(()):
            return self.element(value, frame)

    def has_foreign_reduction(self, value: str, frame: IterationSpace) -> bool:
        """Whether a reduction of another shape is below a value."""
        op = self.by_name.get(value)
        if op is None or value in self.made:
            return False
        found = self.reduction_of(value)
        if found is not None:
            return any(self.shape(item) != frame.shape for item in found.of[:1])
        return any(self.has_foreign_reduction(item, frame) for item in op.operands if item in self.by_name)

    def row_function(self, value: str, frame: IterationSpace) -> object | None:
        """softmax, log_softmax or layer_norm as an expression with reductions, if its operand has the frame's shape."""
        op = self.by_name[value]
        if "getitem" in op.target:
            op = self.by_name.get(op.operands[0], op) if op.operands[1] == "0" else op
        name = aten_name(op)
        if (
            name not in ("_softmax", "softmax", "_log_softmax", "log_softmax", "native_layer_norm")
            or self.shape(op.operands[0]) != frame.shape
        ):
            return None
        if name == "native_layer_norm":
            count = op.operands[1].count(",") + 1
            axes: tuple[int, ...] = tuple(range(-count, 0))
        else:
            axes = (int(op.operands[1]),)
            if find_argument(op, 2, "half_to_float", "False") not in ("False", "None"):
                return None
        if not dataclasses.replace(frame).unify_axes(axes):
            return self.write_stage(value, frame)
        frame.unify_axes(axes)
        x = self.reduced_argument(op.operands[0], frame)
        if name != "native_layer_norm":
            return log_softmax(x) if "log" in name else soft(x)
        made: object = normalise(x, parse_constant(op.operands[4]), False)
        for weight, function in ((op.operands[2], "mul"), (op.operands[3], "add")):
            made = call(function, made, self.element(weight, frame)) if weight != "None" else made
        return made

    def write_stage(self, value: str, frame: IterationSpace, *, rows_only: bool = False) -> object:
        """Add a stage that writes the value; returns its tensor."""
        with self.reading(()):
            operation = self.operation(value, rows_only=rows_only)
        shape = self.shape(value)
        assert shape is not None
        name = self.free_name()
        self.stages.append(
            Stage(
                operation=operation,
                settings=default_settings(operation),
                epilogues=self.cast(value, operation),
                result=name,
            )
        )
        self.made[value] = (name, shape)
        return self.leaf(value, frame)

    def operation(self, value: str, *, rows_only: bool = False) -> Call:
        """The operation of the stage that writes a value: one number per row, else one per element."""
        kept = (dict(self.operands), list(self.stages), dict(self.made))
        try:
            return self.row_operation(value)
        except Unrecognised:
            self.operands, self.stages, self.made = kept
            if rows_only:
                raise
        shape, found = self.shape(value), self.reduction_of(value)
        if shape is None:
            raise Unrecognised(value)
        if found is not None:  # an operand that cannot be part of its frame is written first
            for item in found.of:
                if item not in self.by_name or item in self.made:
                    raise Unrecognised(value)
                self.write_stage(item, IterationSpace(shape=self.shape(item) or ()))
            return self.row_operation(value)
        frame = IterationSpace(shape=shape, shapes=self.results.get(value))
        expression = self.element(value, frame)
        if frame.axes is None:
            if not self.fills(expression, shape):
                raise Unrecognised(f"{value}, which repeats values")
            floats = {name for name, kind in self.operand_dtypes.items() if kind in CASTS}
            return Call(name="elementwise", positional=(put_float_first(expression, floats),))
        return Call(name="rowwise", positional=(expression,), named=(("axis", axis_of(frame)),))

    def row_operation(self, value: str) -> Call:
        """An expression of numbers and reductions of one frame, one result per row."""
        inner = self.find_reduction_below(value)
        if inner is None:
            raise Unrecognised(value)
        shape, own = self.shape(inner.of[0]), self.shape(value)
        if shape is None or own is None or shape == own:
            raise Unrecognised(value)
        frame = IterationSpace(shape=shape)
        expression = self.row_expression(value, frame, own)
        if frame.axes is None:  # zeros in the shape of a reduction need none
            raise Unrecognised(value)
        axis = axis_of(frame)
        keep = (("keepdim", 1),) if len(own) == len(shape) else ()
        if is_reduction(expression) and isinstance(expression, Call):
            return Call(
                name="reduce", positional=expression.positional, named=(("op", expression.name), ("axis", axis), *keep)
            )
        return Call(name="rowwise", positional=(expression,), named=(("axis", axis), *keep))

    def find_reduction_below(self, value: str) -> Reduced | None:
        """The first reduction below a value."""
        op = self.by_name.get(value)
        found = self.reduction_of(value)
        if op is None or value in self.made or found is not None:
            return found
        return next((item for name in op.operands if (item := self.find_reduction_below(name)) is not None), None)

    def row_expression(self, value: str, frame: IterationSpace, own: tuple[int, ...]) -> object:
        op = self.by_name.get(value)
        if op is None or value in self.made:
            if parse_number(value) is None:
                raise Unrecognised(value)
            return self.literal(value)
        found = self.reduction_of(value)
        if found is None:
            return scalar_expression(op, lambda item: self.row_expression(item, frame, own))
        if self.shape(found.of[0]) != frame.shape or not frame.unify_axes(found.axes) or self.shape(value) != own:
            raise Unrecognised(aten_name(op))
        return found.make(*(self.reduced_argument(item, frame) for item in found.of))


def _rounds_integers(op: Operation) -> bool:
    """Whether a call rounds integers to float32, or compares them with numbers, which rounding respects."""
    numbers = [parse_number(text) for text in op.operands[1:]]
    if aten_name(op) in COMPARISONS:
        return bool(numbers) and None not in numbers
    kinds = ("float32", "bool") if aten_name(op) == "_to_copy" else ("float32",)
    return bool(op.result) and op.result[0].dtype in kinds


def match_expressions(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """Stages for a graph of element-wise calls and reductions."""
    made = by_name.get(output)
    if made is None or len(by_name["output"].operands) != 1 or not made.result:
        return None
    builder = Builder(facts, by_name)
    try:
        batchmean = _batchmean(builder, made)
        operation = batchmean if batchmean is not None else builder.operation(output)
        kind = facts.cases[0].outputs[0].dtype
        is_bool = kind == "bool" and operation.name == "elementwise"
        cast: tuple[Call, ...] = (Call(name="cast", positional=("bool",)),) if is_bool else ()
        if kind not in ("int64", "bool"):
            cast = builder.cast(output, operation)
    except (Unrecognised, ValueError, IndexError):
        return None
    places = isinstance(operation.positional[0], Call) and dict(operation.named).get("op") in ("argmax", "argmin")
    wanted = ("int64",) if places or dict(operation.named).get("op") in ("argmax", "argmin") else FLOATS
    if not builder.operands or (kind not in wanted and not is_bool):
        return None
    if (
        len(builder.stages) == 1
        and dict(operation.named).get("axis") == "all"
        and operation.positional == (builder.stages[0].result,)
    ):
        by_rows = builder.stages[0]  # the work is in the rows; what is left is a mean of them
        return Computation(
            kind=by_rows.operation.name,
            operation=by_rows.operation,
            operands=tuple(builder.operands.items()),
            result=by_rows.result,
            epilogues=by_rows.epilogues,
            after=(Stage(operation=operation, settings=default_settings(operation), epilogues=cast),),
        )
    return Computation(
        kind=operation.name,
        operation=operation,
        epilogues=cast,
        operands=tuple(builder.operands.items()),
        before=tuple(builder.stages),
        values=tuple((name, value) for value, (name, _) in builder.made.items()),
        dtype=next((kind for kind in builder.operand_dtypes.values() if kind in CASTS), ""),
    )


def _batchmean(builder: Builder, op: Operation) -> Call | None:
    """kl_div's sum over all, divided by the first size: the mean over samples of their sums."""
    total = builder.by_name.get(op.operands[0]) if aten_name(op) == "div" and len(op.operands) == 2 else None
    away = builder.by_name.get(total.operands[0]) if total is not None and total.target == "aten.sum.default" else None
    if (
        total is None
        or away is None
        or aten_name(away) != "sub"
        or not (log := builder.by_name.get(away.operands[0]))
        or aten_name(log) != "xlogy"
    ):
        return None
    shape = builder.shape(total.operands[0])
    if shape is None or len(shape) < 2 or op.operands[1] != str(shape[0]):
        return None
    frame = IterationSpace(shape=shape, axes=tuple(range(1, len(shape))))
    expression = builder.element(total.operands[0], frame)
    row_operation = Call(name="reduce", positional=(expression,), named=(("op", "sum"), ("axis", axis_of(frame))))
    name = builder.free_name()
    builder.operand_dtypes[name] = builder.dtype(total.operands[0])
    builder.stages.append(Stage(operation=row_operation, settings=default_settings(row_operation), result=name))
    return Call(name="reduce", positional=(name,), named=(("op", "mean"), ("axis", "all")))
