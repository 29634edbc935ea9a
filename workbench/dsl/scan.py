"""scan(expression) -> prefix sums, products and maxima along an axis, every element read once and written once.

schedule(rows): a CTA walks over a row, tile by tile. schedule(lookback): a CTA per tile, which learns what came before from the tiles before
(decoupled look-back, Merrill and Garland, 2016), for few long rows; in float32 the last bits may then differ from run to run.
"""

from __future__ import annotations

import dataclasses
import textwrap

from workbench.dsl.expecting import called, expect, expect_axes, expect_few
from workbench.dsl.expressions import check_expression, renamed
from workbench.dsl.ir import Binding, Rejection, Stage, names_in, setting
from workbench.dsl.operation import ARCH, THREADS, Operation, Setting, checked, flag, one_of, unwanted
from workbench.dsl.pieces import Parts, definitions, expression, functions_used
from workbench.dsl.reductions import COMBINE
from workbench.dsl.scan_text import COLUMNS, EXCLUSIVE, INCLUSIVE, LOOKBACK, ROWS, TILE, TOGETHER, WITH_TOTAL

IDENTITY = {"sum": "0.0", "prod": "1.0", "max": "-cutlass.Float32.inf"}
FRAGMENT = """\
            {name}_part = cute.make_rmem_tensor(cute.make_layout(width), {name}.element_type)
            cute.autovec_copy(cute.zipped_divide({name}, (width,))[None, start + place], {name}_part)"""


def emit(stage: Stage, binding: Binding) -> Parts:
    """The kernel for the axis and the schedule, and the body of forward."""
    value, binding = renamed(stage.operation.positional[0], binding)
    stage = dataclasses.replace(stage, operation=dataclasses.replace(stage.operation, positional=(value,)))
    named = dict(stage.operation.named)
    if named.get("axis", "last") != "last":
        return _columns(stage, binding)
    names = names_in(stage.operation.positional[0])
    lookback = setting(stage, "schedule", "rows") == "lookback"
    total = named.get("exclusive", 0) == 2
    fields = _fields(stage, names)
    together = TOGETHER.format(which="" if lookback else "tile % 2, ", **fields)
    fields |= {
        "together": together if lookback else textwrap.indent(together, "    "), "store_parameter": "target, scratch: cute.Tensor, " if total else "", "store_argument": "target, scratch[None, None, warp], " if total else "",
        "scratch": "    scratch = memory.allocate_tensor(cutlass.Float32, cute.make_layout((width, 32, WARPS), stride=(33, 1, 33 * width)), 16)\n" if total else "",
        "target": "    target = cutlass.Int64(row) * (columns + 1)  # where the row starts in y\n" if total else "",
    }  # fmt: skip
    identity = f"IDENTITY = {'-math.inf' if fields['identity'].startswith('-') else fields['identity']}  # what combines with anything to give it back\n" if total else ""
    text = TILE.format(**fields).replace("\nTHREADS", f"\n{identity}THREADS", 1) + (LOOKBACK if lookback else ROWS).format(**fields)
    return Parts(kernels=text.rstrip() + WHOLE, forward=_forward(binding, names, lookback, total), imports="import math")


def _fields(stage: Stage, names: tuple[str, ...]) -> dict[str, str]:
    value, named = stage.operation.positional[0], dict(stage.operation.named)
    op, reverse, exclusive = str(named.get("op", "sum")), bool(named.get("reverse", 0)), named.get("exclusive", 0)

    def both(a: str, b: str) -> str:
        return COMBINE[op].format(a=a, b=b)

    combined = both("offset", "value")
    stores = {0: INCLUSIVE, 1: EXCLUSIVE, 2: WITH_TOTAL}[int(str(exclusive))]
    element = "width - 1 - e" if reverse else "e"
    return {
        "functions": definitions(functions_used(value)), "threads": str(setting(stage, "threads", 256)), "per_thread": str(setting(stage, "per_thread", 16)), "identity": IDENTITY[op],
        "parameters": ", ".join(f"{name}: cute.Tensor" for name in names), "names": ", ".join(names), "element": element,
        "place": "vectors - 1 - (first + v * 32)" if reverse else "first + v * 32",
        "fragments": "\n".join(FRAGMENT.format(name=name) for name in names), "value": expression(value, {name: f"{name}_part[e].to(cutlass.Float32)" for name in names}),
        "combine_in": both("kept[e - 1, v]", "kept[e, v]"), "combine_running": both("below", "running"), "combine_before": both("carry", "earlier"), "combine_carry": both("carry", "last"),
        "combine_offset": both("earlier", "before[v]"), "combine_together": both("together", "total"), "combine_other": both("value", "other"), "combine_found": both("value", "found"),
        "combine_publish": both("value", "together"), "combine_earlier": both("value", "earlier"),
        "store": stores.format(combined=combined, element=element, first_element="width - 1" if reverse else "0", next_element="width - 2 - e" if reverse else "e + 1"),
    }  # fmt: skip


def _views(binding: Binding, names: tuple[str, ...], least: int) -> list[str]:
    """Operands as forward names them, contiguous; a mask of booleans as bytes; all of one shape with `least` axes or more."""
    bound, first = dict(binding.operands), names[0]
    checks = [expect_axes(called(first, bound), first, least), *(expect(called(name, bound), name, f"{first}.shape", "" if name == first else "EXACT") for name in names)]
    return [f"{', '.join(names)} = {', '.join(f'whole({bound.get(name, name)})' for name in names)}", *checks]


WHOLE = '''

def whole(tensor):
    """The tensor without gaps; truth values as bytes."""
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor

'''


def _forward(binding: Binding, names: tuple[str, ...], lookback: bool, total: bool) -> str:
    first = names[0]
    flat = [f"    from_dlpack({name}.view(-1), assumed_align=width * {name}.element_size()).mark_layout_dynamic()," for name in names]
    y_align = "" if total else ", assumed_align=width * y.element_size()"
    lines = [
        *_views(binding, names, 1),
        f"columns = {first}.shape[-1]",
        f"y = torch.empty({'*' + first + '.shape[:-1], columns + 1' if total else first + '.shape'}, dtype={first}.dtype, device={first}.device)",
        f"if {first}.numel() == 0:",
        f"    return y{'.fill_(IDENTITY)' if total else ''}",
        *expect_few((called(first, dict(binding.operands)), "y")),
        f"rows = {first}.numel() // columns",
        "# an access moves at most 16 bytes; all rows and all starts must allow it",
        f"width = math.gcd(columns, *(part for t in ({', '.join(names)},) for part in (16 // t.element_size(), t.data_ptr() // t.element_size())))",
    ]
    if lookback:
        lines += [
            "tiles = -(-columns // TILE)",
            f"scratch = torch.zeros(rows * tiles + 1, dtype=torch.int64, device={first}.device)  # one memset for statuses and ticket",
            "status, ticket = from_dlpack(scratch[1:]).mark_layout_dynamic(), from_dlpack(scratch[:1].view(torch.int32)).mark_layout_dynamic()",
        ]
        sizes = "cutlass.Int32(columns), cutlass.Int32(tiles), cutlass.Int32(rows * tiles)"
    else:
        sizes = "cutlass.Int32(columns), cutlass.Int32(rows)"
    scratch = "    status, ticket,\n" if lookback else ""
    kinds = ", ".join(f"{name}.dtype" for name in names)
    lines += [f"call(scan, ({kinds}, width), (", *flat, f"    from_dlpack(y.view(-1){y_align}).mark_layout_dynamic(),\n{scratch}    {sizes},", "), (width,))", "return y"]
    return "\n".join(lines)


def _columns(stage: Stage, binding: Binding) -> Parts:
    """x as (what is before the axis, the axis, what is after it): one thread for each column."""
    value, named = stage.operation.positional[0], dict(stage.operation.named)
    names, op, axis = names_in(value), str(named.get("op", "sum")), int(str(named["axis"]))
    combined = COMBINE[op].format(a="so_far", b="kept[i]")
    store = "y[batch, row, column] = so_far.to(y.element_type)"
    step = [store, f"so_far = {combined}"] if named.get("exclusive", 0) else [f"so_far = {combined}", store]
    text = COLUMNS.format(
        functions=definitions(functions_used(value)), parameters=", ".join(f"{name}: cute.Tensor" for name in names), names=", ".join(names), threads=setting(stage, "threads", 128), identity=IDENTITY[op],
        row="rows - 1 - start - i" if named.get("reverse", 0) else "start + i", value=expression(value, {name: f"{name}[batch, row, column].to(cutlass.Float32)" for name in names}), step=textwrap.indent("\n".join(step), " " * 20),
    )  # fmt: skip
    first = names[0]
    lines = [
        *_views(binding, names, axis + 1),
        f"y = torch.empty_like({first})",
        "if y.numel() == 0:",
        "    return y",
        f"batches, rows, columns = math.prod(y.shape[:{axis}]), y.shape[{axis}], math.prod(y.shape[{axis} + 1:])",
        f"call(scan, ({', '.join(f'{name}.dtype' for name in names)},), (",
        *[f"    from_dlpack({name}.view(batches, rows, columns)).mark_layout_dynamic(leading_dim=2)," for name in (*names, "y")],
        "    cutlass.Int32(batches), cutlass.Int32(rows), cutlass.Int32(columns),",
        "))",
        "return y",
    ]
    return Parts(kernels=text + WHOLE, forward="\n".join(lines), imports="import math")


def check(stage: Stage) -> list[Rejection]:
    """Rejections of a scan."""
    named = dict(stage.operation.named)
    if len(stage.operation.positional) != 1:
        return [Rejection(field="scan", value=str(len(stage.operation.positional)), reason="takes one expression", legal="for example x, or mul(x, mask)")]
    found = check_expression(stage.operation.positional[0])
    if not names_in(stage.operation.positional[0]):
        found.append(Rejection(field="scan", value=str(stage.operation.positional[0]), reason="names no tensor", legal="for example x"))
    axis = named.get("axis", "last")
    if axis != "last" and (not isinstance(axis, int) or axis < 0):
        found.append(Rejection(field="axis", value=str(axis), reason="along which axis to scan", legal="last, or its number from 0"))
    if named.get("exclusive", 0) == 2 and (axis != "last" or named.get("reverse", 0)):
        found.append(Rejection(field="exclusive", value="2", reason="a total after the last element is for the last axis, from its start", legal="0, 1"))
    if axis != "last":
        found += unwanted(stage, ("schedule", "per_thread"), "is for the last axis")
    return found


ABOUT = "scan(expression, op=sum|prod|max, axis=last|number, exclusive=0|1|2, reverse=0|1) of tensors of one shape; exclusive=2 appends the total"
SETTINGS = (
    ARCH, THREADS,
    Setting(name="per_thread", values=(8, 16, 32), reason="elements that a thread keeps in registers"),
    Setting(name="schedule", values=("rows", "lookback"), reason="a CTA for each row, or one for each tile of a row", meaning="{values}: a CTA walks over a row (rows), or has one tile of it and looks back at the tiles before (lookback)"),
)  # fmt: skip
ARGUMENTS = (
    one_of("op", tuple(IDENTITY), "what is combined"), checked("axis", "last, or its number from 0"), one_of("exclusive", (0, 1, 2), "1: without the element itself; 2: and the total after the last one"), flag("reverse", "whether it starts at the end"),
)  # fmt: skip
OPERATIONS = (Operation(name="scan", about=ABOUT, settings=SETTINGS, emit=emit, check=check, arguments=ARGUMENTS),)
