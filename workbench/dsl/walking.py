"""Text of one walk of a thread over its vectors of a row: load several, then take them in, or write the result."""

from __future__ import annotations

from workbench.dsl.expressions import leaves
from workbench.dsl.ir import Call
from workbench.dsl.levels import Plan, arguments, is_reduction, row_values
from workbench.dsl.pieces import expression
from workbench.records import record


@record
class Walk:
    """How a thread goes through its part of a row. All texts are over `first` and `turn`."""

    loop: str  # the head of the loop over chunks of `turns` vectors; "" when the row is kept in registers, as one chunk
    part: str  # the vector's number within the row
    inside: str  # whether there is such a vector, over `part`
    address: str  # its number in the tensor, over `part`
    place: str  # number of element e within the reduced axis
    index: str = ""  # what follows the name of an accumulator: "[e]" where each element of a vector has its own
    fetch: tuple[str, ...] = ()  # lines that load a chunk, where it is not copied from the tensors as they lie
    after: tuple[str, ...] = ()  # lines at the end of a chunk

    @property
    def kept(self) -> bool:
        """Whether the thread's part of the row is loaded once."""
        return not self.loop


def indented(lines: list[str], by: int = 1) -> list[str]:
    """Lines, further in."""
    return [" " * 4 * by + line for line in lines]


def loads(walk: Walk, plain: tuple[str, ...], spread: tuple[str, ...]) -> list[str]:
    """Lines that load a chunk into registers."""
    if not plain and not spread:
        return []
    lines = [f"{name}_part = cute.make_rmem_tensor(cute.make_layout((width, turns)), {name}.element_type)" for name in (*plain, *spread)]
    copies = [f"cute.autovec_copy({name}[{walk.address}, None], {name}_part[None, turn])" for name in plain]
    copies += [f"load_spread({name}, {name}_part[None, turn], {walk.address}, {name}_inner, {name}_size, width, {name}_way)" for name in spread]
    return [*lines, "for turn in cutlass.range_constexpr(turns):", f"    part = {walk.part}", f"    if {walk.inside}:", *indented(copies, 2)]


def takes(walk: Walk, body: list[str], *, store: bool = False) -> list[str]:
    """Lines that go through the elements of a chunk in registers; `store` writes `result` to y."""
    lines = ["for turn in cutlass.range_constexpr(turns):", f"    part = {walk.part}", f"    if {walk.inside}:"]
    inner = ["result = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)"] if store else []
    inner += ["for e in cutlass.range_constexpr(width):", *indented(body)]
    inner += [f"cute.autovec_copy(result, y[{walk.address}, None])"] if store else []
    return [*lines, *indented(inner, 2)]


def walk_lines(walk: Walk, values: tuple[object, ...], body: list[str], *, store: bool = False) -> list[str]:
    """The whole walk: over chunks, or over what is kept."""
    plain, spread = leaves(Call(name="all_of", positional=values))
    if walk.kept:
        return [*loads(walk, (), spread), *takes(walk, body, store=store)]
    return [walk.loop, *indented([*(walk.fetch or loads(walk, plain, spread)), *takes(walk, body, store=store), *walk.after])]


def elements(plain: tuple[str, ...], spread: tuple[str, ...]) -> dict[str, str]:
    """Text of the element of each tensor as float32."""
    return {name: f"{name}_part[e, turn].to(cutlass.Float32)" for name in (*plain, *spread)}


def level_lines(walk: Walk, found: Plan, depth: int) -> list[str]:
    """The walk of reductions number `depth` (from 1); what is worked out per row before it comes first."""
    level = found.levels[depth - 1]
    values = arguments(level)
    rows, names = row_values(values, found, depth - 1, walk.index)
    body: list[str] = []
    for item, value in zip(level, values, strict=True):
        text = expression(value, elements(found.plain, found.spread), names)
        if text.isidentifier() or len(item.state) == 1:
            body += item.absorb(text, walk.place, walk.index)
        else:
            body += [f"element = {text}", *item.absorb("element", walk.place, walk.index)]
    return [*assigned(rows, walk), *starts(found, depth, walk), *walk_lines(walk, values, body)]


def result_lines(walk: Walk, found: Plan) -> list[str]:
    """The walk that writes a result with an element for each of the row's."""
    rows, names = row_values((found.value,), found, len(found.levels), walk.index)
    body = [f"result[e] = ({expression(found.value, elements(found.plain, found.spread), names)}).to(y.element_type)"]
    return [*assigned(rows, walk), *walk_lines(walk, (outside(found.value),), body, store=True)]


def outside(node: object) -> object:
    """The expression with its reductions left out, for the tensors that are read again."""
    if is_reduction(node):
        return 0
    if isinstance(node, Call) and node.name != "spread":
        return Call(name=node.name, positional=tuple(outside(part) for part in node.positional))
    return node


def starts(found: Plan, depth: int, walk: Walk) -> list[str]:
    """Accumulators before the first element."""
    named = [(name, kind, start) for item in found.levels[depth - 1] for name, kind, start in zip(item.state, item.types, item.starts, strict=True)]
    if not walk.index:
        return [f"{name} = {start}" for name, _, start in named]
    return [*(f"{name} = cute.make_rmem_tensor(cute.make_layout(width), {kind})" for name, kind, _ in named), "for e in cutlass.range_constexpr(width):", *(f"    {name}[e] = {start}" for name, _, start in named)]


def assigned(values: list[tuple[str, str]], walk: Walk, kind: str = "cutlass.Float32") -> list[str]:
    """Lines that name values of a row; one for each column of a vector where the walk has several."""
    if not values:
        return []
    if not walk.index:
        return [f"{name} = {text}" for name, text in values]
    return [*(f"{name} = cute.make_rmem_tensor(cute.make_layout(width), {kind})" for name, _ in values), "for e in cutlass.range_constexpr(width):", *(f"    {name}[e] = {text}" for name, text in values)]
