"""Translates ATen's element-wise calls into the language's functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from workbench.language import Call
from workbench.language.expressions.lowering import call
from workbench.proposers.recognition.graph import Unrecognised, aten_name, parse_number
from workbench.records import Operation

Build = Callable[[str], object]
SAME = (
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "neg",
    "abs",
    "silu",
    "reciprocal",
    "sign",
    "floor",
    "ceil",
    "expm1",
    "log1p",
    "erf",
    "sin",
    "cos",
    "square",
    "hardsigmoid",
    "hardswish",
    "mish",
)
TWO = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "true_divide": "div",
    "maximum": "max",
    "minimum": "min",
    "gt": "gt",
    "ge": "ge",
    "lt": "lt",
    "le": "le",
    "eq": "eq",
    "ne": "ne",
    "xlogy": "xlogy",
    "clamp_min": "max",
    "clamp_max": "min",
}
THROUGH = (
    "detach",
    "alias",
    "clone",
    "contiguous",
    "lift_fresh_copy",
    "expand",
    "expand_as",
    "scalar_tensor",
)
ROUNDED = {"float32": None, "float16": "to_f16", "bfloat16": "to_bf16"}  # type of a cast -> the function that rounds
LIMIT = 1e30  # the language has no larger constants


def parse_constant(text: str) -> object:
    """A number as the language writes it. Raises `Unrecognised` for other text, NaN and numbers beyond float32."""
    value = {"True": 1.0, "False": 0.0}.get(text, parse_number(text))
    if value is not None and math.isinf(value):
        return value
    if value is None or not abs(value) < LIMIT:
        raise Unrecognised(text)
    return int(value) if value.is_integer() and abs(value) < 1 << 24 else value


def find_argument(op: Operation, place: int, name: str, default: str) -> str:
    """The text of an argument, given by position or by name."""
    return op.operands[place] if len(op.operands) > place else dict(op.keywords).get(name, default)


def plain_name(op: Operation) -> str:
    """The call's name; calls that write to their operand (add_) compute the same."""
    return aten_name(op).removesuffix("_")


def scalar_expression(op: Operation, build: Build) -> object:
    """The expression of an element-wise call. Raises `Unrecognised`."""
    name = plain_name(op)
    if name == "_to_copy":
        return _cast(op, build)
    if name == "constant" and op.result and not op.result[0].shape:
        return parse_constant(dict(op.keywords).get("value", ""))
    if name in THROUGH:
        return parse_constant(op.operands[0]) if name == "scalar_tensor" else build(op.operands[0])
    if name in SAME and len(op.operands) == 1 and not op.keywords:
        return call(name, build(op.operands[0]))
    if name in TWO and len(op.operands) == 2 and not (set(dict(op.keywords)) - {"alpha"}):
        return _binary(op, TWO[name], build)
    made = SPECIAL.get(name)
    if made is None:
        raise Unrecognised(name)
    return made(op, build)


def _cast(op: Operation, build: Build) -> object:
    """A value in another floating type. Expressions are float32, so only a narrower type changes it."""
    kind = dict(op.keywords).get("dtype", f"torch.{op.result[0].dtype}").removeprefix("torch.")
    if kind not in ROUNDED:
        raise Unrecognised(f"a cast to {kind}")
    value, function = build(op.operands[0]), ROUNDED[kind]
    return value if function is None else call(function, value)


def _binary(op: Operation, name: str, build: Build) -> object:
    second = build(op.operands[1])
    alpha = dict(op.keywords).get("alpha")
    if alpha not in (None, "1"):
        if name not in ("add", "sub"):
            raise Unrecognised(name)
        second = call("mul", second, parse_constant(str(alpha)))
    return call(name, build(op.operands[0]), second)


def _rsub(op: Operation, build: Build) -> object:
    if find_argument(op, 2, "alpha", "1") != "1":
        raise Unrecognised("rsub")
    return call("sub", build(op.operands[1]), build(op.operands[0]))


def _pow(op: Operation, build: Build) -> object:
    base, exponent = op.operands[:2]
    value = parse_number(exponent)
    if value is None:
        return call("power", build(base), build(exponent))
    x = build(base)
    if value in (0.5, -0.5, 1.0, -1.0):
        return {0.5: call("sqrt", x), -0.5: call("rsqrt", x), 1.0: x, -1.0: call("reciprocal", x)}[value]
    if value in (2.0, 3.0, 4.0):
        square = call("mul", x, x)
        return {2.0: square, 3.0: call("mul", square, x), 4.0: call("mul", square, square)}[value]
    return call("power", x, parse_constant(exponent))


def _clamp(op: Operation, build: Build) -> object:
    value = build(op.operands[0])
    least, most = find_argument(op, 1, "min", "None"), find_argument(op, 2, "max", "None")
    if plain_name(op) == "hardtanh":
        least, most = find_argument(op, 1, "min_val", "-1.0"), find_argument(op, 2, "max_val", "1.0")
    if least != "None":
        value = call("max", value, build(least))
    return call("min", value, build(most)) if most != "None" else value


def _elu(op: Operation, build: Build) -> object:
    alpha, scale, inner = (
        parse_number(find_argument(op, place, name, "1"))
        for place, name in ((1, "alpha"), (2, "scale"), (3, "input_scale"))
    )
    if alpha is None or scale is None or inner != 1.0:
        raise Unrecognised("elu")
    made = call("elu", build(op.operands[0]), alpha)
    return made if scale == 1.0 else call("mul", made, scale)


def _celu(op: Operation, build: Build) -> object:
    alpha, x = parse_constant(find_argument(op, 1, "alpha", "1.0")), build(op.operands[0])
    if alpha == 1:
        return call("elu", x)
    return call("where", call("gt", x, 0), x, call("mul", call("expm1", call("div", x, alpha)), alpha))


def _softplus(op: Operation, build: Build) -> object:
    if (parse_number(find_argument(op, 1, "beta", "1")), parse_number(find_argument(op, 2, "threshold", "20"))) != (
        1.0,
        20.0,
    ):
        raise Unrecognised("softplus")  # beyond 20 the two branches of torch agree in float32
    return call("softplus", build(op.operands[0]))


def _gelu(op: Operation, build: Build) -> object:
    return call(
        "gelu_tanh" if find_argument(op, 1, "approximate", "none").strip("'") == "tanh" else "gelu",
        build(op.operands[0]),
    )


def _threshold(op: Operation, build: Build) -> object:
    x = build(op.operands[0])
    return call("where", call("gt", x, parse_constant(op.operands[1])), x, parse_constant(op.operands[2]))


def _where(op: Operation, build: Build) -> object:
    """A choice by a condition. A mask that is a tensor comes behind a value: kernels want a floating tensor first."""
    if len(op.operands) != 3:
        raise Unrecognised("where")
    condition, chosen, other = (build(item) for item in op.operands)
    if isinstance(condition, Call) and condition.name != "spread":
        return call("where", condition, chosen, other)
    if isinstance(other, str | Call):
        return call("masked_fill", other, condition, chosen)
    return call("masked_fill", chosen, call("eq", condition, 0), other)


def _bitwise_not(op: Operation, build: Build) -> object:
    """`~mask` of bools."""
    if not op.result or op.result[0].dtype != "bool":
        raise Unrecognised("bitwise_not of integers")
    return call("eq", build(op.operands[0]), 0)


def _shrink(op: Operation, build: Build) -> object:
    x, lambd = build(op.operands[0]), parse_constant(find_argument(op, 1, "lambd", "0.5"))
    below = call("sub", x, call("min", call("max", x, call("neg", lambd)), lambd))
    return below if plain_name(op) == "softshrink" else call("where", call("gt", call("abs", x), lambd), x, 0)


SPECIAL: dict[str, Callable[[Operation, Build], object]] = {
    "rsub": _rsub,
    "pow": _pow,
    "clamp": _clamp,
    "hardtanh": _clamp,
    "elu": _elu,
    "celu": _celu,
    "softplus": _softplus,
    "gelu": _gelu,
    "threshold": _threshold,
    "softshrink": _shrink,
    "hardshrink": _shrink,
    "leaky_relu": lambda op, build: call(
        "leaky_relu", build(op.operands[0]), parse_constant(find_argument(op, 1, "negative_slope", "0.01"))
    ),
    "relu6": lambda op, build: call("min", call("relu", build(op.operands[0])), 6),
    "where": lambda op, build: _where(op, build),
    "fill": lambda op, build: parse_constant(op.operands[1]),
    "masked_fill": lambda op, build: call("masked_fill", *(build(item) for item in (op.operands[0], *op.operands[1:]))),
    "bitwise_not": _bitwise_not,
    "logical_not": lambda op, build: call("eq", build(op.operands[0]), 0),
    "zeros_like": lambda op, build: 0,
    "ones_like": lambda op, build: 1,
}
