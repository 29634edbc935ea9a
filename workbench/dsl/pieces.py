"""Shared pieces of emitted text: scalar functions in float32, and what an emitter returns."""

from __future__ import annotations

from workbench.dsl.ir import Call, Stage
from workbench.records import record

FUNCTIONS = {
    "relu": "def relu(v):\n    return cute.arch.fmax(v, cutlass.Float32(0.0))",
    "exp": "def exp(v):\n    return cute.math.exp(v, fastmath=True)",
    "log": "def log(v):\n    return cute.math.log(v, fastmath=True)",
    "sqrt": "def sqrt(v):\n    return cute.math.sqrt(v)",
    "rsqrt": "def rsqrt(v):\n    return cute.math.rsqrt(v)",
    "tanh": "def tanh(v):\n    # tanh(v) = 1 - 2 / (exp(2 v) + 1): saturates cleanly at both ends\n    return 1.0 - 2.0 / (cute.math.exp(2.0 * v, fastmath=True) + 1.0)",
    "sigmoid": "def sigmoid(v):\n    return 1.0 / (1.0 + cute.math.exp(-v, fastmath=True))",
    "silu": "def silu(v):\n    return v / (1.0 + cute.math.exp(-v, fastmath=True))",
    "gelu": "def gelu(v):\n    return 0.5 * v * (1.0 + cute.math.erf(v * 0.7071067811865476))",
    "gelu_tanh": "def gelu_tanh(v):\n    # 0.5 v (1 + tanh(u)) = v sigmoid(2 u), with u = sqrt(2 / pi) (v + 0.044715 v^3)\n    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)\n    return v / (1.0 + cute.math.exp(-2.0 * u, fastmath=True))",
    "neg": "def neg(v):\n    return -v",
    "abs": "def abs_(v):\n    return cute.arch.fmax(v, -v)",
}
UNARY = tuple(FUNCTIONS)
BINARY = ("add", "sub", "mul", "div", "max", "min")
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


@record
class Parts:
    """The kernels' text, the body of forward, and what the kernels import beyond torch and CuTe DSL."""

    kernels: str
    forward: str
    imports: str = ""


def functions_used(value: object) -> tuple[str, ...]:
    """Names of the scalar functions in an expression, in order of first use."""
    if not isinstance(value, Call):
        return ()
    names = [value.name] if value.name in FUNCTIONS else []
    for part in value.positional:
        names += functions_used(part)
    return tuple(dict.fromkeys(names))


def definitions(names: tuple[str, ...]) -> str:
    """Python text that defines the scalar functions."""
    return "".join(f"\n{FUNCTIONS[name]}\n\n" for name in names)


def expression(value: object, operands: dict[str, str]) -> str:
    """Python text of an expression over float32 values."""
    if isinstance(value, Call):
        parts = [expression(part, operands) for part in value.positional]
        if value.name in INFIX:
            return f"({parts[0]} {INFIX[value.name]} {parts[1]})"
        if value.name in ("max", "min"):
            return f"cute.arch.f{value.name}({parts[0]}, {parts[1]})"
        return f"{'abs_' if value.name == 'abs' else value.name}({', '.join(parts)})"
    if isinstance(value, str):
        return operands[value]
    return f"cutlass.Float32({float(value)!r})"  # type: ignore[arg-type]


def epilogue_lines(stage: Stage, bias: str) -> list[str]:
    """Python statements that take `total` (float32) through the epilogues; `bias` is the text of its element."""
    lines = []
    for call in stage.epilogues:
        if call.name == "bias":
            lines.append(f"total = total + {bias}.to(cutlass.Float32)")
        elif call.name == "scale":
            lines.append(f"total = total * {float(call.positional[0])!r}")  # type: ignore[arg-type]
        else:
            lines.append(f"total = {'abs_' if call.name == 'abs' else call.name}(total)")
    return lines
