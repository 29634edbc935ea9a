"""conv(x, w) and convtranspose(x, w) .mma(...) .schedule(...) -> Hopper kernels: an implicit product that TMA and mbarriers feed to wgmma, warp-specialised, persistent.

Three kernels. The first copies the input onto a grid of places, channels last (NHWC), its padding written as zeros, and for a stride the inputs that are a stride apart beside
each other; the second lays the filters out as (filter, tap, channel). Both cost little beside the third, whose tile of the input for one tap is then a plain tile of the grid,
some rows further on: no im2col matrix is built, and strides, dilations and transposed convolutions differ only in a table of taps. Its results go out as torch has them
(channels before places) through shared memory.
The grid has a few places more than the result (those under the filter's overhang); they are computed and dropped.
"""

from __future__ import annotations

import dataclasses
import textwrap

from workbench.dsl import conv_epilogue, conv_parts, epilogue, hopper, hopper_plan
from workbench.dsl.conv_around import ALONG_CONV, ALONG_TRANSPOSED, AROUND, CONVOLVE, COPIED, GEOMETRY, RESIDENT
from workbench.dsl.conv_text import KERNEL, LOAD
from workbench.dsl.ir import Binding, Stage, number, setting
from workbench.dsl.pieces import Parts
from workbench.records import record

IMPORTS = "import functools\nimport itertools\nimport types\nfrom typing import Any\n\nimport cutlass.pipeline as pipeline\nimport cutlass.utils as utils\nimport cutlass.utils.hopper_helpers as sm90\nfrom cutlass.cute.nvgpu import cpasync, warpgroup\nfrom cutlass.tensor_utils import LayoutEnum"
NAMES = ("stride", "padding", "dilation")
TEXT = f"{KERNEL}{AROUND}{RESIDENT}{{convolve}}\n"
CHANNEL_TAP = {
    False: "part, inner = divide(own + step * lines, depth)\nchannel, tap = part * channels + inner, 0",
    True: "inner = own + step * lines\ntap, channel = inner // per, inner % per",
}
PICK = '''
channel = part * channels + inner
group, own = divide(channel, w.shape[1])
of_group, _ = divide(filter, target.shape[0] // CHANNEL_GROUPS)
if group == of_group:
    value = w[filter, own, source]
'''
PICK_UNFOLDED = '''
tap, own = divide(inner, w.shape[1])
value = w[filter, own, source + tap]
'''
PICK_TRANSPOSED = '''
channel = part * channels + inner
group, _ = divide(channel, w.shape[0] // CHANNEL_GROUPS)
of_group, own = divide(filter, w.shape[1])
if group == of_group:
    value = w[channel, own, source]
'''
PINGPONG = {
    **hopper.PINGPONG,
    "skip_start": """
        turn = cutlass.Int32(0)
        if group == 1:
            # the first tile belongs to the other warpgroup, which may start at once
            _, _, theirs, _ = place(cluster, columns, phases.shape[0], rows)
            reading.advance(phases[theirs, 1] * each)
            releasing.advance(phases[theirs, 1] * each)
            cute.arch.mbarrier_arrive(turns)""",
    "skip_other": """
            # the stages in between hold the other warpgroup's tile
            _, _, theirs, _ = place(work + clusters, columns, phases.shape[0], rows)
            reading.advance(phases[theirs, 1] * each)
            releasing.advance(phases[theirs, 1] * each)""",
}  # fmt: skip

FRAGMENT = "((e % 2, e // 2 % 2, e // 4 % (STORE_N // 8) + j * (STORE_N // 8)), e // (STORE_N // 2), 0)"  # where element e of a piece of the result is among the thread's sums
READ = """for q in cutlass.range_constexpr(ROWS // 32):
    if places[q] >= 0:
        {role}_values[q] = cute.make_tensor({role}.iterator + (places[q] + row - d.iterator.toint()) // (d.element_type.width // 8), cute.make_layout(1))[0]
"""


@record
class Plan:
    """The settings of one kernel, defaults filled in. Tile (places, filters, input channels); cluster in CTAs along the places."""

    kind: str  # f16, bf16, tf32 or tf32x3: what wgmma multiplies
    tile: tuple[int, int, int]
    cluster: int
    stages: int
    schedule: str  # cooperative or pingpong
    unfold: bool  # whether the filter's last extent becomes channels of the copy

    @property
    def groups(self) -> int:
        """Warpgroups that multiply."""
        return 1 if self.schedule == "cooperative" and self.tile[0] == 64 else 2

    @property
    def rows(self) -> int:
        """Places of a tile that one warpgroup computes."""
        return self.tile[0] if self.schedule == "pingpong" else self.tile[0] // self.groups

    @property
    def store_channels(self) -> int:
        """Channels that a warpgroup stores at a time."""
        return next(width for width in (32, 16, 8) if self.tile[1] % width == 0)

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory for the results."""
        return self.groups * self.store_channels * (self.rows + 4) * 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages, results, mbarriers."""
        return self.stages * hopper_plan.stage_bytes(self.kind, self.tile) + self.epilogue_bytes + 1024


def most_stages(plan: Plan) -> int:
    """How many stages fit."""
    return (hopper_plan.SHARED_BYTES - 1024 - plan.epilogue_bytes) // hopper_plan.stage_bytes(plan.kind, plan.tile)


def plan_of(stage: Stage) -> Plan:
    """The settings of a checked stage."""
    kind = str(setting(stage, "mma", "tf32"))
    tile = setting(stage, "tile")
    plan = Plan(
        kind=kind, tile=tile if isinstance(tile, tuple) else (128, 128, 128 // hopper_plan.BYTES[kind]), cluster=number(stage, "cluster", 1), stages=0,
        schedule=str(setting(stage, "schedule", "cooperative")), unfold=setting(stage, "unfold") is not None,
    )  # fmt: skip
    stages = setting(stage, "stages")
    return dataclasses.replace(plan, stages=stages if isinstance(stages, int) else min(most_stages(plan), 8))


def arguments_of(stage: Stage) -> dict[str, object]:
    """The convolution's own settings: stride, padding, dilation, groups, and a transposed one's output_padding."""
    return {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0} | dict(stage.operation.named)


def emit(stage: Stage, binding: Binding, functions: str) -> Parts:
    """The kernels and the body of forward; `functions` defines the scalar functions of the epilogue."""
    imports = IMPORTS.replace("import cpasync", "import OperandMajorMode, cpasync") if plan_of(stage).kind in hopper_plan.TF32 else IMPORTS
    return Parts(kernels=without_blank(TEXT.format(**fields_of(stage, functions))), forward=forward_of(stage, binding), imports=imports)


def fields_of(stage: Stage, functions: str) -> dict[str, object]:
    """All pieces of KERNEL."""
    plan, transposed, chain = plan_of(stage), stage.operation.name == "convtranspose", epilogue.chain_of(stage)
    stored, dtype = hopper.STORED[plan.kind]
    tf32 = plan.kind in hopper_plan.TF32
    pieces = PINGPONG if plan.schedule == "pingpong" else hopper.COOPERATIVE
    registers = ("\n        cute.arch.setmaxregister_decrease(40)", "\n        cute.arch.setmaxregister_increase(232)") if plan.groups > 1 else ("", "")
    pick = PICK_TRANSPOSED if transposed else PICK_UNFOLDED if plan.unfold else PICK
    return {
        **pieces, "functions": functions, "tm": plan.tile[0], "tn": plan.tile[1], "tk": plan.tile[2], "cluster": plan.cluster, "stages": plan.stages, "groups": plan.groups, "rows": plan.rows,
        "store_n": plan.store_channels, "m0": "(tile_m * CLUSTER + in_m) * TILE_M", "fragment": FRAGMENT, "element": hopper.ELEMENTS[plan.kind], "stored": stored, "dtype": dtype, "rounded": "; TMA rounds it on the way" if tf32 else "",
        "operation_class": hopper.TF32_CLASS if tf32 else "", "tiled_mma": hopper.TF32_MMA if tf32 else hopper.TRIVIAL_MMA, "recast": "    a, b = (cute.recast_tensor(t, ELEMENT) for t in (a, b))\n" if tf32 else "",
        "about": pieces["about"].format(groups=plan.groups, rows=plan.rows) if plan.groups > 1 else "one warpgroup multiplies", "give_registers": registers[0], "take_registers": registers[1],
        "parameter": chain.parameters, "argument": chain.arguments, "operation_b": hopper._load(plan.cluster),
        "made": "".join(f"\n        {read.role}_values = cute.make_rmem_tensor(ROWS // 32, {read.role}.element_type)\n        {read.role}_values.fill(0.0)" for read in conv_epilogue.whole(chain)),
        "reads": textwrap.indent("".join(READ.format(role=read.role) if read.along == "both" else f"{_here(read)} = {read.role}[channel]\n" for read in chain.reads), " " * 24),
        "epilogue": textwrap.indent("\n".join(epilogue.lines(chain.calls, _here)), " " * 28),
        **_copies(plan), "load": textwrap.indent(_load_text(plan), " " * 16).rstrip("\n"), "pick": textwrap.indent(pick.strip("\n"), " " * 12), "geometry": f"{settings_line(stage)}\nCHANNEL_GROUPS = {arguments_of(stage)['groups']}\n\n" + geometry_text(stage, plan), "convolve": convolve_text(chain),
    }  # fmt: skip


def _load_text(plan: Plan) -> str:
    """The loops that fill stages: all channels of each tap, for tf32x3 in two sweeps."""
    send = ", mcast_mask=to_b" if plan.cluster > 1 else ""
    if plan.kind == "tf32x3":
        return conv_parts.SWEEPS + textwrap.indent(LOAD.format(begin="begin", end="end", send_b=send), " " * 4)
    return LOAD.format(begin="0", end="depth", send_b=send)


def _copies(plan: Plan) -> dict[str, str]:
    """What the copies make of a channel: itself, or for tf32x3 three of its parts."""
    if plan.kind == "tf32x3":
        return {"split": conv_parts.IN_PARTS, "copied": conv_parts.COPIED.format(channel_tap=textwrap.indent(conv_parts.CHANNEL_TAP[plan.unfold], " " * 16)), **conv_parts.ARRANGED}
    return {"split": "", "copied": COPIED.format(channel_tap=textwrap.indent(CHANNEL_TAP[plan.unfold], " " * 20)), "which": "", "inside": "inner < channels", "arranged": "value"}


def _here(read: epilogue.Read) -> str:
    """What the element of a tensor is called where it is used."""
    return f"{read.role}_values[q]" if read.along == "both" else "added" if read.role == "bias" else f"{read.role}_here"


def forward_of(stage: Stage, binding: Binding) -> str:
    """The body of forward."""
    return conv_epilogue.forward_text(binding, epilogue.chain_of(stage))


def without_blank(text: str) -> str:
    """No empty lines inside of statements that an empty piece of text leaves behind."""
    lines = text.splitlines()
    kept = [line for n, line in enumerate(lines) if line.strip() or not (n + 1 < len(lines) and lines[n + 1].startswith(" " * 24))]
    return "\n".join(kept) + "\n"


def settings_line(stage: Stage) -> str:
    """The convolution's settings as constants."""
    given = arguments_of(stage)
    names = [*NAMES, *(("output_padding",) if stage.operation.name == "convtranspose" else ())]
    return f"{', '.join(name.upper() for name in names)} = {', '.join(str(given[name]) for name in names)}  # one number, or one of each extent"


def geometry_text(stage: Stage, plan: Plan) -> str:
    """The host's part: where everything lies."""
    transposed = stage.operation.name == "convtranspose"
    fills = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    names = [*NAMES, *(("output_padding",) if transposed else ())]
    expected = "shape[0] != size[1]" if transposed else "shape[1] * CHANNEL_GROUPS != size[1]"
    in_parts = plan.kind == "tf32x3"
    return GEOMETRY.format(
        thrice="3 * " if in_parts else "", in_parts=" All channels are copied three times, in two parts." if in_parts else "",
        along=(ALONG_TRANSPOSED if transposed else ALONG_CONV).strip("\n"), more_names=", more" if transposed else "", more_zip=", more" if transposed else "",
        settings=", ".join(f"three({name.upper()}, space, {fills[name]})" for name in names), unfold=plan.unfold,
        planes="Results that are a stride apart are phases: the same taps reach them." if transposed else "For a stride there are planes: inputs that are a stride apart.",
        channels=f"channels, filters = size[1], {'shape[1] * CHANNEL_GROUPS' if transposed else 'shape[0]'}\n    if {expected}:\n        raise ValueError(f\"filters of shape {{shape}} for an input of shape {{size}} in {{CHANNEL_GROUPS}} groups\")",
    ).strip("\n")  # fmt: skip


def convolve_text(chain: epilogue.Chain, constants: str = ", (resident(),)") -> str:
    """The function that forward calls; `constants` is what the product is compiled for."""
    roles = conv_epilogue.roles(chain)
    spread = conv_epilogue.SPREAD.lstrip("\n") if conv_epilogue.whole(chain) else ""
    keys = ", ".join(f"{role}.dtype" for role in roles) or "None"
    return spread + CONVOLVE.format(constants=constants, parameters="".join(f", {role}" for role in roles), dtype=chain.dtype("x.dtype"), expected=conv_epilogue.expected(chain, "one.out[1]", "(*one.out[:2], *one.out[7 - x.dim():])"), keys=keys, views="".join(f"{view}, " for view in conv_epilogue.views(chain))).strip("\n")
