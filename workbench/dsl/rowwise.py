"""rowwise(expression with reductions) -> one kernel that gives every row, or column, to some threads; long rows in parts take two kernels a walk.

The reduced axis may be contiguous (rows), strided (columns: each thread has a vector of neighbouring columns), or in segments (but(i)).
"""

from __future__ import annotations

import dataclasses

from workbench.dsl import axes, rowparts, strips
from workbench.dsl.expecting import called, empty, expect, expect_axes, expect_some
from workbench.dsl.expressions import SPREAD_TEXT, Spread, check_expression, renamed, spread_fields, spread_lines, vectors_of
from workbench.dsl.ir import Binding, Call, Rejection, Stage, number, setting
from workbench.dsl.levels import Plan, plan
from workbench.dsl.operation import ARCH, AXIS, KEEPDIM, KEPT, THREADS, THREADS_PER_ROW, UNROLL, VECTOR, Operation, Setting
from workbench.dsl.pieces import Parts, expression, functions_used
from workbench.dsl.reductions import FROM_CTA, REDUCTIONS, across, helpers, merge, parts_of
from workbench.dsl.text import format_value
from workbench.dsl.walking import Walk, assigned, indented, level_lines, loads, result_lines
from workbench.records import record

KERNEL = '''
@cute.kernel
def {name}_kernel({parameters}, rows: cutlass.Int32, columns: cutlass.Int32{more}{declared}, width: cutlass.Constexpr, turns: cutlass.Constexpr{ways}):
    """{doc}"""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
{body}


@cute.jit
def {name}({parameters}, rows: cutlass.Int32, columns: cutlass.Int32{more}{declared}, stream: cuda.CUstream, width: cutlass.Constexpr, turns: cutlass.Constexpr{ways}):
    {name}_kernel({arguments}, rows, columns{more_passed}{passed}, width, turns{ways_passed}).launch(grid=[{grid}, 1, 1], block=[{threads}, 1, 1], stream=stream{launch})
'''


@record
class How:
    """The settings of a stage."""

    threads: int
    vector: int
    unroll: int
    kept: bool
    cluster: int
    split: int
    parts: int


def how(stage: Stage, strided: bool) -> How:
    """Settings with their defaults."""
    split = number(stage, "split", 1)
    threads = (number(stage, "threads", 128) if split == 1 else 32 * split) if strided else number(stage, "threads_per_row", 32)
    return How(threads=threads, vector=number(stage, "vector", 1), unroll=number(stage, "unroll", 1), kept=setting(stage, "kept") is not None, cluster=number(stage, "cluster", 1), split=split, parts=number(stage, "parts", 1))


def emit_expression(value: object, axis: object, keepdim: bool, stage: Stage, binding: Binding) -> Parts:
    """Text for an expression with reductions over an axis."""
    value, binding = renamed(value, binding)
    found = plan(value)
    view = axes.view(axis)
    chosen = how(stage, view.strided)
    if chosen.parts > 1:
        return rowparts.emit(found, view, keepdim, chosen, binding)
    if setting(stage, "through") is not None:
        lines = [*tensors_of(found, view, binding, kinds=f"({found.plain[0]}.dtype,)"), *view.sizes]
        parts = strips.emit(found, number(stage, "threads", strips.THREADS), number(stage, "unroll", strips.UNROLL), (lines, result_line(found, view, keepdim)))
        return dataclasses.replace(parts, kernels=helpers(found.reductions, functions_used(found.value)) + parts.kernels)
    kernel = _columns(found, chosen) if view.strided else _rows(found, chosen)
    spread = SPREAD_TEXT if found.spread else ""
    text = helpers(found.reductions, functions_used(found.value)) + spread + kernel
    return Parts(kernels=text, forward="\n".join(_forward(found, view, keepdim, chosen, binding)), imports="import math")


def _rows(found: Plan, chosen: How) -> str:
    threads, warps = chosen.threads, chosen.threads // 32
    bases = tuple(dict.fromkeys(item.base for item in found.reductions))
    span = threads * chosen.cluster
    walk = Walk(loop="" if chosen.kept else f"for first in range(lane, vectors, {span} * turns):", part=f"first + turn * {span}", inside="part < vectors", address="start + part", place="part * width + e")
    lines = ["vectors = columns // width", "start = row * vectors"]
    if chosen.kept:
        lines += ["first = lane  # the thread's vectors of the row stay in registers", *loads(walk, found.plain, ())]
    memory = _memory(found, warps, chosen.cluster)
    shared = ", ".join(("", *(name for name, _ in memory), "thread")) if memory else ""
    for depth, level in enumerate(found.levels, 1):
        lines += level_lines(walk, found, depth)
        for item in level:
            own = ", ".join(item.state)
            if threads > 1:
                passed = "".join(f", {name}" for name in _memory_of(item.base, warps, chosen.cluster)) + (", thread" if shared else "")
                lines.append(f"{own} = across_{item.base}({own}{passed})")
            if (value := item.value("columns")) != item.name:
                lines.append(f"{item.name} = {value}")
    if found.whole:
        lines += result_lines(walk, found)
    else:
        lines += ["if lane == 0:", f"    y[row] = ({expression(found.value, {}, _names(found))}).to(y.element_type)"]
    if threads == 1:
        place, grid, block = ["row = block * 128 + thread", "lane = 0"], "(rows + 127) // 128", 128
    elif threads == 32:
        place, grid, block = ["row = block * 4 + thread // 32", "lane = thread % 32"], "(rows + 3) // 4", 128
    elif chosen.cluster > 1:
        place, grid, block = [f"row = block // {chosen.cluster}  # a cluster of {chosen.cluster} CTAs has one row", f"lane = block % {chosen.cluster} * {threads} + thread"], f"rows * {chosen.cluster}", threads
    else:
        place, grid, block = ["row = block", "lane = thread"], "rows", threads
    if memory:
        place += ["memory = cutlass.memory.SmemAllocator()", *(f"{name} = memory.allocate_tensor({kind}, cute.make_layout({warps + (chosen.cluster > 1)}), 16)" for name, kind in memory)]
    body = indented([*place, "if row < rows:", *indented(lines)])
    functions = "".join(across(base, warps if threads > 32 else 1, chosen.cluster) for base in bases) if threads > 1 else ""
    functions = (FROM_CTA if chosen.cluster > 1 else "") + functions
    doc = f"{chosen.cluster} CTAs" if chosen.cluster > 1 else f"{threads} thread{'s' if threads > 1 else ''}"
    launch = f", cluster=[{chosen.cluster}, 1, 1]" if chosen.cluster > 1 else ""
    return functions + KERNEL.format(**_fields(found), name="rowwise", doc=f"{doc} per row, {_walks(found)}.", body="\n".join(body), grid=grid, threads=block, more="", more_passed="", launch=launch)


def _memory(found: Plan, warps: int, cluster: int) -> list[tuple[str, str]]:
    if warps <= 1 and cluster == 1:
        return []
    named = {name: kind for item in found.reductions for name, kind in zip(_memory_of(item.base, warps, cluster), item.types, strict=True)}
    return list(named.items())


def _memory_of(base: str, warps: int, cluster: int) -> tuple[str, ...]:
    return tuple(f"{name}_memory" for name in parts_of(base)) if warps > 1 or cluster > 1 else ()


def _names(found: Plan, index: str = "") -> dict[Call, str]:
    return {item.call: item.name + index for item in found.reductions}


def _walks(found: Plan) -> str:
    said = [" and ".join(dict.fromkeys(item.op for item in level)) for level in found.levels]
    return ", then ".join([*said, *(["the row"] if found.whole else [])])


def _fields(found: Plan) -> dict[str, str]:
    names = (*found.plain, *found.spread, "y")
    return {"parameters": ", ".join(f"{item}: cute.Tensor" for item in names), "arguments": ", ".join(names), **spread_fields(Spread(names=found.spread))}


def _columns(found: Plan, chosen: How) -> str:
    """x is (batches, rows, columns): every thread has a vector of columns and every split-th row."""
    split, lanes = chosen.split, chosen.threads // chosen.split
    walk = Walk(
        loop="" if chosen.kept else f"for first in range(group, rows, {split} * turns):", part=f"first + turn * {split}", inside="inside & (part < rows)",
        address="(batch * rows + part) * vectors + column", place="part", index="[e]",
    )  # fmt: skip
    lines = [
        "vectors = columns // width", f"blocks = (vectors + {lanes} - 1) // {lanes}", "batch = block // blocks", f"lane = thread % {lanes}", f"group = thread // {lanes}",
        f"column = block % blocks * {lanes} + lane  # in vectors", "inside = column < vectors",
    ]  # fmt: skip
    states = list(dict.fromkeys((name, kind) for item in found.reductions for name, kind in zip(item.state, item.types, strict=True)))
    if split > 1:
        lines += ["memory = cutlass.memory.SmemAllocator()", *(f"{name}_memory = memory.allocate_tensor({kind}, cute.make_layout((width, {lanes}, {split})), 16)" for name, kind in states)]
    if chosen.kept:
        lines += ["first = group  # the thread's vectors stay in registers", *loads(walk, found.plain, ())]
    for depth, level in enumerate(found.levels, 1):
        lines += level_lines(walk, found, depth)
        if split > 1:
            lines += ["for e in cutlass.range_constexpr(width):", *(f"    {name}_memory[e, lane, group] = {name}[e]" for item in level for name in item.state), "cute.arch.sync_threads()"]
            lines += ["for e in cutlass.range_constexpr(width):", *(f"    {name}[e] = {name}_memory[e, lane, 0]" for item in level for name in item.state)]
            inner = []
            for item in level:
                own = tuple(f"{name}[e]" for name in item.state)
                other = tuple(f"{name}_memory[e, lane, other]" for name in item.state)
                inner += merge(item.base, own, other)
            lines += [f"for other in cutlass.range_constexpr(1, {split}):", "    for e in cutlass.range_constexpr(width):", *indented(inner, 2)]
        for item in level:
            if (value := item.value("rows", "[e]")) != f"{item.name}[e]":
                lines += assigned([(item.name, value)], walk, item.types[-1])
    if found.whole:
        lines += result_lines(walk, found)
    else:
        store = ["result = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)", "for e in cutlass.range_constexpr(width):", f"    result[e] = ({expression(found.value, {}, _names(found, '[e]'))}).to(y.element_type)"]
        store += ["cute.autovec_copy(result, y[batch * vectors + column, None])"]
        lines += ["if inside & (group == 0):" if split > 1 else "if inside:", *indented(store)]
    doc = f"{split} groups of {lanes} threads share {lanes} vectors of columns" if split > 1 else "A vector of columns per thread"
    return KERNEL.format(
        **_fields(found), name="rowwise", doc=f"{doc}: {_walks(found)}.", body="\n".join(indented(lines)), grid=f"batches * ((columns // width + {lanes} - 1) // {lanes})", threads=chosen.threads,
        more=", batches: cutlass.Int32", more_passed=", batches", launch="",
    )  # fmt: skip


def tensors_of(found: Plan, view: axes.View, binding: Binding, *, kinds: str = "EXACT", pieces: bool = False, vector: int = 1) -> list[str]:
    """Lines of forward that take the tensors, refuse what does not fit, and make those of the full shape contiguous; `kinds` are the types of all but the first; with `pieces` there may be any number of elements.

    An extent, which counts vectors, is less than 2**31: single elements are one less than what vectors may have.
    """
    bound = dict(binding.operands)
    names = (*found.plain, *found.spread)
    lines = [f"{', '.join(names)} = {', '.join(f'{bound.get(name, name)}.detach()' for name in names)}", f"shape = {found.plain[0]}.shape"]
    first = found.plain[0]
    lines += [expect_axes(called(first, bound), first, view.least)] if view.least else []
    lines += [expect(called(name, bound), name, "shape", "" if name == first else kinds, spread=name in found.spread) for name in names]
    lines += [f"{name} = {name}.contiguous()" for name in found.plain]
    if pieces:
        return lines
    most = "(1 << 31) - 1" if view.left == "()" or vector == 1 else "1 << 31"
    return [*lines, f"if {first}.numel() > {most}:", f'    raise ValueError("{first} has too many elements for 32-bit places, 2**31 and more")']


def _forward(found: Plan, view: axes.View, keepdim: bool, chosen: How, binding: Binding) -> list[str]:
    lines = [*tensors_of(found, view, binding, vector=chosen.vector), *view.sizes]
    lines += result_line(found, view, keepdim)
    lines += width_lines(found, chosen, view, ("y",) if found.whole or view.strided else ())
    spread = Spread(names=found.spread)
    lines += spread_lines(spread)
    if chosen.kept:
        length, span = ("rows", chosen.split) if view.strided else ("columns // width", chosen.threads * chosen.cluster)
        lines.append(f"turns = max(-(-{length} // {span}), 1)  # vectors of a row that each thread keeps" if not view.strided else f"turns = max(-(-{length} // {span}), 1)  # vectors that each thread keeps")
    else:
        lines.append(f"turns = {chosen.unroll} * {chosen.vector} // width" if chosen.vector > 1 else f"turns = {chosen.unroll}")
    tensors = [vectors_of(name) for name in found.plain] + [spread.tensor(name) for name in found.spread]
    tensors.append(vectors_of("y") if found.whole or view.strided else "from_dlpack(y.view(-1)).mark_layout_dynamic()")
    constants = ", ".join(("width", "turns", *spread.ways))
    key = ", ".join((*(f"{name}.dtype" for name in (*found.plain, *found.spread)), constants))
    numbers = ", ".join(f"cutlass.Int32({name})" for name in (("rows", "columns", "batches") if view.strided else ("rows", "columns")))
    numbers = ", ".join((numbers, *spread.sizes))
    return [*lines, f"call(rowwise, ({key}), (", *(f"    {item}," for item in tensors), f"    {numbers},", f"), ({constants},))", "return y"]


def result_line(found: Plan, view: axes.View, keepdim: bool) -> list[str]:
    """Lines of forward that allocate y."""
    shape = "shape" if found.whole else view.kept if keepdim else view.left
    first = found.plain[0]
    without = [item.op for item in found.reductions if "inf" in item.starts[0]]  # reductions that have no value where there are no elements
    nothing = expect_some(first, first, f"{first}.numel()", without[0]) if without and not found.whole else []
    kind = "torch.int64" if found.places else f"{found.plain[0]}.dtype"
    return [f"y = torch.empty({shape}, dtype={kind}, device={found.plain[0]}.device)", *empty("y"), *nothing]


def width_lines(found: Plan, chosen: How, view: axes.View, results: tuple[str, ...]) -> list[str]:
    """Lines of forward that choose how many elements an access moves."""
    if chosen.vector == 1:
        return ["width = 1"]
    starts = " | ".join(f"{name}.data_ptr()" for name in (*found.plain, *results))
    return [f"width = {chosen.vector} if {view.run} % {chosen.vector} == 0 and ({starts}) % 16 == 0 else 1"]


SPLIT = Setting(name="split", values=(1, 2, 4, 8, 16, 32), reason="a CTA has at most 32 warps")
CLUSTER = Setting(name="cluster", values=(1, 2, 4, 8), reason="a cluster has at most 8 CTAs", meaning="the {values} CTAs of a cluster share a row")
PARTS = Setting(name="parts", values=(1, 8, 32, 128, 512, 1024), closed=False)
THROUGH = Setting(name="through", values=("shared",), closed=False, meaning="rows come to shared memory by bulk copies, ahead of the threads that reduce them, wherever they begin")
SETTINGS = (ARCH, THREADS_PER_ROW, VECTOR, UNROLL, KEPT, CLUSTER, THREADS, SPLIT, PARTS, THROUGH)


def emit(stage: Stage, binding: Binding) -> Parts:
    """rowwise(expression, axis=last, keepdim=0)."""
    named = dict(stage.operation.named)
    return emit_expression(stage.operation.positional[0], named.get("axis", "last"), bool(named.get("keepdim", 0)), stage, binding)


def check(stage: Stage) -> list[Rejection]:
    """Rejections of the expression, the axis, and of settings that do not go together."""
    if not stage.operation.positional:
        return [Rejection(field="rowwise", value="", reason="needs an expression", legal="for example div(x, sum(x))")]
    value = stage.operation.positional[0]
    return check_expression(value, REDUCTIONS) or check_axis(dict(stage.operation.named).get("axis", "last")) or check_settings(stage, value, dict(stage.operation.named).get("axis", "last"))


def check_axis(axis: object) -> list[Rejection]:
    """An axis that is none."""
    return [] if axes.known(axis) else [Rejection(field="axis", value=format_value(axis), reason="no such axis", legal="last, last(n), first, middle, all, a number from 0, over(i, j), but(i)")]


def check_settings(stage: Stage, value: object, axis: object) -> list[Rejection]:
    """Settings that do not go together with each other, the axis or the expression."""
    found, view = plan(value), axes.view(axis)
    chosen = how(stage, view.strided)
    said: list[Rejection] = strips.check(stage, found, view)
    if not found.levels or not found.plain:
        said.append(Rejection(field="rowwise", value="", reason="nothing is reduced" if found.plain else "no tensor has the full shape", legal="elementwise(expression), or a reduction such as sum(x)"))
        return said
    if chosen.parts < 1:
        said.append(Rejection(field="parts", value=str(chosen.parts), reason="a row has at least one part", legal="1 to 1024"))
    if chosen.parts > 1 and not view.strided and chosen.threads < 32:
        said.append(Rejection(field="parts", value=str(chosen.parts), reason=f"whole warps put a part together, and threads_per_row({chosen.threads}) gives a row less than one", legal="with threads_per_row from 32"))
    if chosen.kept and chosen.parts > 1:
        said.append(Rejection(field="kept", value="", reason="a row in parts is read by several kernels, so it is not kept", legal="kept without parts"))
    if chosen.cluster > 1 and (view.strided or chosen.threads < 64 or chosen.parts > 1 or setting(stage, "arch") != "sm_90a"):
        said.append(Rejection(field="cluster", value=str(chosen.cluster), reason="CTAs of a cluster share a contiguous row, whole, on sm_90a", legal="with arch(sm_90a), threads_per_row from 64, axis=last, without parts"))
    if view.strided and chosen.parts > 1 and found.whole:
        said.append(Rejection(field="parts", value=str(chosen.parts), reason="along a strided axis only a reduction is done in parts", legal="1"))
    if view.segments and chosen.parts == 1:
        said.append(Rejection(field="parts", value="1", reason="all but one axis is reduced in parts", legal="from 2"))
    if view.strided and chosen.split > 1 and chosen.vector * chosen.split * 32 * 4 * sum(len(item.state) for item in found.reductions) > 48 * 1024:
        said.append(Rejection(field="split", value=str(chosen.split), reason="the groups do not fit into 48 KB of shared memory", legal="a smaller split or vector"))
    if found.places and chosen.parts > 1 and view.segments:
        said.append(Rejection(field="parts", value=str(chosen.parts), reason="a place over all but one axis is not numbered", legal="argmax over one axis, or all"))
    return said


OPERATIONS = (
    Operation(
        name="rowwise",
        about="rowwise(expression, axis=last|last(n)|first|middle|all|i|over(i, j)|but(i), keepdim=0|1): an expression in which "
        + ", ".join(REDUCTIONS) + " of one argument reduce over the axis, such as div(x, sqrt(sum(mul(x, x)))); spread(b): b is broadcast; parts(n): n CTAs share a row, cluster(n): n CTAs through each other's shared memory",
        settings=SETTINGS, emit=emit, check=check, arguments=(AXIS, KEEPDIM),
    ),
)  # fmt: skip
