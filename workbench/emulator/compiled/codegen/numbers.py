"""Float values in IR: conversions between PTX types and LLVM's floats, rounded as in isa/floats.py. A float value is
(IR name, "float" or "double").
"""

from __future__ import annotations

from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.codegen.emitter import Emitter, floats, vector

WIDTHS = {"float": 32, "double": 64, "half": 16}
SMALLEST_NORMAL = "splat (float 0x3810000000000000)"  # 2^-126


def literal(kind: str, value: float) -> str:
    """A constant in all lanes."""
    return f"splat ({kind} {value:.6e})"


def get_float(e: Emitter, operand: object, kind: str) -> tuple[str, str]:
    """An operand of a float type; the 16-bit types are widened to float."""
    raw = e.get(operand, kind)
    if kind == "f16":
        return from_half(e, raw), "float"
    if kind == "bf16":
        return from_bf16(e, raw), "float"
    if kind not in ("f32", "f64"):
        raise Unsupported(f"float type {kind}")
    name = "float" if kind == "f32" else "double"
    return e.assign(f"bitcast {vector(WIDTHS[name])} {raw} to {floats(name)}"), name


def put_float(e: Emitter, operand: object, value: str, have: str, kind: str) -> None:
    """Round a float value to PTX type `kind` and write it."""
    raw, size = pack(e, value, have, kind)
    e.put(operand, raw, size)


def pack(e: Emitter, value: str, have: str, kind: str) -> tuple[str, int]:
    """The bits of a value rounded to PTX type `kind`, and their number."""
    if kind == "f16":
        return to_half(e, value, have), 16
    if kind == "bf16":
        return to_bf16(e, to_float(e, value, have)), 16
    if kind == "f32":
        return float_bits(e, to_float(e, value, have), "float"), 32
    return float_bits(e, to_double(e, value, have), "double"), 64


def float_bits(e: Emitter, value: str, kind: str) -> str:
    """A float's bits."""
    return e.assign(f"bitcast {floats(kind)} {value} to {vector(WIDTHS[kind])}")


def to_double(e: Emitter, value: str, have: str) -> str:
    """A float as a double (exact)."""
    return value if have == "double" else e.assign(f"fpext {floats(have)} {value} to {floats('double')}")


def to_float(e: Emitter, value: str, have: str) -> str:
    """Rounds to float, to nearest even."""
    return value if have == "float" else e.assign(f"fptrunc {floats('double')} {value} to {floats('float')}")


def from_half(e: Emitter, raw: str) -> str:
    """f16 bits as floats."""
    half = e.assign(f"bitcast {vector(16)} {raw} to {floats('half')}")
    return e.assign(f"fpext {floats('half')} {half} to {floats('float')}")


def from_bf16(e: Emitter, raw: str) -> str:
    """bf16 bits as floats."""
    wide = e.assign(f"shl {vector(32)} {e.resize(raw, 16, 32)}, splat (i32 16)")
    return e.assign(f"bitcast {vector(32)} {wide} to {floats('float')}")


def to_half(e: Emitter, value: str, have: str) -> str:
    """Floats or doubles as f16 bits, rounded once: doubles pass through a float that is rounded to odd."""
    narrow = to_odd(e, value) if have == "double" else value
    return float_bits(e, e.assign(f"fptrunc {floats('float')} {narrow} to {floats('half')}"), "half")


def to_odd(e: Emitter, value: str) -> str:
    """Doubles as floats; inexact ones get an odd last bit, so that a second rounding to fewer bits is correct."""
    near = e.assign(f"fptrunc {floats('double')} {value} to {floats('float')}")
    back = to_double(e, near, "float")
    raw = float_bits(e, near, "float")
    even = e.assign(f"icmp eq {vector(32)} {e.assign(f'and {vector(32)} {raw}, splat (i32 1)')}, zeroinitializer")
    inexact = e.assign(f"fcmp one {floats('double')} {back}, {value}")
    finite = e.assign(
        f"fcmp one {floats('float')} {e.unary('fabs', floats('float'), near)}, splat (float 0x7FF0000000000000)"
    )
    fix = e.assign(f"and <32 x i1> {e.assign(f'and <32 x i1> {even}, {inexact}')}, {finite}")
    grown = e.assign(
        f"fcmp ogt {floats('double')} {e.unary('fabs', floats('double'), back)},"
        f" {e.unary('fabs', floats('double'), value)}"
    )
    step = e.select(vector(32), grown, "splat (i32 -1)", "splat (i32 1)")
    odd = e.select(vector(32), fix, e.assign(f"add {vector(32)} {raw}, {step}"), raw)
    return e.assign(f"bitcast {vector(32)} {odd} to {floats('float')}")


def is_nan(e: Emitter, value: str, kind: str) -> str:
    """Flags of the lanes that hold NaN."""
    return e.assign(f"fcmp uno {floats(kind)} {value}, {value}")


def to_bf16(e: Emitter, value: str) -> str:
    """Floats as bf16 bits, to nearest even; any NaN is 0x7FFF."""
    raw = float_bits(e, value, "float")
    last = e.assign(f"and {vector(32)} {e.assign(f'lshr {vector(32)} {raw}, splat (i32 16)')}, splat (i32 1)")
    total = e.assign(f"add {vector(32)} {e.assign(f'add {vector(32)} {raw}, splat (i32 32767)')}, {last}")
    rounded = e.resize(e.assign(f"lshr {vector(32)} {total}, splat (i32 16)"), 32, 16)
    return e.select(vector(16), is_nan(e, value, "float"), "splat (i16 32767)", rounded)


def flush(e: Emitter, value: str) -> str:
    """Subnormal floats as zeros of their sign (.ftz)."""
    tiny = e.assign(f"fcmp olt {floats('float')} {e.unary('fabs', floats('float'), value)}, {SMALLEST_NORMAL}")
    zero = e.binary("copysign", floats("float"), "zeroinitializer", value)
    return e.select(floats("float"), tiny, zero, value)


def larger_or_smaller(e: Emitter, a: str, b: str, kind: str, larger: bool) -> str:
    """numpy's fmax or fmin with -0 below +0: a number wins over a NaN."""
    t = floats(kind)
    w = vector(WIDTHS[kind])
    negative = e.assign(f"icmp slt {w} {float_bits(e, a, kind)}, zeroinitializer")
    first, second = (b, a) if larger else (a, b)
    equal = e.select(t, negative, first, second)
    better = e.select(t, e.assign(f"fcmp {'ogt' if larger else 'olt'} {t} {a}, {b}"), a, b)
    number = e.select(t, is_nan(e, b, kind), a, better)
    return e.select(t, e.assign(f"fcmp oeq {t} {a}, {b}"), equal, number)


def clamp_below(e: Emitter, value: str, kind: str) -> str:
    """max(value, +0), NaN becomes 0, as np.fmax(value, 0)."""
    strip_negation = e.assign(f"fcmp ogt {floats(kind)} {value}, zeroinitializer")
    return e.select(floats(kind), strip_negation, value, "zeroinitializer")


def saturate(e: Emitter, value: str, kind: str) -> str:
    """Clamp to [0, 1], NaN becomes 0 (.sat)."""
    low = clamp_below(e, value, kind)
    one = literal(kind, 1.0)
    return e.select(floats(kind), e.assign(f"fcmp olt {floats(kind)} {low}, {one}"), low, one)
