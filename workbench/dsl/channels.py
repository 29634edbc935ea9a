"""batchnorm, groupnorm, instancenorm: norms whose weight and bias go by channel, x being (batch, channels, ...)."""

from __future__ import annotations

import dataclasses

from workbench.dsl import rowwise
from workbench.dsl.expecting import called, expect, expect_axes
from workbench.dsl.ir import Binding, Call, Rejection, Stage, number, setting
from workbench.dsl.named import normalised
from workbench.dsl.operation import AFFINE, EPS, Argument, Operation, flag, is_number
from workbench.dsl.pieces import Parts

RUNNING = '''
@cute.kernel
def running_kernel(mean: cute.Tensor, variance: cute.Tensor, running_mean: cute.Tensor, running_var: cute.Tensor, batches: cute.Tensor, channels: cutlass.Int32, count: cutlass.Int32):
    """Running statistics take in those of the batch, the variance as of a sample; one thread per channel."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    channel = block * 128 + thread
    if channel < channels:
        running_mean[channel] = ({keep} * running_mean[channel].to(cutlass.Float32) + {momentum} * mean[channel]).to(running_mean.element_type)
        sample = variance[channel] * (count.to(cutlass.Float32) / (count - 1).to(cutlass.Float32))
        running_var[channel] = ({keep} * running_var[channel].to(cutlass.Float32) + {momentum} * sample).to(running_var.element_type)
    if channel == 0:
        batches[0] = batches[0] + 1


@cute.jit
def running(mean: cute.Tensor, variance: cute.Tensor, running_mean: cute.Tensor, running_var: cute.Tensor, batches: cute.Tensor, channels: cutlass.Int32, count: cutlass.Int32, stream: cuda.CUstream):
    running_kernel(mean, variance, running_mean, running_var, batches, channels, count).launch(grid=[(channels + 127) // 128, 1, 1], block=[128, 1, 1], stream=stream)
'''


def emit(stage: Stage, binding: Binding) -> Parts:
    """The norm as an expression over a view of x."""
    named, bound = dict(stage.operation.named), dict(binding.operands)
    name, affine = stage.operation.name, bool(named.get("affine", 1))
    x = bound.get("x", "x")
    axis: object
    if name == "batchnorm":
        views, axis = {"x": x, "weight": "{weight}.view(-1, *[1] * ({x}.dim() - 2))"}, Call(name="but", positional=(1,))
    elif name == "groupnorm":
        groups = int(str(named["groups"]))
        views, axis = {"x": f"{x}.reshape({x}.shape[0], {groups}, {x}.shape[1] // {groups}, {x}.shape[2:].numel())", "weight": f"{{weight}}.view({groups}, -1, 1)"}, Call(name="last", positional=(2,))
    else:
        views, axis = {"x": f"{x}.reshape(*{x}.shape[:2], {x}.shape[2:].numel())", "weight": "{weight}.view(-1, 1)"}, "last"
    operands = {"x": views["x"], **({item: views["weight"].format(weight=bound.get(item, item), x=x) for item in ("weight", "bias")} if affine else {})}
    parts = rowwise.emit_expression(normalised("x", named.get("eps", 1e-5), affine), axis, False, stage, dataclasses.replace(binding, operands=tuple(operands.items())))
    forward = parts.forward
    lines = [expect_axes(called("x", bound), x, 2 if name != "instancenorm" else 3)]
    lines += [expect(called(item, bound), bound.get(item, item), f"({x}.shape[1],)", "EXACT") for item in ("weight", "bias") if affine]
    if name == "groupnorm":
        lines += [f"if {x}.shape[1] % {named['groups']}:", f'    raise ValueError(f"{called("x", bound)} has {{{x}.shape[1]}} channels; this kernel wants groups of them, {named["groups"]}, to be equal")']
    if name != "batchnorm":
        return dataclasses.replace(parts, forward="\n".join([*lines, f"given = {x}.shape", forward.replace("return y", "return y.view(given)")]))
    if named.get("running", 0):
        momentum = float(str(named.get("momentum", 0.1)))
        parts = dataclasses.replace(parts, kernels=parts.kernels + RUNNING.format(momentum=momentum, keep=1 - momentum))
        lines += [expect(called(item, bound), bound.get(item, item), f"({x}.shape[1],)") for item in ("running_mean", "running_var")]
        forward = "\n".join([*forward.splitlines()[:-1], *_running_lines(bound), "return y"])
    return dataclasses.replace(parts, forward="\n".join([*lines, forward]))


def _running_lines(bound: dict[str, str]) -> list[str]:
    tensors = ["mean_1_rows", "var_2_rows", *(f"{bound.get(item, item)}.view(-1)" for item in ("running_mean", "running_var", "batches"))]
    return ["call(running, (), (", *(f"    from_dlpack({item}).mark_layout_dynamic()," for item in tensors), "    cutlass.Int32(rows), cutlass.Int32(columns),", "))"]


def check(stage: Stage) -> list[Rejection]:
    """Rejections of groups, and of settings that do not go together."""
    named, name = dict(stage.operation.named), stage.operation.name
    if stage.operation.positional and not isinstance(stage.operation.positional[0], str):
        return [Rejection(field=name, value="", reason="takes a tensor, not an expression", legal=f"{name}(x)")]
    groups = named.get("groups", 0)
    if name == "groupnorm" and not (isinstance(groups, int) and groups > 0):
        return [Rejection(field="groups", value=str(groups), reason="the number of groups is needed", legal="a positive integer")]
    if name == "batchnorm" and number(stage, "parts", 1) < 2:
        return [Rejection(field="parts", value=str(setting(stage, "parts", 1)), reason="a channel is reduced in parts, by several CTAs", legal="from 2, for example 32")]
    axis: object = Call(name="but", positional=(1,)) if name == "batchnorm" else Call(name="last", positional=(2,))
    return rowwise.check_settings(stage, normalised("x", 1e-5, False), axis)


def _operands(stage: Stage) -> tuple[str, ...]:
    named = dict(stage.operation.named)
    return (*(("weight", "bias") if named.get("affine", 1) else ()), *(("running_mean", "running_var", "batches") if named.get("running", 0) else ()))


SETTINGS = tuple(item for item in rowwise.SETTINGS if item.name not in ("split", "threads"))
RUNNING_STATISTICS = flag("running", "whether running statistics are updated")
MOMENTUM = Argument(name="momentum", legal="a number", reason="the share of the batch in the running statistics", holds=is_number)
GROUPS = Argument(name="groups", legal="a positive integer", reason="how many groups the channels are in", holds=lambda value: isinstance(value, int) and value > 0)
OPERATIONS = (
    Operation(
        name="batchnorm", about="batchnorm(x, eps=1e-05, affine=0|1, running=0|1, momentum=0.1): statistics of the batch by channel (axis 1); operands weight, bias, and with running=1 running_mean, running_var, batches, which it updates as torch does",
        settings=SETTINGS, emit=emit, check=check, arguments=(EPS, AFFINE, RUNNING_STATISTICS, MOMENTUM), roles=("x",), implied=_operands,
    ),
    Operation(name="groupnorm", about="groupnorm(x, groups=8, eps=1e-05, affine=0|1): operands weight, bias by channel", settings=SETTINGS, emit=emit, check=check, arguments=(GROUPS, EPS, AFFINE), roles=("x",), implied=_operands),
    Operation(name="instancenorm", about="instancenorm(x, eps=1e-05, affine=0|1): each channel of each sample by itself; operands weight, bias by channel", settings=SETTINGS, emit=emit, check=check, arguments=(EPS, AFFINE), roles=("x",), implied=_operands),
)  # fmt: skip
