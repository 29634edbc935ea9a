"""The table of scalar functions of float32 values, and of the ATen calls that compute them.

A new activation is a record here and a function of its name in `kernels.scalars`. What else has to know the functions
is derived: arities, epilogues, what the planner recognises, and which numbers of a graph must not be made of sizes.
"""

from __future__ import annotations

from workbench.records import record


@record
class AtenCall:
    """An ATen call that computes a function: its name, and its arguments after the values as (name, default).

    A default is written as in a graph; it is empty for an argument that has none. These arguments are numbers, with
    which a kernel is written: they must be the same at all sizes.
    """

    name: str
    numbers: tuple[tuple[str, str], ...] = ()


@record
class ScalarFunction:
    """A function of `values` values, and of `numbers` numbers after them that may be left out.

    `is_special`: it calls a function of cute.math. `is_composed`: the language has no function of that name; the
    planner writes its ATen calls as an expression of others (`proposers.recognition.scalars`).
    """

    name: str
    values: int = 1
    numbers: int = 0
    aten: tuple[AtenCall, ...] = ()
    is_special: bool = False
    is_composed: bool = False


def _of_the_same_name(*names: str, values: int = 1, is_special: bool = False) -> tuple[ScalarFunction, ...]:
    """Functions that one ATen call of their name computes."""
    return tuple(
        ScalarFunction(name=name, values=values, is_special=is_special, aten=(AtenCall(name=name),)) for name in names
    )


def _composed(
    name: str, *numbers: tuple[str, str], values: int = 1, others: tuple[AtenCall, ...] = ()
) -> ScalarFunction:
    """An ATen call that the planner writes as an expression."""
    return ScalarFunction(
        name=name, values=values, aten=(AtenCall(name=name, numbers=numbers), *others), is_composed=True
    )


SCALARS: tuple[ScalarFunction, ...] = (
    ScalarFunction(name="choose", values=3),
    *_of_the_same_name("relu"),
    *_of_the_same_name("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "silu", is_special=True),
    ScalarFunction(name="gelu", is_special=True),
    ScalarFunction(name="gelu_tanh", is_special=True),
    *_of_the_same_name("neg", "abs", "square", "reciprocal", "sign"),
    *_of_the_same_name("floor", "ceil", "expm1", "log1p", "erf", "sin", "cos", is_special=True),
    *_of_the_same_name("erfc", "exp2", "log2", "log10", "tan", "sinh", "cosh", is_special=True),
    *_of_the_same_name("acos", "asin", "atan", "acosh", "asinh", "atanh", "erfinv", "sinc", is_special=True),
    ScalarFunction(name="trunc", is_special=True, aten=(AtenCall(name="trunc"), AtenCall(name="fix"))),
    ScalarFunction(name="round_even", is_special=True, aten=(AtenCall(name="round"),)),
    ScalarFunction(
        name="leaky_relu", numbers=1, aten=(AtenCall(name="leaky_relu", numbers=(("negative_slope", "0.01"),)),)
    ),
    ScalarFunction(name="elu", numbers=1, is_special=True),
    ScalarFunction(name="clamp", values=3),
    *_of_the_same_name("hardsigmoid", "hardswish"),
    ScalarFunction(name="softplus", is_special=True),
    ScalarFunction(name="logsigmoid", is_special=True, aten=(AtenCall(name="log_sigmoid_forward"),)),
    ScalarFunction(name="softsign"),
    *_of_the_same_name("mish", is_special=True),
    ScalarFunction(name="power", values=2, is_special=True),
    ScalarFunction(name="where", values=3),
    *_of_the_same_name("xlogy", "atan2", "hypot", "copysign", "fmod", "remainder", values=2, is_special=True),
    ScalarFunction(name="xlog1py", values=2, is_special=True, aten=(AtenCall(name="special_xlog1py"),)),
    *_of_the_same_name("floor_divide", values=2, is_special=True),
    *_of_the_same_name("fmax", "fmin", values=2),
    *_of_the_same_name("gt", "ge", "lt", "le", "eq", "ne", values=2),
    ScalarFunction(name="to_f16"),
    ScalarFunction(name="to_bf16"),
    ScalarFunction(name="masked_fill", values=3),
    # operators of the language
    *(
        ScalarFunction(name=name, values=2, aten=(AtenCall(name=name, numbers=(("alpha", "1"),)),))
        for name in ("add", "sub")
    ),
    *_of_the_same_name("mul", values=2),
    ScalarFunction(
        name="div",
        values=2,
        aten=(AtenCall(name="div", numbers=(("rounding_mode", "None"),)), AtenCall(name="true_divide")),
    ),
    ScalarFunction(name="max", values=2, aten=(AtenCall(name="maximum"), AtenCall(name="clamp_min"))),
    ScalarFunction(name="min", values=2, aten=(AtenCall(name="minimum"), AtenCall(name="clamp_max"))),
    # expressions of the functions above
    _composed("rsub", ("alpha", "1"), values=2),
    _composed("pow", values=2),
    _composed("clamp", ("min", "None"), ("max", "None")),
    _composed("hardtanh", ("min_val", "-1.0"), ("max_val", "1.0")),
    _composed("relu6"),
    _composed("elu", ("alpha", "1.0"), ("scale", "1"), ("input_scale", "1")),
    _composed("celu", ("alpha", "1.0")),
    _composed("softplus", ("beta", "1"), ("threshold", "20")),
    _composed("gelu", ("approximate", "none")),
    _composed("threshold", ("threshold", ""), ("value", "")),
    _composed("softshrink", ("lambd", "0.5"), others=(AtenCall(name="hardshrink", numbers=(("lambd", "0.5"),)),)),
    *(_composed(name) for name in ("deg2rad", "rad2deg", "frac", "sgn", "angle", "positive", "special_entr")),
    *(_composed(name) for name in ("isnan", "isinf", "isposinf", "isneginf", "signbit")),
    _composed("logit", ("eps", "None")),
    _composed("nan_to_num", ("nan", "None"), ("posinf", "None"), ("neginf", "None")),
    _composed("rrelu_with_noise", ("lower", "0.125"), ("upper", "0.3333333333333333"), ("training", "False"), values=2),
    *(_composed(name, values=2) for name in ("_prelu_kernel", "logaddexp", "logaddexp2", "heaviside", "ldexp")),
    *(_composed(f"{of}_{name}", values=2) for of in ("logical", "bitwise") for name in ("and", "or", "xor")),
    _composed("lerp", values=3),
    *(_composed(name, ("value", "1"), values=3) for name in ("addcmul", "addcdiv")),
    _composed("where", values=3),
    _composed("masked_fill", values=3),
    _composed("fill", values=2),
    _composed("bitwise_not", others=(AtenCall(name="logical_not"),)),
    _composed("zeros_like", others=(AtenCall(name="ones_like"),)),
)
OPERATORS = ("add", "sub", "mul", "div", "max", "min")
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_WRITTEN = tuple(one for one in SCALARS if not one.is_composed)
FUNCTIONS = tuple(one.name for one in _WRITTEN if one.name not in OPERATORS)  # of workbench.kernels.scalars
MATH = frozenset(one.name for one in _WRITTEN if one.is_special)
ARITY = {one.name: (one.values, one.values + one.numbers) for one in _WRITTEN}  # (least, most) arguments
UNARY = tuple(name for name in FUNCTIONS if ARITY[name][0] == 1)
MANY = tuple(name for name in FUNCTIONS if ARITY[name][0] > 1 and name != "choose")  # which only kernels call
KNOWN = (*UNARY, *OPERATORS, *MANY)
ATEN = {call.name: (one, call) for one in SCALARS for call in one.aten}  # ATen's name -> the function and its call


def arity(name: str) -> tuple[int, int]:
    """Least and most arguments of a known function."""
    return ARITY.get(name, (1, 1))


def emitted_name(name: str) -> str:
    """What the function is called in emitted text: abs is Python's own."""
    return "abs_" if name == "abs" else name
