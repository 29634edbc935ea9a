"""torch's element-wise functions: the planner's first kernel of each is right on the emulator, or it is refused.

`WRITTEN` has what torch and torch.nn.functional have of one, two and three values, with and without numbers.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench import Session, problems
from workbench.problems import inspection
from workbench.proposers.coverage import find_coverage

ONE = [
    "abs",
    "angle",
    "asinh",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "frac",
    "neg",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "sgn",
    "sigmoid",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "square",
    "tan",
    "tanh",
    "trunc",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "signbit",
    "logical_not",
    "nan_to_num",
]
POSITIVE = ["log", "log10", "log1p", "log2", "rsqrt", "sqrt", "special.entr", "special.xlog1py"]
SHARE = ["acos", "asin", "atanh", "erfinv", "logit"]
ACTIVATIONS = [
    "relu",
    "relu6",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "gelu",
    "logsigmoid",
    "hardshrink",
    "tanhshrink",
    "softsign",
    "softplus",
    "softshrink",
    "hardsigmoid",
    "silu",
    "mish",
    "hardtanh",
    "hardswish",
    "glu",
]
TWO = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "fmod",
    "remainder",
    "atan2",
    "hypot",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "copysign",
    "ldexp",
    "logaddexp",
    "logaddexp2",
    "heaviside",
    "xlogy",
    "gt",
    "ge",
    "lt",
    "le",
    "eq",
    "ne",
    "logical_and",
    "logical_or",
    "logical_xor",
    "isclose",
]
WITH_NUMBERS = """F.leaky_relu(x, 0.2)|F.elu(x, 0.5)|F.celu(x, 2.0)|F.hardtanh(x, -2.0, 0.5)|F.threshold(x, 0.1, 20.0)
F.softplus(x, 2.0)|F.softplus(x, 1.0, 5.0)|F.softshrink(x, 0.7)|F.hardshrink(x, 0.3)|F.gelu(x, approximate='tanh')
F.rrelu(x, 0.1, 0.3, training=False)|F.glu(x, 0)|torch.acosh(x.abs() + 1)|torch.clamp(x, y, y + 1)|torch.lerp(x, y, 0.3)
torch.lerp(x, y, torch.sigmoid(x))|torch.addcmul(x, x, y, value=0.5)|torch.addcdiv(x, x, y + 10, value=0.5)
torch.nan_to_num(x / y.relu(), nan=1.0, posinf=2.0)|torch.logit(torch.sigmoid(x), 0.3)|torch.rsub(x, y, alpha=2)
x % 0.3|x // 0.3|torch.div(x, y, rounding_mode='floor')|torch.div(x, y, rounding_mode='trunc')|torch.fmod(x, -0.7)
torch.pow(2.0, x)|torch.pow(x.abs(), 2.5)|(x > 0) & (y > 0)|(x > 0) ^ (y > 0)|~(x > 0)|torch.isinf(x / y.relu())
torch.where((x > 0) \\| (y > 0), x, y)""".replace("\n", "|")
WRITTEN = [
    *(f"torch.{name}(x)" for name in ONE),
    *(f"torch.{name}({'x, y.abs()' if '1py' in name else 'x.abs() + 0.1'})" for name in POSITIVE),
    *(f"torch.{name}(torch.sigmoid(x))" for name in SHARE),
    *(f"F.{name}(x)" for name in ACTIVATIONS),
    *(f"torch.{name}(x, y)" for name in TWO),
    *(text.replace("\\", "") for text in re.split(r"(?<!\\)\|", WITH_NUMBERS)),
]
UNWRITTEN = [
    "torch.digamma(x)",
    "torch.lgamma(x)",
    "torch.i0(x)",
    "torch.special.i1(x)",
    "torch.special.erfcx(x)",
    "torch.special.ndtri(x)",
    "torch.special.bessel_j0(x)",
    "torch.special.log_ndtr(x)",
    "torch.nextafter(x,y)",
    "torch.special.zeta(x,y)",
    "torch.polygamma(1,x)",
    "torch.round(x,decimals=2)",
    "x.double()",
    "torch.float_power(x,y)",
]


def problem(expression: str) -> problems.Problem:
    inputs = [f"{name}: f32[34, 66]" for name in ("x", "y") if re.search(rf"\b{name}\b", expression)]
    return problems.from_expression(expression, inputs=", ".join(inputs))


@pytest.mark.few(6)
@pytest.mark.parametrize("expression", WRITTEN)
def test_the_first_kernel_is_right(expression: str, tmp_path: Path) -> None:
    with Session.create(problem(expression), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        verdict = version.trials[-1].verdict
        assert verdict.correct, version.trials[-1].outcome.failure
        assert not [said for said in verdict.doubts if "degenerate task" not in said]


@pytest.mark.few(2)
@pytest.mark.parametrize("expression", UNWRITTEN)
def test_what_has_no_function_is_refused(expression: str) -> None:
    opened = inspection.open_problem(problem(expression))
    found = find_coverage(opened.problem, opened.facts, arch="sm_80", device="H200")
    assert not found.program
    assert "no kernel" in found.reason
