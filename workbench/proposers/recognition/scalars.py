"""Translates ATen's element-wise calls into the language's functions."""

from __future__ import annotations

from collections.abc import Callable

from workbench.language import Call
from workbench.language.expressions.lowering import call
from workbench.language.expressions.scalars import ATEN
from workbench.proposers.recognition.composed import MORE
from workbench.proposers.recognition.graph import Unrecognised, parse_number, plain_name
from workbench.proposers.recognition.operands import parse_constant, scalar_argument
from workbench.records import Operation

Build = Callable[[str], object]
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
TWO = frozenset(name for name, (function, _) in ATEN.items() if function.values == 2 and not function.is_composed)


def scalar_expression(op: Operation, build: Build) -> object:
    """The expression of an element-wise call. Raises `Unrecognised`."""
    name = plain_name(op)
    if name == "_to_copy":
        return _cast(op, build)
    if name == "constant" and op.result and not op.result[0].shape:
        return parse_constant(dict(op.keywords).get("value", ""))
    if name in THROUGH:
        return parse_constant(op.operands[0]) if name == "scalar_tensor" else build(op.operands[0])
    if name in COMPOSED:
        return COMPOSED[name](op, build)
    if name not in ATEN:
        raise Unrecognised(name)
    return _function(op, build)


def _function(op: Operation, build: Build) -> object:
    """A call of the language's function for an ATen call: of its values, then of its numbers."""
    function, aten_call = ATEN[plain_name(op)]
    numbers = [argument for argument, _ in aten_call.numbers]
    if len(op.operands) < function.values or set(dict(op.keywords)) - {*numbers}:
        raise Unrecognised(plain_name(op))
    if function.values == 2:
        return _binary(op, function.name, build)
    values = [build(item) for item in op.operands[: function.values]]
    return call(function.name, *values, *(parse_constant(scalar_argument(op, argument)) for argument in numbers))


def _cast(op: Operation, build: Build) -> object:
    """A value in another floating type, or as a bool. Expressions are float32, so only a narrower type changes it."""
    kind = dict(op.keywords).get("dtype", f"torch.{op.result[0].dtype}").removeprefix("torch.")
    if kind == "bool":
        return call("ne", build(op.operands[0]), 0)
    if kind not in ROUNDED:
        raise Unrecognised(f"a cast to {kind}")
    value, function = build(op.operands[0]), ROUNDED[kind]
    return value if function is None else call(function, value)


def _binary(op: Operation, name: str, build: Build) -> object:
    if len(op.operands) != 2:
        raise Unrecognised(name)
    second, mode = build(op.operands[1]), dict(op.keywords).get("rounding_mode", "None").strip("'")
    if mode == "floor":
        return call("floor_divide", build(op.operands[0]), second)
    if mode == "trunc":
        return call("trunc", call("div", build(op.operands[0]), second))
    alpha = dict(op.keywords).get("alpha")
    if alpha not in (None, "1"):
        if name not in ("add", "sub"):
            raise Unrecognised(name)
        second = call("mul", second, parse_constant(str(alpha)))
    return call(name, build(op.operands[0]), second)


def _rsub(op: Operation, build: Build) -> object:
    taken, alpha = build(op.operands[0]), parse_constant(scalar_argument(op, "alpha"))
    return call("sub", build(op.operands[1]), taken if alpha == 1 else call("mul", taken, alpha))


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
    names = ("min_val", "max_val") if plain_name(op) == "hardtanh" else ("min", "max")
    least, most = (scalar_argument(op, name) for name in names)
    if least != "None":
        value = call("max", value, build(least))
    return call("min", value, build(most)) if most != "None" else value


def _elu(op: Operation, build: Build) -> object:
    alpha, scale, inner = (parse_number(scalar_argument(op, name)) for name in ("alpha", "scale", "input_scale"))
    if alpha is None or scale is None or inner != 1.0:
        raise Unrecognised("elu")
    made = call("elu", build(op.operands[0]), alpha)
    return made if scale == 1.0 else call("mul", made, scale)


def _celu(op: Operation, build: Build) -> object:
    alpha, x = parse_constant(scalar_argument(op, "alpha")), build(op.operands[0])
    if alpha == 1:
        return call("elu", x)
    return call("where", call("gt", x, 0), x, call("mul", call("expm1", call("div", x, alpha)), alpha))


def _softplus(op: Operation, build: Build) -> object:
    """softplus(beta x) / beta; beyond a threshold of 20 the two branches of torch agree in float32.

    With a smaller threshold the value itself is the result beyond it.
    """
    beta, threshold = (parse_number(scalar_argument(op, name)) for name in ("beta", "threshold"))
    if beta is None or beta <= 0 or threshold is None:
        raise Unrecognised("softplus")
    x = build(op.operands[0])
    scaled = x if beta == 1.0 else call("mul", x, beta)
    made = call("softplus", scaled) if beta == 1.0 else call("div", call("softplus", scaled), beta)
    return made if threshold >= 20.0 else call("where", call("gt", scaled, threshold), x, made)


def _gelu(op: Operation, build: Build) -> object:
    is_tanh = scalar_argument(op, "approximate").strip("'") == "tanh"
    return call("gelu_tanh" if is_tanh else "gelu", build(op.operands[0]))


def _threshold(op: Operation, build: Build) -> object:
    x = build(op.operands[0])
    limit, below = (parse_constant(scalar_argument(op, name)) for name in ("threshold", "value"))
    return call("where", call("le", x, limit), below, x)  # NaN stays


def _where(op: Operation, build: Build) -> object:
    """A choice by a condition. A mask that is a tensor comes behind a value: kernels want a floating tensor first."""
    if len(op.operands) != 3:
        raise Unrecognised("where")
    chosen, other, condition = (build(item) for item in (*op.operands[1:], op.operands[0]))
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
    x, lambd = build(op.operands[0]), parse_constant(scalar_argument(op, "lambd"))
    below = call("sub", x, call("min", call("max", x, call("neg", lambd)), lambd))
    return below if plain_name(op) == "softshrink" else call("where", call("le", call("abs", x), lambd), 0, x)


COMPOSED: dict[str, Callable[[Operation, Build], object]] = {
    **MORE,
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
    "relu6": lambda op, build: call("min", call("relu", build(op.operands[0])), 6),
    "where": lambda op, build: _where(op, build),
    "fill": lambda op, build: parse_constant(op.operands[1]),
    "masked_fill": lambda op, build: call("masked_fill", *(build(item) for item in (op.operands[0], *op.operands[1:]))),
    "bitwise_not": _bitwise_not,
    "logical_not": lambda op, build: call("eq", build(op.operands[0]), 0),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), lambda op, build: 0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda op, build: 1),
    "full": lambda op, build: parse_constant(op.operands[1]),
    "full_like": lambda op, build: parse_constant(op.operands[1]),
    "new_full": lambda op, build: parse_constant(op.operands[2]),
}
