"""batchnorm, groupnorm, instancenorm, statistics and means of them: x (batch, channels, ...), weights by channel."""

from __future__ import annotations

from workbench.language.expressions.lowering import moments, normalise
from workbench.language.ir import Call, Rejection, Stage, number, setting
from workbench.language.operation import (
    AFFINE,
    EPS,
    KEEPDIM,
    READERS,
    Argument,
    Operation,
    epilogue_roles,
    flag,
    is_number,
)
from workbench.language.operations import epilogue, rowwise
from workbench.language.parser import format_value

# each follows the norm element by element; a tensor has one value for each channel
EPILOGUES = tuple(name for name in epilogue.NAMES if name not in (*epilogue.REDUCTIONS, *READERS, "cast"))
GROUP_MEANS = "groupnorm_means"
GROUPED = ("groupnorm", GROUP_MEANS)

STATS = "batch_norm_stats"
BATCH_NORMS = ("batchnorm", STATS)  # whose statistics go over the batch
RUNNING = ("running_mean", "running_var", "batches")  # operands that a batch norm updates


def check(stage: Stage) -> list[Rejection]:
    """Rejections of groups, and of settings that do not go together."""
    named, name = dict(stage.operation.named), stage.operation.name
    if found := epilogue.check(stage) or _check_tensors(stage):
        return found
    if stage.operation.positional and not isinstance(stage.operation.positional[0], str):
        return [Rejection(field=name, value="", reason="takes a tensor, not an expression", legal=f"{name}(x)")]
    groups = named.get("groups", 0)
    if name in GROUPED and not (isinstance(groups, int) and groups > 0):
        return [
            Rejection(
                field="groups", value=str(groups), reason="the number of groups is needed", legal="a positive integer"
            )
        ]
    if name in BATCH_NORMS and number(stage, "parts", 1) < 2:
        return [
            Rejection(
                field="parts",
                value=str(setting(stage, "parts", 1)),
                reason="a channel is reduced in parts, by several CTAs",
                legal="from 2, for example 32",
            )
        ]
    value = moments("x") if name == GROUP_MEANS else normalise("x", 1e-5, False)
    return rowwise.check_settings(stage, value, reduced_axis(stage.operation))


def _check_tensors(stage: Stage) -> list[Rejection]:
    """Rejections of epilogues with tensors that have not one value for each channel."""
    return [
        Rejection(
            field=call.name,
            value=format_value(call),
            reason="the epilogue of a norm reads tensors with one value for each channel",
            legal="along=n, or spread(t) in a map; or elementwise(...) as a stage after it",
        )
        for call, reads in epilogue.chain_of(stage).calls
        if any(read.along != "n" for read in reads)
    ]


def reduced_axis(operation: Call) -> object:
    """The axis that a channel norm reduces, as its kernel sees the tensor."""
    if operation.name not in BATCH_NORMS:
        return "last" if operation.name in ("instancenorm", GROUP_MEANS) else Call(name="last", positional=(2,))
    return dict(operation.named).get("axis", BUT_CHANNELS)


def _operands(stage: Stage) -> tuple[str, ...]:
    named = dict(stage.operation.named)
    return (
        *(("weight", "bias") if named.get("affine", 1) and stage.operation.name != STATS else ()),
        *(RUNNING if named.get("running", 0) else ()),
        *epilogue_roles(stage),
    )


SETTINGS = tuple(item for item in rowwise.SETTINGS if item.name not in ("split", "threads"))
MEANS_SETTINGS = tuple(item for item in SETTINGS if item.name not in ("kept", "parts", "through"))
BATCH_SETTINGS = tuple(item for item in rowwise.SETTINGS if item.name != "threads")
BUT_CHANNELS = Call(name="but", positional=(1,))
BATCH_AXIS = Argument(
    name="axis",
    legal="but(1), or first",
    reason="the axes over which statistics go: all but the channels; first is that of a tensor (batch, channels)",
    holds=lambda value: value in (BUT_CHANNELS, "first"),
)
RUNNING_STATISTICS = flag("running", "whether running statistics are updated")
MOMENTUM = Argument(
    name="momentum", legal="a number", reason="the share of the batch in the running statistics", holds=is_number
)
GROUPS = Argument(
    name="groups",
    legal="a positive integer",
    reason="how many groups the channels are in",
    holds=lambda value: isinstance(value, int) and value > 0,
)
OPERATIONS = (
    Operation(
        name="batchnorm",
        about="batchnorm(x, eps=1e-05, affine=0|1, running=0|1, momentum=0.1, axis=but(1)|first): statistics of the "
        "batch by channel (axis 1); operands weight, bias, and with running=1 running_mean, running_var, batches, "
        "which it updates as torch does; axis=first for x (batch, channels), whose columns are neighbours",
        settings=BATCH_SETTINGS,
        check=check,
        arguments=(EPS, AFFINE, RUNNING_STATISTICS, MOMENTUM, BATCH_AXIS),
        roles=("x",),
        implied=_operands,
    ),
    Operation(
        name=STATS,
        about="batch_norm_stats(x, eps=1e-05, running=0|1, momentum=0.1, axis=but(1)|first): of a batch norm the "
        "mean and 1 / sqrt(variance + eps) of each channel alone, as a pair: m = view(h, item=0) and "
        "s = view(h, item=1), in float32, so that mul(sub(x, spread(m)), spread(s)) in a later stage normalises; "
        "running, momentum and axis as batchnorm",
        settings=BATCH_SETTINGS,
        check=check,
        arguments=(EPS, RUNNING_STATISTICS, MOMENTUM, BATCH_AXIS),
        roles=("x",),
        implied=_operands,
    ),
    Operation(
        name="groupnorm",
        about="groupnorm(x, groups=8, eps=1e-05, affine=0|1): operands weight, bias by channel; epilogues element by "
        "element, along=n: by channel",
        settings=SETTINGS,
        check=check,
        epilogues=EPILOGUES,
        arguments=(GROUPS, EPS, AFFINE),
        roles=("x",),
        implied=_operands,
    ),
    Operation(
        name=GROUP_MEANS,
        about="groupnorm_means(x, groups=8, eps=1e-05, affine=0|1, keepdim=0|1): the mean over its positions of each "
        "channel of groupnorm(x), (batch, channels), without the norm itself: from means and variances of the channels",
        settings=MEANS_SETTINGS,
        check=check,
        arguments=(GROUPS, EPS, AFFINE, KEEPDIM),
        roles=("x",),
        implied=_operands,
    ),
    Operation(
        name="instancenorm",
        about="instancenorm(x, eps=1e-05, affine=0|1): each channel of each sample by itself; operands weight, "
        "bias by channel; epilogues as groupnorm has them",
        settings=SETTINGS,
        check=check,
        epilogues=EPILOGUES,
        arguments=(EPS, AFFINE),
        roles=("x",),
        implied=_operands,
    ),
)
