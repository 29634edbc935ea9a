"""Scalar functions of float32 values as text of emitted kernels, with what each needs and how many arguments it takes.

Each is meant to be right to a few units in the last place: exp by ex2.approx (2 units and |v| eps), reciprocals by rcp.approx (1 unit), near zero
by polynomials or libdevice's expm1 and log1p. The coefficients of tanh were fitted here: least relative error over |v| < 0.6, 3e-9 before rounding.
"""

from __future__ import annotations

import re

FUNCTIONS = {
    "choose": "def choose(condition, a, b):\n    return cutlass.Float32(cutlass.select_(condition, a, b))",
    "relu": "def relu(v):\n    return cute.arch.fmax(v, cutlass.Float32(0.0), nan=True)",
    "exp": "def exp(v):\n    return cute.math.exp(v, fastmath=True)",
    "log": "def log(v):\n    return cute.math.log(v)",
    "sqrt": "def sqrt(v):\n    return cute.math.sqrt(v)",
    "rsqrt": "def rsqrt(v):\n    return cute.math.rsqrt(v)",
    "tanh": (
        "def tanh(v):\n    # a polynomial near 0, where 1 - 2 / (exp(2 v) + 1) would cancel; the latter saturates cleanly at both ends\n    t = v * v\n"
        "    near = v + v * t * (-0.3333329856 + t * (0.1333192438 + t * (-0.0537838265 + t * (0.0207959563 + t * -0.0058951406))))\n"
        "    far = 1.0 - 2.0 * cute.arch.rcp_approx(cute.math.exp(2.0 * v, fastmath=True) + 1.0)\n    return choose(t < 0.36, near, far)"
    ),
    "sigmoid": "def sigmoid(v):\n    return cute.arch.rcp_approx(1.0 + cute.math.exp(-v, fastmath=True))",
    "silu": "def silu(v):\n    return v * cute.arch.rcp_approx(1.0 + cute.math.exp(-v, fastmath=True))",
    "gelu": "def gelu(v):\n    return 0.5 * v * (1.0 + cute.math.erf(v * 0.7071067811865476))",
    "gelu_tanh": "def gelu_tanh(v):\n    # 0.5 v (1 + tanh(u)) = v sigmoid(2 u), with u = sqrt(2 / pi) (v + 0.044715 v^3)\n    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)\n    return v * cute.arch.rcp_approx(1.0 + cute.math.exp(-2.0 * u, fastmath=True))",
    "neg": "def neg(v):\n    return -v",
    "abs": "def abs_(v):\n    return cute.arch.fmax(v, -v)",
    "square": "def square(v):\n    return v * v",
    "reciprocal": "def reciprocal(v):\n    return 1.0 / v",
    "sign": "def sign(v):\n    return choose(v > 0.0, cutlass.Float32(1.0), choose(v < 0.0, cutlass.Float32(-1.0), cutlass.Float32(0.0)))",
    "floor": "def floor(v):\n    return cute.math.floor(v)",
    "ceil": "def ceil(v):\n    return cute.math.ceil(v)",
    "expm1": "def expm1(v):\n    return cute.math.expm1(v)",
    "log1p": "def log1p(v):\n    return cute.math.log1p(v)",
    "erf": "def erf(v):\n    return cute.math.erf(v)",
    "sin": "def sin(v):\n    return cute.math.sin(v)",
    "cos": "def cos(v):\n    return cute.math.cos(v)",
    "leaky_relu": "def leaky_relu(v, slope=0.01):\n    return choose(v > 0.0, v, v * slope)",
    "elu": "def elu(v, alpha=1.0):\n    return choose(v > 0.0, v, alpha * cute.math.expm1(v))",
    "clamp": "def clamp(v, least, most):\n    return cute.arch.fmin(cute.arch.fmax(v, least, nan=True), most, nan=True)",
    "hardsigmoid": "def hardsigmoid(v):\n    return cute.arch.fmin(cute.arch.fmax(v + 3.0, cutlass.Float32(0.0), nan=True), cutlass.Float32(6.0), nan=True) * 0.16666666666666666",
    "hardswish": "def hardswish(v):\n    return v * cute.arch.fmin(cute.arch.fmax(v + 3.0, cutlass.Float32(0.0)), cutlass.Float32(6.0)) * 0.16666666666666666",
    "softplus": "def softplus(v):\n    # log(1 + exp(v)) = max(v, 0) + log(1 + exp(-|v|))\n    return cute.arch.fmax(v, cutlass.Float32(0.0)) + cute.math.log1p(cute.math.exp(cute.arch.fmin(v, -v), fastmath=True))",
    "logsigmoid": "def logsigmoid(v):\n    return cute.arch.fmin(v, cutlass.Float32(0.0)) - cute.math.log1p(cute.math.exp(cute.arch.fmin(v, -v), fastmath=True))",
    "softsign": "def softsign(v):\n    return v / (1.0 + cute.arch.fmax(v, -v))",
    "mish": (
        "def mish(v):\n    # v tanh(log(1 + e)) = v n / (n + 2), with e = exp(v) and n = e (e + 2); from 20 on it is v\n    e = cute.math.exp(cute.arch.fmin(v, cutlass.Float32(20.0)), fastmath=True)\n"
        "    n = e * (e + 2.0)\n    return v * (n / (n + 2.0))"
    ),
    "power": "def power(a, b):\n    return cute.math.pow(a, b)",
    "where": "def where(condition, a, b):\n    return choose(condition != 0.0, a, b)",
    "xlogy": "def xlogy(a, b):\n    return choose((a == 0.0) & (b == b), cutlass.Float32(0.0), a * cute.math.log(b))  # b == b: it is no NaN",
    **{name: f"def {name}(a, b):\n    return choose(a {sign} b, cutlass.Float32(1.0), cutlass.Float32(0.0))" for name, sign in {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}.items()},
}
ARITY = {  # (least, most) arguments of what does not take one
    "leaky_relu": (1, 2), "elu": (1, 2), "clamp": (3, 3), "where": (3, 3),
    **dict.fromkeys(("add", "sub", "mul", "div", "max", "min", "power", "xlogy", "gt", "ge", "lt", "le", "eq", "ne"), (2, 2)),
}  # fmt: skip
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
BINARY = ("add", "sub", "mul", "div", "max", "min")
UNARY = tuple(name for name in FUNCTIONS if ARITY.get(name, (1, 1))[0] == 1 and name != "choose")
MANY = tuple(name for name in ARITY if name not in (*BINARY, *UNARY))
KNOWN = (*UNARY, *BINARY, *MANY)


def arity(name: str) -> tuple[int, int]:
    """Least and most arguments of a known function."""
    return ARITY.get(name, (1, 1))


def spelt(name: str) -> str:
    """What the function is called in emitted text: abs is Python's own."""
    return "abs_" if name == "abs" else name


def definitions(names: tuple[str, ...]) -> str:
    """Python text that defines the scalar functions, after those that they need."""
    wanted: list[str] = []
    for name in names:
        if "choose(" in re.sub(r"^def choose", "", FUNCTIONS[name]) and "choose" not in wanted:
            wanted.append("choose")
        if name not in wanted:
            wanted.append(name)
    return "".join(f"\n{FUNCTIONS[name]}\n\n" for name in wanted)
