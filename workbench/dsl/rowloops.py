"""The loops of the kernels over the last axis: what each thread does with its elements of a row, and how the row's threads put that together."""

from __future__ import annotations

from workbench.dsl.ir import Stage, number
from workbench.dsl.reductions import COMBINE

INFINITY = "cutlass.Float32.inf"
LEAST = "-3.4028234663852886e+38"
START = {"sum": "cutlass.Float32(0.0)", "mean": "cutlass.Float32(0.0)", "max": f"-{INFINITY}", "min": f"+{INFINITY}"}


class Row:
    """Writes the loops of one row kernel for a number of threads per row, a vector width, and whether the row is kept in registers."""

    def __init__(self, threads: int, vector: int, kept: bool) -> None:
        self.threads, self.vector, self.kept = threads, vector, kept
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


def fill(row: Row, stage: Stage) -> tuple[str, str, bool]:
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


def _maximum_and_total(row: Row, passes: int) -> None:
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


def _softmax(row: Row, passes: int) -> tuple[str, str, bool]:
    _maximum_and_total(row, passes)
    row.add("scale = 1.0 / total  # a division takes many instructions: once a row, not once an element")
    row.each(write="cute.math.exp(v - largest, fastmath=True) * scale")
    return ("Maximum and sum in one online pass, then the row." if passes == 2 else "Maximum, then sum of exponentials, then the row."), "", True
