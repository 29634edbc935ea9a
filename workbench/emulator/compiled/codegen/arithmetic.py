"""Arithmetic, logic, comparison and moves: one builder per family, each the counterpart of one in the interpreter
(isa/floats.py, isa/moves.py).
"""

from __future__ import annotations

from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.codegen.emitter import Emitter, floats, vector, vector_items
from workbench.emulator.compiled.codegen.layout import DATA, ELEMENT, EXTRA
from workbench.emulator.compiled.codegen.numbers import (
    float_bits,
    flush,
    from_bf16,
    from_half,
    get_float,
    larger_or_smaller,
    literal,
    pack,
    put_float,
    saturate,
    to_double,
)
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Vec

FLOAT_KINDS = ("f16", "bf16", "f32", "f64")
LOOP_NAMES = ("exp2", "log2", "sin", "cos", "tanh")  # numpy functions whose inner loops compiled code calls
LOOP_OF = {"ex2": 0, "lg2": 1, "sin": 2, "cos": 3, "tanh": 4}
PLAIN = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def allow_only(ins: Instruction, *allowed: str) -> None:
    """Raise `Unsupported` for unexpected modifiers: compiled code must not guess their meaning."""
    for mod in ins.mods:
        if mod not in allowed:
            raise Unsupported(ins.text)


def float_arithmetic(e: Emitter, ins: Instruction) -> None:
    """Counterpart of floats.float_arithmetic."""
    allow_only(ins, "rn", "ftz", "sat", "full", "approx", "NaN", "relu", *FLOAT_KINDS, "f16x2", "bf16x2")
    kinds = [mod for mod in ins.mods if mod in (*FLOAT_KINDS, "f16x2", "bf16x2")]
    if len(kinds) != 1 or ("NaN" in ins.mods and kinds[0] == "f64"):
        raise Unsupported(ins.text)
    kind = kinds[0]
    if kind.endswith("x2"):
        _pair(e, ins, kind[:-2])
        return
    values = [get_float(e, operand, kind) for operand in ins.operands[1:]]
    result, have = _scalar(e, ins, kind, [value for value, _ in values])
    if "sat" in ins.mods:
        result = saturate(e, result, have)
    put_float(e, ins.operands[0], result, have, kind)


def _pair(e: Emitter, ins: Instruction, kind: str) -> None:
    halves = []
    raws = [e.get(operand, "b32") for operand in ins.operands[1:]]
    widen = from_half if kind == "f16" else from_bf16
    for shift in (0, 16):
        parts = [widen(e, e.resize(e.assign(f"lshr {vector(32)} {raw}, splat (i32 {shift})"), 32, 16)) for raw in raws]
        halves.append(pack(e, *_scalar(e, ins, kind, parts), kind)[0])
    e.put(ins.operands[0], join_halves(e, halves[0], halves[1]), 32)


def join_halves(e: Emitter, low: str, high: str) -> str:
    """Two 16-bit values as one of 32 bits."""
    up = e.assign(f"shl {vector(32)} {e.resize(high, 16, 32)}, splat (i32 16)")
    return e.assign(f"or {vector(32)} {e.resize(low, 16, 32)}, {up}")


def _scalar(e: Emitter, ins: Instruction, kind: str, values: list[str]) -> tuple[str, str]:
    """One float operation; the result must still be rounded to `kind`."""
    have = "double" if kind == "f64" else "float"
    op = "fma" if ins.opcode == "mad" else ins.opcode
    ftz = "ftz" in ins.mods and kind == "f32"
    if ftz:
        values = [flush(e, value) for value in values]
    if op == "fma":
        result, have = _fma(e, ins, kind, values, have)
    elif op in ("ex2", "lg2", "sin", "cos", "tanh", "rsqrt") or ("approx" in ins.mods and op in ("sqrt", "rcp")):
        result, have = _approximate(e, op, to_double(e, values[0], have)), "double"
        if kind in ("f32", "bf16"):
            result, have = e.assign(f"fptrunc {floats('double')} {result} to {floats('float')}"), "float"
    else:
        result = _exact(e, op, values, have, ins)
    if "NaN" in ins.mods:
        result = e.select(
            floats("float"),
            e.assign(f"fcmp uno {floats('float')} {values[0]}, {values[1]}"),
            "splat (float 0x7FF8000000000000)",
            result,
        )
    return (flush(e, result) if ftz else result), have


def _fma(e: Emitter, ins: Instruction, kind: str, values: list[str], have: str) -> tuple[str, str]:
    t = floats(have)
    if kind == "f32":
        return e.call("llvm.fma.v32f32", t, *((t, value) for value in values)), have
    if kind == "f64":
        for n, value in enumerate(values):
            e.store(t, value, "context", DATA + ELEMENT * n)
        e.helper("fma64", "%context_")
        return e.load(t, "context", EXTRA), have
    if "relu" in ins.mods:
        raise Unsupported(ins.text)
    wide = [to_double(e, value, have) for value in values]
    product = e.assign(f"fmul {floats('double')} {wide[0]}, {wide[1]}")
    total = e.assign(f"fadd {floats('double')} {product}, {wide[2]}")
    if kind == "f16":
        return total, "double"
    return e.assign(f"fptrunc {floats('double')} {total} to {floats('float')}"), "float"


def _approximate(e: Emitter, op: str, value: str) -> str:
    """The double-precision numpy function for an approximate instruction."""
    t = floats("double")
    one = literal("double", 1.0)
    if op == "rcp":
        return e.assign(f"fdiv {t} {one}, {value}")
    if op in ("sqrt", "rsqrt"):
        root = e.unary("sqrt", t, value)
        return root if op == "sqrt" else e.assign(f"fdiv {t} {one}, {root}")
    e.store(t, value, "context", DATA)
    e.helper("approximate", "%context_", LOOP_OF[op])
    return e.load(t, "context", EXTRA)


def _exact(e: Emitter, op: str, values: list[str], have: str, ins: Instruction) -> str:
    t, size = floats(have), 64 if have == "double" else 32
    if op in PLAIN:
        return e.assign(f"{PLAIN[op]} {t} {values[0]}, {values[1]}")
    if op in ("min", "max"):
        return larger_or_smaller(e, values[0], values[1], have, op == "max")
    if op == "sqrt":
        return e.unary("sqrt", t, values[0])
    if op == "rcp":
        return e.assign(f"fdiv {t} {literal(have, 1.0)}, {values[0]}")
    if op == "copysign":
        return e.binary("copysign", t, values[1], values[0])
    if op in ("neg", "abs"):
        raw, top = float_bits(e, values[0], have), 1 << (size - 1)
        changed = e.assign(
            f"xor {vector(size)} {raw}, splat (i{size} {top})"
            if op == "neg"
            else f"and {vector(size)} {raw}, splat (i{size} {top - 1})"
        )
        return e.assign(f"bitcast {vector(size)} {changed} to {t}")
    raise Unsupported(ins.text)


def compare(e: Emitter, ins: Instruction) -> None:
    """Counterpart of moves.compare: setp and set."""
    kind = ins.mods[-1]
    combine = next((mod for mod in ins.mods[1:] if mod in ("and", "or", "xor")), None)
    flags = _test(e, ins.mods[0], kind, ins.operands[1], ins.operands[2], ins)
    if ins.opcode == "set":
        if combine or ins.mods[-2] not in ("u32", "s32", "f32"):
            raise Unsupported(ins.text)
        one = 0x3F80_0000 if ins.mods[-2] == "f32" else 0xFFFF_FFFF
        e.put(ins.operands[0], e.select(vector(32), flags, f"splat (i32 {one})", "zeroinitializer"), 32)
        return
    targets = vector_items(ins.operands[0])
    both = [flags, e.assign(f"xor <32 x i1> {flags}, splat (i1 true)")][: len(targets)]
    if combine:
        other = e.predicate(ins.operands[3])
        both = [e.assign(f"{combine} <32 x i1> {value}, {other}") for value in both]
    for target, value in zip(targets, both, strict=True):
        e.put_predicate(target, value)


def _test(e: Emitter, name: str, kind: str, a: object, b: object, ins: Instruction) -> str:
    if kind in FLOAT_KINDS:
        unordered = {
            "equ": "ueq",
            "neu": "une",
            "ltu": "ult",
            "leu": "ule",
            "gtu": "ugt",
            "geu": "uge",
            "num": "ord",
            "nan": "uno",
            "ne": "one",
            "eq": "oeq",
            "lt": "olt",
            "le": "ole",
            "gt": "ogt",
            "ge": "oge",
        }
        if name not in unordered:
            raise Unsupported(ins.text)
        left, have = get_float(e, a, kind)
        return e.assign(f"fcmp {unordered[name]} {floats(have)} {left}, {get_float(e, b, kind)[0]}")
    if kind[0] not in "usb" or kind == "b128":
        raise Unsupported(ins.text)
    plain = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    if plain not in ("eq", "ne", "lt", "le", "gt", "ge"):
        raise Unsupported(ins.text)
    test = plain if plain in ("eq", "ne") else ("s" if kind[0] == "s" else "u") + plain
    left = e.get(a, kind)
    return e.assign(f"icmp {test} {vector(int(kind[1:]))} {left}, {e.get(b, kind)}")


def select(e: Emitter, ins: Instruction) -> None:
    """selp."""
    kind = "b16" if ins.mods[-1] == "bf16" else ins.mods[-1]
    a, b = e.get(ins.operands[1], kind), e.get(ins.operands[2], kind)
    size = 32 if kind.endswith("x2") else int(kind[1:])
    e.put(ins.operands[0], e.select(vector(size), e.predicate(ins.operands[3]), a, b), size)


def move(e: Emitter, ins: Instruction) -> None:
    """mov, with packing and unpacking of vectors."""
    kind = "b16" if ins.mods[-1] == "bf16" else ins.mods[-1]
    target, source = ins.operands[0], ins.operands[1]
    if kind == "pred":
        e.put_predicate(target, e.predicate(source))
        return
    size = 32 if kind.endswith("x2") else int(kind[1:])
    if size > 64:
        raise Unsupported(ins.text)
    if isinstance(source, Vec):
        part = size // len(source.items)
        total = "zeroinitializer"
        for n, item in enumerate(source.items):
            wide = e.resize(e.get(item, f"b{part}"), part, size)
            total = e.assign(
                f"or {vector(size)} {total}, {e.assign(f'shl {vector(size)} {wide}, splat (i{size} {part * n})')}"
            )
        e.put(target, total, size)
    elif isinstance(target, Vec):
        value, part = e.get(source, f"b{size}"), size // len(target.items)
        for n, item in enumerate(target.items):
            e.put(
                item, e.resize(e.assign(f"lshr {vector(size)} {value}, splat (i{size} {part * n})"), size, part), part
            )
    else:
        e.put(target, e.get(source, kind), size)
