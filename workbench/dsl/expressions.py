"""Expressions of the language: their checks, their leaves, and tensors that are broadcast (`spread(b)`) found by index arithmetic."""

from __future__ import annotations

import dataclasses

from workbench.dsl.ir import Binding, Call, Rejection, names_in
from workbench.dsl.operation import close
from workbench.dsl.reductions import REDUCTIONS
from workbench.dsl.scalars import FUNCTIONS, KNOWN, arity
from workbench.records import record

SPREAD_TEXT = '''
@cute.jit
def load_spread(tensor, part, i, inner, size, width: cutlass.Constexpr, way: cutlass.Constexpr):
    """What vector i of the result meets of a broadcast tensor, whose element (place // inner) % size stands at each place."""
    if cutlass.const_expr(way == "one"):  # one element for the whole vector
        value = tensor[i * width // inner % size]
        for e in cutlass.range_constexpr(width):
            part[e] = value
    elif cutlass.const_expr(way == "run"):  # as many neighbours
        cute.autovec_copy(cute.zipped_divide(tensor, (width,))[None, i % (size // width)], part)
    else:
        for e in cutlass.range_constexpr(width):
            part[e] = tensor[(i * width + e) // inner % size]


def spread(tensor, shape, width):
    """(flat tensor, inner, size, way): broadcast to `shape`, element (place // inner) % size stands at each place; copied out where no such numbers exist."""
    sizes = [1] * (len(shape) - tensor.dim()) + list(tensor.shape)
    own = [n for n, size in enumerate(sizes) if size != 1] or [len(shape)]
    if any(sizes[n] != shape[n] for n in range(own[0], own[-1] + 1) if n < len(shape)):
        tensor, own = tensor.expand(shape), [len(shape) - 1]
    tensor, inner = tensor.contiguous().view(-1), math.prod(shape[own[-1] + 1 :])
    one = inner % width == 0 or tensor.numel() == 1
    run = inner == 1 and tensor.numel() % width == 0 and tensor.data_ptr() % 16 == 0
    return tensor, inner, tensor.numel(), "one" if one else "run" if run else "each"

'''

REDUCED = (*REDUCTIONS, "row")  # what starts the names of values that are worked out once per row
TAKEN = frozenset(
    ["away", "barriers", "batch", "batches", "before", "begin", "best", "better", "block", "blocks", "bulk", "cell", "center", "chunk", "column", "columns", "count", "cpasync", "cuda", "e", "element", "end", "far", "first", "flat", "given", "group", "i", "inner", "inside", "lane", "least", "length", "math", "memory", "more", "near", "other", "out", "part", "parts", "piece", "pipe", "pipeline", "place", "places", "rank", "rate", "reading", "result", "results", "row", "rows", "run", "seen", "segment", "shape", "share", "span", "spread", "squares", "stages", "start", "step", "store", "stream", "strip", "strips", "tensor", "thread", "turn", "turns", "unit", "units", "value", "vectors", "warp", "way", "width", "writing", "y"]
)  # names that emitted text has for itself, beside those that checks refuse


@record
class Spread:
    """The broadcast tensors of a kernel, and the text that passes them."""

    names: tuple[str, ...]

    @property
    def ways(self) -> tuple[str, ...]:
        """Constants that say how each is read."""
        return tuple(f"{name}_way" for name in self.names)

    @property
    def sizes(self) -> tuple[str, ...]:
        """Arguments: inner and size of each."""
        return tuple(f"cutlass.Int32({name}_{what})" for name in self.names for what in ("inner", "size"))

    def tensor(self, name: str) -> str:
        """The tensor's argument."""
        return f"from_dlpack({name}, assumed_align=16 if {name}_way == 'run' else None).mark_layout_dynamic()"


def vectors_of(name: str) -> str:
    """A contiguous tensor as an argument of shape (vectors, width): up to 2^31 elements, where a flat one has less."""
    return f"from_dlpack({name}.view(-1, width), assumed_align=16 if width > 1 else None).mark_compact_shape_dynamic(mode=0, stride_order=(0, 1))"


def spread_fields(spread: Spread) -> dict[str, str]:
    """Fields of a kernel's template: parameters and arguments for the broadcast tensors."""
    numbers = [f"{name}_{what}" for name in spread.names for what in ("inner", "size")]
    return {
        "declared": "".join(f", {name}: cutlass.Int32" for name in numbers), "passed": "".join(f", {name}" for name in numbers),
        "ways": "".join(f", {name}: cutlass.Constexpr" for name in spread.ways), "ways_passed": "".join(f", {name}" for name in spread.ways),
    }  # fmt: skip


def spread_lines(spread: Spread) -> list[str]:
    """Lines of forward that find inner, size and way of each tensor that is broadcast to `shape`."""
    return [f"{name}, {name}_inner, {name}_size, {name}_way = spread({name}, shape, width)" for name in spread.names]


def renamed(value: object, binding: Binding) -> tuple[object, Binding]:
    """The expression and its binding with other names for tensors that are called what the emitted text calls something else."""
    taken = {name: f"{name}_in" for name in names_in(value) if name in TAKEN or name in FUNCTIONS or name.split("_")[0] in REDUCED}
    if not taken:
        return value, binding
    bound = dict(binding.operands)
    operands = {taken.get(name, name): bound.get(name, name) for name in names_in(value)}

    def walk(node: object) -> object:
        if isinstance(node, Call):
            return Call(name=node.name, positional=tuple(walk(part) for part in node.positional), named=node.named)
        return taken.get(node, node) if isinstance(node, str) else node

    return walk(value), dataclasses.replace(binding, operands=tuple((bound | operands).items()))


def leaves(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tensors of the full shape, broadcast tensors), each in order of first use."""
    plain: dict[str, None] = {}
    spread: dict[str, None] = {}

    def walk(node: object) -> None:
        if isinstance(node, Call):
            for part in node.positional:
                if node.name == "spread" and isinstance(part, str):
                    spread.setdefault(part)
                else:
                    walk(part)
        elif isinstance(node, str):
            plain.setdefault(node)

    walk(value)
    return tuple(plain), tuple(spread)


def check_expression(value: object, reductions: tuple[str, ...] = ()) -> list[Rejection]:
    """Unknown functions, wrong numbers of arguments, broadcasts of what is no tensor; `reductions` of one argument may occur too."""
    if isinstance(value, tuple):
        return [Rejection(field="expression", value=str(value), reason="several values where one is wanted", legal="a tensor, a number or a function of them")]
    if not isinstance(value, Call):
        return []
    if value.named:
        name, given = value.named[0]
        return [Rejection(field=f"{value.name} {name}", value=str(given), reason="functions take their arguments without names", legal=f"{value.name}({', '.join(('x', *(str(item) for _, item in value.named)))})")]
    if value.name == "spread":
        good = len(value.positional) == 1 and isinstance(value.positional[0], str)
        return [] if good else [Rejection(field="spread", value="", reason="a tensor is broadcast, not an expression", legal="spread(b)")]
    if value.name not in KNOWN and value.name not in reductions:
        return [Rejection(field="function", value=value.name, reason="no such function", legal=close(value.name, KNOWN + reductions))]
    given = len(value.positional)
    least, most = (1, 1) if value.name in reductions and (given == 1 or value.name not in KNOWN) else arity(value.name)
    if not least <= given <= most:
        legal = str(least) if least == most else f"{least} to {most}"
        return [Rejection(field=value.name, value=str(given), reason=f"takes {legal} argument{'s' if most > 1 else ''}", legal=legal)]
    return [item for part in value.positional for item in check_expression(part, reductions)]
