"""The tensors that expressions read: forward's, the module's state, results of stages, and tensors made by torch."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from workbench.language import Call, Stage
from workbench.language.expressions.expressions import leaves
from workbench.language.expressions.lowering import call
from workbench.proposers.recognition.graph import (
    LEADING,
    Unrecognised,
    aten_name,
    names,
    parse_number,
    plain_name,
    python_expression,
)
from workbench.proposers.recognition.iteration_space import IterationSpace, extents_and_size, is_broadcastable
from workbench.proposers.recognition.operands import parse_constant
from workbench.proposers.recognition.patterns.positions import check_positions
from workbench.proposers.recognition.types import CASTS
from workbench.proposers.recognition.views import RESHAPES
from workbench.records import Facts, Operation, TensorSpec

FLOATS = tuple(CASTS)
EXACT = (*FLOATS, "bool", "uint8", "int8", "int16")  # types of which float32 holds every value


class Tensors:
    """Names of tensors in the program, their shapes and types, and the stages that write some of them."""

    def __init__(self, facts: Facts, by_name: dict[str, Operation]) -> None:
        self.by_name = by_name
        self.full = {spec.name: spec.shape for spec in facts.full}
        self.tensors = {spec.name: spec for spec in facts.cases[0].inputs}
        self.at_all_cases = _list_shapes([case.inputs for case in facts.cases])
        outputs = _list_shapes([case.outputs for case in facts.cases])
        self.results = dict(zip(facts.graph[-1].operands, outputs.values(), strict=False))  # also at all cases
        self.state = {spec.name: spec for spec in facts.parameters}
        self.operands: dict[str, str] = {}  # name in the program -> Python expression
        self.operand_dtypes: dict[str, str] = {}  # name in the program -> type
        self.operand_shapes: dict[str, tuple[int, ...]] = {}  # name in the program -> shape
        self.stages: list[Stage] = []
        self.made: dict[str, tuple[str, tuple[int, ...]]] = {}  # value -> name of the tensor that holds it, its shape
        self.readable: tuple[str, ...] = ()  # further types of tensors that the call at hand may read
        self.sizes = {size for spec in facts.cases[0].inputs for size in extents_and_size(spec.shape)} - {
            *facts.constants
        }

    @contextlib.contextmanager
    def reading(self, kinds: tuple[str, ...]) -> Iterator[None]:
        """Let tensors of further types be read for a while, those of `kinds` and no others."""
        before, self.readable = self.readable, kinds
        try:
            yield
        finally:
            self.readable = before

    def shape(self, value: str) -> tuple[int, ...] | None:
        """The shape of a value; () for a number."""
        if value in self.made:
            return self.made[value][1]
        if value in self.by_name:
            op = self.by_name[value]
            return op.result[0].shape if op.result else None
        spec = self.tensors.get(value) or self.state.get(value.split(":", 1)[-1])
        return (
            spec.shape
            if spec is not None
            else ()
            if parse_number(value) is not None or value in ("True", "False")
            else None
        )

    def full_shape(self, op: Operation) -> tuple[int, ...]:
        """The shape of an operation's result at full size, or at the sizes of the trace if that is not known."""
        return self.full.get(op.name, op.result[0].shape)

    def dtype(self, value: str) -> str:
        """The type of a value; empty for a number."""
        op = self.by_name.get(value)
        if op is not None:
            return op.result[0].dtype if op.result else ""
        spec = self.tensors.get(value) or self.state.get(value.split(":", 1)[-1])
        return spec.dtype if spec is not None else ""

    def leaf(self, value: str, frame: IterationSpace) -> object:
        """A tensor of the frame's shape, one that is broadcast to it, or a number."""
        if value in self.made:
            name, own = self.made[value]
            self.operand_dtypes[name], self.operand_shapes[name] = self.dtype(value), own
            if own == frame.shape:
                frame.whole = name
            return name if own == frame.shape else call("spread", name)
        if parse_number(value) is not None:
            return self.literal(value)
        expression, shape = self.expression_of(value)
        if shape is None or not is_broadcastable(shape, frame.shape):
            raise Unrecognised(value)
        if self.dtype(value) not in (*EXACT, *self.readable):
            raise Unrecognised(f"{value} of {self.dtype(value)}")
        name = self.operand_name(value, expression)
        is_whole = shape == frame.shape and self.has_shapes_of(value, frame)
        self.operands[name] = expression
        self.operand_dtypes[name], self.operand_shapes[name] = self.dtype(value), shape
        if is_whole:
            frame.whole = name
        return name if is_whole else call("spread", name)

    def fills(self, expression: object, shape: tuple[int, ...]) -> bool:
        """Whether the tensors of an expression, broadcast to each other, have a shape; they do not if torch expands."""
        known = [self.operand_shapes.get(name, shape) for name in itertools.chain(*leaves(expression))]
        return all(
            any(len(own) >= axis and own[-axis] == shape[-axis] for own in known) for axis in range(1, len(shape) + 1)
        )

    def has_shapes_of(self, value: str, frame: IterationSpace) -> bool:
        """Whether a tensor of forward has the frame's shape at every case, where it has at the sizes of the trace.

        Raises `Unrecognised` if it is not even broadcast to it.
        """
        own = self.at_all_cases.get(value)
        if own is None or frame.shapes in (None, own):
            frame.shapes = own or frame.shapes
            return True
        if not all(map(is_broadcastable, own, frame.shapes or own)):
            raise Unrecognised(f"{value}, whose shape differs at other sizes")
        return False

    def expression_of(self, value: str) -> tuple[str, tuple[int, ...] | None]:
        """(the Python expression, the shape) of a tensor of forward, or of a view of one that only adds axes of 1."""
        op = self.by_name.get(value)
        if op is None:
            spec = self.tensors.get(value) or self.state.get(value.split(":", 1)[-1])
            return python_expression(value), spec.shape if spec is not None else None
        inner, _ = self.expression_of(op.operands[0])
        sizes = ["1" if text == "1" else "-1" for text in names(op.operands[1], numbers=True)]
        return f"{inner}.reshape({', '.join(sizes)})", op.result[0].shape

    def operand_name(self, value: str, expression: str) -> str:
        """The name of a tensor in the program; other views of it have other names."""
        while value in self.by_name:
            value = self.by_name[value].operands[0]
        own = value.split(":", 1)[-1].replace(".", "_").replace(LEADING, "_") if ":" in value else value
        free = (own, *(f"{own}_{n}" for n in range(2, 1000)))
        return next(name for name in free if self.operands.get(name, expression) == expression)

    def literal(self, value: str) -> object:
        """A number as the language writes it.

        Raises `Unrecognised` if it may be a size, which differs in other cases.
        """
        if value.isdigit() and int(value) > 3 and int(value) in self.sizes:
            raise Unrecognised(f"{value}, which may be a size")
        return parse_constant(value)

    def free_name(self) -> str:
        """A name for the result of the next stage; a piece of a pipeline may read tensors that are called alike."""
        taken = {*self.tensors, *(name for name, _ in self.made.values())}
        return next(name for n in range(len(self.stages) + 1, 1000) if (name := f"h{n}") not in taken)

    def is_aligning_view(self, op: Operation) -> bool:
        """Whether an operation gives a vector of forward further axes of 1, as in weight.view(1, -1, 1, 1)."""
        if plain_name(op) not in RESHAPES or len(op.operands) != 2 or op.operands[0] in self.by_name or op.keywords:
            return False
        given = self.shape(op.operands[0])
        return (
            given is not None
            and len(given) == 1
            and len(names(op.operands[1], numbers=True))
            > 1
            == sum(size != "1" for size in names(op.operands[1], numbers=True))
        )

    def find_full_shape_tensor(self, frame: IterationSpace) -> str:
        """The name in the program of a tensor of the frame's shape; one is found where the expression has read none."""
        if frame.whole is None:
            known = (value for value, (_, shape) in reversed(self.made.items()) if shape == frame.shape)
            given = (value for value, spec in self.tensors.items() if spec.shape == frame.shape)
            for value in (*known, *given):
                with contextlib.suppress(Unrecognised):
                    self.leaf(value, frame)
                    break
        if frame.whole is None:
            raise Unrecognised("arange without a tensor of its shape")
        return frame.whole

    def index(self, like: str, axis: int) -> object:
        """The numbers of an axis of a tensor, broadcast to it."""
        key = f"index {axis} of {like}"
        if key not in self.made:
            self.add_view(key, like, ("index", axis), ())
        self.operand_dtypes[self.made[key][0]] = "float32"
        return call("spread", self.made[key][0])

    def add_view(self, value: str, of: str, change: tuple[str, object], shape: tuple[int, ...]) -> None:
        """Add a stage without a kernel, whose result is the value."""
        name = self.free_name()
        self.stages.append(Stage(operation=Call(name="view", positional=(of,), named=(change,)), result=name))
        self.made[value] = (name, shape)

    def triangle(self, op: Operation, expression: object, frame: IterationSpace) -> object:
        """triu or tril of an expression: zeros where the column is too far to the left, or to the right, of the row.

        Of a constant, the expression must read a tensor of the frame's shape already, whose places are then those of
        the constant.
        """
        rank = len(frame.shape)
        if frame.whole is None or self.shape(op.name) not in (frame.shape, frame.shape[-2:]):
            raise Unrecognised(f"{aten_name(op)} of no tensor of its shape")
        check_positions(op, max(self.full_shape(op)[-2:]))
        row, column = (self.index(frame.whole, axis) for axis in (rank - 2, rank - 1))
        diagonal = self.literal(op.operands[1]) if len(op.operands) > 1 else 0
        edge = call("add", row, diagonal) if diagonal else row
        outside = call("lt" if plain_name(op) == "triu" else "gt", column, edge)
        if expression == 1 and op.result[0].dtype == "bool":
            return call("eq", outside, 0)
        if isinstance(expression, int | float):
            return call("where", outside, 0, expression)
        return call("masked_fill", expression, outside, 0)


def _list_shapes(cases: Sequence[tuple[TensorSpec, ...]]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The shapes of tensors by their names, one for each case, of those that every case has."""
    known = [{spec.name: spec.shape for spec in specs} for specs in cases]
    return {name: tuple(shapes[name] for shapes in known) for name in known[0] if all(name in one for one in known)}


def is_contiguous(spec: TensorSpec) -> bool:
    """Whether a tensor's elements lie in order; extents of 1 may have any stride."""
    step = 1
    for size, stride in zip(reversed(spec.shape), reversed(spec.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
