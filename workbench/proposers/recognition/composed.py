"""ATen's element-wise calls that are expressions of the language's functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from workbench.language.expressions.lowering import call
from workbench.proposers.recognition.graph import Unrecognised, parse_number, plain_name
from workbench.proposers.recognition.operands import LIMIT, parse_constant, scalar_argument
from workbench.records import Operation

Build = Callable[[str], object]
Compose = Callable[[Operation, Build], object]
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}  # else LIMIT


def _frac(op: Operation, build: Build) -> object:
    x = build(op.operands[0])
    return call("sub", x, call("trunc", x))


def _angle(op: Operation, build: Build) -> object:
    x = build(op.operands[0])
    return call("where", call("ne", x, x), x, call("where", call("lt", x, 0), math.pi, 0))


def _entr(op: Operation, build: Build) -> object:
    x = build(op.operands[0])
    return call("where", call("lt", x, 0), -math.inf, call("neg", call("xlogy", x, x)))


def _logit(op: Operation, build: Build) -> object:
    x, eps = build(op.operands[0]), parse_number(scalar_argument(op, "eps"))
    if eps is not None and eps > 0:
        x = call("min", call("max", x, eps), 1 - eps)
    return call("log", call("div", x, call("sub", 1, x)))


def _nan_to_num(op: Operation, build: Build) -> object:
    x, most = build(op.operands[0]), LARGEST.get(op.result[0].dtype, LIMIT)
    given = {name: parse_number(scalar_argument(op, name)) for name in ("nan", "posinf", "neginf")}
    nan, above, below = (
        default if given[name] is None else given[name]
        for name, default in (("nan", 0), ("posinf", most), ("neginf", -most))
    )
    finite = call("where", call("gt", x, most), above, call("where", call("lt", x, -most), below, x))
    return call("where", call("ne", x, x), nan, finite)


def _rrelu(op: Operation, build: Build) -> object:
    if scalar_argument(op, "training") != "False":
        raise Unrecognised("rrelu in training")
    low, high = (parse_number(scalar_argument(op, name)) for name in ("lower", "upper"))
    if low is None or high is None:
        raise Unrecognised("rrelu")
    return call("leaky_relu", build(op.operands[0]), (low + high) / 2)


def _prelu(op: Operation, build: Build) -> object:
    x, slope = (build(item) for item in op.operands[:2])
    return call("where", call("gt", x, 0), x, call("mul", x, slope))


def _logaddexp(op: Operation, build: Build) -> object:
    """The larger one, and the rest as a logarithm; equal infinities have no difference."""
    a, b = (build(item) for item in op.operands[:2])
    is_two = plain_name(op) == "logaddexp2"
    smaller = call("exp2" if is_two else "exp", call("neg", call("abs", call("sub", a, b))))
    rest: object = call("log1p", smaller)
    both: object = call("add", a, 1 if is_two else math.log(2))
    if is_two:
        rest = call("mul", rest, 1 / math.log(2))
    return call("where", call("eq", a, b), both, call("add", call("max", a, b), rest))


def _heaviside(op: Operation, build: Build) -> object:
    x, at_zero = (build(item) for item in op.operands[:2])
    return call("where", call("eq", x, 0), at_zero, call("gt", x, 0))


def _logical(op: Operation, build: Build) -> object:
    """Of bools, or whether values are not 0."""
    name, kind = plain_name(op), op.result[0].dtype if op.result else ""
    if kind != "bool":
        raise Unrecognised(f"{name} of integers")
    a, b = (call("ne", build(item), 0) for item in op.operands[:2])
    return call({"and": "mul", "or": "max", "xor": "ne"}[name.rpartition("_")[2]], a, b)


def _lerp(op: Operation, build: Build) -> object:
    a, b, weight = (build(item) for item in op.operands[:3])
    return call("add", a, call("mul", weight, call("sub", b, a)))


def _add_product(op: Operation, build: Build) -> object:
    a, b, c = (build(item) for item in op.operands[:3])
    value = parse_constant(scalar_argument(op, "value"))
    part = call("mul" if plain_name(op) == "addcmul" else "div", b, c)
    return call("add", a, part if value == 1 else call("mul", part, value))


def _scaled(factor: float) -> Compose:
    return lambda op, build: call("mul", build(op.operands[0]), factor)


def _compared(name: str, other: float, of: str = "") -> Compose:
    """A comparison of a value, or a function of it, with a number."""

    def compose(op: Operation, build: Build) -> object:
        x = build(op.operands[0])
        return call(name, call(of, x) if of else x, other)

    return compose


def _is_nan(op: Operation, build: Build) -> object:
    x = build(op.operands[0])
    return call("ne", x, x)


MORE: dict[str, Compose] = {
    "deg2rad": _scaled(math.pi / 180),
    "rad2deg": _scaled(180 / math.pi),
    "frac": _frac,
    "sgn": lambda op, build: call("sign", build(op.operands[0])),
    "angle": _angle,
    "positive": lambda op, build: build(op.operands[0]),
    "isnan": _is_nan,
    "isinf": _compared("eq", math.inf, of="abs"),
    "isposinf": _compared("eq", math.inf),
    "isneginf": _compared("eq", -math.inf),
    "signbit": lambda op, build: call("lt", call("copysign", 1, build(op.operands[0])), 0),
    "special_entr": _entr,
    "logit": _logit,
    "nan_to_num": _nan_to_num,
    "rrelu_with_noise": _rrelu,
    "_prelu_kernel": _prelu,
    "logaddexp": _logaddexp,
    "logaddexp2": _logaddexp,
    "heaviside": _heaviside,
    "ldexp": lambda op, build: call("mul", build(op.operands[0]), call("exp2", build(op.operands[1]))),
    **{f"{of}_{name}": _logical for of in ("logical", "bitwise") for name in ("and", "or", "xor")},
    "lerp": _lerp,
    "addcmul": _add_product,
    "addcdiv": _add_product,
}
