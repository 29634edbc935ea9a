"""pool(x, op, window) -> maxima or means of windows over the last one, two or three axes, with torch's padding, dilation and rounding of extents."""

from __future__ import annotations

import math
import textwrap

from workbench.dsl import rows
from workbench.dsl.expecting import called, empty, expect, expect_axes
from workbench.dsl.ir import Binding, Call, Rejection, Stage, setting
from workbench.dsl.operation import ARCH, THREADS_PER_ROW, VECTOR, Operation, Setting, checked, flag, one_of, unwanted
from workbench.dsl.pieces import Parts
from workbench.dsl.pool_text import CLIPPED, COUNTED, DIRECT, HEADER, STRIP, TAP

SIZES = ("window", "stride", "padding", "dilation")
COMBINE = {"max": "cute.arch.fmax(total, value, nan=True)", "avg": "total + value"}
START = {"max": "-cutlass.Float32.inf", "avg": "cutlass.Float32(0.0)"}
MOST_TAPS = 32  # rows under a window that a strip keeps in registers


def numbers(value: object) -> tuple[int, ...]:
    """`3` or `size(3, 3)` as a tuple; () for what is neither."""
    if isinstance(value, Call):
        return tuple(item for item in value.positional if isinstance(item, int)) if value.name == "size" else ()
    return (value,) if isinstance(value, int) else ()


def sizes(stage: Stage) -> dict[str, tuple[int, int, int]]:
    """Window, stride, padding and dilation along depth, height and width; of axes that the window does not have: a window of one."""
    named = dict(stage.operation.named)
    window = numbers(named.get("window"))
    rank = len(window)
    found = {}
    for name, default in zip(SIZES, (window, window, (0,), (1,)), strict=True):
        own = numbers(named[name]) if name in named else default
        own = own * rank if len(own) == 1 else own
        filled = (0 if name == "padding" else 1,) * (3 - rank) + own
        found[name] = (filled[0], filled[1], filled[2])
    return found


def emit(stage: Stage, binding: Binding) -> Parts:
    """The kernel for the schedule, and the body of forward."""
    named = dict(stage.operation.named)
    op = str(named.get("op", "max"))
    if named.get("window") == "all":
        return _whole(stage, binding, op)
    found, strip = sizes(stage), setting(stage, "schedule") == "strip"
    rank = len(numbers(named["window"]))
    header = HEADER.format(**found, ceil=bool(named.get("ceil", 0)), combine=COMBINE[op], threads=setting(stage, "threads", 256))
    divisor = named.get("divisor", 0)
    finish = "total"
    if op == "avg" and (divisor or (named.get("count_padding", 1) and not named.get("ceil", 0))):  # every window counts as many
        finish = f"total * {1 / (int(str(divisor)) or math.prod(found['window']))!r}"
    elif op == "avg":
        header += COUNTED.format(clipped="" if named.get("count_padding", 1) else CLIPPED)
        finish = "total / (counted(layer, x.shape[1], 0) * counted(row, x.shape[2], 1) * counted(column, x.shape[3], 2))"
    fields = {"finish": finish, "start": START[op]}
    if not strip:
        return Parts(kernels=header + DIRECT.format(**fields), forward=_forward(binding, rank, strip), imports="import math")
    taps = found["window"][0] * found["window"][1]
    fields |= {"nothing": "minus infinity" if op == "max" else "zero", "fill": "-cutlass.Float32.inf" if op == "max" else "0.0", "rows": str(setting(stage, "rows", 8)), "rounds": "2" if taps == 1 else "1", "taps": _taps(found, bool(named.get("ceil", 0)))}
    return Parts(kernels=header + STRIP.format(**fields), forward=_forward(binding, rank, strip), imports="import math")


def _taps(found: dict[str, tuple[int, int, int]], ceil: bool) -> str:
    """The load of one vector; only rows that can lie outside are tested for it."""
    tests = [f"{place} >= 0 and {place} < x.shape[{axis + 1}]" for axis, place in enumerate("ij") if found["padding"][axis] or (ceil and found["window"][axis] > 1)]
    lines = [f"if {' and '.join(tests)}:", textwrap.indent(TAP, "    ")] if tests else [TAP]
    return textwrap.indent("\n".join(lines), " " * 20)


def _forward(binding: Binding, rank: int, strip: bool) -> str:
    bound = dict(binding.operands)
    x = bound.get("x", "x")
    lead = ", 1" * (3 - rank)
    axes = range(3 - rank, 3)
    lines = [
        f"x = {x}.detach().contiguous()", expect_axes(called("x", bound), "x", rank), expect(called("x", bound), "x", "x.shape"),
        f"lead, inner = x.shape[:-{rank}], x.shape[-{rank}:]",
        f"outer = [{', '.join(f'extent(inner[{i}], {axis})' for i, axis in enumerate(axes))}]",
        "if min(outer) < 1:",
        f"    raise ValueError(f\"{called('x', bound)} has the shape {{tuple(x.shape)}}; the window does not fit into it\")",
        "y = torch.empty(*lead, *outer, dtype=x.dtype, device=x.device)",
        *empty("y"),
        f"x4, y4 = x.view(math.prod(lead){lead}, *inner), y.view(math.prod(lead){lead}, *outer)",
    ]
    if strip:
        lines += [
            "vector = math.gcd(inner[-1], 16 // x.element_size(), x.data_ptr() // x.element_size())",
            "tile, across = plan(outer[-1], vector)",
            "call(pool, (x.dtype, tile, across, vector), (",
            "    from_dlpack(x4, assumed_align=vector * x.element_size()).mark_layout_dynamic(leading_dim=3), from_dlpack(y4).mark_layout_dynamic(leading_dim=3),",
            "), (tile, across, vector))",
        ]
    else:
        lines += ["call(pool, x.dtype, (from_dlpack(x4).mark_layout_dynamic(leading_dim=3), from_dlpack(y4).mark_layout_dynamic(leading_dim=3)))"]
    return "\n".join([*lines, "return y"])


def _whole(stage: Stage, binding: Binding, op: str) -> Parts:
    """A window as large as the planes: a reduction of rows."""
    bound = dict(binding.operands)
    x = bound.get("x", "x")
    call = Call(name="reduce", positional=("x",), named=(("op", "mean" if op == "avg" else "max"), ("axis", "last")))
    kept = tuple(item for item in stage.settings if item.name in ("arch", "threads_per_row", "vector"))
    parts = rows.emit(Stage(operation=call, settings=kept), Binding(init_source="", forward_arguments=("x",), operands=(("x", "planes"),)))
    lines = [f"whole = {x}", expect_axes(called("x", bound), "whole", 3), "planes = whole.detach().flatten(2)", *parts.forward.replace("return y", "return y.view(*whole.shape[:2], *[1] * (whole.dim() - 2))").splitlines()]
    return Parts(kernels=parts.kernels, forward="\n".join(lines), imports=parts.imports)


def check(stage: Stage) -> list[Rejection]:
    """Rejections of a pooling."""
    named = dict(stage.operation.named)
    found: list[Rejection] = []
    if len(stage.operation.positional) != 1 or not isinstance(stage.operation.positional[0], str):
        found.append(Rejection(field="pool", value=str(len(stage.operation.positional)), reason="takes one tensor", legal="pool(x, window=2)"))
    if not isinstance(named.get("divisor", 0), int) or int(str(named.get("divisor", 0))) < 0:
        found.append(Rejection(field="divisor", value=str(named["divisor"]), reason="what a sum is divided by", legal="1 and more; left out: the elements of the window"))
    if named.get("window") == "all":
        others = [name for name in named if name not in ("op", "window")] + [name for name in ("schedule", "rows", "threads") if setting(stage, name) is not None]
        return [*found, *(Rejection(field=name, value="", reason="means nothing when the window is all of a plane", legal="leave it out") for name in others)]
    found += unwanted(stage, ("threads_per_row", "vector"), "is for window=all")
    return found + _sizes(stage, named)


def _sizes(stage: Stage, named: dict[str, object]) -> list[Rejection]:
    found = []
    rank = len(numbers(named.get("window")))
    if rank not in (1, 2, 3):
        return [Rejection(field="window", value=_spelt(named.get("window", "")), reason="an extent for each axis that is pooled", legal="all, 3, size(3, 3) or size(3, 3, 3)")]
    for name in SIZES:
        own, least = numbers(named.get(name, 1)), 0 if name == "padding" else 1
        if len(own) not in (1, rank) or any(value < least for value in own):
            found.append(Rejection(field=name, value=_spelt(named[name]), reason=f"one number, or one for each of the {rank} axes of the window, {least} and more", legal=f"2 or size({', '.join('2' * rank)})"))
    if found:
        return found
    all_sizes = sizes(stage)
    if any(2 * pad > size for pad, size in zip(all_sizes["padding"], all_sizes["window"], strict=True)):
        found.append(Rejection(field="padding", value=_spelt(named["padding"]), reason="torch pads at most half a window", legal="at most half of each extent of the window"))
    if named.get("op", "max") == "avg" and all_sizes["dilation"] != (1, 1, 1):
        found.append(Rejection(field="dilation", value=_spelt(named["dilation"]), reason="means are of neighbours", legal="1"))
    if setting(stage, "schedule") == "strip":
        taps, reach = all_sizes["window"][0] * all_sizes["window"][1], all_sizes["dilation"][2] * all_sizes["window"][2] + all_sizes["padding"][2]
        if taps > MOST_TAPS or reach > 128 or all_sizes["stride"][2] > 128:
            found.append(Rejection(field="schedule", value="strip", reason=f"{taps} rows under the window, {reach} columns, a stride of {all_sizes['stride'][2]}", legal=f"at most {MOST_TAPS} rows, 128 columns and a stride of 128; or direct"))
    elif setting(stage, "rows") is not None:
        found.append(Rejection(field="rows", value=str(setting(stage, "rows")), reason="rows of outputs of one group of threads", legal="only with schedule(strip)"))
    return found


def _spelt(value: object) -> str:
    return f"{value.name}({', '.join(map(str, value.positional))})" if isinstance(value, Call) else str(value)


ABOUT = "pool(x, op=max|avg, window=3|size(3, 3)|all, stride=window, padding=0, dilation=1, ceil=0|1, count_padding=1|0, divisor=0) over the last one to three axes, as many as the window has"
SETTINGS = (
    ARCH, THREADS_PER_ROW, VECTOR,
    Setting(name="threads", values=(64, 128, 256, 512), reason="a CTA is made of whole warps; groups of threads are powers of two"),
    Setting(name="schedule", values=("direct", "strip"), reason="direct: one output per thread; strip: rows are combined in registers, columns in shared memory", meaning="{values}: one output per thread (direct), or rows are combined in registers and columns in shared memory (strip)"),
    Setting(name="rows", values=(1, 4, 8, 16), reason="rows of outputs of one group of threads", meaning="a group of threads computes {values} rows of outputs"),
)  # fmt: skip
ARGUMENTS = (
    one_of("op", tuple(COMBINE), "what a window is combined into"), *(checked(name, "2 or size(2, 2)" if name != "window" else "all, 2 or size(2, 2)") for name in SIZES), flag("ceil", "a truth value"), flag("count_padding", "a truth value"), checked("divisor", "1 and more"),
)  # fmt: skip
OPERATIONS = (Operation(name="pool", about=ABOUT, settings=SETTINGS, emit=emit, check=check, arguments=ARGUMENTS, roles=("x",)),)
