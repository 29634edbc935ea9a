"""cvt: the counterpart of convert.convert."""

from __future__ import annotations

from workbench.emulator.compiled.codegen.arithmetic import FLOAT_KINDS, allow_only, join_halves
from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.codegen.emitter import Emitter, floats, vector
from workbench.emulator.compiled.codegen.integers import extend
from workbench.emulator.compiled.codegen.numbers import (
    clamp_below,
    from_bf16,
    from_half,
    get_float,
    pack,
    put_float,
    saturate,
    to_bf16,
    to_double,
    to_half,
)
from workbench.emulator.ptx.instruction import Instruction

WHOLE = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
ROUND = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
ROUNDINGS = (*ROUND, "rn", "rz", "rm", "rp")


def convert(e: Emitter, ins: Instruction) -> None:
    """cvt{.rnd}{.sat}.dtype.stype."""
    allow_only(ins, *ROUNDINGS, "rna", "sat", "relu", "ftz", *WHOLE, *FLOAT_KINDS, "f16x2", "bf16x2", "tf32")
    kinds = [mod for mod in ins.mods if mod in (*WHOLE, *FLOAT_KINDS, "f16x2", "bf16x2", "tf32")]
    if len(kinds) != 2:
        raise Unsupported(ins.text)
    to, source = kinds
    rounding = next((mod for mod in ins.mods if mod in (*ROUNDINGS, "rna")), None)
    if to in ("f16x2", "bf16x2"):
        _pair(e, ins, to, source)
    elif to == "tf32":
        _tf32(e, ins, rounding or "rna")
    elif rounding == "rna" or ("relu" in ins.mods and source not in FLOAT_KINDS):
        raise Unsupported(ins.text)
    elif source in FLOAT_KINDS:
        _from_float(e, ins, to, source, rounding)
    else:
        _from_integer(e, ins, to, source, rounding)


def _pair(e: Emitter, ins: Instruction, to: str, source: str) -> None:
    if source != "f32" or len(ins.operands) != 3:
        raise Unsupported(ins.text)
    parts = []
    for operand in (ins.operands[2], ins.operands[1]):
        value = get_float(e, operand, "f32")[0]
        value = clamp_below(e, value, "float") if "relu" in ins.mods else value
        parts.append(to_half(e, value, "float") if to == "f16x2" else to_bf16(e, value))
    e.put(ins.operands[0], join_halves(e, parts[0], parts[1]), 32)


def _tf32(e: Emitter, ins: Instruction, rounding: str) -> None:
    t = vector(32)
    raw = e.get(ins.operands[1], "f32")
    rounded = raw
    if rounding == "rn":
        last = e.assign(f"and {t} {e.assign(f'lshr {t} {raw}, splat (i32 13)')}, splat (i32 1)")
        rounded = e.assign(f"add {t} {e.assign(f'add {t} {raw}, splat (i32 4095)')}, {last}")
    elif rounding == "rna":
        rounded = e.assign(f"add {t} {raw}, splat (i32 4096)")
    exponent = e.assign(f"and {t} {raw}, splat (i32 2139095040)")
    finite = e.assign(f"icmp ne {t} {exponent}, splat (i32 2139095040)")
    e.put(ins.operands[0], e.select(t, finite, e.assign(f"and {t} {rounded}, splat (i32 -8192)"), raw), 32)


def _from_float(e: Emitter, ins: Instruction, to: str, source: str, rounding: str | None) -> None:
    value, have = get_float(e, ins.operands[1], source)
    if to not in FLOAT_KINDS:
        whole = e.unary(
            {"rn": "rint", "rz": "trunc", "rm": "floor", "rp": "ceil", **ROUND}[rounding or "rzi"],
            floats("double"),
            to_double(e, value, have),
        )
        size = int(to[1:])
        name = f"llvm.fpto{to[0]}i.sat.v32i{size}.v32f64"
        result = e.call(name, vector(size), (floats("double"), whole))
        if size == 64 or source == "f64":  # else NaN becomes 0
            nan = e.assign(f"fcmp uno {floats('double')} {whole}, {whole}")
            result = e.select(vector(size), nan, f"splat (i{size} {-(1 << (size - 1))})", result)
        _put_whole(e, ins, result, to)
        return
    if rounding in ROUND:
        value = e.unary(ROUND[rounding], floats(have), value)
    if "relu" in ins.mods:
        value = clamp_below(e, value, have)
    if "sat" in ins.mods:
        value = saturate(e, value, have)
    _round(e, ins, to, value, have, rounding)


def _from_integer(e: Emitter, ins: Instruction, to: str, source: str, rounding: str | None) -> None:
    size, signed = int(source[1:]), source[0] == "s"
    value = e.get(ins.operands[1], source)
    if to not in FLOAT_KINDS:
        want = int(to[1:])
        if "sat" in ins.mods:
            value = _clamp(e, value, source, to)
        _put_whole(e, ins, extend(e, value, size, want, signed) if want > size else e.resize(value, size, want), to)
        return
    if "sat" in ins.mods or (size == 64 and rounding in ("rz", "rm", "rp")):
        raise Unsupported(ins.text)
    direct = "double" if to == "f64" or rounding in ("rz", "rm", "rp") else "float"
    _round(e, ins, to, e.assign(f"{source[0]}itofp {vector(size)} {value} to {floats(direct)}"), direct, rounding)


def _put_whole(e: Emitter, ins: Instruction, value: str, to: str) -> None:
    """Write an integer to its register; an s8's register is wider, and extended with the sign."""
    size = int(to[1:])
    e.put(ins.operands[0], extend(e, value, 8, 32, True) if to == "s8" else value, 32 if to == "s8" else size)


def _clamp(e: Emitter, value: str, source: str, to: str) -> str:
    size, sign = int(source[1:]), source[0]
    low, high = _limits(source)
    least, most = _limits(to)
    value = e.binary(f"{sign}max", vector(size), value, f"splat (i{size} {max(low, least)})")
    return e.binary(f"{sign}min", vector(size), value, f"splat (i{size} {min(high, most)})")


def _limits(kind: str) -> tuple[int, int]:
    size = int(kind[1:])
    return (-(1 << (size - 1)), (1 << (size - 1)) - 1) if kind[0] == "s" else (0, (1 << size) - 1)


def _round(e: Emitter, ins: Instruction, to: str, value: str, have: str, rounding: str | None) -> None:
    """Round to the target float type: nearest even, or one step back for .rz, .rm, .rp."""
    if rounding not in ("rz", "rm", "rp") or to == "bf16":
        put_float(e, ins.operands[0], value, have, to)
        return
    raw, size = pack(e, value, have, to)
    t, double = vector(size), floats("double")
    back = {"f16": lambda: to_double(e, from_half(e, raw), "float"), "bf16": lambda: from_bf16(e, raw)}.get(to)
    got = (
        back()
        if back
        else to_double(
            e,
            e.assign(f"bitcast {t} {raw} to {floats('float' if size == 32 else 'double')}"),
            "float" if size == 32 else "double",
        )
    )
    exact = to_double(e, value, have)
    above, below = e.assign(f"fcmp ogt {double} {got}, {exact}"), e.assign(f"fcmp olt {double} {got}, {exact}")
    if rounding == "rz":
        above = e.assign(f"and <32 x i1> {above}, {e.assign(f'fcmp ogt {double} {exact}, zeroinitializer')}")
        below = e.assign(f"and <32 x i1> {below}, {e.assign(f'fcmp olt {double} {exact}, zeroinitializer')}")
    result = e.select(t, above, _next(e, raw, size, up=False), raw) if rounding != "rp" else raw
    result = e.select(t, below, _next(e, raw, size, up=True), result) if rounding != "rm" else result
    e.put(ins.operands[0], result, size)


def _next(e: Emitter, raw: str, size: int, *, up: bool) -> str:
    """The neighbouring float's bits (numpy's nextafter towards an infinity)."""
    t, top = vector(size), 1 << (size - 1)
    negative = e.assign(f"icmp slt {t} {raw}, zeroinitializer")
    zero = e.assign(f"icmp eq {t} {e.assign(f'and {t} {raw}, splat (i{size} {top - 1})')}, zeroinitializer")
    steps = ("-1", "1") if up else ("1", "-1")
    moved = e.assign(
        f"add {t} {raw}, {e.select(t, negative, f'splat (i{size} {steps[0]})', f'splat (i{size} {steps[1]})')}"
    )
    return e.select(t, zero, f"splat (i{size} {1 if up else top + 1})", moved)
