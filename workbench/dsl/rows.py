"""softmax, layernorm, rmsnorm, reduce, matvec, crossentropy -> kernels over the rows of a matrix, with 1, 32 or more threads per row.

The loops are in `rowloops`; what these kernels do not reach is an expression (`named`) of `rowwise`. With `.kept()` each thread loads its part of the row into registers once, however often the kernel walks over it.
"""

from __future__ import annotations

import dataclasses
import textwrap

from workbench.dsl import matvec, middle, rowwise
from workbench.dsl.expecting import called, empty, expect, expect_axes, expect_some
from workbench.dsl.expressions import check_expression
from workbench.dsl.ir import Binding, Rejection, Stage, number, setting
from workbench.dsl.named import expansion, is_new
from workbench.dsl.operation import (
    AFFINE,
    ARCH,
    AXIS,
    EPS,
    KEEPDIM,
    KEPT,
    THREADS,
    THREADS_PER_ROW,
    UNROLL,
    VECTOR,
    Operation,
    Setting,
    flag,
    one_of,
    unwanted,
)
from workbench.dsl.pieces import Parts
from workbench.dsl.reductions import COMBINE, REDUCTIONS
from workbench.dsl.rowloops import Row, fill

WARP_REDUCE = '''
@cute.jit
def across_{op}(value):
    """Combine over the 32 threads of a warp; every thread gets the result."""
    for step in cutlass.range_constexpr(5):
        other = cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
        value = {combine}
    return value

'''
CTA_REDUCE = '''
@cute.jit
def across_{op}(value, scratch, thread):
    """Combine over the CTA: warps by shuffle, then through shared memory; every thread gets the result."""
    for step in cutlass.range_constexpr(5):
        other = cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
        value = {combine}
    if thread % 32 == 0:
        scratch[thread // 32] = value
    cute.arch.sync_threads()
    value = scratch[0]
    for warp in cutlass.range_constexpr(1, THREADS_PER_ROW // 32):
        other = scratch[warp]
        value = {combine}
    cute.arch.sync_threads()
    return value

'''
KERNEL = '''
@cute.kernel
def {name}_kernel({parameters}, rows: cutlass.Int32, columns: cutlass.Int32{constexpr}):
    """{doc}"""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
{place}
    if row < rows:
{body}


@cute.jit
def {name}({parameters}, rows: cutlass.Int32, columns: cutlass.Int32, stream: cuda.CUstream{constexpr}):
    blocks = {blocks}
    {name}_kernel({arguments}, rows, columns{pass_constexpr}).launch(grid=[blocks, 1, 1], block=[{block}, 1, 1], stream=stream)
'''
CLOSING = {"mean": ("averages", "total / count"), "sum": ("adds", "total")}
TOTAL = '''

@cute.kernel
def total_kernel(losses: cute.Tensor, target: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32):
    """One CTA of 1024 threads {doc} the losses of all rows but those that are ignored, whose class is below 0."""
    thread, _, _ = cute.arch.thread_idx()
    memory = cutlass.memory.SmemAllocator()
    totals = memory.allocate_tensor(cutlass.Float32, cute.make_layout(32), 16)
    counts = memory.allocate_tensor(cutlass.Int32, cute.make_layout(32), 16)
    total = cutlass.Float32(0.0)
    count = cutlass.Int32(0)
    for row in range(thread, rows, 1024):
        if target[row] >= 0:
            total += losses[row]
            count += 1
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=16 >> step)
        count += cute.arch.shuffle_sync_bfly(count, offset=16 >> step)
    if thread % 32 == 0:
        totals[thread // 32] = total
        counts[thread // 32] = count
    cute.arch.sync_threads()
    if thread < 32:
        total = totals[thread]
        count = counts[thread]
        for step in cutlass.range_constexpr(5):
            total += cute.arch.shuffle_sync_bfly(total, offset=16 >> step)
            count += cute.arch.shuffle_sync_bfly(count, offset=16 >> step)
        if thread == 0:
            out[0] = ({closing}).to(out.element_type)


@cute.jit
def total_of(losses: cute.Tensor, target: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32, stream: cuda.CUstream):
    total_kernel(losses, target, out, rows).launch(grid=[1, 1, 1], block=[1024, 1, 1], stream=stream)
'''


def emit(stage: Stage, binding: Binding) -> Parts:
    """Text of a row kernel; reduce over a middle axis has a kernel of its own."""
    named = dict(stage.operation.named)
    if setting(stage, "rows") is not None:
        return matvec.emit(stage, binding)
    if stage.operation.name in GENERAL and is_new(stage):
        if stage.operation.name == "matvec":
            bound = dict(binding.operands)
            binding = dataclasses.replace(binding, operands=tuple((bound | {"vector": f"{bound.get('vector', 'vector')}.reshape(-1)"}).items()))
        return rowwise.emit_expression(expansion(stage), named.get("axis", "last"), bool(named.get("keepdim", 0)), stage, binding)
    if stage.operation.name == "reduce" and named.get("axis") == "middle":
        return middle.emit(stage, binding)
    threads, vector = number(stage, "threads_per_row", 1), number(stage, "vector", 1)
    ops = {"softmax": ("max", "sum"), "crossentropy": ("max", "sum") if dict(stage.operation.named).get("logits", 1) else (), "reduce": (("sum" if named.get("op") == "mean" else str(named.get("op", "sum"))),)}.get(stage.operation.name, ("sum",))
    kept = vector > 1 and setting(stage, "kept") is not None
    row = Row(threads, vector, kept)
    doc, extra, whole = fill(row, stage)
    name = stage.operation.name
    parameters = ", ".join(part for part in ("x: cute.Tensor", extra, "y: cute.Tensor") if part)
    arguments = ", ".join(part.split(":")[0].strip() for part in parameters.split(","))
    place, blocks, block = _placement(threads)
    text = f"\nTHREADS_PER_ROW = {threads}\n"
    if threads > 1:
        template = WARP_REDUCE if threads == 32 else CTA_REDUCE
        text += "\n".join(template.format(op=op, combine=COMBINE[op].format(a="value", b="other")) for op in ops)
    text += KERNEL.format(
        name=name, parameters=parameters, arguments=arguments, doc=doc, place=textwrap.indent(place, "    "), body=textwrap.indent("\n".join(row.lines), " " * 8), blocks=blocks, block=block,
        constexpr=", width: cutlass.Constexpr" * (vector > 1) + ", turns: cutlass.Constexpr" * kept, pass_constexpr=", width" * (vector > 1) + ", turns" * kept,
    )  # fmt: skip
    if name == "crossentropy" and (closing := CLOSING.get(str(dict(stage.operation.named).get("reduction", "mean")))):
        text += TOTAL.format(doc=closing[0], closing=closing[1])
    return Parts(kernels=text, forward=_forward(stage, binding, name, arguments, vector, whole, kept))


def _placement(threads: int) -> tuple[str, str, int]:
    """Which row and lane a thread has, how many CTAs there are, threads per CTA."""
    if threads == 1:
        return "row = block * 128 + thread\nlane = 0", "(rows + 127) // 128", 128
    if threads == 32:
        return "row = block * 4 + thread // 32\nlane = thread % 32", "(rows + 3) // 4", 128
    return f"scratch = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout({threads // 32}), 16)\nrow = block\nlane = thread", "rows", threads


def _forward(stage: Stage, binding: Binding, name: str, arguments: str, vector: int, whole: bool, kept: bool) -> str:
    bound = dict(binding.operands)
    x = bound.get("x", "x")
    along = [item for item in ("weight", "bias", "vector") if item in arguments.replace(",", "").split()]
    flat = (*along, *(["target"] if name == "crossentropy" else []))
    result = "y.unsqueeze(-1)" if named_keepdim(stage) else "y"
    names = ", ".join(("x", *flat))  # assigned together: an argument of forward may have one of these names
    values = ", ".join((f"{x}.contiguous()", *(f"{bound.get(item, item)}.detach(){'.reshape(-1)' if item in along else ''}" for item in flat)))
    lines = [f"{names} = {values}", expect_axes(called("x", bound), "x", 1), expect(called("x", bound), "x", "x.shape"), "rows, columns = x.shape[:-1].numel(), x.shape[-1]", "x2 = x.view(rows, columns)"]
    lines += [expect(called(item, bound), item, "(columns,)" if item in along else "x.shape[:-1]", "EXACT" if item in along else "INDICES") for item in flat]
    lines += ["target = target.reshape(-1)"] if name == "crossentropy" else []
    lines += ["y = torch.empty_like(x)", *empty("y"), "y2 = y.view(rows, columns)"] if whole else []
    if name in ("reduce", "matvec"):
        op = dict(stage.operation.named).get("op", "sum")
        lines += ["y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)", *empty("y", result), *(expect_some(called("x", bound), "x", "columns", str(op)) if op in ("max", "min") else ()), "y2 = y.view(-1)"]
    if name == "crossentropy":
        single = dict(stage.operation.named).get("reduction", "mean") == "none"
        lines += ["y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)", *empty("y"), "y2 = y.view(-1)"] if single else ["y = torch.empty(rows, dtype=torch.float32, device=x.device)", "y2 = y", "out = torch.empty((), dtype=x.dtype, device=x.device)"]
    align, body = "", list[str]()
    if vector > 1:
        starts = " | ".join(f"{item}.data_ptr()" for item in ("x2", *(["y2"] if whole else []), *along))
        body += [f"# vectors of {vector} where every row and every start allows it", f"width = {vector} if columns % {vector} == 0 and ({starts}) % 16 == 0 else 1"]
        align = ", assumed_align=16 if width > 1 else None"
    if kept:
        body += ["turns = -(-columns // (width * THREADS_PER_ROW))  # vectors of the row that each thread keeps"]
    wide = vector > 1  # vector accesses count in vectors over the flattened rows, so that their alignment is known
    tensors: dict[str, str] = {
        "x": f"from_dlpack(x2{'.view(-1)' if wide else ''}{align}).mark_layout_dynamic({'' if wide else 'leading_dim=1'})",
        "y": f"from_dlpack(y2{'.view(-1)' if wide and whole else ''}{align if whole else ''}).mark_layout_dynamic({'leading_dim=1' if whole and not wide else ''})",
        "target": "from_dlpack(classes).mark_layout_dynamic()",
        **{item: f"from_dlpack({item}{align}).mark_layout_dynamic()" for item in along},
    }
    passed = [tensors[item.strip()] for item in arguments.split(",")]
    constants = ["width"] * (vector > 1) + ["turns"] * kept
    kinds = ["x.dtype", *(f"{item}.dtype" for item in flat)]
    key = f"({', '.join((*kinds, *constants))})" if flat or constants else "x.dtype"
    body += [f"call({name}, {key}, (", *[f"    {item}," for item in passed], "    cutlass.Int32(x2.shape[0]), cutlass.Int32(columns),", f"), ({', '.join(constants)},))" if constants else "))"]
    loop = "for x2, y2, classes in by_rows(x2, y2, target):" if name == "crossentropy" else "for x2, y2 in by_rows(x2, y2):"
    lines += [loop, *(f"    {line}" for line in body)]
    if name == "crossentropy" and not single:
        lines += ["call(total_of, (out.dtype, target.dtype), (from_dlpack(y).mark_layout_dynamic(), from_dlpack(target).mark_layout_dynamic(), from_dlpack(out.view(1)).mark_layout_dynamic(), cutlass.Int32(rows)))", "return out"]
    else:
        lines += [f"return {result}"]
    return "\n".join(lines)


def named_keepdim(stage: Stage) -> bool:
    """Whether reduce, or matvec, keeps the axis that it sums over."""
    return bool(dict(stage.operation.named).get("keepdim", 0))


GENERAL = ("softmax", "log_softmax", "layernorm", "rmsnorm", "reduce", "matvec")  # what rowwise writes too, as an expression
PASSES = Setting(name="passes", values=(2, 3), reason="softmax reads its row two times (online) or three times")
ROW = (ARCH, THREADS_PER_ROW, VECTOR)
MORE = (UNROLL, rowwise.CLUSTER, rowwise.PARTS, rowwise.SPLIT)


def _affine(stage: Stage, *names: str) -> tuple[str, ...]:
    return names if dict(stage.operation.named).get("affine", 1) else ()


def check(stage: Stage) -> list[Rejection]:
    """Rejections of combinations, and of unknown reductions."""
    found: list[Rejection] = []
    operator = dict(stage.operation.named).get("op", "sum")
    if stage.operation.name == "reduce" and operator not in REDUCTIONS:
        return [Rejection(field="op", value=str(operator), reason="no such reduction", legal=", ".join(REDUCTIONS))]
    if not stage.operation.positional:
        return [Rejection(field=stage.operation.name, value="", reason="needs an operand", legal=f"{stage.operation.name}(x)")]
    if stage.operation.name == "matvec" and setting(stage, "rows") is not None:
        return matvec.check(stage)
    if stage.operation.name in GENERAL and is_new(stage):
        axis = dict(stage.operation.named).get("axis", "last")
        return unwanted(stage, ("passes",), "only without axis, unroll, cluster and parts", "nothing") or check_expression(stage.operation.positional[0], REDUCTIONS) or rowwise.check_axis(axis) or rowwise.check_settings(stage, expansion(stage), axis)
    if setting(stage, "kept") is not None and setting(stage, "vector", 1) == 1:
        found.append(Rejection(field="kept", value="", reason="a row is kept in registers as vectors; set vector too", legal="with vector 2, 4 or 8"))
    return found


AXES = "axis=last|last(n)|first|middle|all|i|over(i, j)|but(i)"
OPERATIONS = (
    Operation(name="softmax", about=f"softmax(x, {AXES})", settings=(*ROW, PASSES, KEPT, *MORE, THREADS), emit=emit, check=check, arguments=(AXIS,), expressions=True, roles=("x",)),
    Operation(name="log_softmax", about="log_softmax(x, axis as softmax)", settings=(*ROW, KEPT, *MORE, THREADS), emit=emit, check=check, arguments=(AXIS,), expressions=True, roles=("x",)),
    Operation(name="layernorm", about="layernorm(x, eps=1e-05, axis=last|last(n), affine=0|1); operands weight, bias of the axis' shape", settings=(*ROW, KEPT, *MORE, THREADS), emit=emit, check=check, arguments=(EPS, AXIS, AFFINE), expressions=True, roles=("x",), implied=lambda stage: _affine(stage, "weight", "bias")),
    Operation(name="rmsnorm", about="rmsnorm(x, eps=1e-05, axis, affine=0|1); operand weight", settings=(*ROW, KEPT, *MORE, THREADS), emit=emit, check=check, arguments=(EPS, AXIS, AFFINE), expressions=True, roles=("x",), implied=lambda stage: _affine(stage, "weight")),
    Operation(name="reduce", about=f"reduce(x or an expression, op={'|'.join(REDUCTIONS)}, axis as softmax, keepdim=0|1)", settings=(*ROW, THREADS, KEPT, *MORE, rowwise.THROUGH), emit=emit, check=check, arguments=(one_of("op", REDUCTIONS, "no such reduction"), AXIS, KEEPDIM), expressions=True, roles=("x",)),
    Operation(name="crossentropy", about="crossentropy(x, target, reduction=mean|sum|none, logits=1|0): loss of logits x (rows, classes), or with logits=0 of logarithms of shares, and class numbers", settings=(*ROW, KEPT), emit=emit, check=check, arguments=(one_of("reduction", ("mean", "sum", "none"), "how the rows' losses become one"), flag("logits", "whether x are logits")), roles=("x", "target")),
    Operation(name="matvec", about="matvec(x, vector, keepdim=0|1): x (rows, columns) times vector (columns)", settings=(*ROW, *MORE[:-1], matvec.ROWS), emit=emit, check=check, arguments=(KEEPDIM,), roles=("x", "vector")),
)
