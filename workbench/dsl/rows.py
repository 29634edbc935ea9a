"""softmax, layernorm, rmsnorm, reduce, matvec, crossentropy -> kernels over the rows of a matrix, with 1, 32 or more threads per row.

With `.kept()` each thread loads its part of the row into registers once, however often the kernel walks over it.
"""

from __future__ import annotations

import dataclasses
import textwrap

from workbench.dsl import rowwise
from workbench.dsl.expecting import called, expect, expect_axes
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
)
from workbench.dsl.pieces import Parts
from workbench.dsl.reductions import COMBINE, REDUCTIONS

INFINITY = "cutlass.Float32.inf"
LEAST = "-3.4028234663852886e+38"
START = {"sum": "cutlass.Float32(0.0)", "mean": "cutlass.Float32(0.0)", "max": f"-{INFINITY}", "min": f"+{INFINITY}"}

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


class _Row:
    """Writes the loops of one row kernel for a number of threads per row, a vector width, and whether the row is kept in registers."""

    def __init__(self, threads: int, vector: int, ops: tuple[str, ...], kept: bool = False) -> None:
        self.threads, self.vector, self.ops, self.kept = threads, vector, ops, kept
        self.lines: list[str] = []
        if kept:
            self.add("kept = cute.make_rmem_tensor(cute.make_layout((width, turns)), x.element_type)  # this thread's part of the row")
            self._walk(["cute.autovec_copy(cute.zipped_divide(x, (width,))[None, row * (columns // width) + part], kept[None, turn])"])

    def add(self, text: str) -> None:
        self.lines += text.splitlines()

    def _walk(self, body: list[str]) -> None:
        """The loop over this thread's vectors of the row: `part` is the vector's number in the row."""
        if self.kept:
            self.add("for turn in cutlass.range_constexpr(turns):")
            self.add("    part = turn * THREADS_PER_ROW + lane")
            self.add("    if part < columns // width:")
            self.lines += [f"        {line}" for line in body]
        else:
            self.add("for part in range(lane, columns // width, THREADS_PER_ROW):")
            self.lines += [f"    {line}" for line in body]

    def each(self, *body: str, write: str | None = None, along: tuple[str, ...] = ()) -> None:
        """A loop over this thread's elements of the row: `v` is the element as float32, `column` its index; `write` is stored to y.

        `along` names tensors with one element per column; `{name}` in the text stands for such an element as float32.
        """
        if self.vector == 1:
            names = {name: f"{name}[column].to(cutlass.Float32)" for name in along}
            self.add("for column in range(lane, columns, THREADS_PER_ROW):")
            self.add("    v = x[row, column].to(cutlass.Float32)")
            self.lines += [f"    {line.format(**names)}" for line in body]
            if write:
                self.add(f"    y[row, column] = ({write.format(**names)}).to(y.element_type)")
            return
        names = {name: f"{name}_part[e].to(cutlass.Float32)" for name in along}
        lines = []
        if not self.kept:
            lines += ["loaded = cute.make_rmem_tensor(cute.make_layout(width), x.element_type)", "cute.autovec_copy(cute.zipped_divide(x, (width,))[None, row * (columns // width) + part], loaded)"]
        for name in along:
            lines += [f"{name}_part = cute.make_rmem_tensor(cute.make_layout(width), {name}.element_type)", f"cute.autovec_copy(cute.zipped_divide({name}, (width,))[None, part], {name}_part)"]
        if write:
            lines.append("stored = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)")
        lines += ["for e in cutlass.range_constexpr(width):", f"    v = {'kept[e, turn]' if self.kept else 'loaded[e]'}.to(cutlass.Float32)"]
        lines += [f"    {line.format(**names)}" for line in body]
        if write:
            lines += [f"    stored[e] = ({write.format(**names)}).to(y.element_type)", "cute.autovec_copy(stored, cute.zipped_divide(y, (width,))[None, row * (columns // width) + part])"]
        self._walk(lines)

    def combine(self, name: str, op: str) -> None:
        """Combine a per-thread value over the row's threads."""
        if self.threads == 1:
            return
        extra = ", scratch, thread" if self.threads > 32 else ""
        self.add(f"{name} = across_{op}({name}{extra})")


def _fill(row: _Row, stage: Stage) -> tuple[str, str, bool]:
    """The body for the stage's operation: (docstring, extra parameters, writes whole rows)."""
    operation = stage.operation
    named = dict(operation.named)
    name = operation.name
    if name == "softmax":
        return _softmax(row, number(stage, "passes", 3))
    if name == "layernorm":
        row.add("total = cutlass.Float32(0.0)")
        row.each("total += v")
        row.combine("total", "sum")
        row.add("mean = total / columns")
        row.add("square = cutlass.Float32(0.0)")
        row.each("square += (v - mean) * (v - mean)")
        row.combine("square", "sum")
        row.add(f"scale = cute.math.rsqrt(square / columns + {named.get('eps', 1e-5)})")
        row.each(write="(v - mean) * scale * {weight} + {bias}", along=("weight", "bias"))
        return "Mean, then variance, then the scaled row.", "weight: cute.Tensor, bias: cute.Tensor", True
    if name == "rmsnorm":
        row.add("square = cutlass.Float32(0.0)")
        row.each("square += v * v")
        row.combine("square", "sum")
        row.add(f"scale = cute.math.rsqrt(square / columns + {named.get('eps', 1e-5)})")
        row.each(write="v * scale * {weight}", along=("weight",))
        return "Mean square, then the scaled row.", "weight: cute.Tensor", True
    if name == "crossentropy":
        logits = bool(named.get("logits", 1))
        if logits:
            _maximum_and_total(row, 3)
        row.add("if lane == 0:")
        row.add("    wanted = target[row].to(cutlass.Int32)")
        row.add("    loss = cutlass.Float32(0.0)")
        row.add("    if wanted >= columns:")
        row.add("        loss = cutlass.Float32(float('nan'))  # no such class")
        row.add("    elif wanted >= 0:  # others are ignored, as torch does -100")
        row.add(f"        picked = x[{'row * columns + wanted' if row.vector > 1 else 'row, wanted'}].to(cutlass.Float32)")
        row.add("        loss = cute.arch.fmax(cute.math.log(total, fastmath=True) + largest - picked, cutlass.Float32(0.0), nan=True)" if logits else "        loss = -picked")
        row.add("    y[row] = loss.to(y.element_type)")
        said = "Loss of one row: log of the sum of exponentials minus the target's logit." if logits else "Loss of one row: minus the logarithm of the target's share."
        return said, "target: cute.Tensor", False
    if name == "matvec":
        row.add("value = cutlass.Float32(0.0)")
        row.each("value += v * {vector}", along=("vector",))
        row.combine("value", "sum")
        row.add("if lane == 0:")
        row.add("    y[row] = value.to(y.element_type)")
        return "The dot product of each row with the vector.", "vector: cute.Tensor", False
    op = str(named.get("op", "sum"))
    row.add(f"value = {START[op]}")
    row.each("value = " + COMBINE[op].format(a="value", b="v"))
    row.combine("value", "sum" if op == "mean" else op)
    row.add("if lane == 0:")
    row.add(f"    y[row] = ({'value / columns' if op == 'mean' else 'value'}).to(y.element_type)")
    return f"The {op} of each row.", "", False


def _maximum_and_total(row: _Row, passes: int) -> None:
    if passes == 2:
        row.add(f"largest = cutlass.Float32({LEAST})  # the least number, since -inf - -inf would be no number")
        row.add("total = cutlass.Float32(0.0)")
        row.each(
            "# online: when the maximum grows, what was summed so far is scaled down to it",
            "bigger = cute.arch.fmax(largest, v)",
            "total = total * cute.math.exp(largest - bigger, fastmath=True) + cute.math.exp(v - bigger, fastmath=True)",
            "largest = bigger",
        )
        row.add("mine = largest")
        row.combine("largest", "max")
        row.add("total = total * cute.math.exp(mine - largest, fastmath=True)")
        row.combine("total", "sum")
        return
    row.add(f"largest = -{INFINITY}")
    row.each("largest = cute.arch.fmax(largest, v)")
    row.combine("largest", "max")
    row.add("total = cutlass.Float32(0.0)")
    row.each("total += cute.math.exp(v - largest, fastmath=True)")
    row.combine("total", "sum")


def _softmax(row: _Row, passes: int) -> tuple[str, str, bool]:
    _maximum_and_total(row, passes)
    row.each(write="cute.math.exp(v - largest, fastmath=True) / total")
    return ("Maximum and sum in one online pass, then the row." if passes == 2 else "Maximum, then sum of exponentials, then the row."), "", True


def emit(stage: Stage, binding: Binding) -> Parts:
    """Text of a row kernel; reduce over a middle axis has a kernel of its own."""
    named = dict(stage.operation.named)
    if stage.operation.name in GENERAL and is_new(stage):
        if stage.operation.name == "matvec":
            bound = dict(binding.operands)
            binding = dataclasses.replace(binding, operands=tuple((bound | {"vector": f"{bound.get('vector', 'vector')}.reshape(-1)"}).items()))
        return rowwise.emit_expression(expansion(stage), named.get("axis", "last"), bool(named.get("keepdim", 0)), stage, binding)
    if stage.operation.name == "reduce" and named.get("axis") == "middle":
        return _middle(stage, binding)
    threads, vector = number(stage, "threads_per_row", 1), number(stage, "vector", 1)
    ops = {"softmax": ("max", "sum"), "crossentropy": ("max", "sum") if dict(stage.operation.named).get("logits", 1) else (), "reduce": (("sum" if named.get("op") == "mean" else str(named.get("op", "sum"))),)}.get(stage.operation.name, ("sum",))
    kept = vector > 1 and setting(stage, "kept") is not None
    row = _Row(threads, vector, ops, kept)
    doc, extra, whole = _fill(row, stage)
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
    names = ", ".join(("x", *flat))  # assigned together: an argument of forward may have one of these names
    values = ", ".join((f"{x}.contiguous()", *(f"{bound.get(item, item)}.detach().reshape(-1)" for item in flat)))
    lines = [f"{names} = {values}", expect_axes(called("x", bound), "x", 1), expect(called("x", bound), "x", "x.shape"), "columns = x.shape[-1]", "x2 = x.view(-1, columns)", "rows = x2.shape[0]"]
    lines += [expect(called(item, bound), item, "(columns,)" if item in along else "(rows,)", "EXACT" if item in along else "INDICES") for item in flat]
    lines += ["y = torch.empty_like(x)", "y2 = y.view(-1, columns)"] if whole else []
    if name in ("reduce", "matvec"):
        lines += ["y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)", "y2 = y.view(-1)"]
    if name == "crossentropy":
        single = dict(stage.operation.named).get("reduction", "mean") == "none"
        lines += ["y = torch.empty(rows, dtype=x.dtype, device=x.device)", "y2 = y"] if single else ["y = torch.empty(rows, dtype=torch.float32, device=x.device)", "y2 = y", "out = torch.empty((), dtype=x.dtype, device=x.device)"]
    align = ""
    if vector > 1:
        starts = " | ".join(f"{item}.data_ptr()" for item in ("x", *along))
        lines += [f"# vectors of {vector} where every row and every start allows it", f"width = {vector} if columns % {vector} == 0 and ({starts}) % 16 == 0 else 1"]
        align = ", assumed_align=16 if width > 1 else None"
    if kept:
        lines += ["turns = -(-columns // (width * THREADS_PER_ROW))  # vectors of the row that each thread keeps"]
    wide = vector > 1  # vector accesses count in vectors over the flattened rows, so that their alignment is known
    tensors: dict[str, str] = {
        "x": f"from_dlpack(x2{'.view(-1)' if wide else ''}{align}).mark_layout_dynamic({'' if wide else 'leading_dim=1'})",
        "y": f"from_dlpack(y2{'.view(-1)' if wide and whole else ''}{align if whole else ''}).mark_layout_dynamic({'leading_dim=1' if whole and not wide else ''})",
        "target": "from_dlpack(target).mark_layout_dynamic()",
        **{item: f"from_dlpack({item}{align}).mark_layout_dynamic()" for item in along},
    }
    passed = [tensors[item.strip()] for item in arguments.split(",")]
    constants = ["width"] * (vector > 1) + ["turns"] * kept
    key = f"(x.dtype, {', '.join(constants)})" if constants else "x.dtype"
    lines += [f"call({name}, {key}, (", *[f"    {item}," for item in passed], "    cutlass.Int32(rows), cutlass.Int32(columns),", f"), ({', '.join(constants)},))" if constants else "))"]
    if name == "crossentropy" and not single:
        lines += ["call(total_of, (out.dtype, target.dtype), (from_dlpack(y).mark_layout_dynamic(), from_dlpack(target).mark_layout_dynamic(), from_dlpack(out.view(1)).mark_layout_dynamic(), cutlass.Int32(rows)))", "return out"]
    else:
        lines += [f"return {'y' if not named_keepdim(stage) else 'y.unsqueeze(-1)'}"]
    return "\n".join(lines)


def named_keepdim(stage: Stage) -> bool:
    """Whether reduce, or matvec, keeps the axis that it sums over."""
    return bool(dict(stage.operation.named).get("keepdim", 0))


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

MIDDLE = '''
@cute.kernel
def reduce_kernel(x: cute.Tensor, y: cute.Tensor, batches: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """{doc}"""
    thread, _, _ = cute.arch.thread_idx()
    block, batch, _ = cute.arch.block_idx()
{body}


@cute.jit
def reduce(x: cute.Tensor, y: cute.Tensor, batches: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32, stream: cuda.CUstream):
    reduce_kernel(x, y, batches, rows, columns).launch(grid=[(columns + {width} - 1) // {width}, batches, 1], block=[{threads}, 1, 1], stream=stream)
'''


def _middle(stage: Stage, binding: Binding) -> Parts:
    """x is (batch, rows, columns); each column of each batch is reduced over rows; `split` warps share one column's rows."""
    op = str(dict(stage.operation.named).get("op", "sum"))
    threads, split = number(stage, "threads", 128), number(stage, "split", 1)
    result = "value / rows" if op == "mean" else "value"
    combine = COMBINE[op].format(a="value", b="x[batch, row, column].to(cutlass.Float32)")
    if split == 1:
        body = f"""
        column = block * {threads} + thread
        if column < columns:
            value = {START[op]}
            for row in range(rows):
                value = {combine}
            y[batch, column] = ({result}).to(y.element_type)
        """
        width, doc, count = threads, f"The {op} over rows: one thread per column, so a warp reads 32 neighbouring columns.", threads
    else:
        again = COMBINE[op].format(a="value", b="parts[lane, warp]")
        body = f"""
        lane = thread % 32
        first = thread // 32
        column = block * 32 + lane
        parts = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((32, {split})), 16)
        value = {START[op]}
        if column < columns:
            for row in range(first, rows, {split}):
                value = {combine}
        parts[lane, first] = value
        cute.arch.sync_threads()
        if first == 0:
            if column < columns:
                for warp in cutlass.range_constexpr(1, {split}):
                    value = {again}
                y[batch, column] = ({result}).to(y.element_type)
        """
        width, doc, count = 32, f"The {op} over rows: {split} warps share 32 columns and meet in shared memory.", 32 * split
    bound = dict(binding.operands)
    x = bound.get("x", "x")
    text = MIDDLE.format(doc=doc, body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    "), width=width, threads=count)
    forward = f"""
    x = {x}.contiguous()
    {expect_axes(called("x", bound), "x", 3, 3)}
    {expect(called("x", bound), "x", "x.shape")}
    batches, rows, columns = x.shape
    y = torch.empty(batches, columns, dtype=x.dtype, device=x.device)
    call(reduce, x.dtype, (
        from_dlpack(x).mark_layout_dynamic(leading_dim=2),
        from_dlpack(y).mark_layout_dynamic(leading_dim=1),
        cutlass.Int32(batches), cutlass.Int32(rows), cutlass.Int32(columns),
    ))
    return y
    """
    return Parts(kernels=text, forward=textwrap.dedent(forward).strip())


GENERAL = ("softmax", "log_softmax", "layernorm", "rmsnorm", "reduce", "matvec")  # what rowwise writes too, as an expression
PASSES = Setting(name="passes", values=(2, 3), reason="softmax reads its row two times (online) or three times")
ROW = (ARCH, THREADS_PER_ROW, VECTOR)
MORE = (UNROLL, rowwise.CLUSTER, rowwise.PARTS, rowwise.SPLIT)


def _affine(stage: Stage, *names: str) -> tuple[str, ...]:
    return names if dict(stage.operation.named).get("affine", 1) else ()


def _unfit(stage: Stage) -> list[Rejection]:
    """Settings of the kernels over the last axis that the general ones do not have."""
    return [Rejection(field=item.name, value=str(setting(stage, item.name)), reason="only without axis, unroll, cluster and parts", legal="nothing") for item in stage.settings if item.name == "passes"]


def check(stage: Stage) -> list[Rejection]:
    """Rejections of combinations, and of unknown reductions."""
    found: list[Rejection] = []
    operator = dict(stage.operation.named).get("op", "sum")
    if stage.operation.name == "reduce" and operator not in REDUCTIONS:
        return [Rejection(field="op", value=str(operator), reason="no such reduction", legal=", ".join(REDUCTIONS))]
    if not stage.operation.positional:
        return [Rejection(field=stage.operation.name, value="", reason="needs an operand", legal=f"{stage.operation.name}(x)")]
    if stage.operation.name in GENERAL and is_new(stage):
        axis = dict(stage.operation.named).get("axis", "last")
        return _unfit(stage) or check_expression(stage.operation.positional[0], REDUCTIONS) or rowwise.check_axis(axis) or rowwise.check_settings(stage, expansion(stage), axis)
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
    Operation(name="matvec", about="matvec(x, vector, keepdim=0|1): x (rows, columns) times vector (columns)", settings=(*ROW, *MORE[:-1]), emit=emit, check=check, arguments=(KEEPDIM,), roles=("x", "vector")),
)
