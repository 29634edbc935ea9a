"""pool(x, op, window): maxima or means of windows over the last one to three axes, padded and rounded as in torch."""

from __future__ import annotations

from workbench.language.expressions.expressions import check_expression
from workbench.language.expressions.reduction_passes import plan
from workbench.language.expressions.reductions import ARGS, REDUCTIONS
from workbench.language.ir import Call, Rejection, Stage, number, setting
from workbench.language.operation import (
    ARCH,
    KEEPDIM,
    THREADS_PER_ROW,
    VECTOR,
    Operation,
    Setting,
    checked_argument,
    choice_argument,
    flag,
    reject_settings,
)
from workbench.language.parser import format_value

SIZES = ("window", "stride", "padding", "dilation")
OPS = ("max", "avg")
MOST_LOADED = 64  # elements of four columns or a window that a thread loads at once (inferred)
MOST_TAPS = 32  # rows under a window that a strip keeps in registers


def numbers(value: object) -> tuple[int, ...]:
    """`3` or `size(3, 3)` as a tuple; () for what is neither."""
    if isinstance(value, Call):
        return tuple(item for item in value.positional if isinstance(item, int)) if value.name == "size" else ()
    return (value,) if isinstance(value, int) else ()


def sizes(stage: Stage) -> dict[str, tuple[int, int, int]]:
    """Window, stride, padding and dilation along depth, height and width; a window of one along further axes."""
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


def check(stage: Stage) -> list[Rejection]:
    """Rejections of a pooling."""
    named = dict(stage.operation.named)
    found: list[Rejection] = []
    if len(stage.operation.positional) != 1 or not isinstance(stage.operation.positional[0], str):
        found.append(
            Rejection(
                field="pool",
                value=str(len(stage.operation.positional)),
                reason="takes one tensor",
                legal="pool(x, window=2)",
            )
        )
    if not isinstance(named.get("divisor", 0), int) or int(str(named.get("divisor", 0))) < 0:
        found.append(
            Rejection(
                field="divisor",
                value=str(named["divisor"]),
                reason="what a sum is divided by",
                legal="1 and more; left out: the elements of the window",
            )
        )
    if named.get("window") == "all":
        others = [name for name in named if name not in ("op", "window")] + [
            name for name in ("schedule", "rows", "threads") if setting(stage, name) is not None
        ]
        return [
            *found,
            *(
                Rejection(
                    field=name, value="", reason="means nothing when the window is all of a plane", legal="leave it out"
                )
                for name in others
            ),
        ]
    found += reject_settings(stage, ("threads_per_row", "vector"), "is for window=all")
    return found + _sizes(stage, named)


def _sizes(stage: Stage, named: dict[str, object]) -> list[Rejection]:
    found = []
    rank = len(numbers(named.get("window")))
    if rank not in (1, 2, 3):
        return [
            Rejection(
                field="window",
                value=_format_value(named.get("window", "")),
                reason="an extent for each axis that is pooled",
                legal="all, 3, size(3, 3) or size(3, 3, 3)",
            )
        ]
    for name in SIZES:
        own, least = numbers(named.get(name, 1)), 0 if name == "padding" else 1
        if len(own) not in (1, rank) or any(value < least for value in own):
            found.append(
                Rejection(
                    field=name,
                    value=_format_value(named[name]),
                    reason=f"one number, or one for each of the {rank} axes of the window, {least} and more",
                    legal=f"2 or size({', '.join('2' * rank)})",
                )
            )
    if found:
        return found
    all_sizes = sizes(stage)
    if any(2 * pad > size for pad, size in zip(all_sizes["padding"], all_sizes["window"], strict=True)):
        found.append(
            Rejection(
                field="padding",
                value=_format_value(named["padding"]),
                reason="torch pads at most half a window",
                legal="at most half of each extent of the window",
            )
        )
    if named.get("op", "max") == "avg" and all_sizes["dilation"] != (1, 1, 1):
        found.append(
            Rejection(
                field="dilation", value=_format_value(named["dilation"]), reason="means are of neighbours", legal="1"
            )
        )
    if setting(stage, "schedule") == "strip":
        taps, reach = (
            all_sizes["window"][0] * all_sizes["window"][1],
            all_sizes["dilation"][2] * all_sizes["window"][2] + all_sizes["padding"][2],
        )
        if taps > MOST_TAPS or reach > 128 or all_sizes["stride"][2] > 128:
            found.append(
                Rejection(
                    field="schedule",
                    value="strip",
                    reason=f"{taps} rows under the window, {reach} columns, a stride of {all_sizes['stride'][2]}",
                    legal=f"at most {MOST_TAPS} rows, 128 columns and a stride of 128; or direct",
                )
            )
    elif setting(stage, "schedule") == "cells":
        found += _check_cells(stage, all_sizes)
    elif setting(stage, "rows") is not None:
        found.append(
            Rejection(
                field="rows",
                value=str(setting(stage, "rows")),
                reason="rows of outputs of one group of threads",
                legal="only with schedule(strip) or schedule(cells)",
            )
        )
    return found


def _check_cells(stage: Stage, found: dict[str, tuple[int, int, int]]) -> list[Rejection]:
    """Rejections of a pool by cells whose windows overlap or leave gaps, or of more than registers hold."""
    window = found["window"]
    is_beside = window == found["stride"] and found["padding"] == (0, 0, 0) and found["dilation"] == (1, 1, 1)
    if not is_beside or dict(stage.operation.named).get("ceil", 0):
        legal = "strip, or no stride, padding, dilation and ceil"
        return [Rejection(field="schedule", value="cells", reason="windows lie side by side", legal=legal)]
    loaded, rows = window[0] * window[1] * max(window[2], 4), number(stage, "rows", 8)
    if loaded * rows <= MOST_LOADED:
        return []
    most = MOST_LOADED // loaded
    legal = f".rows({1 << (most.bit_length() - 1)}) or fewer" if most else ".schedule(strip)"
    return [
        Rejection(field="rows", value=str(rows), reason=f"a thread loads {loaded} elements of each row", legal=legal)
    ]


def _format_value(value: object) -> str:
    return f"{value.name}({', '.join(map(str, value.positional))})" if isinstance(value, Call) else str(value)


ABOUT = (
    "pool(x, op=max|avg, window=3|size(3, 3)|all, stride=window, padding=0, dilation=1, ceil=0|1, count_padding=1|0, "
    "divisor=0) over the last one to three axes, as many as the window has"
)
SETTINGS = (
    ARCH,
    THREADS_PER_ROW,
    VECTOR,
    Setting(
        name="threads",
        values=(64, 128, 256, 512),
        reason="a CTA is made of whole warps; groups of threads are powers of two",
    ),
    Setting(
        name="schedule",
        values=("direct", "strip", "cells"),
        reason="direct: one output per thread; strip: rows are combined in registers, columns in shared memory; "
        "cells: windows side by side, combined in registers",
        meaning="{values}: one output per thread (direct), "
        "or rows are combined in registers and columns in shared memory (strip), "
        "or windows that lie side by side are combined in registers (cells)",
    ),
    Setting(
        name="rows",
        values=(1, 2, 4, 8, 16),
        reason="rows of outputs of one group of threads",
        meaning="a group of threads computes {values} rows of outputs",
    ),
)
ARGUMENTS = (
    choice_argument("op", OPS, "what a window is combined into"),
    *(checked_argument(name, "2 or size(2, 2)" if name != "window" else "all, 2 or size(2, 2)") for name in SIZES),
    flag("ceil", "a truth value"),
    flag("count_padding", "a truth value"),
    checked_argument("divisor", "1 and more"),
)


def check_planes(stage: Stage) -> list[Rejection]:
    """Rejections of a pool whose planes are reduced."""
    value = stage.operation.positional[0] if stage.operation.positional else None
    if found := check_expression(value, REDUCTIONS):
        return found
    walks = plan(value)
    is_one_pass = len(walks.levels) == 1 and not walks.whole and not any(item.base in ARGS for item in walks.levels[0])
    if not is_one_pass or len(walks.plain) != 1 or walks.spread:
        return [
            Rejection(
                field="poolwise",
                value="" if value is None else format_value(value),
                reason="takes reductions of one tensor that need one pass, one value for each plane",
                legal="for example tanh(mean(relu(x))); else pool(x, ...) and rowwise(...) as a stage after it",
            )
        ]
    if found := _sizes(stage, dict(stage.operation.named)):
        return found
    window = sizes(stage)["window"]
    if window[0] * window[1] * max(window[2], 4) > MOST_LOADED:
        legal = f"at most {MOST_LOADED} elements under four columns; else pool(x, ...) and rowwise(...)"
        shown = _format_value(dict(stage.operation.named)["window"])
        return [Rejection(field="window", value=shown, reason="a thread loads it at once", legal=legal)]
    return []


OPERATIONS = (
    Operation(name="pool", about=ABOUT, settings=SETTINGS, check=check, arguments=ARGUMENTS, roles=("x",)),
    Operation(
        name="poolwise",
        about="poolwise(expression, op=max|avg, window=3|size(3, 3), keepdim=0|1): for each plane of pool(x, op, "
        "window), whose windows lie side by side, an expression with reductions of x as in rowwise, in one pass: "
        "poolwise(tanh(mean(relu(x))), op=max, window=size(2, 2))",
        settings=(
            ARCH,
            Setting(
                name="threads",
                values=(64, 128, 256, 512, 1024),
                reason="a CTA reduces a plane by two warps or more",
            ),
            Setting(
                name="unroll",
                values=(1, 2, 4),
                reason="rows of windows that a thread loads at once",
                meaning="each thread loads what lies under {values} windows or vectors before it combines the first",
            ),
        ),
        check=check_planes,
        arguments=(
            choice_argument("op", OPS, "what a window is combined into"),
            checked_argument("window", "2 or size(2, 2)"),
            KEEPDIM,
        ),
    ),
)
