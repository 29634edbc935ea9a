"""gemm(a, b) .mma(...) .schedule(...) -> a Hopper kernel: TMA and mbarriers feed wgmma, warp-specialised, persistent, with clusters.

Operands as in `gemm`: a (batch, m, k), b (batch, k, n), d (batch, m, n), any strides. TMA reads rows that start at multiples of 16 bytes and
cuts off what sticks out; an operand that lies otherwise (odd leading dimension, TF32 or 8-bit floats not along k) is first copied into rows that
do, by a kernel of its own. A result whose rows do not is stored by the threads. cooperative: the warpgroups that multiply share a tile by its
rows; pingpong: each has a tile of its own, and stores it while the other multiplies. swap: the kernel computes the transposed product, so that
a small m is what wgmma calls n. splitk: parts of k are added by a second kernel, or in the shared memories of a cluster. streamk: `hopper_streamk`.
"""

from __future__ import annotations

from workbench.dsl import epilogue, hopper_finish, hopper_forward, hopper_streamk
from workbench.dsl.hopper_operands import OPERANDS, OPERANDS_IN_PARTS
from workbench.dsl.hopper_plan import ALONG_K, TF32, Plan, plan_of
from workbench.dsl.hopper_text import (
    EARLY,
    FIND_LOADED,
    FIND_MULTIPLIED,
    FRAGMENT_A,
    FRAGMENT_A_REGISTERS,
    KERNEL,
    MOST_WORKS,
    MULTIPLY,
    MULTIPLY_REGISTERS,
    PLACE,
    RESIDENT,
    SHARE,
    WORKS,
)
from workbench.dsl.ir import Binding, Stage
from workbench.dsl.pieces import Parts

ELEMENTS = {"f16": "Float16", "bf16": "BFloat16", "tf32": "TFloat32", "tf32x3": "TFloat32", "e4m3": "Float8E4M3FN", "e5m2": "Float8E5M2"}
STORED = {"f16": ("Float16", "float16"), "bf16": ("BFloat16", "bfloat16"), "tf32": ("Float32", "float32"), "tf32x3": ("Float32", "float32"), "e4m3": ("Uint8", "float8_e4m3fn"), "e5m2": ("Uint8", "float8_e5m2")}  # in memory, in CuTe DSL's and in torch's words
TRIVIAL_MMA = "sm90.make_trivial_tiled_mma(ELEMENT, ELEMENT, major_a.sm90_mma_major_mode(), major_b.sm90_mma_major_mode(), cutlass.Float32, (1, 1, 1), tiler_mn=(64, TILE_N))"
TF32_MMA = "cute.make_tiled_mma(cute.make_mma_atom(MmaTF32Op(ELEMENT, cutlass.Float32, (64, TILE_N, 8), warpgroup.OperandSource.SMEM, OperandMajorMode.K, OperandMajorMode.K)), (1, 1, 1))"
TF32_CLASS = '''
class MmaTF32Op(warpgroup.MmaF16BF16Op):
    """wgmma m64nNk8 on TF32: CuTe DSL 4.8 has no name for it, its compiler has. Both operands lie along k."""

    def _verify(self):
        pass

'''
IMPORTS = "import functools\nimport weakref\n\nimport cutlass.pipeline as pipeline\nimport cutlass.utils as utils\nimport cutlass.utils.hopper_helpers as sm90\nfrom cutlass.cute.nvgpu import cpasync, warp, warpgroup\nfrom cutlass.tensor_utils import LayoutEnum"


def emit(stage: Stage, binding: Binding, functions: str) -> Parts:
    """The kernels and the body of forward; `functions` defines the scalar functions of the epilogue."""
    plan, chain = plan_of(stage), epilogue.chain_of(stage)
    fields = fields_of(plan, chain, functions)
    operands = OPERANDS_IN_PARTS if plan.kind == "tf32x3" else OPERANDS
    return Parts(kernels=KERNEL.format(operands=operands.format(**fields), **fields), forward=hopper_forward.forward(binding, chain, plan, result_of(plan)[1]), imports=imports_of(plan))


def imports_of(plan: Plan) -> str:
    """What the kernels import."""
    return IMPORTS.replace("import cpasync", "import OperandMajorMode, cpasync") if plan.kind in TF32 else IMPORTS


def fields_of(plan: Plan, chain: epilogue.Chain, functions: str) -> dict[str, object]:
    """All pieces of KERNEL."""
    cm, cn = plan.cluster
    read = chain if plan.splits == 1 or plan.in_cluster else epilogue.Chain()  # the others are read by the kernel that adds
    fields: dict[str, object] = {
        "functions": functions + hopper_finish.helpers(plan, chain), **_types(plan.kind), "tm": plan.tile[0], "tn": plan.tile[1], "tk": plan.tile[2], "cm": cm, "cn": cn, "stages": plan.stages,
        "groups": plan.groups, "rows": plan.rows, "band": plan.band, "parameter": read.parameters, "argument": read.arguments,
        "operation_a": _load(cn), "operation_b": _load(cm), "send_a": ", mcast_mask=to_a" if cn > 1 else "", "send_b": ", mcast_mask=to_b" if cm > 1 else "",
        "early": EARLY if plan.early else "", "pdl": ", use_pdl=True" if plan.early else "", "resident": "" if plan.in_cluster else RESIDENT,
        **_scheduled(plan), **_multiplied(plan), **hopper_finish.fields(plan, chain, result_of(plan)[0]), **_walk(plan),
    }  # fmt: skip
    return hopper_streamk.fields(plan, fields) if plan.streamk else fields


def _types(kind: str) -> dict[str, str]:
    """The pieces of text that depend on what is multiplied."""
    stored, dtype = STORED[kind]
    pieces = {"element": ELEMENTS[kind], "stored": stored, "dtype": dtype, "rounded": "", "operation_class": "", "tiled_mma": TRIVIAL_MMA, "recast": "", "reads": "TMA", "along_k": "", "bits": ""}
    if kind in ALONG_K:
        pieces |= {"reads": "wgmma", "along_k": " and tensor.stride(2) == 1", "recast": "    a, b = (cute.recast_tensor(t, ELEMENT) for t in (a, b))\n"}
    if kind in TF32:
        pieces |= {"rounded": "; TMA rounds it on the way" if kind == "tf32" else "", "operation_class": TF32_CLASS, "tiled_mma": TF32_MMA}
    elif kind in ALONG_K:
        pieces |= {"rounded": ": the bits of", "bits": ".view(torch.uint8)"}
    return pieces


def result_of(plan: Plan) -> tuple[str, str]:
    """(CuTe DSL's type of what the kernel stores, torch's of the result)."""
    kind = ("cutlass.BFloat16", "torch.bfloat16") if plan.kind in ("e4m3", "e5m2") else ("STORED", "a.dtype")
    cuda_type, dtype = epilogue.CASTS[plan.cast][:2] if plan.cast else kind
    return "cutlass.Float32" if plan.splits > 1 else cuda_type, dtype


def _load(sharers: int) -> str:
    return "cpasync.CopyBulkTensorTileG2SMulticastOp()" if sharers > 1 else "cpasync.CopyBulkTensorTileG2SOp()"


def _walk(plan: Plan) -> dict[str, str]:
    """The pieces of text that say which tile a piece of work is, and which steps of k belong to it."""
    split = _split(plan)
    schedule = SCHEDULES[plan.schedule]
    return {
        **split, "place": PLACE.format(**_place(plan)), "works": WORKS, "most_works": MOST_WORKS, "start_loaded": "", "start_multiplied": "", "from_a": "from_a", "batch_a": split["batch"], "batch_b": split["batch"],
        "find_loaded": FIND_LOADED.format(**split), "find_multiplied": FIND_MULTIPLIED.format(shift=schedule["shift"], **split), "raster": _place(plan)["raster"],
        "shares": "", "item": "work", "range_loaded": "cluster, works, clusters", "range_multiplied": f"{schedule['first']}, works, {schedule['stride']}",
    }  # fmt: skip


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


def _multiplied(plan: Plan) -> dict[str, str]:
    """The pieces of text that multiply: wgmma's first operand out of shared memory, or through registers, where it may lie along its rows."""
    count = _split(plan)["multiplied"]
    if plan.registers:
        pieces = {"fragment_a": FRAGMENT_A_REGISTERS, "multiply": MULTIPLY_REGISTERS.format(multiplied=count)}
        return {**pieces, "either": ", either=False", "pass_either": ", either", "along_k": " and (either or tensor.stride(2) == 1)", "tiled_mma": TF32_MMA.replace("OperandSource.SMEM", "OperandSource.RMEM")}
    schedule = SCHEDULES[plan.schedule]
    return {"fragment_a": FRAGMENT_A, "multiply": MULTIPLY.format(multiplied=count, pass_turn=schedule["pass_turn"], skip_other=schedule["skip_other"]), "either": "", "pass_either": ""}


SCHEDULES = {"cooperative": COOPERATIVE, "pingpong": PINGPONG}


def _split(plan: Plan) -> dict[str, str]:
    """The pieces of text that say which steps of k belong to a piece of work."""
    if plan.splits == 1:
        steps = "count" if plan.streamk else "steps"
        return {"splits": "", "share": "", "share_loaded": "", "share_multiplied": "", "loaded": "steps", "multiplied": steps, "batch": "batch"}
    what, batch = ("in_k", "batch") if plan.in_cluster else ("batch % SPLITS", "batch // SPLITS")
    how = "CTAs of a cluster take one each and add them up" if plan.in_cluster else "each has its own sums, which a second kernel adds"
    return {
        "splits": f"SPLITS = {plan.splits}  # parts of k; {how}\n", "share": SHARE, "share_loaded": f"\n                first, count = share({what}, steps)",
        "share_multiplied": f"\n            _, count = share({what}, steps)", "loaded": "first, first + count", "multiplied": "count", "batch": batch,
    }  # fmt: skip


def _scheduled(plan: Plan) -> dict[str, str]:
    pieces = SCHEDULES[plan.schedule]
    registers = ("\n        cute.arch.setmaxregister_decrease(40)", "\n        cute.arch.setmaxregister_increase(232)") if plan.groups > 1 and not plan.in_cluster else ("", "")
    about = pieces["about"].format(groups=plan.groups, rows=plan.rows) if plan.groups > 1 else "one warpgroup multiplies"
    return {**pieces, "about": about, "give_registers": registers[0], "take_registers": registers[1]}
