"""gemm(a, b) .mma(...) .schedule(...) -> a Hopper kernel: TMA and mbarriers feed wgmma, warp-specialised, persistent, with clusters.

Operands as in `gemm`: a (batch, m, k), b (batch, k, n), d (batch, m, n), any strides. TMA reads rows that start at multiples of 16 bytes and
cuts off what sticks out; an operand that lies otherwise (odd leading dimension, TF32 or 8-bit floats not along k) is first copied into rows that
do, by a kernel of its own. A result whose rows do not is stored by the threads. cooperative: the warpgroups that multiply share a tile by its
rows; pingpong: each has a tile of its own, and stores it while the other multiplies.
"""

from __future__ import annotations

import textwrap

from workbench.dsl.hopper_text import COMBINE, KERNEL, SHARE
from workbench.dsl.ir import Binding, Stage, setting
from workbench.dsl.pieces import Parts, epilogue_lines
from workbench.records import record

ELEMENTS = {"f16": "Float16", "bf16": "BFloat16", "tf32": "TFloat32", "e4m3": "Float8E4M3FN", "e5m2": "Float8E5M2"}
STORED = {"f16": ("Float16", "float16"), "bf16": ("BFloat16", "bfloat16"), "tf32": ("Float32", "float32"), "e4m3": ("Uint8", "float8_e4m3fn"), "e5m2": ("Uint8", "float8_e5m2")}  # in memory, in CuTe DSL's and in torch's words
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}
ALONG_K = ("tf32", "e4m3", "e5m2")  # wgmma takes these along k only
SHARED_BYTES = 232_448  # a CTA's share on sm_90a
TRIVIAL_MMA = "sm90.make_trivial_tiled_mma(ELEMENT, ELEMENT, major_a.sm90_mma_major_mode(), major_b.sm90_mma_major_mode(), cutlass.Float32, (1, 1, 1), tiler_mn=(64, TILE_N))"
TF32_MMA = "cute.make_tiled_mma(cute.make_mma_atom(MmaTF32Op(ELEMENT, cutlass.Float32, (64, TILE_N, 8), warpgroup.OperandSource.SMEM, OperandMajorMode.K, OperandMajorMode.K)), (1, 1, 1))"
TF32_CLASS = '''
class MmaTF32Op(warpgroup.MmaF16BF16Op):
    """wgmma m64nNk8 on TF32: CuTe DSL 4.8 has no name for it, its compiler has. Both operands lie along k."""

    def _verify(self):
        pass

'''
TURNED = ".transpose(-2, -1)"
IMPORTS = "import functools\nimport weakref\n\nimport cuda.bindings.driver as cuda\nimport cutlass.pipeline as pipeline\nimport cutlass.utils as utils\nimport cutlass.utils.hopper_helpers as sm90\nfrom cutlass.cute.nvgpu import cpasync, warp, warpgroup\nfrom cutlass.tensor_utils import LayoutEnum"


@record
class Plan:
    """The settings of one kernel, defaults filled in. Tile (m, n, k) and cluster (m, n) in elements and CTAs; band in tiles."""

    kind: str  # f16, bf16, tf32, e4m3 or e5m2: what wgmma multiplies
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    stages: int
    schedule: str  # cooperative or pingpong
    raster: str  # along_m or along_n: where neighbouring CTAs go first
    band: int
    store: str  # tma or direct
    splits: int = 1  # parts of k that are summed up apart, in float32, and added by a second kernel

    @property
    def groups(self) -> int:
        """Warpgroups that multiply."""
        return 1 if self.schedule == "cooperative" and self.tile[0] == 64 else 2

    @property
    def rows(self) -> int:
        """Rows of a tile that one warpgroup computes."""
        return self.tile[0] if self.schedule == "pingpong" else self.tile[0] // self.groups

    @property
    def result_bytes(self) -> int:
        """Bytes of one element that the kernel stores; the product of 8-bit floats is bfloat16."""
        return max(BYTES[self.kind], 2) if self.splits == 1 else 4

    @property
    def store_columns(self) -> int:
        """Columns of 64 rows that one TMA store moves: as many as a swizzled row of 128 bytes has."""
        return next(width for width in (128 // self.result_bytes, 32, 16, 8) if self.tile[1] % width == 0)

    @property
    def buffers(self) -> int:
        """Pieces of the result that a warpgroup keeps in shared memory: one is written while the one before it leaves."""
        return 2 if self.rows // 64 * (self.tile[1] // self.store_columns) % 2 == 0 else 1

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory for the result."""
        return self.groups * self.buffers * 64 * self.store_columns * self.result_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages, result, mbarriers."""
        return self.stages * stage_bytes(self.kind, self.tile) + self.epilogue_bytes + 1024


def stage_bytes(kind: str, tile: tuple[int, int, int]) -> int:
    """Bytes of one tile of a and one of b."""
    return (tile[0] + tile[1]) * tile[2] * BYTES[kind]


def most_stages(plan: Plan) -> int:
    """How many stages fit."""
    return (SHARED_BYTES - 1024 - plan.epilogue_bytes) // stage_bytes(plan.kind, plan.tile)


def default_tile(kind: str) -> tuple[int, int, int]:
    """128 rows, 256 columns, and 128 bytes along k."""
    return (128, 256, 128 // BYTES.get(kind, 2))


def pair(value: object, default: tuple[int, int]) -> tuple[int, int]:
    """A setting of two numbers; the second is 1 when only one is given."""
    if isinstance(value, int):
        return value, 1
    return (int(value[0]), int(value[1])) if isinstance(value, tuple) and len(value) == 2 else default


def plan_of(stage: Stage) -> Plan:
    """The settings of a checked stage."""
    import dataclasses

    tile = setting(stage, "tile")
    raster = setting(stage, "raster", ("along_m", 8))
    way, band = raster if isinstance(raster, tuple) else (raster, 8)
    plan = Plan(
        kind=str(setting(stage, "mma", "f16")), tile=tile if isinstance(tile, tuple) else default_tile(str(setting(stage, "mma", "f16"))), cluster=pair(setting(stage, "cluster"), (1, 1)), stages=0,
        schedule=str(setting(stage, "schedule", "cooperative")), raster=str(way), band=int(str(band)), store=str(setting(stage, "store", "tma")), splits=int(str(setting(stage, "splitk", 1))),
    )  # fmt: skip
    stages = setting(stage, "stages")
    return dataclasses.replace(plan, stages=stages if isinstance(stages, int) else min(most_stages(plan), 8))


def emit(stage: Stage, binding: Binding, functions: str) -> Parts:
    """The kernels and the body of forward; `functions` defines the scalar functions of the epilogue."""
    plan = plan_of(stage)
    bias = any(call.name == "bias" for call in stage.epilogues)
    early = bias and plan.splits == 1  # whether the multiplying kernel adds it
    cm, cn = plan.cluster
    fields = {
        "functions": functions, **_types(plan.kind), "tm": plan.tile[0], "tn": plan.tile[1], "tk": plan.tile[2], "cm": cm, "cn": cn, "stages": plan.stages,
        "groups": plan.groups, "rows": plan.rows, "band": plan.band, "store_n": plan.store_columns, "buffers": plan.buffers,
        "parameter": "bias: cute.Tensor, " if early else "", "argument": "bias, " if early else "",
        "operation_a": _load(cn), "operation_b": _load(cm), "send_a": ", mcast_mask=to_a" if cn > 1 else "", "send_b": ", mcast_mask=to_b" if cm > 1 else "",
        **_place(plan), **_scheduled(plan), **_split(stage, plan), "finish": _finish(stage) if plan.splits == 1 else "",
    }  # fmt: skip
    imports = IMPORTS.replace("import cpasync", "import OperandMajorMode, cpasync") if plan.kind == "tf32" else IMPORTS
    return Parts(kernels=KERNEL.format(**fields), forward=_forward(binding, bias, plan), imports=imports)


def _types(kind: str) -> dict[str, str]:
    """The pieces of text that depend on what is multiplied."""
    stored, dtype = STORED[kind]
    pieces = {"element": ELEMENTS[kind], "stored": stored, "dtype": dtype, "rounded": "", "operation_class": "", "tiled_mma": TRIVIAL_MMA, "recast": "", "reads": "TMA", "along_k": "", "bits": ""}
    if kind in ALONG_K:
        pieces |= {"reads": "wgmma", "along_k": " and tensor.stride(2) == 1", "recast": "    a, b = (cute.recast_tensor(t, ELEMENT) for t in (a, b))\n"}
    if kind == "tf32":
        pieces |= {"rounded": "; TMA rounds it on the way", "operation_class": TF32_CLASS, "tiled_mma": TF32_MMA}
    elif kind in ALONG_K:
        pieces |= {"rounded": ": the bits of", "bits": ".view(torch.uint8)"}
    return pieces


def _result(kind: str) -> tuple[str, str]:
    """(CuTe DSL's type of the result, torch's)."""
    return ("STORED", "a.dtype") if kind not in ("e4m3", "e5m2") else ("cutlass.BFloat16", "torch.bfloat16")


def _load(sharers: int) -> str:
    return "cpasync.CopyBulkTensorTileG2SMulticastOp()" if sharers > 1 else "cpasync.CopyBulkTensorTileG2SOp()"


def _place(plan: Plan) -> dict[str, str]:
    if plan.raster == "along_m":
        return {"raster": "rows of tiles", "outer": "rows", "inner": "columns", "found": "first + within % high, within // high"}
    return {"raster": "columns of tiles", "outer": "columns", "inner": "rows", "found": "within // high, first + within % high"}


COOPERATIVE = {
    "about": "{groups} warpgroups multiply, {rows} rows of each tile each",
    "own_a": "cute.local_tile(shared_a, (ROWS, TILE_K, STAGES), (group, 0, 0))  # the rows of this warpgroup",
    "first": "cluster", "stride": "clusters", "shift": " + group * ROWS", "arrivals": "4 * GROUPS",
    "order": "", "skip_start": "", "wait_turn": "", "pass_turn": "", "skip_other": "",
}  # fmt: skip
PINGPONG = {
    "about": "{groups} warpgroups take turns: one multiplies while the other stores",
    "own_a": "shared_a",
    "first": "cluster + group * clusters", "stride": "GROUPS * clusters", "shift": "", "arrivals": "4",
    "order": """
    turns = memory.allocate_array(cutlass.Int64, GROUPS)  # whose turn it is to multiply
    if thread < GROUPS:
        cute.arch.mbarrier_init(turns + thread, 128)""",
    "skip_start": """
        turn = cutlass.Int32(0)
        if group == 1:
            # the first tile belongs to the other warpgroup, which may start at once
            reading.advance(steps)
            releasing.advance(steps)
            cute.arch.mbarrier_arrive(turns)""",
    "wait_turn": """
            cute.arch.mbarrier_wait(turns + group, turn)
            turn = 1 - turn""",
    "pass_turn": """
            cute.arch.mbarrier_arrive(turns + 1 - group)""",
    "skip_other": """
            # the stages in between hold the other warpgroup's tile
            reading.advance(steps)
            releasing.advance(steps)""",
}  # fmt: skip


def _split(stage: Stage, plan: Plan) -> dict[str, str]:
    """The pieces of text that say which steps of k belong to a piece of work."""
    if plan.splits == 1:
        return {"result": _result(plan.kind)[0], "splits": "", "share": "", "combine": "", "share_loaded": "", "share_multiplied": "", "loaded": "steps", "multiplied": "steps", "batch": "batch"}
    bias = any(call.name == "bias" for call in stage.epilogues)
    epilogue = textwrap.indent("\n".join(epilogue_lines(stage, "bias[column]")), " " * 8)
    combine = COMBINE.format(parameter="bias: cute.Tensor, " if bias else "", argument="bias, " if bias else "", epilogue=epilogue).replace("\n\n        d[", "\n        d[")
    return {
        "result": "cutlass.Float32", "splits": f"SPLITS = {plan.splits}  # parts of k; each has its own sums, which a second kernel adds\n", "share": SHARE, "combine": combine,
        "share_loaded": "\n                first, count = share(batch, steps)", "share_multiplied": "\n            _, count = share(batch, steps)",
        "loaded": "first, first + count", "multiplied": "count", "batch": "batch // SPLITS",
    }  # fmt: skip


def _scheduled(plan: Plan) -> dict[str, str]:
    pieces = PINGPONG if plan.schedule == "pingpong" else COOPERATIVE
    registers = ("\n        cute.arch.setmaxregister_decrease(40)", "\n        cute.arch.setmaxregister_increase(232)") if plan.groups > 1 else ("", "")
    about = pieces["about"].format(groups=plan.groups, rows=plan.rows) if plan.groups > 1 else "one warpgroup multiplies"
    return {**pieces, "about": about, "give_registers": registers[0], "take_registers": registers[1]}


def _finish(stage: Stage) -> str:
    """What happens to each total between the multiplication and the store."""
    lines = epilogue_lines(stage, "bias[cutlass.min(n0 + where[e][1], n - 1)]")  # past the edge, any value will do
    if not lines:
        return ""
    return textwrap.indent("\n".join(["for e in cutlass.range_constexpr(cute.size(totals)):", "    total = totals[e]", *("    " + line for line in lines), "    totals[e] = total", ""]), " " * 12)


def _forward(binding: Binding, bias: bool, plan: Plan) -> str:
    bound = dict(binding.operands)
    (a, a_turned), (b, b_turned) = (_stored(bound.get(name, name)) for name in ("a", "b"))
    extra = bound.get("bias", "bias")
    bias_view = [f"    from_dlpack({extra}.detach()).mark_layout_dynamic(),"] if bias else []
    bias_key = f"{extra}.dtype, " if bias else ""
    split = plan.splits > 1
    target = "partial" if split else "d3"
    lines = [
        *([f"a, b = {a}, {b}"] if (a, b) != ("a", "b") else []),
        f"d = torch.empty(*a.shape[:-{2 if a_turned else 1}], {'a.shape[-1], ' if a_turned else ''}b.shape[-{2 if b_turned else 1}], dtype={_result(plan.kind)[1]}, device=a.device)",
        "d3 = d if d.dim() == 3 else d.unsqueeze(0)",
        *(["partial = torch.empty(d3.shape[0] * SPLITS, *d3.shape[1:], dtype=torch.float32, device=a.device)"] if split else []),
        f"(left, left_first), (right, right_first) = operand(a, {a_turned}), operand(b, {not b_turned})  # as (batch, m, k) and (batch, n, k)",
        f"by_tma = {f'{target}.shape[-1] * {target}.element_size() % 16 == 0  # otherwise the threads store the result' if plan.store == 'tma' else 'False'}",
        "stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)",
        f"call(gemm, ({'' if split else bias_key}by_tma, left_first, right_first), (",
        "    left, right,",
        *([] if split else bias_view),
        f"    from_dlpack({target}, assumed_align=16 if by_tma else None).mark_layout_dynamic(leading_dim=2),",
        "    stream,",
        "), (by_tma, resident()))",
    ]
    if split:
        lines += [f"call(combine, ({bias_key}d.dtype,), (", "    from_dlpack(partial).mark_layout_dynamic(leading_dim=2),", *bias_view, "    from_dlpack(d3).mark_layout_dynamic(leading_dim=2),", "    stream,", "))"]
    return "\n".join([*lines, "return d"])


def _stored(expression: str) -> tuple[str, bool]:
    """(the tensor itself, whether the operand is its transpose): the tensor is the same object at every call, a view of it is not."""
    turned = expression.endswith(TURNED)
    return expression.removesuffix(TURNED), turned
