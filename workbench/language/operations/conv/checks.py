"""Static checks of conv and convtranspose: a stage -> rejections of its operands, arguments and settings."""

from __future__ import annotations

from workbench.language.ir import Rejection, Stage, setting
from workbench.language.operation import reject_settings
from workbench.language.operations.conv import epilogue
from workbench.language.operations.conv.configs import arguments_of, as_gemm
from workbench.language.operations.conv.tensor_core_checks import check_halo, check_patch, check_sm80, check_sm90
from workbench.language.operations.gemm import checks as gemm_checks

LEAST = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
ONLY_GEMM = ("raster", "store", "splitk", "streamk", "swap", "through", "launch")
ONLY_DIRECT = ("threads", "rows", "filters")
ONLY_SCHEDULED = ("mma", "tile", "stages", "cluster", "unfold")


def check(stage: Stage) -> list[Rejection]:
    """All rejections of a convolution."""
    found = _check_operands(stage) + _check_arguments(stage) + epilogue.check(stage)
    if setting(stage, "product") is not None:
        return found + _check_product(stage)
    legal = "leave it out, or add .product() where filters have one tap"
    found += reject_settings(stage, ONLY_GEMM, "only a product has it", legal)
    if setting(stage, "schedule") == "patch":
        found += reject_settings(stage, ("rows", "filters", "cluster", "unfold"), "each warp has positions of its own")
        return found + check_patch(stage)
    if setting(stage, "schedule") == "halo":
        how = "the warpgroups of this schedule share what a CTA loads"
        found += reject_settings(stage, (*ONLY_DIRECT, "cluster", "unfold"), how)
        return found + check_halo(stage)
    if setting(stage, "schedule") is not None:
        found += reject_settings(stage, ONLY_DIRECT, "a schedule says which thread computes what")
        return found + check_sm90(stage)
    if setting(stage, "mma") is not None:
        found += reject_settings(stage, (*ONLY_DIRECT, "cluster", "unfold"), "mma.sync has no text for it")
        return found + check_sm80(stage)
    return found + _check_direct(stage)


def _check_product(stage: Stage) -> list[Rejection]:
    named = arguments_of(stage)
    found = []
    for name, value in {"stride": 1, "padding": 0, "groups": 1}.items():
        given = named[name]
        if any(one != value for one in (given if isinstance(given, tuple) else (given,))):
            reason = "each result of a product is of one position of the input"
            legal = f"{value}, or leave product out"
            found.append(Rejection(field=name, value=str(given), reason=reason, legal=legal))
    product = setting(stage, "product")
    if product != ():
        reason = "it takes nothing: filters of one tap as a gemm"
        found.append(Rejection(field="product", value=str(product), reason=reason, legal="nothing"))
    if found:
        return found
    found = reject_settings(stage, (*ONLY_DIRECT, "unfold"), "a product is a gemm")
    return found + gemm_checks.check(as_gemm(stage))


def _check_operands(stage: Stage) -> list[Rejection]:
    names = stage.operation.positional
    if len(names) == 2 and all(isinstance(name, str) for name in names):
        return []
    return [
        Rejection(
            field=stage.operation.name,
            value=str(len(names)),
            reason="convolves an input with filters",
            legal=f"{stage.operation.name}(x, w)",
        )
    ]


def _check_arguments(stage: Stage) -> list[Rejection]:
    """stride, padding, dilation, groups: numbers, or one of each extent."""
    found: list[Rejection] = []
    transposed, named = stage.operation.name == "convtranspose", dict(stage.operation.named)
    known = {name: least for name, least in LEAST.items() if transposed or name != "output_padding"}
    lengths = {len(value) for value in named.values() if isinstance(value, tuple)}
    for name, value in named.items():
        if name == "groups":
            found += _check_groups(value)
        elif _is_too_small(value, known.get(name)) or _is_too_long(value) or (len(lengths) > 1 and not found):
            reason = "a number, or one of each extent of the input"
            legal = f"whole numbers from {known[name]}, 1 to 3 of them and as many as the others have"
            found.append(Rejection(field=name, value=str(value), reason=reason, legal=legal))
    if not found and transposed:
        found += _check_output_padding(arguments_of(stage))
    return found


def _is_too_small(value: object, least: int | None) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return least is not None and any(not isinstance(one, int) or one < least for one in values)


def _is_too_long(value: object) -> bool:
    return isinstance(value, tuple) and len(value) > 3


def _check_groups(value: object) -> list[Rejection]:
    if (isinstance(value, int) and value >= 1) or value == "channels":
        return []
    reason = "groups of channels, each with filters of its own"
    legal = "1 or more, or channels: a group for each input channel"
    return [Rejection(field="groups", value=str(value), reason=reason, legal=legal)]


def _check_output_padding(given: dict[str, object]) -> list[Rejection]:
    rank = max(len(value) if isinstance(value, tuple) else 1 for value in given.values())
    padding, stride, dilation = (
        [int(str(one)) for one in (value if isinstance(value, tuple) else (value,) * rank)]
        for value in (given["output_padding"], given["stride"], given["dilation"])
    )
    if all(more < max(step, gap) for more, step, gap in zip(padding, stride, dilation, strict=True)):
        return []
    return [
        Rejection(
            field="output_padding",
            value=str(given["output_padding"]),
            reason="results past the last input's reach",
            legal="less than the stride or the dilation",
        )
    ]


def _check_direct(stage: Stage) -> list[Rejection]:
    legal = "add .schedule(cooperative) and .arch(sm_90a)"
    found = reject_settings(stage, ONLY_SCHEDULED, "only kernels with a schedule have it", legal)
    rows, filters = setting(stage, "rows"), setting(stage, "filters")
    if stage.operation.name == "convtranspose":
        return found
    if rows is not None and (not isinstance(rows, int) or not 1 <= rows <= 32):
        reason = "results below each other that one thread computes"
        found.append(Rejection(field="rows", value=str(rows), reason=reason, legal="1 to 32"))
    if filters is not None and (not isinstance(filters, int) or not 1 <= filters <= 16 or rows is None):
        reason = "filters whose results one thread computes, from the inputs that it loads once"
        legal = "1 to 16, with .rows(1) or more"
        found.append(Rejection(field="filters", value=str(filters), reason=reason, legal=legal))
    return found
