"""Integer arithmetic, bit operations and shifts, each the counterpart of one in the interpreter (isa/integers.py,
isa/bitwise.py).
"""

from __future__ import annotations

from workbench.emulator.compiled.codegen.arithmetic import allow_only
from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.codegen.emitter import Emitter, vector
from workbench.emulator.compiled.codegen.layout import DATA, ELEMENT, EXTRA
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Imm

KINDS = ("u16", "s16", "u32", "s32", "u64", "s64", "b16", "b32", "b64")
PLAIN = {"add": "add", "sub": "sub"}


def int_arithmetic(e: Emitter, ins: Instruction) -> None:
    """Counterpart of integers.int_arithmetic."""
    allow_only(ins, "lo", "hi", "wide", "sat", "relu", *KINDS)
    kind, op = ins.mods[-1], ins.opcode
    size, signed = int(kind[1:]), kind[0] == "s"
    t = vector(size)
    if op in ("mul", "mad"):
        _multiply(e, ins, kind)
        return
    values = [e.get(operand, kind) for operand in ins.operands[1:]]
    if "sat" in ins.mods:
        if kind != "s32" or op not in ("add", "sub"):
            raise Unsupported(ins.text)
        result = e.binary("sadd.sat" if op == "add" else "ssub.sat", t, *values)
    elif op in PLAIN:
        result = e.assign(f"{PLAIN[op]} {t} {values[0]}, {values[1]}")
    elif op in ("min", "max"):
        result = e.binary(("s" if signed else "u") + op, t, *values)
        result = e.binary("smax", t, result, "zeroinitializer") if "relu" in ins.mods else result
    elif op in ("div", "rem"):
        quotient = _divide(e, values[0], values[1], size, signed)
        rest = e.assign(f"sub {t} {values[0]}, {e.assign(f'mul {t} {quotient}, {values[1]}')}")
        by_zero = e.assign(f"icmp eq {t} {values[1]}, zeroinitializer")
        result = quotient if op == "div" else e.select(t, by_zero, f"splat (i{size} -1)", rest)
    elif op == "neg":
        result = e.assign(f"sub {t} zeroinitializer, {values[0]}")
    elif op == "abs":
        result = e.call(f"llvm.abs.v32i{size}", t, (t, values[0]), ("i1", "false")) if signed else values[0]
    else:
        raise Unsupported(ins.text)
    e.put(ins.operands[0], result, size)


def _multiply(e: Emitter, ins: Instruction, kind: str) -> None:
    size, signed = int(kind[1:]), kind[0] == "s"
    a, b = e.get(ins.operands[1], kind), e.get(ins.operands[2], kind)
    have = size
    if "wide" in ins.mods or ("hi" in ins.mods and size < 64):
        have = 2 * size
        result = e.assign(f"mul {vector(have)} {extend(e, a, size, have, signed)}, {extend(e, b, size, have, signed)}")
        if "hi" in ins.mods:
            result, have = e.resize(e.assign(f"lshr {vector(have)} {result}, splat (i{have} {size})"), have, size), size
    elif "hi" in ins.mods:
        result = _high64(e, a, b, signed)
    else:
        result = e.assign(f"mul {vector(size)} {a}, {b}")
    if ins.opcode == "mad":
        result = e.assign(f"add {vector(have)} {result}, {e.get(ins.operands[3], f'b{have}')}")
    e.put(ins.operands[0], result, have)


def extend(e: Emitter, value: str, have: int, want: int, signed: bool) -> str:
    """Widen with the sign or with zeros."""
    return (
        value if have == want else e.assign(f"{'sext' if signed else 'zext'} {vector(have)} {value} to {vector(want)}")
    )


def _high64(e: Emitter, a: str, b: str, signed: bool) -> str:
    """The upper half of a 64-bit product, from 32-bit parts."""
    t = vector(64)

    def low(value: str) -> str:
        return e.assign(f"and {t} {value}, splat (i64 4294967295)")

    def high(value: str) -> str:
        return e.assign(f"lshr {t} {value}, splat (i64 32)")

    def times(x: str, y: str) -> str:
        return e.assign(f"mul {t} {x}, {y}")

    def plus(x: str, y: str) -> str:
        return e.assign(f"add {t} {x}, {y}")

    al, ah, bl, bh = low(a), high(a), low(b), high(b)
    cross = plus(times(ah, bl), high(times(al, bl)))
    other = plus(times(al, bh), low(cross))
    result = plus(plus(times(ah, bh), high(cross)), high(other))
    if signed:
        for x, y in ((a, b), (b, a)):
            negative = e.assign(f"ashr {t} {x}, splat (i64 63)")
            result = e.assign(f"sub {t} {result}, {e.assign(f'and {t} {negative}, {y}')}")
    return result


def _divide(e: Emitter, a: str, b: str, size: int, signed: bool) -> str:
    """Quotient rounded towards zero, all ones if b is 0. Up to 32 bits it is exact in double precision."""
    t = vector(size)
    if size == 64:
        e.store(t, a, "context", DATA)
        e.store(t, b, "context", DATA + ELEMENT)
        e.helper("divide64", "%context_", e.now[0], int(signed))
        return e.load(t, "context", EXTRA)
    sign = "s" if signed else "u"
    x, y = (e.assign(f"{sign}itofp {t} {value} to <32 x double>") for value in (a, b))
    zero = e.assign(f"icmp eq {t} {b}, zeroinitializer")
    whole = e.assign(f"fdiv <32 x double> {x}, {e.select('<32 x double>', zero, 'splat (double 1.0)', y)}")
    wide = e.assign(f"fptosi <32 x double> {whole} to {vector(64)}")
    return e.select(t, zero, f"splat (i{size} -1)", e.resize(wide, 64, size))


def logic(e: Emitter, ins: Instruction) -> None:
    """Counterpart of bitwise.logic."""
    kind, op = ins.mods[-1], ins.opcode
    if kind == "pred":
        flags = [e.predicate(operand) for operand in ins.operands[1:]]
        e.put_predicate(
            ins.operands[0],
            e.assign(
                f"xor <32 x i1> {flags[0]}, {flags[1] if op != 'not' else 'splat (i1 true)'}"
                if op in ("xor", "not")
                else f"{op} <32 x i1> {flags[0]}, {flags[1]}"
            ),
        )
        return
    allow_only(ins, *KINDS)
    size = int(kind[1:])
    t = vector(size)
    if op in ("shl", "shr"):
        _shift(e, ins, kind, size)
    elif op in ("bfe", "bfi"):
        (_bfe if op == "bfe" else _bfi)(e, ins, kind, size)
    elif op == "prmt":
        _prmt(e, ins)
    elif op == "lop3":
        _lop3(e, ins)
    elif op in ("and", "or", "xor"):
        e.put(
            ins.operands[0], e.assign(f"{op} {t} {e.get(ins.operands[1], kind)}, {e.get(ins.operands[2], kind)}"), size
        )
    else:
        _unary(e, ins, op, e.get(ins.operands[1], kind), size)


def _unary(e: Emitter, ins: Instruction, op: str, a: str, size: int) -> None:
    t = vector(size)
    if op == "not":
        result = e.assign(f"xor {t} {a}, splat (i{size} -1)")
    elif op == "cnot":
        result = e.assign(f"zext <32 x i1> {e.assign(f'icmp eq {t} {a}, zeroinitializer')} to {t}")
    elif op == "brev":
        result = e.unary("bitreverse", t, a)
    elif op == "popc":
        result, size = e.resize(e.unary("ctpop", t, a), size, 32), 32
    elif op in ("clz", "bfind"):
        if op == "bfind" and ins.mods[-1][0] == "s":  # the bits that differ from the sign
            a = e.assign(f"xor {t} {a}, {e.assign(f'ashr {t} {a}, splat (i{size} {size - 1})')}")
        zeros = e.resize(e.call(f"llvm.ctlz.v32i{size}", t, (t, a), ("i1", "false")), size, 32)
        result = zeros if op == "clz" else e.assign(f"sub {vector(32)} splat (i32 {size - 1}), {zeros}")
        size = 32
    else:
        raise Unsupported(ins.text)
    e.put(ins.operands[0], result, size)


def _shift(e: Emitter, ins: Instruction, kind: str, size: int) -> None:
    t, keeps_sign = vector(size), kind[0] == "s" and ins.opcode == "shr"
    value, amount = e.get(ins.operands[1], kind), e.get(ins.operands[2], "u32")
    count = e.resize(e.binary("umin", vector(32), amount, f"splat (i32 {size - 1})"), 32, size)
    operation = "shl" if ins.opcode == "shl" else "ashr" if keeps_sign else "lshr"
    result = e.assign(f"{operation} {t} {value}, {count}")
    if not keeps_sign and not (isinstance(ins.operands[2], Imm) and 0 <= int(ins.operands[2].value) < size):
        result = e.select(t, e.assign(f"icmp uge {vector(32)} {amount}, splat (i32 {size})"), "zeroinitializer", result)
    e.put(ins.operands[0], result, size)


def _lop3(e: Emitter, ins: Instruction) -> None:
    t = vector(32)
    table = int(ins.operands[4].value) if isinstance(ins.operands[4], Imm) else -1
    if table < 0 or ins.mods != ("b32",):
        raise Unsupported(ins.text)
    a, b, c = (e.get(operand, "b32") for operand in ins.operands[1:4])
    inverse = {value: e.assign(f"xor {t} {value}, splat (i32 -1)") for value in {a, b, c}}
    total = "zeroinitializer"
    for n in range(8):
        if table >> n & 1:
            parts = [value if n & bit else inverse[value] for value, bit in ((a, 4), (b, 2), (c, 1))]
            both = e.assign(f"and {t} {e.assign(f'and {t} {parts[0]}, {parts[1]}')}, {parts[2]}")
            total = e.assign(f"or {t} {total}, {both}")
    e.put(ins.operands[0], total, 32)


def _prmt(e: Emitter, ins: Instruction) -> None:
    t, wide = vector(32), vector(64)
    if ins.mods != ("b32",):
        raise Unsupported(ins.text)
    a, b, selector = (e.get(operand, "b32") for operand in ins.operands[1:4])
    up = e.assign(f"shl {wide} {e.resize(b, 32, 64)}, splat (i64 32)")
    both = e.assign(f"or {wide} {e.resize(a, 32, 64)}, {up}")
    total = "zeroinitializer"
    for n in range(4):
        nibble = e.assign(f"lshr {t} {selector}, splat (i32 {4 * n})")
        by = e.assign(f"shl {wide} {e.resize(e.assign(f'and {t} {nibble}, splat (i32 7)'), 32, 64)}, splat (i64 3)")
        byte = e.assign(f"and {t} {e.resize(e.assign(f'lshr {wide} {both}, {by}'), 64, 32)}, splat (i32 255)")
        raised = e.assign(f"shl {t} {byte}, splat (i32 24)")
        sign = e.assign(f"and {t} {e.assign(f'ashr {t} {raised}, splat (i32 31)')}, splat (i32 255)")
        spread = e.assign(f"icmp ne {t} {e.assign(f'and {t} {nibble}, splat (i32 8)')}, zeroinitializer")
        placed = e.assign(f"shl {t} {e.select(t, spread, sign, byte)}, splat (i32 {8 * n})")
        total = e.assign(f"or {t} {total}, {placed}")
    e.put(ins.operands[0], total, 32)


def _field_operand(e: Emitter, operand: object, size: int) -> tuple[str, str, str]:
    """A position or length of a field: (its 32-bit number, the same as a legal shift, whether it is past the end)."""
    number = e.assign(f"and {vector(32)} {e.get(operand, 'u32')}, splat (i32 255)")
    count = e.resize(e.binary("umin", vector(32), number, f"splat (i32 {size - 1})"), 32, size)
    return number, count, e.assign(f"icmp uge {vector(32)} {number}, splat (i32 {size})")


def _low_bits(e: Emitter, number: str, size: int) -> str:
    """A mask with `number` low bits set; all bits if there are as many or more."""
    t = vector(size)
    count = e.resize(e.binary("umin", vector(32), number, f"splat (i32 {size - 1})"), 32, size)
    some = e.assign(f"sub {t} {e.assign(f'shl {t} splat (i{size} 1), {count}')}, splat (i{size} 1)")
    return e.select(t, e.assign(f"icmp uge {vector(32)} {number}, splat (i32 {size})"), f"splat (i{size} -1)", some)


def _bfe(e: Emitter, ins: Instruction, kind: str, size: int) -> None:
    t, n = vector(size), vector(32)
    value = e.get(ins.operands[1], kind)
    position, by, past = _field_operand(e, ins.operands[2], size)
    length = _field_operand(e, ins.operands[3], size)[0]
    moved = e.select(t, past, "zeroinitializer", e.assign(f"lshr {t} {value}, {by}"))
    room = e.select(n, past, "zeroinitializer", e.assign(f"sub {n} splat (i32 {size}), {position}"))
    mask = _low_bits(e, e.binary("umin", n, length, room), size)
    result = e.assign(f"and {t} {moved}, {mask}")
    if kind[0] == "s":
        last = e.binary(
            "umin",
            n,
            e.assign(f"sub {n} {e.assign(f'add {n} {position}, {length}')}, splat (i32 1)"),
            f"splat (i32 {size - 1})",
        )
        bit = e.assign(f"and {t} {e.assign(f'lshr {t} {value}, {e.resize(last, 32, size)}')}, splat (i{size} 1)")
        some = e.assign(f"icmp ne {n} {length}, zeroinitializer")
        negative = e.assign(f"and <32 x i1> {some}, {e.assign(f'icmp ne {t} {bit}, zeroinitializer')}")
        filled = e.assign(f"or {t} {result}, {e.assign(f'xor {t} {mask}, splat (i{size} -1)')}")
        result = e.select(t, negative, filled, result)
    e.put(ins.operands[0], result, size)


def _bfi(e: Emitter, ins: Instruction, kind: str, size: int) -> None:
    t = vector(size)
    a, b = e.get(ins.operands[1], kind), e.get(ins.operands[2], kind)
    _, by, past = _field_operand(e, ins.operands[3], size)
    ones = _low_bits(e, _field_operand(e, ins.operands[4], size)[0], size)
    mask = e.select(t, past, "zeroinitializer", e.assign(f"shl {t} {ones}, {by}"))
    inverse = e.assign(f"xor {t} {mask}, splat (i{size} -1)")
    kept, placed = e.assign(f"and {t} {b}, {inverse}"), e.assign(f"and {t} {e.assign(f'shl {t} {a}, {by}')}, {mask}")
    e.put(ins.operands[0], e.assign(f"or {t} {kept}, {placed}"), size)


def funnel(e: Emitter, ins: Instruction) -> None:
    """shf.{l,r}.{clamp,wrap}.b32."""
    allow_only(ins, "l", "r", "clamp", "wrap", "b32")
    t = vector(64)
    low, high, amount = (e.resize(e.get(operand, "u32"), 32, 64) for operand in ins.operands[1:4])
    both = e.assign(f"or {t} {low}, {e.assign(f'shl {t} {high}, splat (i64 32)')}")
    n = (
        e.assign(f"and {t} {amount}, splat (i64 31)")
        if "wrap" in ins.mods
        else e.binary("umin", t, amount, "splat (i64 32)")
    )
    moved = (
        e.assign(f"lshr {t} {e.assign(f'shl {t} {both}, {n}')}, splat (i64 32)")
        if "l" in ins.mods
        else e.assign(f"lshr {t} {both}, {n}")
    )
    e.put(ins.operands[0], e.resize(moved, 64, 32), 32)
