"""Finds the tensors that forward makes of sizes alone: `torch.arange(n)`, `torch.ones(n, n).tril(k)`.

Each of their numbers is a constant, an extent of an input, or a sum or a difference of two, at every traced case.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from workbench.problems.tracing.uses import Slot, list_slots
from workbench.problems.tracing.whole import drop_reservations, trace_at, trace_full
from workbench.records import (
    Case,
    Operation,
    Problem,
    ShapeDerivedTensor,
    TensorSpec,
    aten_name,
    plain_name,
    scale_name,
)

Graph = tuple[Operation, ...]
Traced = tuple[dict[str, Operation], dict[str, int]]  # a graph by its names, the inputs' extents by their expressions
SOURCES = ("arange", "ones")
ATTENTION = "_scaled_dot_product"  # how the names of attention's calls begin
TRIANGLES = ("tril", "triu")
CALCULATIONS = frozenset(
    (
        *("add", "sub", "mul", "div", "rsub", "pow", "maximum", "minimum", "clamp", "clamp_min", "clamp_max"),
        *("gt", "ge", "lt", "le", "eq", "ne", "remainder", "fmod", "floor_divide", "true_divide", "scalar_tensor"),
    )
)
LEAST = 3  # numbers up to this are read as they are


@dataclasses.dataclass(frozen=True)
class ShapeDerived:
    """What the numbers of a graph are made of.

    `made` are the tensors that are made of sizes alone. `constants` are the whole numbers that are the same at other
    sizes although they are extents of inputs at the first case.
    """

    made: tuple[ShapeDerivedTensor, ...] = ()
    constants: tuple[int, ...] = ()


def find_shape_derived(problem: Problem, whole: Case, full: Graph, cases: Sequence[Case], small: Graph) -> ShapeDerived:
    """`small` is the graph at the first case, `full` that at full size; the other cases are traced where need be."""
    small = drop_reservations(small)
    calls = [(op.name, op.target) for op in small]
    if [(op.name, op.target) for op in full] != calls or not (
        any(aten_name(op) in SOURCES or _has_own_scale(op) for op in small)
        or _list_doubtful(small, _list_extents(cases[0]))
    ):
        return ShapeDerived()
    others = [trace_at(problem, case.settings) for case in cases[1:]]
    graphs = [small, full, *(one.graph for one in others)]
    extents = [_list_extents(case) for case in (cases[0], whole, *cases[1:])]
    traced = _pair(graphs, extents, calls)
    device = next((spec.name for spec in whole.inputs if spec.name.isidentifier()), "")
    made = [_describe(op.name, traced, device) for op in small] if device else []
    if device and (scaled := [op for op in small if _has_own_scale(op)]):
        states = [trace_at(problem, cases[0].settings), trace_full(problem), *others]
        wide = [known | _list_state(one.values) for known, one in zip(extents, states, strict=True)]
        made += [_describe_scale(op, _pair(graphs, wide, calls), device) for op in scaled]
    return ShapeDerived(made=tuple(one for one in made if one is not None), constants=find_constants(traced))


def _pair(graphs: Sequence[Graph], extents: Sequence[dict[str, int]], calls: Sequence[tuple[str, str]]) -> list[Traced]:
    """The graphs with these calls, each with the extents of its case."""
    return [
        ({op.name: op for op in graph}, known)
        for graph, known in zip(graphs, extents, strict=True)
        if [(op.name, op.target) for op in graph] == calls
    ]


def _list_doubtful(graph: Graph, extents: dict[str, int]) -> list[tuple[Slot, int]]:
    """Numbers with which calls calculate that are extents of inputs, perhaps by chance."""
    known = {str(extent) for extent in extents.values() if extent > LEAST}
    calculating = tuple(op for op in graph if plain_name(op) in CALCULATIONS)
    return [(slot, int(text)) for slot, text in list_slots(calculating) if text in known]


def find_constants(traced: Sequence[Traced]) -> tuple[int, ...]:
    """Numbers with which calls calculate: extents of inputs at the first case, and the same where these are others."""
    doubtful = _list_doubtful(tuple(traced[0][0].values()), traced[0][1])
    slots = [dict(list_slots(tuple(graph.values()))) for graph, _ in traced]
    differ = {number for slot, number in doubtful if any(one.get(slot) != str(number) for one in slots)}
    return tuple(sorted({number for _, number in doubtful if _vary(number, traced)} - differ))


def _vary(number: int, traced: Sequence[Traced]) -> bool:
    """Whether each extent of that value at the first case has another at some case."""
    names = [name for name, extent in traced[0][1].items() if extent == number]
    return all(len({extents.get(name) for _, extents in traced}) > 1 for name in names)


def _list_extents(case: Case) -> dict[str, int]:
    """The extents of a case's inputs, by their expressions in forward."""
    return {
        f"{spec.name}.shape[{axis}]": extent
        for spec in case.inputs
        if spec.name.isidentifier()
        for axis, extent in enumerate(spec.shape)
    }


def _list_state(values: Sequence[TensorSpec]) -> dict[str, int]:
    """The extents of a module's parameters, by their expressions in forward."""
    return {
        f'self.get_parameter("{name}").shape[{axis}]': extent
        for spec in values
        for kind, _, name in [spec.name.partition(":")]
        if kind == "param"
        for axis, extent in enumerate(spec.shape)
    }


def _describe(name: str, traced: Sequence[Traced], device: str) -> ShapeDerivedTensor | None:
    """The tensor of that name; None if it is made of something else."""
    op = traced[0][0][name]
    if aten_name(op) == "arange":
        source, numbers = op, _express_all([graph[name].operands for graph, _ in traced], traced)
    else:
        found = traced[0][0].get(op.operands[0]) if op.operands and aten_name(op) in TRIANGLES else None
        if found is None or aten_name(found) != "ones":
            return None
        source, numbers = found, _express_all([(*graph[name].operands[1:], "0")[:1] for graph, _ in traced], traced)
    extents = _express_all([tuple(map(str, graph[name].result[0].shape)) for graph, _ in traced], traced)
    if numbers is None or extents is None:
        return None
    more = f"dtype=torch.{source.result[0].dtype}, device={device}.device"
    if aten_name(op) == "arange":
        text = f"torch.arange({', '.join(numbers)}, {more})"
    else:
        text = f"torch.ones(({', '.join(extents)}), {more}).{aten_name(op)}({', '.join(numbers)})"
    return ShapeDerivedTensor(name=name, dtype=source.result[0].dtype, expression=text, extents=extents)


def _has_own_scale(op: Operation) -> bool:
    """Whether it is an attention with a mask that multiplies its scores by 1 / sqrt(head dimension)."""
    more = dict(op.keywords)
    return aten_name(op).startswith(ATTENTION) and more.get("attn_mask", "None") != "None" and "scale" not in more


def _describe_scale(op: Operation, traced: Sequence[Traced], device: str) -> ShapeDerivedTensor | None:
    """The factor of an attention's scores, if it is another at other sizes."""
    q = op.operands[0]
    own = f"{q}.shape[{len(op.result[0].shape) - 1}]"
    dims = tuple(str(graph[q].result[0].shape[-1] if q in graph else extents.get(own, -1)) for graph, extents in traced)
    dim = _express(dims, [extents for _, extents in traced]) if len({*dims}) > 1 else None
    if own in traced[0][1] and dim is not None:
        dim = own
    if len({*dims}) > 1 and (dim is None or " " in dim):
        dim = _express_share(dims, [extents for _, extents in traced])
    if dim is None:
        return None
    text = f"torch.full((), {dim} ** -0.5, dtype=torch.float32, device={device}.device)"
    return ShapeDerivedTensor(name=scale_name(op.name), dtype="float32", expression=text, extents=())


def _express_all(rows: Sequence[tuple[str, ...]], traced: Sequence[Traced]) -> tuple[str, ...] | None:
    """An expression of each number, which has a text in each traced graph; None if one is of another kind."""
    if len({len(row) for row in rows}) != 1:
        return None
    found = [_express(column, [extents for _, extents in traced]) for column in zip(*rows, strict=True)]
    return None if None in found else tuple(text for text in found if text is not None)


def _express(texts: Sequence[str], extents: Sequence[dict[str, int]]) -> str | None:
    """A number's expression: its text if it is the same at all cases, an extent, or the sum or difference of two."""
    if len({*texts}) == 1:
        return texts[0] if texts[0].lstrip("-").replace(".", "", 1).isdigit() else None
    if not all(text.lstrip("-").isdigit() for text in texts):
        return None
    wanted = list(map(int, texts))
    for name in extents[0]:
        if [one.get(name) for one in extents] == wanted:
            return name
    for first, second in itertools.combinations(extents[0], 2):
        if [one.get(first, 0) + one.get(second, 0) for one in extents] == wanted:
            return f"{first} + {second}"
    for first, second in itertools.permutations(extents[0], 2):
        if [one.get(first, 0) - one.get(second, 0) for one in extents] == wanted:
            return f"{first} - {second}"
    return None


def _express_share(texts: Sequence[str], extents: Sequence[dict[str, int]]) -> str | None:
    """A number that is an extent over a constant: the dimension of a head, where their number stays."""
    numbers = [int(text) for text in texts]
    for name, extent in extents[0].items():
        count = extent // numbers[0] if numbers[0] > 0 else 0
        if count > 1 and all(one.get(name) == count * number for one, number in zip(extents, numbers, strict=True)):
            return f"({name} // {count})"
    return None
