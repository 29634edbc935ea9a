"""Scalar functions of float32 values for hooks and kernels; each takes and returns `cutlass.Float32`.

Each is meant to be accurate to a few ulp: exp by ex2.approx (2 ulp and |v| eps), reciprocals by rcp.approx (1 ulp),
near zero polynomials or libdevice's expm1 and log1p. The coefficients of tanh were fitted here: smallest relative error
over |v| < 0.6, 3e-9 before rounding.
"""

import cutlass
import cutlass.cute as cute


def choose(condition, a, b):
    return cutlass.Float32(cutlass.select_(condition, a, b))


def relu(v):
    return cute.arch.fmax(v, cutlass.Float32(0.0), nan=True)


def exp(v):
    return cute.math.exp(v, fastmath=True)


def log(v):
    return cute.math.log(v)


def sqrt(v):
    return cute.math.sqrt(v)


def rsqrt(v):
    return cute.math.rsqrt(v)


def tanh(v):
    # a polynomial near 0, where 1 - 2 / (exp(2 v) + 1) would cancel; the latter saturates cleanly at both ends
    t = v * v
    near = v + v * t * (
        -0.3333329856 + t * (0.1333192438 + t * (-0.0537838265 + t * (0.0207959563 + t * -0.0058951406)))
    )
    far = 1.0 - 2.0 * cute.arch.rcp_approx(cute.math.exp(2.0 * v, fastmath=True) + 1.0)
    return choose(t < 0.36, near, far)


def sigmoid(v):
    return cute.arch.rcp_approx(1.0 + cute.math.exp(-v, fastmath=True))


def silu(v):
    return v * cute.arch.rcp_approx(1.0 + cute.math.exp(-v, fastmath=True))


def gelu(v):
    return 0.5 * v * (1.0 + cute.math.erf(v * 0.7071067811865476))


def gelu_tanh(v):
    # 0.5 v (1 + tanh(u)) = v sigmoid(2 u), with u = sqrt(2 / pi) (v + 0.044715 v^3)
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    return v * cute.arch.rcp_approx(1.0 + cute.math.exp(-2.0 * u, fastmath=True))


def neg(v):
    return -v


def abs_(v):
    return cute.arch.fmax(v, -v)


def square(v):
    return v * v


def reciprocal(v):
    return 1.0 / v


def sign(v):
    return choose(v > 0.0, cutlass.Float32(1.0), choose(v < 0.0, cutlass.Float32(-1.0), cutlass.Float32(0.0)))


def floor(v):
    return cute.math.floor(v)


def ceil(v):
    return cute.math.ceil(v)


def expm1(v):
    return cute.math.expm1(v)


def log1p(v):
    return cute.math.log1p(v)


def erf(v):
    return cute.math.erf(v)


def sin(v):
    return cute.math.sin(v)


def cos(v):
    return cute.math.cos(v)


def erfc(v):
    return cute.math.erfc(v)


def exp2(v):
    return cute.math.exp2(v)


def log2(v):
    return cute.math.log2(v)


def log10(v):
    return cute.math.log10(v)


def tan(v):
    return cute.math.tan(v)


def sinh(v):
    return cute.math.sinh(v)


def cosh(v):
    return cute.math.cosh(v)


def acos(v):
    return cute.math.acos(v)


def asin(v):
    return cute.math.asin(v)


def atan(v):
    return cute.math.atan(v)


def acosh(v):
    return cute.math.acosh(v)


def asinh(v):
    return cute.math.asinh(v)


def atanh(v):
    return cute.math.atanh(v)


def erfinv(v):
    # Giles, Approximating the erfinv function (2012), in single precision
    w = -cute.math.log((1.0 - v) * (1.0 + v))
    n, f = w - 2.5, cute.math.sqrt(w) - 3.0
    near = 3.43273939e-07 + n * 2.81022636e-08
    near = -4.39150654e-06 + n * (-3.5233877e-06 + n * near)
    near = -0.00125372503 + n * (0.00021858087 + n * near)
    near = 1.50140941 + n * (0.246640727 + n * (-0.00417768164 + n * near))
    far = 0.000100950558 + f * -0.000200214257
    far = -0.00367342844 + f * (0.00134934322 + f * far)
    far = -0.0076224613 + f * (0.00573950773 + f * far)
    far = 2.83297682 + f * (1.00167406 + f * (0.00943887047 + f * far))
    edge = v * cutlass.Float32(float("inf"))
    return choose(v * v == 1.0, edge, v * choose(w < 5.0, near, far))


def sinc(v):
    angle = v * 3.141592653589793
    return choose(v == 0.0, cutlass.Float32(1.0), cute.math.sin(angle) / angle)


def trunc(v):
    return cute.math.trunc(v)


def round_even(v):
    return cute.math.roundeven(v)


def leaky_relu(v, slope=0.01):
    return choose(v > 0.0, v, v * slope)


def elu(v, alpha=1.0):
    return choose(v > 0.0, v, alpha * cute.math.expm1(v))


def clamp(v, least, most):
    return cute.arch.fmin(cute.arch.fmax(v, least, nan=True), most, nan=True)


def hardsigmoid(v):
    raised = cute.arch.fmax(v + 3.0, cutlass.Float32(0.0), nan=True)
    return cute.arch.fmin(raised, cutlass.Float32(6.0), nan=True) * 0.16666666666666666


def hardswish(v):
    raised = cute.arch.fmax(v + 3.0, cutlass.Float32(0.0))
    return v * cute.arch.fmin(raised, cutlass.Float32(6.0)) * 0.16666666666666666


def softplus(v):
    # log(1 + exp(v)) = max(v, 0) + log(1 + exp(-|v|))
    positive = cute.arch.fmax(v, cutlass.Float32(0.0))
    return positive + cute.math.log1p(cute.math.exp(cute.arch.fmin(v, -v), fastmath=True))


def logsigmoid(v):
    negative = cute.arch.fmin(v, cutlass.Float32(0.0))
    return negative - cute.math.log1p(cute.math.exp(cute.arch.fmin(v, -v), fastmath=True))


def softsign(v):
    return v / (1.0 + cute.arch.fmax(v, -v))


def mish(v):
    # v tanh(log(1 + e)) = v n / (n + 2), with e = exp(v) and n = e (e + 2); from 20 on it is v
    e = cute.math.exp(cute.arch.fmin(v, cutlass.Float32(20.0)), fastmath=True)
    n = e * (e + 2.0)
    return v * (n / (n + 2.0))


def power(a, b):
    return cute.math.pow(a, b)


def where(condition, a, b):
    return choose(condition != 0.0, a, b)


def xlogy(a, b):
    # b == b is false for a NaN only
    return choose((a == 0.0) & (b == b), cutlass.Float32(0.0), a * cute.math.log(b))  # noqa: PLR0124


def xlog1py(a, b):
    # b == b is false for a NaN only
    return choose((a == 0.0) & (b == b), cutlass.Float32(0.0), a * cute.math.log1p(b))  # noqa: PLR0124


def atan2(a, b):
    return cute.math.atan2(a, b)


def hypot(a, b):
    # the larger one times a root, so that no square overflows
    first, second = cute.arch.fmax(a, -a), cute.arch.fmax(b, -b)
    large, small = cute.arch.fmax(first, second), cute.arch.fmin(first, second, nan=True)
    ratio = small / large
    edge = choose(large == 0.0, small, large)
    is_edge = (large == 0.0) | (large == cutlass.Float32(float("inf")))
    return choose(is_edge, edge, large * cute.math.sqrt(1.0 + ratio * ratio))


def copysign(a, b):
    return cute.math.copysign(a, b)


def fmod(a, b):
    return cute.math.rem(a, b)


def remainder(a, b):
    rest = cute.math.rem(a, b)
    return choose((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), rest + b, rest)


def floor_divide(a, b):
    # as torch and Python do it, so that rounding of a / b makes no other whole number
    rest = cute.math.rem(a, b)
    whole = (a - rest) / b
    whole = choose((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), whole - 1.0, whole)
    low = cute.math.floor(whole)
    low = choose(whole - low > 0.5, low + 1.0, low)
    return choose(b == 0.0, a / b, low)


def fmax(a, b):
    return cute.arch.fmax(a, b)


def fmin(a, b):
    return cute.arch.fmin(a, b)


def gt(a, b):
    return choose(a > b, cutlass.Float32(1.0), cutlass.Float32(0.0))


def ge(a, b):
    return choose(a >= b, cutlass.Float32(1.0), cutlass.Float32(0.0))


def lt(a, b):
    return choose(a < b, cutlass.Float32(1.0), cutlass.Float32(0.0))


def le(a, b):
    return choose(a <= b, cutlass.Float32(1.0), cutlass.Float32(0.0))


def eq(a, b):
    return choose(a == b, cutlass.Float32(1.0), cutlass.Float32(0.0))


def ne(a, b):
    return choose(a != b, cutlass.Float32(1.0), cutlass.Float32(0.0))


def to_f16(v):
    return v.to(cutlass.Float16).to(cutlass.Float32)


def to_bf16(v):
    return v.to(cutlass.BFloat16).to(cutlass.Float32)


def masked_fill(v, mask, filling):
    return choose(mask != 0.0, filling, v)
