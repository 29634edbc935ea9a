"""Names of the scalar functions of float32 values and their numbers of arguments; `kernels.scalars` defines them."""

from __future__ import annotations

FUNCTIONS = (
    *("choose", "relu", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "neg", "abs"),
    *("square", "reciprocal", "sign", "floor", "ceil", "expm1", "log1p", "erf", "sin", "cos", "leaky_relu", "elu"),
    *("clamp", "hardsigmoid", "hardswish", "softplus", "logsigmoid", "softsign", "mish", "power", "where", "xlogy"),
    *("gt", "ge", "lt", "le", "eq", "ne", "to_f16", "to_bf16", "masked_fill"),
)  # functions of workbench.kernels.scalars
MATH = frozenset(
    (
        *("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "floor", "ceil", "expm1"),
        *("log1p", "erf", "sin", "cos", "elu", "softplus", "logsigmoid", "mish", "power", "xlogy"),
    )
)  # those that call a function of cute.math
ARITY = {  # (least, most) arguments of what does not take one
    "leaky_relu": (1, 2),
    "elu": (1, 2),
    "clamp": (3, 3),
    "where": (3, 3),
    "masked_fill": (3, 3),
    **dict.fromkeys(
        ("add", "sub", "mul", "div", "max", "min", "power", "xlogy", "gt", "ge", "lt", "le", "eq", "ne"), (2, 2)
    ),
}
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
BINARY = ("add", "sub", "mul", "div", "max", "min")
UNARY = tuple(name for name in FUNCTIONS if ARITY.get(name, (1, 1))[0] == 1 and name != "choose")
MANY = tuple(name for name in ARITY if name not in (*BINARY, *UNARY))
KNOWN = (*UNARY, *BINARY, *MANY)


def arity(name: str) -> tuple[int, int]:
    """Least and most arguments of a known function."""
    return ARITY.get(name, (1, 1))


def emitted_name(name: str) -> str:
    """What the function is called in emitted text: abs is Python's own."""
    return "abs_" if name == "abs" else name
