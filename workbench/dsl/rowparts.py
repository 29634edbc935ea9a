"""Long rows in parts: for every walk a kernel that reduces parts of rows and one that puts the parts together, always in the same order.

Where the result has an element for each of the row's, a last kernel writes it, from the end of the tensor to its start: what the walk
before it read last is still in the L2 cache.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from workbench.dsl.axes import View
from workbench.dsl.expressions import SPREAD_TEXT, Spread, leaves, spread_fields, spread_lines, vectors_of
from workbench.dsl.ir import Binding, Call
from workbench.dsl.levels import Plan, arguments, known
from workbench.dsl.pieces import Parts, expression, functions_used
from workbench.dsl.reductions import Reduction, across, helpers, merge, parts_of
from workbench.dsl.walking import Walk, indented, level_lines, loads, result_lines

if TYPE_CHECKING:
    from workbench.dsl.rowwise import How

KERNEL = '''
@cute.kernel
def {name}_kernel({parameters}, rows: cutlass.Int32, columns: cutlass.Int32, parts: cutlass.Int32{more}{declared}, width: cutlass.Constexpr, turns: cutlass.Constexpr{ways}):
    """{doc}"""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
{body}


@cute.jit
def {name}({parameters}, rows: cutlass.Int32, columns: cutlass.Int32, parts: cutlass.Int32{more}{declared}, stream: cuda.CUstream, width: cutlass.Constexpr, turns: cutlass.Constexpr{ways}):
    {name}_kernel({arguments}, rows, columns, parts{more_passed}{passed}, width, turns{ways_passed}).launch(grid=[{grid}, 1, 1], block=[{threads}, 1, 1], stream=stream)
'''
FINISH = '''
@cute.kernel
def {name}_kernel({parameters}, results: cutlass.Int32, parts: cutlass.Int32, inner: cutlass.Int32, count: cutlass.Float32):
    """{doc} puts the parts of one result together."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
{place}
    if row < results:
{body}


@cute.jit
def {name}({parameters}, results: cutlass.Int32, parts: cutlass.Int32, inner: cutlass.Int32, count: cutlass.Float32, stream: cuda.CUstream):
    {name}_kernel({arguments}, results, parts, inner, count).launch(grid=[{grid}, 1, 1], block=[{threads}, 1, 1], stream=stream)
'''


def emit(found: Plan, view: View, keepdim: bool, chosen: How, binding: Binding) -> Parts:
    """Kernels and forward."""
    from workbench.dsl.rowwise import result_line, tensors_of, width_lines

    threads = chosen.threads
    bases = tuple(dict.fromkeys(item.base for item in found.reductions))
    text = helpers(found.reductions, functions_used(found.value)) + (SPREAD_TEXT if found.spread else "")
    end = 32 if view.strided else 1024 if chosen.parts >= 2048 else threads
    for kind, warps in {_kind(threads if not view.strided else 32): threads // 32 if not view.strided else 1, _kind(end): end // 32}.items():
        text += "".join(across(base, warps).replace(f"def across_{base}(", f"def across_{kind}{base}(") for base in bases)
    pieces = view.left == "()" and len(found.levels) == 1 and not found.whole and not found.places
    if pieces:
        text += _partial(found, 1, chosen, view, []) + _finish(found, 1, True, end)
        return Parts(kernels=text, forward="\n".join(_in_pieces(found, view, keepdim, chosen, binding)), imports="import math")
    lines = [*tensors_of(found, view, binding, vector=chosen.vector), *view.sizes, *result_line(found, view, keepdim), *width_lines(found, chosen, view, ("y",) if found.whole else ())]
    lines += spread_lines(Spread(names=found.spread))
    lines += _share(view, chosen)
    done: list[str] = []
    for depth, level in enumerate(found.levels, 1):
        last = depth == len(found.levels) and not found.whole
        text += _partial_columns(found, depth, chosen) if view.strided else _partial(found, depth, chosen, view, done)
        text += _finish(found, depth, last, end)
        lines += _launches(found, depth, view, done, last)
        done += [] if last else [item.name for item in level]
    if found.whole:
        text += _apply(found, chosen, view, done)
        names = tuple(leaves_of((found.value,), found))
        lines += [f"parts = max(-(-(columns // width) // ({threads} * turns)), 1)  # chunks of a row"]
        lines += _call("apply", names, done, ("y",), found, view, "x")
    return Parts(kernels=text, forward="\n".join([*lines, "return y"]), imports="import math")


def _in_pieces(found: Plan, view: View, keepdim: bool, chosen: How, binding: Binding) -> list[str]:
    """The body of forward where everything is reduced, in one walk: pieces of any tensor, each in parts; all parts are put together at once."""
    from workbench.dsl.rowwise import result_line, tensors_of, width_lines

    level = found.levels[0]
    names = (*found.spread, *found.plain)
    states = [(f"{name}_parts", kind) for item in level for name, kind in zip(item.state, item.types, strict=True)]
    body = [*(["shape = " + found.plain[0] + ".shape"] if found.spread else []), f"rows, columns = 1, {found.plain[0]}.numel()", *width_lines(found, chosen, view, ()), *spread_lines(Spread(names=found.spread))]
    body += [f"turns = {chosen.unroll} * {chosen.vector} // width" if chosen.vector > 1 else f"turns = {chosen.unroll}"]
    own = {name: f"{name}[number * parts :][:parts]" for name, _ in states}
    body += [next((line.replace(f"from_dlpack({name})", f"from_dlpack({text})") for name, text in own.items() if f"from_dlpack({name})" in line), line) for line in _call("partial_1", tuple(leaves_of(arguments(level), found)), [], tuple(own), found, view)]
    return [
        *tensors_of(found, view, binding, pieces=True), *result_line(found, view, keepdim), f"pieces = in_pieces({', '.join(names)})",
        f"parts = max(min({chosen.parts}, shape.numel() // len(pieces) // {chosen.unroll * chosen.vector * chosen.threads}), 1)  # CTAs that share a piece",
        "count, results = shape.numel(), len(pieces) * parts", *(f"{name} = torch.empty(results, dtype=torch.{'int32' if 'Int' in kind else 'float32'}, device={found.plain[0]}.device)" for name, kind in states),
        f"for number, ({', '.join(names)}{',' if len(names) == 1 else ''}) in enumerate(pieces):", *indented(body), *_finish_call(found, 1, True, ("1", "results", "1", "count")), "return y",
    ]  # fmt: skip


def _kind(threads: int) -> str:
    """What the functions that combine so many threads are called."""
    return "" if threads == 32 else f"{threads // 32}_warps_"


def leaves_of(values: tuple[object, ...], found: Plan) -> list[str]:
    """The tensors that expressions read outside the reductions that are done, in the plan's order."""
    from workbench.dsl.walking import outside

    plain, spread = leaves(Call(name="all_of", positional=tuple(outside(value) for value in values)))
    return [name for name in (*found.plain, *found.spread) if name in (*plain, *spread)]


def _share(view: View, chosen: How) -> list[str]:
    if view.strided:
        return [f"parts = max(min({chosen.parts}, rows // {chosen.split * chosen.unroll}), 1)  # parts of a column", f"turns = {chosen.unroll}"]
    turns = f"turns = {chosen.unroll} * {chosen.vector} // width" if chosen.vector > 1 else f"turns = {chosen.unroll}"
    return [turns, f"parts = max(min({chosen.parts}, columns // (width * turns * {chosen.threads})), 1)  # CTAs that share a row"]


def _fields(names: list[str], done: list[str], results: list[str], found: Plan) -> dict[str, str]:
    all_names = [*names, *(f"{name}_rows" for name in done), *results]
    spread = Spread(names=tuple(name for name in names if name in found.spread))
    return {"parameters": ", ".join(f"{name}: cute.Tensor" for name in all_names), "arguments": ", ".join(all_names), **spread_fields(spread)}


def _walk(chosen: How, view: View) -> Walk:
    address = "(part // segment * rows + row) * segment + part % segment" if view.segments else "row * vectors + part"
    return Walk(loop=f"for first in range(begin + thread, end, {chosen.threads} * turns):", part=f"first + turn * {chosen.threads}", inside="part < end", address=address, place="part * width + e")


def _head(view: View) -> list[str]:
    lines = ["row = block // parts", "vectors = columns // width", *(["segment = length // width  # vectors of a contiguous piece of the row"] if view.segments else [])]
    return [*lines, "share = (vectors + parts - 1) // parts", "begin = block % parts * share", "end = cutlass.min(begin + share, vectors)"]


def _given(done: list[str], found: Plan, depth: int) -> list[str]:
    return [f"{item.name} = {item.name}_rows[row]" for item in found.reductions if item.name in done and item.call in known(found, depth)]


def _partial(found: Plan, depth: int, chosen: How, view: View, done: list[str]) -> str:
    level = found.levels[depth - 1]
    threads, warps = chosen.threads, chosen.threads // 32
    lines = [*_head(view), *_given(done, found, depth)]
    lines += _memory(level, warps)
    lines += level_lines(_walk(chosen, view), found, depth)
    results = []
    for item in level:
        own = ", ".join(item.state)
        lines.append(f"{own} = across_{_kind(threads)}{item.base}({own}{_memory_text(item) if warps > 1 else ''})")
        results += [f"{name}_parts" for name in item.state]
    lines += ["if thread == 0:", *(f"    {name}_parts[block] = {name}" for item in level for name in item.state)]
    names = leaves_of(arguments(level), found)
    more = ", length: cutlass.Int32" if view.segments else ""
    return KERNEL.format(
        **_fields(names, _wanted(done, found, depth), results, found), name=f"partial_{depth}", doc=f"A CTA per part of a row: {', '.join(dict.fromkeys(item.op for item in level))}.",
        body="\n".join(indented(lines)), grid="rows * parts", threads=threads, more=more, more_passed=", length" if more else "",
    )  # fmt: skip


def _memory(level: tuple[Reduction, ...], warps: int) -> list[str]:
    if warps == 1:
        return []
    kinds = {f"{name}_memory": kind for item in level for name, kind in zip(parts_of(item.base), item.types, strict=True)}
    return ["memory = cutlass.memory.SmemAllocator()", *(f"{name} = memory.allocate_tensor({kind}, cute.make_layout({warps}), 16)" for name, kind in kinds.items())]


def _memory_text(item: Reduction) -> str:
    return "".join(f", {name}_memory" for name in parts_of(item.base)) + ", thread"


def _wanted(done: list[str], found: Plan, depth: int) -> list[str]:
    return [item.name for item in found.reductions if item.name in done and item.call in known(found, depth)]


def _partial_columns(found: Plan, depth: int, chosen: How) -> str:
    """x is (batches, rows, columns): a part has `share` rows of its columns."""
    level = found.levels[depth - 1]
    split, lanes = chosen.split, chosen.threads // chosen.split
    walk = Walk(loop=f"for first in range(begin + group, end, {split} * turns):", part=f"first + turn * {split}", inside="inside & (part < end)", address="(batch * rows + part) * vectors + column", place="part", index="[e]")
    lines = [
        "vectors = columns // width", f"blocks = (vectors + {lanes} - 1) // {lanes}", "piece = block // blocks  # batch * parts + part", "batch = piece // parts", f"lane = thread % {lanes}", f"group = thread // {lanes}",
        f"column = block % blocks * {lanes} + lane  # in vectors", "inside = column < vectors", "share = (rows + parts - 1) // parts", "begin = piece % parts * share", "end = cutlass.min(begin + share, rows)",
    ]  # fmt: skip
    states = [(name, kind) for item in level for name, kind in zip(item.state, item.types, strict=True)]
    if split > 1:
        lines += ["memory = cutlass.memory.SmemAllocator()", *(f"{name}_memory = memory.allocate_tensor({kind}, cute.make_layout((width, {lanes}, {split})), 16)" for name, kind in states)]
    lines += level_lines(walk, found, depth)
    if split > 1:
        lines += ["for e in cutlass.range_constexpr(width):", *(f"    {name}_memory[e, lane, group] = {name}[e]" for name, _ in states), "cute.arch.sync_threads()"]
        merged = [line for item in level for line in merge(item.base, tuple(f"{name}[e]" for name in item.state), tuple(f"{name}_memory[e, lane, other]" for name in item.state))]
        lines += [f"for other in cutlass.range_constexpr(1, {split}):", "    if group == 0:", "        for e in cutlass.range_constexpr(width):", *indented(merged, 3)]
    lines += ["if inside & (group == 0):", "    for e in cutlass.range_constexpr(width):", *(f"        {name}_parts[(piece * vectors + column) * width + e] = {name}[e]" for name, _ in states)]
    fields = _fields(leaves_of(arguments(level), found), [], [f"{name}_parts" for name, _ in states], found)
    return KERNEL.format(
        **fields, name=f"partial_{depth}", doc=f"A part of the rows of some columns per CTA: {', '.join(dict.fromkeys(item.op for item in level))}.", body="\n".join(indented(lines)),
        grid=f"batches * parts * ((columns // width + {lanes} - 1) // {lanes})", threads=chosen.threads, more=", batches: cutlass.Int32", more_passed=", batches",
    )  # fmt: skip


def _finish(found: Plan, depth: int, last: bool, threads: int) -> str:
    """`threads` threads per result: a CTA, or one of four warps."""
    level = found.levels[depth - 1]
    warps = threads // 32
    lines: list[str] = []
    for item in level:
        lines += [f"{name} = {start}" for name, start in zip(item.state, item.starts, strict=True)]
    lines += [f"for part in range(lane, parts, {threads}):", "    place = (row // inner * parts + part) * inner + row % inner"]
    for item in level:
        lines += indented(merge(item.base, item.state, tuple(f"{name}_parts[place]" for name in item.state)))
    for item in level:
        own = ", ".join(item.state)
        lines.append(f"{own} = across_{_kind(threads)}{item.base}({own}{_memory_text(item) if warps > 1 else ''})")
    if last:
        earlier = [f"{item.name} = {item.name}_rows[row]" for item in found.reductions if item not in level]
        values = [f"{item.name} = {item.value('count')}" for item in level if item.value("count") != item.name]
        lines += [*earlier, *values, "if lane == 0:", f"    y[row] = ({expression(found.value, {}, known(found, depth))}).to(y.element_type)"]
    else:
        lines += ["if lane == 0:", *(f"    {item.name}_rows[row] = {item.value('count')}" for item in level)]
    names = _finish_names(found, level, last)
    place = ["row = block", "lane = thread", *_memory(level, warps)] if warps > 1 else ["row = block * 4 + thread // 32", "lane = thread % 32"]
    return FINISH.format(doc="A CTA" if warps > 1 else "A warp", place="\n".join(indented(place)), grid="results" if warps > 1 else "(results + 3) // 4", threads=threads if warps > 1 else 128, name=f"finish_{depth}", parameters=", ".join(f"{name}: cute.Tensor" for name in names), arguments=", ".join(names), body="\n".join(indented(lines, 2)))


def _finish_names(found: Plan, level: tuple[Reduction, ...], last: bool) -> list[str]:
    names = [f"{name}_parts" for item in level for name in item.state]
    return names + ([f"{item.name}_rows" for item in found.reductions if item not in level] + ["y"] if last else [f"{item.name}_rows" for item in level])


def _apply(found: Plan, chosen: How, view: View, done: list[str]) -> str:
    """As many CTAs as there are chunks: neighbours write what is next to each other, and no CTA ends much later than others."""
    walk = dataclasses.replace(_walk(chosen, view), loop="", inside="part < vectors")
    plain = tuple(name for name in leaves_of((found.value,), found) if name in found.plain)
    lines = [
        "block = rows * parts - 1 - block  # from the end: what was read last is still in the L2 cache", "row = block // parts", "vectors = columns // width", *(["segment = length // width"] if view.segments else []),
        f"first = block % parts * ({chosen.threads} * turns) + thread", *loads(walk, plain, ()), *(f"{name} = {name}_rows[row]" for name in done), *result_lines(walk, found),
    ]  # fmt: skip
    more = ", length: cutlass.Int32" if view.segments else ""
    return KERNEL.format(
        **_fields(leaves_of((found.value,), found), done, ["y"], found), name="apply", doc="A CTA per chunk of a row writes the result.", body="\n".join(indented(lines)),
        grid="rows * parts", threads=chosen.threads, more=more, more_passed=", length" if more else "",
    )  # fmt: skip


def _launches(found: Plan, depth: int, view: View, done: list[str], last: bool) -> list[str]:
    level = found.levels[depth - 1]
    count, inner, results = ("rows", "columns", "batches * columns") if view.strided else ("columns", "1", "rows")
    device = f"device={found.plain[0]}.device"
    lines = []
    for item in level:
        for name, kind in zip(item.state, item.types, strict=True):
            lines.append(f"{name}_parts = torch.empty({results} * parts, dtype=torch.{'int32' if 'Int' in kind else 'float32'}, {device})")
        if not last:
            lines.append(f"{item.name}_rows = torch.empty({results}, dtype=torch.{'int32' if item.base.startswith('arg') else 'float32'}, {device})")
    names = tuple(leaves_of(arguments(level), found))
    lines += _call(f"partial_{depth}", names, _wanted(done, found, depth), tuple(f"{name}_parts" for item in level for name in item.state), found, view)
    return [*lines, *_finish_call(found, depth, last, (results, "parts", inner, count))]


def _finish_call(found: Plan, depth: int, last: bool, numbers: tuple[str, str, str, str]) -> list[str]:
    """The launch that puts parts together; `numbers`: results, parts of each, how many results lie between them, elements of each."""
    tensors = [f"from_dlpack({name}{'.view(-1)' if name == 'y' else ''}).mark_layout_dynamic()" for name in _finish_names(found, found.levels[depth - 1], last)]
    results, parts, inner, count = numbers
    return [
        f"call(finish_{depth}, {'y.dtype' if last else '()'}, (", *(f"    {item}," for item in tensors),
        f"    cutlass.Int32({results}), cutlass.Int32({parts}), cutlass.Int32({inner}), cutlass.Float32({count}),", "))",
    ]  # fmt: skip


def _call(function: str, names: tuple[str, ...], done: list[str], results: tuple[str, ...], found: Plan, view: View, aligned: str = "") -> list[str]:
    spread = Spread(names=tuple(name for name in names if name in found.spread))
    tensors = [spread.tensor(name) if name in found.spread else vectors_of(name) for name in names]
    tensors += [f"from_dlpack({name}_rows).mark_layout_dynamic()" for name in done]
    tensors += [vectors_of(name) if aligned else f"from_dlpack({name}).mark_layout_dynamic()" for name in results]
    constants = ", ".join(("width", "turns", *spread.ways))
    key = ", ".join((*(f"{name}.dtype" for name in names), constants))
    sizes = ["rows", "columns", "parts", *(["segment"] if view.segments else []), *(["batches"] if view.strided else [])]
    numbers = ", ".join((*(f"cutlass.Int32({name})" for name in sizes), *spread.sizes))
    return [f"call({function}, ({key}), (", *(f"    {item}," for item in tensors), f"    {numbers},", f"), ({constants},))"]
