"""attention(q, k, v) -> softmax(scale * q @ k^T) @ v: flash attention on wgmma, on mma.sync, or on the ordinary pipes; or three kernels for large head dimensions."""

from __future__ import annotations

from workbench.dsl import attention_hopper, attention_mma, attention_stages, attention_text, gemm_checks
from workbench.dsl.gemm import MMA_OPERATIONS
from workbench.dsl.ir import Binding, Rejection, Stage, setting
from workbench.dsl.operation import ARCH, SHARED_BYTES, Argument, Operation, Setting, flag, is_number, unwanted
from workbench.dsl.pieces import Parts

TORCH = {"f16": "torch.float16", "bf16": "torch.bfloat16", "tf32": "torch.float32"}
SCHEDULES = ("flash", "stages")
PLAIN = """
dim = q4.shape[3]
if dim > 256{dtype}:
    raise ValueError(f"this kernel is for {about} and head dimensions up to 256, not for {{q4.dtype}} and {{dim}}; .schedule(stages) takes any dimension")
width = -(-dim // {step}) * {step}
{vector}call(attention, (q4.dtype, width,{key}), (
    {views}, cutlass.Float32(scale),
), (width,{key}))
"""
VIEWS = ", ".join(f"from_dlpack({name}4.detach()).mark_layout_dynamic(leading_dim=3)" for name in "qkvo")


def emit(stage: Stage, binding: Binding) -> Parts:
    """The kernels and the body of forward."""
    named = dict(stage.operation.named)
    causal, mma, schedule, arch = bool(named.get("causal", 0)), setting(stage, "mma"), setting(stage, "schedule"), str(setting(stage, "arch", "sm_80"))
    tile = setting(stage, "tile")
    if schedule == "stages":
        parts = attention_stages.emit(stage, causal)
    elif mma is None:
        queries, keys = tile if isinstance(tile, tuple) else (64, 64)
        plain = PLAIN.format(dtype="", about="any dtype", step=16, vector="", key="", views=VIEWS)
        parts = Parts(kernels=attention_text.SIMT.format(causal=causal, queries=queries, keys=keys), forward=plain)
    elif schedule == "flash":
        parts = _hopper(stage, causal, str(mma), tile)
    else:
        parts = _mma(causal, str(mma), tile, arch)
    return Parts(kernels=parts.kernels.rstrip() + attention_text.OPERANDS, forward=_forward(binding, named.get("scale"), parts.forward), imports=parts.imports)


def _hopper(stage: Stage, causal: bool, mma: str, tile: object) -> Parts:
    queries, keys = tile if isinstance(tile, tuple) else (128, 0)
    groups = int(queries) // 64
    widths = {width: keys or (128 if width <= 128 else 64) for width in (64, 128, 192, 256)}
    header = attention_hopper.HEADER.format(causal=causal, groups=groups, keys=widths, stages=setting(stage, "stages", 2), registers=REGISTERS[groups], shared=SHARED_BYTES["sm_90a"])
    return Parts(kernels=header + attention_text.ROWS.lstrip("\n") + attention_hopper.KERNEL, forward=attention_hopper.FORWARD.format(dtype=TORCH[mma], target="turned(o4, 2, 3, 1, 0)"), imports=attention_hopper.IMPORTS)


REGISTERS = {1: (56, 240), 2: (24, 240), 3: (32, 160)}  # warpgroups that multiply -> registers of a thread that loads, of one that multiplies


def _mma(causal: bool, mma: str, tile: object, arch: str) -> Parts:
    queries, keys = tile if isinstance(tile, tuple) else (128 if arch == "sm_90a" else 64, 64)
    element, operation, _, _ = MMA_OPERATIONS[mma]
    stored = "Float32" if mma == "tf32" else element
    pieces = attention_mma.TF32 if mma == "tf32" else attention_mma.SIXTEEN
    header = attention_mma.HEADER.format(causal=causal, stored=stored, element=element, warps=queries // 16, shared=SHARED_BYTES[arch] - 1024, keys=keys)
    kernel = attention_mma.KERNEL.format(operation=operation, whole="cutlass.min(keys, first_query + 1)" if causal else "keys", **pieces)
    forward = PLAIN.format(
        dtype=f" or q4.dtype != {TORCH[mma]}", about=TORCH[mma], step=32, key=" vector", views=VIEWS,
        vector="vector = access(q4, k4, v4)\n",
    )  # fmt: skip
    return Parts(kernels=header + attention_text.ROWS.lstrip("\n") + kernel, forward=forward, imports="import math")


def _forward(binding: Binding, scale: object, body: str) -> str:
    bound = dict(binding.operands)
    lines = [
        f"q, k, v = {', '.join(bound.get(name, name) for name in 'qkv')}",
        "out = torch.empty(q.shape, dtype=q.dtype, device=q.device)",
        "q4, k4, v4, o4 = four(q), four(k), four(v), four(out)",
        "fit(q4, k4, v4)",
        "if out.numel() == 0 or k.numel() == 0:",
        "    return out.zero_()  # nothing to attend to",
        f"scale = {'q.shape[-1] ** -0.5' if scale is None else repr(float(str(scale)))}",
        *body.strip("\n").splitlines(),
        "return out",
    ]
    return "\n".join(lines)


def check(stage: Stage) -> list[Rejection]:
    """Rejections of an attention."""
    found: list[Rejection] = []
    if len(stage.operation.positional) != 3:
        found.append(Rejection(field="attention", value=str(len(stage.operation.positional)), reason="takes three operands", legal="attention(q, k, v)"))
    mma, schedule, arch, tile = setting(stage, "mma"), setting(stage, "schedule"), setting(stage, "arch", "sm_80"), setting(stage, "tile")
    if schedule == "stages":
        return found + _stages(stage)
    if schedule == "flash" and (arch != "sm_90a" or mma not in ("f16", "bf16")):
        found.append(Rejection(field="schedule", value="flash", reason="TMA feeds wgmma, which only Hopper has, and takes V of 16-bit elements only where it lies", legal="with arch(sm_90a) and mma(f16) or mma(bf16); leave it out for mma.sync"))
    found += unwanted(stage, ("thread_tile",), "belongs to the products of schedule(stages) without mma")
    if setting(stage, "stages") is not None and (schedule != "flash" or setting(stage, "stages") not in (2, 3)):
        found.append(Rejection(field="stages", value=str(setting(stage, "stages")), reason="steps of K and of V in shared memory, with schedule(flash)", legal="2, 3 (3 only for head dimensions up to 64)"))
    if tile is not None:
        found += _tile(tile, mma, schedule)
    return found


def _tile(tile: object, mma: object, schedule: object) -> list[Rejection]:
    legal = ((64, 128, 192), (64, 128)) if schedule == "flash" else ((32, 64, 128), (16, 32, 64)) if mma is not None else ((32, 64), (32, 64))
    if isinstance(tile, tuple) and len(tile) == 2 and tile[0] in legal[0] and tile[1] in legal[1]:
        return []
    words = f"queries {', '.join(map(str, legal[0]))}; keys {', '.join(map(str, legal[1]))}"
    return [Rejection(field="tile", value=str(tile), reason="queries of a CTA, and keys of one step", legal=words)]


def _stages(stage: Stage) -> list[Rejection]:
    inner = attention_stages.product(stage)
    if setting(stage, "mma") is not None and setting(stage, "arch", "sm_80") != "sm_90a":
        inner = Stage(operation=inner.operation, settings=tuple(call for call in inner.settings if call.name != "schedule"))
        return [Rejection(field="schedule", value="stages", reason="its products on tensor cores are Hopper's", legal="with arch(sm_90a), or without mma")]
    return gemm_checks.check(inner)


SETTINGS = (
    ARCH,
    Setting(name="mma", values=("f16", "bf16", "tf32"), reason="what the tensor cores multiply; without it float32 on the ordinary pipes"),
    Setting(name="schedule", values=SCHEDULES, reason="flash: TMA and wgmma, one warpgroup loads; stages: q @ k^T, softmax and the product with v as kernels of their own", meaning="{values}: TMA feeds wgmma, one warpgroup loads (flash), or q @ k^T, softmax and the product with v are kernels of their own (stages)"),
    Setting(name="tile", values=((128, 128), (128, 64), (64, 64), (128, 256, 32), (128, 256, 64)), closed=False, meaning="queries of a CTA and keys of one step, ({values}); with schedule(stages) the tiles of its products"),
    Setting(name="thread_tile", values=((8, 8),), closed=False),
    Setting(name="stages", values=(2, 3), closed=False, meaning="{values} steps of K and of V in shared memory at once; with schedule(stages) tiles of k of its products"),
    Setting(name="cluster", values=((2, 1), (1, 2)), closed=False),
)
ABOUT = "attention(q, k, v, causal=0|1, scale=1/sqrt(dim)): softmax(scale * q @ k^T) @ v for q (batch, heads, queries, dim), k, v (batch, heads, keys, dim)"
ARGUMENTS = (flag("causal", "whether query i sees keys 0 to i only"), Argument(name="scale", legal="a number; left out: 1 / sqrt(dim)", reason="what the scores are multiplied by", holds=is_number))
OPERATIONS = (Operation(name="attention", about=ABOUT, settings=SETTINGS, emit=emit, check=check, arguments=ARGUMENTS, roles=("q", "k", "v")),)
