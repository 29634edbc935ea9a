"""Static checks of conv and convtranspose: their own settings, and what TMA, wgmma and the shared memory of sm_90a allow."""

from __future__ import annotations

import dataclasses

from workbench.dsl import conv_epilogue, conv_hopper, conv_mma, gemm_checks, hopper_checks, hopper_plan
from workbench.dsl.ir import Call, Rejection, Stage, setting
from workbench.dsl.operation import unwanted

KINDS = ("tf32", "bf16", "f16", "tf32x3")
HEIGHTS = {"cooperative": (64, 128, 256), "pingpong": (64, 128)}
ACCUMULATORS = 128 * 128  # float32 of one warpgroup that fit beside everything else: 128 a thread
LEAST = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
ONLY_SCHEDULED = ("mma", "tile", "stages", "cluster", "unfold")
OF_PRODUCTS = ("raster", "store", "splitk", "streamk", "swap", "through", "launch")
ONLY_DIRECT = ("threads", "rows", "filters")


def check(stage: Stage) -> list[Rejection]:
    """All rejections of a convolution."""
    found = _operands(stage) + _arguments(stage) + conv_epilogue.check(stage)
    if setting(stage, "product") is not None:
        return found + _product(stage)
    found += unwanted(stage, OF_PRODUCTS, "only a product has it", "leave it out, or add .product() where filters have one tap")
    if setting(stage, "schedule") is None and setting(stage, "mma") is not None:
        return found + unwanted(stage, (*ONLY_DIRECT, "cluster", "unfold"), "mma.sync has no text for it") + conv_mma.check(stage)
    return found + (_direct(stage) if setting(stage, "schedule") is None else _scheduled(stage))


def as_product(stage: Stage) -> Stage:
    """The gemm that a convolution by filters of one tap is: a the filters, b an image; what goes along the filters goes along its rows."""
    return Stage(operation=Call(name="gemm", positional=("a", "b")), settings=tuple(call for call in stage.settings if call.name != "product"), epilogues=conv_epilogue.of_product(stage.epilogues))


def _product(stage: Stage) -> list[Rejection]:
    named = conv_hopper.arguments_of(stage)
    usual = {"stride": 1, "padding": 0, "groups": 1}
    found = [
        Rejection(field=name, value=str(named[name]), reason="each result of a product is of one place of the input", legal=f"{value}, or leave product out")
        for name, value in usual.items() if any(one != value for one in (named[name] if isinstance(named[name], tuple) else (named[name],)))  # type: ignore[attr-defined]
    ]  # fmt: skip
    if setting(stage, "product") != ():
        found.append(Rejection(field="product", value=str(setting(stage, "product")), reason="it takes nothing: filters of one tap as a gemm", legal="nothing"))
    return found or [*unwanted(stage, (*ONLY_DIRECT, "unfold"), "a product is a gemm"), *gemm_checks.check(as_product(stage))]


def _operands(stage: Stage) -> list[Rejection]:
    names = stage.operation.positional
    if len(names) == 2 and all(isinstance(name, str) for name in names):
        return []
    return [Rejection(field=stage.operation.name, value=str(len(names)), reason="convolves an input with filters", legal=f"{stage.operation.name}(x, w)")]


def _arguments(stage: Stage) -> list[Rejection]:
    """stride, padding, dilation, groups: numbers, or one of each extent."""
    found: list[Rejection] = []
    transposed, named = stage.operation.name == "convtranspose", dict(stage.operation.named)
    known = {name: least for name, least in LEAST.items() if transposed or name != "output_padding"}
    lengths = {len(value) for value in named.values() if isinstance(value, tuple)}
    for name, value in named.items():
        if name == "groups":
            if not ((isinstance(value, int) and value >= 1) or value == "channels"):
                found.append(Rejection(field="groups", value=str(value), reason="groups of channels, each with filters of its own", legal="1 or more, or channels: a group for each input channel"))
        elif (name in known and any(not isinstance(one, int) or one < known[name] for one in (value if isinstance(value, tuple) else (value,)))) or (isinstance(value, tuple) and len(value) > 3) or (len(lengths) > 1 and not found):
            found.append(Rejection(field=name, value=str(value), reason="a number, or one of each extent of the input", legal=f"whole numbers from {known[name]}, 1 to 3 of them and as many as the others have"))
    if not found and transposed:
        found += _output_padding(conv_hopper.arguments_of(stage))
    return found


def _output_padding(given: dict[str, object]) -> list[Rejection]:
    rank = max(len(value) if isinstance(value, tuple) else 1 for value in given.values())
    more, stride, dilation = ([*value] if isinstance(value, tuple) else [value] * rank for value in (given[name] for name in ("output_padding", "stride", "dilation")))
    if all(one < max(int(str(step)), int(str(gap))) for one, step, gap in zip(map(int, map(str, more)), stride, dilation, strict=True)):
        return []
    return [Rejection(field="output_padding", value=str(given["output_padding"]), reason="results past the last input's reach", legal="less than the stride or the dilation")]


def _direct(stage: Stage) -> list[Rejection]:
    found = unwanted(stage, ONLY_SCHEDULED, "only kernels with a schedule have it", "add .schedule(cooperative) and .arch(sm_90a)")
    rows, filters = setting(stage, "rows"), setting(stage, "filters")
    if stage.operation.name == "convtranspose":
        return found
    if rows is not None and (not isinstance(rows, int) or not 1 <= rows <= 32):
        found.append(Rejection(field="rows", value=str(rows), reason="results below each other that one thread computes", legal="1 to 32"))
    if filters is not None and (not isinstance(filters, int) or not 1 <= filters <= 16 or rows is None):
        found.append(Rejection(field="filters", value=str(filters), reason="filters whose results one thread computes, from the inputs that it loads once", legal="1 to 16, with .rows(1) or more"))
    return found


def _scheduled(stage: Stage) -> list[Rejection]:
    found = unwanted(stage, ONLY_DIRECT, "a schedule says which thread computes what") + hopper_checks.scheduled(stage, KINDS)
    cluster = setting(stage, "cluster", 1)
    if cluster not in (1, 2, 4):
        found.append(Rejection(field="cluster", value=str(cluster), reason="CTAs along the places that share the filters by multicast", legal="1, 2, 4"))
    groups = dict(stage.operation.named).get("groups", 1)
    if groups == "channels":
        found.append(Rejection(field="groups", value="channels", reason="a filter of one channel leaves a tensor core nothing to sum up", legal="leave schedule out, and add .rows(8)"))
    if setting(stage, "unfold") is not None and groups != 1:
        found.append(Rejection(field="unfold", value="", reason="the filter's last extent becomes channels of one group", legal="leave it out, or groups=1"))
    return found or _tile(stage) or _sizes(conv_hopper.plan_of(stage), setting(stage, "stages"))


def _tile(stage: Stage) -> list[Rejection]:
    kind, schedule = str(setting(stage, "mma")), str(setting(stage, "schedule"))
    tile = setting(stage, "tile", (128, 128, 128 // hopper_plan.BYTES[kind]))
    depths = tuple(size // hopper_plan.BYTES[kind] for size in ((64, 128) if kind in hopper_plan.TF32 else (32, 64, 128)))
    legal = f"places {', '.join(map(str, HEIGHTS[schedule]))}; filters a multiple of 16 from 16 to 256; channels {', '.join(map(str, depths))}"
    values = tile if isinstance(tile, tuple) else (tile,)
    if len(values) != 3 or any(not isinstance(value, int) for value in values):
        return [Rejection(field="tile", value=str(tile), reason="three extents: places, filters, input channels", legal=legal)]
    m, n, k = values
    if kind in hopper_plan.TF32 and isinstance(n, int) and n % 32 and n != 16:
        return [Rejection(field="tile", value=f"{m}, {n}, {k}", reason="CuTe DSL has no layout of float32 for it in shared memory", legal=f"filters 16, or a multiple of 32, with mma({kind})")]
    if m not in HEIGHTS[schedule] or not 16 <= n <= 256 or n % 16 or k not in depths:
        return [Rejection(field="tile", value=f"{m}, {n}, {k}", reason="a warpgroup multiplies 64 rows at a time (wgmma m64nNkK), and rows of shared memory are swizzled in 32, 64 or 128 bytes", legal=legal)]
    return []


def _sizes(plan: conv_hopper.Plan, asked: object) -> list[Rejection]:
    m, n, _ = plan.tile
    size = ", ".join(map(str, plan.tile))
    if plan.rows * n > ACCUMULATORS:
        return [Rejection(field="tile", value=size, reason=f"each thread would hold {plan.rows * n // 128} accumulators, more than its registers take", legal=f"n at most {ACCUMULATORS // plan.rows} with m {m}")]
    if n // plan.cluster % 8:
        return [Rejection(field="cluster", value=str(plan.cluster), reason="each CTA of a cluster loads a part of the filters' tile, in whole pieces of 8 rows", legal="a smaller cluster, or a larger tile")]
    most = conv_hopper.most_stages(plan)
    if asked is not None and (not isinstance(asked, int) or not 2 <= asked <= 16):
        return [Rejection(field="stages", value=str(asked), reason="tiles that are in shared memory at once", legal="2 to 16")]
    if plan.stages > most or most < 2:
        need = dataclasses.replace(plan, stages=max(plan.stages, 2)).shared_bytes
        legal = f"at most {most} stages of this tile in {hopper_plan.SHARED_BYTES} bytes" if most >= 2 else f"a smaller tile: {hopper_plan.SHARED_BYTES} bytes"
        return [Rejection(field="stages", value=str(max(plan.stages, 2)), reason=f"needs {need} bytes of shared memory", legal=legal)]
    return []
