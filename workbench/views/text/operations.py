"""The operations of a problem as lines, and the extents of its tensors as names of sizes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence, Set

from workbench.problems.expressions import DTYPES
from workbench.proposers.recognition.graph import TORCH_FUNCTIONS
from workbench.records import Facts, Operation, TensorSpec, aten_name, record

SHORT = {long: short for short, long in DTYPES.items()}
MOST_LINES = 20
MOST_CHARACTERS = 200  # of a call
UNKNOWN = "?"
# shown inside the call that takes their result
INLINED = ("t", "detach", "alias", "view", "_unsafe_view", "getitem", "expand", "permute", "transpose", "unsqueeze")
# of one shape with an operand, whose axes they exchange or sum over
MIXING = ("t", "permute", "transpose", "mm", "bmm", "addmm", "baddbmm", "matmul", "view", "_unsafe_view", "reshape")
RESHAPES = ("view", "_unsafe_view", "reshape", "expand")


@record
class OperationLine:
    """A call of the reference: its result, the result's dtype and shape, and the call in torch's names."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    call: str


def list_operations(facts: Facts, names: AxisNames) -> tuple[OperationLine, ...]:
    """The calls in order. Views stand inside the calls that take them, unless a view is what forward returns.

    The numbers in them are those of `traced_case`.
    """
    returned = list_returned(facts)
    shown = facts.full_graph if traced_case(facts) == "full" else facts.graph
    texts: dict[str, str] = {}
    lines = []
    for op, written in zip(facts.graph[:-1], shown[:-1], strict=True):
        axes = names.of_result(op)
        if op.name in returned and len(returned) == len(facts.cases[-1].outputs):
            axes = names.of_output(returned.index(op.name))
        call = _format_call(written, texts)
        if _torch_name(op) in INLINED and op.name not in returned:
            texts[op.name] = call
            continue
        dtype = short_dtype(op.result[0].dtype) if op.result else ""
        lines.append(OperationLine(name=op.name, dtype=dtype, shape=axes, call=clip(call)))
    return tuple(lines)


def clip(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text of at most so many characters; of a longer one the begin, and how much is left out."""
    return text if len(text) <= most else f"{text[: most - 30]} ... {len(text) - most + 30} more characters"


def traced_case(facts: Facts) -> str:
    """The case whose numbers the calls have: that at full size, if its calls are known and the same."""
    full, small = ([(op.name, op.target) for op in graph] for graph in (facts.full_graph, facts.graph))
    return facts.cases[-1].name if full == small else facts.cases[0].name


def list_returned(facts: Facts) -> tuple[str, ...]:
    """The names of the values that forward returns."""
    return tuple(name for text in facts.graph[-1].operands for name in _split(text))


def shorten(lines: tuple[OperationLine, ...]) -> tuple[tuple[OperationLine, ...], int, tuple[OperationLine, ...]]:
    """(the first lines, the number of those left out, the last lines), at most MOST_LINES."""
    if len(lines) <= MOST_LINES:
        return lines, 0, ()
    half = MOST_LINES // 2
    return lines[: half - 1], len(lines) - 2 * half + 1, lines[-half:]


def short_dtype(dtype: str) -> str:
    """float32 is f32."""
    return SHORT.get(dtype, dtype)


def plain_name(name: str) -> str:
    """The name of a value without the prefix of parameters and buffers."""
    return name.split(":", 1)[-1]


def _torch_name(op: Operation) -> str:
    name = aten_name(op)
    return "getitem" if "getitem" in name else name


def _format_call(op: Operation, texts: dict[str, str]) -> str:
    """The call with views inside it, without defaults at its end."""
    name = _torch_name(op)
    operands = [_format_operand(text, texts) for text in op.operands]
    if name == "getitem":
        return f"{operands[0]}[{operands[1]}]"
    if name in RESHAPES:  # their numbers are those of one case
        return f"{TORCH_FUNCTIONS.get(name, name.lstrip('_'))}({operands[0]})"
    while len(operands) > 1 and operands[-1] in ("None", "False"):
        operands.pop()
    words = {key: _format_operand(text, texts) for key, text in op.keywords if text not in ("None", "False")}
    if name == "_to_copy" and set(words) <= {"dtype"}:
        return f"to({', '.join([*operands, *words.values()])})"
    named = [f"{key}={value}" for key, value in words.items()]
    return f"{TORCH_FUNCTIONS.get(name, name.lstrip('_'))}({', '.join([*operands, *named])})"


def _format_operand(text: str, texts: dict[str, str]) -> str:
    if text.startswith("[") and text.endswith("]"):
        return f"[{', '.join(_format_operand(part, texts) for part in _split(text))}]"
    if text.startswith("torch."):
        return short_dtype(text.removeprefix("torch."))
    return texts.get(text, plain_name(text))


def _split(text: str) -> list[str]:
    """The values in an operand's text, which may be a list. Commas inside of brackets part nothing."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return [part.strip() for part in re.split(r",(?![^\[]*\])", inner) if part.strip()]


class AxisNames:
    """Names the extents of tensors by the sizes that they follow in every case; other extents are numbers."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        cases = [case.name for case in facts.cases]
        values = [facts.size_values(case) for case in cases]
        self._sizes = {size.name: tuple(one[size.name] for one in values) for size in facts.sizes}
        self._varied = {name: size for name, size in self._sizes.items() if len({*size}) > 1}
        self._of = {extent: size.name for size in facts.sizes for extent in size.extents}
        self._small, self._full = (next((n for n, case in enumerate(cases) if case == name), 0) for name in FEWEST)
        specs = (*facts.full, *(_named(op) for op in facts.full_graph if op.result))
        self._at_full = {spec.name: spec.shape for spec in specs}
        self._known: dict[str, tuple[str, ...]] = {}
        for n, spec in enumerate(facts.cases[-1].inputs):
            self._known[spec.name] = self.of_cases(plain_name(spec.name), tuple(c.inputs[n].shape for c in facts.cases))

    def of_cases(self, name: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[str, ...]:
        """The axes of an input or an output, of which every case has a shape."""
        if len({len(shape) for shape in shapes}) > 1:
            return tuple(map(str, shapes[-1]))
        columns = zip(*shapes, strict=True)
        return tuple(
            self._name_of_extent(f"{name}[{axis}]", values, range(len(values))) or _find_name(self._varied, values)
            for axis, values in enumerate(columns)
        )

    def of_output(self, number: int) -> tuple[str, ...]:
        """The axes of an output."""
        cases = self.facts.cases
        return self.of_cases(cases[-1].outputs[number].name, tuple(case.outputs[number].shape for case in cases))

    def of_input(self, name: str) -> tuple[str, ...]:
        """The axes of an input."""
        return self._known[name]

    def of_state(self, spec: TensorSpec, prefix: str) -> tuple[str, ...]:
        """The axes of a parameter or buffer, whose shape is known at the small case and perhaps at full size."""
        label = f"{prefix}:{spec.name}"
        full = self._at_full.get(label)
        own = self.facts.state_label(spec.name)
        axes = tuple(
            self._name_of_extent(f"{own}[{axis}]", (small,), (self._small,))
            or (
                self._name_of_two(small, full[axis], set())
                if full and (f"{own}[{axis}]" in self._of or not self._of)
                else str(full[axis] if full else small)
            )
            for axis, small in enumerate(spec.shape)
        )
        self._known[label] = axes
        return axes

    def of_result(self, op: Operation) -> tuple[str, ...]:
        """The axes of a result. Where two sizes fit, it is that of an operand of one shape, if that is known."""
        if not op.result:
            return ()
        shape, full = op.result[0].shape, self._at_full.get(op.name)
        if full is not None and len(full) != len(shape):
            full = None
        near = [self._known[name] for name in op.operands if name in self._known]
        if _torch_name(op) in MIXING:
            hints = [{name for axes in near for name in axes}] * len(shape)
        else:
            hints = [{axes[axis] for axes in near if len(axes) == len(shape)} for axis in range(len(shape))]
        found = tuple(
            self._name_of_two(small, full[axis] if full else None, hints[axis]) for axis, small in enumerate(shape)
        )
        if _torch_name(op) == "view_as_real":
            found = (*found[:-1], "2")
        self._known[op.name] = found
        return found

    def _name_of_extent(self, extent: str, values: tuple[int, ...], places: Sequence[int]) -> str:
        """The size that decides an extent, or its multiple; "" if none is known. `places` are the cases of `values`."""
        name = self._of.get(extent)
        if name is None or not all(values):
            return ""
        size = tuple(self._sizes[name][place] for place in places)
        factor = max(values[-1] // max(size[-1], 1), 1)
        if tuple(factor * one for one in size) != values:
            return ""
        return name if factor == 1 else f"{factor}*{name}"

    def _name_of_two(self, small: int, full: int | None, hints: set[str]) -> str:
        """The name for an extent of the small case, and of full size if that is known."""
        if full is None:
            fitting = {name for name, size in self._sizes.items() if size[self._small] == small} & hints
            constant = "1" if small == 1 else next(iter({str(small)} & hints), UNKNOWN)
            return next(iter(fitting)) if len(fitting) == 1 else constant
        sizes = {name: (size[self._small], size[self._full]) for name, size in self._varied.items()}
        fitting = {name for name, size in sizes.items() if size == (small, full)}
        if not fitting:
            return _find_name(sizes, (small, full), hints)
        chosen = fitting & hints if len(fitting) > 1 else fitting
        return next(iter(chosen)) if len(chosen) == 1 else str(full)


def _find_name(sizes: Mapping[str, tuple[int, ...]], values: tuple[int, ...], hints: Set[str] = frozenset()) -> str:
    """The size, or else the one product of two sizes, or the one multiple of a size, that has these values in the
    cases; else, also where several fit, the last value. One of the `hints` goes before what is none.
    """
    if len(set(values)) == 1:
        return str(values[-1])
    if values in sizes.values():
        return next(name for name, size in sizes.items() if size == values)
    factors = {name: values[-1] // size[-1] for name, size in sizes.items() if size[-1]}
    products = [
        f"{name}*{other}"
        for (name, size), (other, more) in itertools.combinations(sizes.items(), 2)
        if tuple(a * b for a, b in zip(size, more, strict=True)) == values
    ]
    multiples = [
        f"{factor}*{name}"
        for name, factor in factors.items()
        if factor and tuple(factor * one for one in sizes[name]) == values
    ]
    fitting = [name for name in (*products, *multiples) if name in hints] or products or multiples
    return fitting[0] if len(fitting) == 1 else str(values[-1])


FEWEST = ("shrunk", "full")


def _named(op: Operation) -> TensorSpec:
    first = op.result[0]
    return TensorSpec(name=op.name, shape=first.shape, dtype=first.dtype, strides=first.strides)


def join_shape(axes: tuple[str, ...]) -> str:
    """[m, k]"""
    return f"[{', '.join(axes)}]"
