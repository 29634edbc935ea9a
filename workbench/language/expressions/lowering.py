"""Lowers softmax, norms and reductions to expressions with reductions, of which `rowwise` writes the kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from workbench.language.expressions.expressions import leaves
from workbench.language.ir import Call, Stage, setting

LARGEST = 3.4028234663852886e38  # of float32's finite numbers
NEW = ("unroll", "cluster", "parts", "through")  # settings that only rowwise has


def call(name: str, *positional: object) -> Call:
    """A call."""
    return Call(name=name, positional=positional)


def needs_rowwise(stage: Stage) -> bool:
    """Whether a stage asks for more than rows.py's kernels over the last axis do."""
    named = dict(stage.operation.named)
    axis, op = named.get("axis", "last"), named.get("op", "sum")
    old_axis = axis == "last" or (
        stage.operation.name == "reduce"
        and axis == "middle"
        and setting(stage, "vector") is None
        and setting(stage, "kept") is None
        and not named.get("keepdim")
    )
    old_op = stage.operation.name != "reduce" or op in ("sum", "mean", "max", "min")
    plain = all(isinstance(item, str) for item in stage.operation.positional)
    return (
        stage.operation.name == "log_softmax"
        or not (old_axis and old_op and plain)
        or "affine" in named
        or any(item.name in NEW for item in stage.settings)
    )


def expansion(stage: Stage) -> object:
    """The expression of a stage's operation; its operands are called by their roles."""
    operation, named = stage.operation, dict(stage.operation.named)
    x: object = operation.positional[0] if operation.positional and isinstance(operation.positional[0], Call) else "x"
    eps, affine = named.get("eps", 1e-5), bool(named.get("affine", 1))
    if operation.name == "softmax":
        return softmax(x)
    if operation.name == "log_softmax":
        return log_softmax(x)
    if operation.name == "layernorm":
        return normalise(x, eps, affine) if needs_rowwise(stage) else normalise_in_two_passes(x, eps)
    if operation.name == "matvec":
        return call("sum", call("mul", x, call("spread", "vector")))
    if operation.name == "rmsnorm":
        scaled = call("mul", x, call("rsqrt", call("add", call("mean", call("mul", x, x)), eps)))
        return call("mul", scaled, call("spread", "weight")) if affine else scaled
    return call(str(named.get("op", "sum")), x)


def softmax(x: object) -> Call:
    """exp(x - max(x)) over its sum."""
    power = call("exp", call("sub", x, call("max", x)))
    return call("div", power, call("sum", power))


def log_softmax(x: object) -> Call:
    """x - max(x) - log(sum(exp(x - max(x))))."""
    below = call("sub", x, call("max", x))
    return call("sub", below, call("log", call("sum", call("exp", below))))


def log_sum(x: object) -> Call:
    """log(sum(exp(x - m))) + m, where m is the largest element, or the largest finite float32 where that is infinite.

    So nothing is computed as -inf - -inf, which is NaN.
    """
    largest = call("clamp", call("max", x), -LARGEST, LARGEST)
    return call("add", call("log", call("sum", call("exp", call("sub", x, largest)))), largest)


def normalise(x: object, eps: object, affine: bool) -> Call:
    """(x - mean) / sqrt(var + eps), times weight plus bias where there are such."""
    normal = call("mul", call("sub", x, call("mean", x)), call("rsqrt", call("add", call("var", x), eps)))
    return call("add", call("mul", normal, call("spread", "weight")), call("spread", "bias")) if affine else normal


def moments(x: object) -> Call:
    """An expression with the mean and the variance of a row."""
    return call("add", call("mean", x), call("var", x))


def normalise_means(eps: object, affine: bool) -> Call:
    """Means of the channels of a group norm, along the channels of a group, from their means and variances.

    All channels have as many elements, so the group's variance is the mean of the channels' variances plus the
    variance of their means.
    """
    scale = call("rsqrt", call("add", call("add", call("mean", "variance"), call("var", "mean")), eps))
    normal = call("mul", call("sub", "mean", call("mean", "mean")), scale)
    return call("add", call("mul", normal, call("spread", "weight")), call("spread", "bias")) if affine else normal


def normalise_in_two_passes(x: object, eps: object) -> Call:
    """The same with weight and bias, in two passes: the mean, then the mean square of what is left."""
    below = call("sub", x, call("mean", x))
    scale = call("rsqrt", call("add", call("mean", call("mul", below, below)), eps))
    return call("add", call("mul", call("mul", below, scale), call("spread", "weight")), call("spread", "bias"))


def put_float_first(value: object, floats: Set[str]) -> object:
    """An element-wise expression whose first tensor is one of `floats`, as kernels want it, if that can be had.

    Tensors of other types are broadcast to the floating ones, and commuting arguments change places.
    """
    plain, spread = leaves(value)
    if not floats & {*plain, *spread} or next(iter((*plain, *spread))) in floats:
        return value
    value = _spread_others(value, floats)
    first = next(iter([name for names in leaves(value) for name in names]))
    return value if first in floats else _swap(value, floats)


def _spread_others(value: object, floats: Set[str]) -> object:
    if isinstance(value, Call) and value.name != "spread":
        return dataclasses.replace(value, positional=tuple(_spread_others(part, floats) for part in value.positional))
    return call("spread", value) if isinstance(value, str) and value not in floats else value


def _swap(value: object, floats: Set[str]) -> object:
    """The expression with the argument that has a floating tensor first, where a call commutes."""
    if not isinstance(value, Call) or value.name not in ("add", "mul") or len(value.positional) != 2:
        return value
    parts = sorted(value.positional, key=lambda part: not floats & {name for names in leaves(part) for name in names})
    return dataclasses.replace(value, positional=(_swap(parts[0], floats), parts[1]))
