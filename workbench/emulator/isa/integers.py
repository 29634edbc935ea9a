"""Integer instructions: arithmetic, carry chains (PTX ISA, extended-precision integer arithmetic), 24-bit products, dot
products of bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import UNSIGNED, Fn, Unknown, bits, getter, setter, size_of
from workbench.emulator.ptx.instruction import Instruction

MODIFIERS = frozenset(("lo", "hi", "wide", "sat", "relu"))  # modifiers of int_arithmetic
CARRY = "%cc"  # the condition code's carry flag of each lane; a name that no program can declare


def int_arithmetic(ins: Instruction) -> Fn:
    """add, sub, mul (lo, hi, wide), mad, div, rem, min, max (relu: no less than 0), neg, abs on integers."""
    kind = ins.mods[-1]
    if not MODIFIERS.issuperset(ins.mods[:-1]):
        raise Unknown(ins.text)
    wide, high = "wide" in ins.mods, "hi" in ins.mods
    size = size_of(kind)
    result_kind = {2: "b32", 4: "b64"}[size] if wide else kind
    result_size = size * 2 if wide else size
    put = setter(ins.operands[0], result_size)
    gets = [getter(operand, result_kind if wide and n == 2 else kind) for n, operand in enumerate(ins.operands[1:])]
    double = {2: np.int32, 4: np.int64}.get(size) if kind[0] == "s" else {2: np.uint32, 4: np.uint64}.get(size)

    def product(a: Value, b: Value) -> Value:
        if wide:
            return bits(a.astype(double) * b.astype(double), result_size)
        if not high:
            return a * b
        if size < 8:
            return ((a.astype(double) * b.astype(double)) >> np.dtype(double).type(8 * size)).astype(a.dtype)
        exact = np.asarray(a).astype(object) * np.asarray(b).astype(object)
        return np.asarray(np.vectorize(lambda v: (int(v) >> 64) & (2**64 - 1), otypes=[np.uint64])(exact)).view(
            np.uint64
        )

    def divide(a: Value, b: Value) -> Value:
        safe = np.where(b == 0, b.dtype.type(1), b)
        if kind[0] != "s":
            quotient = a // safe
        else:  # towards zero; in 64 bits, where the magnitude of the smallest 32-bit integer fits
            wide_a, wide_b = np.abs(a.astype(np.int64)), np.abs(safe.astype(np.int64))
            quotient = np.where((a < 0) != (safe < 0), -(wide_a // wide_b), wide_a // wide_b).astype(a.dtype)
        return np.where(b == 0, a.dtype.type(-1) if kind[0] == "s" else ~a.dtype.type(0), quotient)

    def remainder(a: Value, b: Value) -> Value:  # by zero PTX leaves it open; all ones is what an H200 gives
        return np.where(b == 0, a.dtype.type(-1) if kind[0] == "s" else ~a.dtype.type(0), a - divide(a, b) * b)

    table: dict[str, Callable[..., Value]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": product,
        "min": np.minimum,
        "max": np.maximum,
        "mad": lambda a, b, c: bits(product(a, b), result_size) + bits(c, result_size),
        "div": divide,
        "rem": remainder,
        "neg": lambda a: a.dtype.type(0) - a,
        "abs": np.abs,
    }
    function = table[ins.opcode]
    if "sat" in ins.mods and ins.opcode in ("add", "sub"):
        exact = table[ins.opcode]

        def function(a: Value, b: Value) -> Value:
            return np.clip(exact(a.astype(np.int64), b.astype(np.int64)), -(2**31), 2**31 - 1).astype(np.int32)

    if "relu" in ins.mods:
        least = table[ins.opcode]
        function = lambda a, b: np.maximum(least(a, b), a.dtype.type(0))  # noqa: E731
    return lambda b, i: put(b, i, function(*[get(b, i) for get in gets]))


def carry(ins: Instruction) -> Fn:
    """add.cc, addc{.cc}, sub.cc, subc{.cc}, mad.{lo,hi}.cc, madc.{lo,hi}{.cc}: a `c` reads the carry (or borrow), `.cc`
    writes it.
    """
    kind = ins.mods[-1]
    size = size_of(kind)
    takes, gives, op = ins.opcode.endswith("c"), "cc" in ins.mods, ins.opcode[:3]
    put = setter(ins.operands[0], size)
    gets = [getter(operand, f"b{8 * size}") for operand in ins.operands[1:]]
    high = "hi" in ins.mods
    if high and size == 8:
        raise Unknown(ins.text)
    unsigned = UNSIGNED[size]

    def run(b: Batch, i: Lanes) -> None:
        values = [get(b, i) for get in gets]
        first = _product(values[0], values[1], kind, high) if op == "mad" else values[0]
        flag = b.read(CARRY, i).astype(unsigned) if takes else unsigned(0)
        if op == "sub":
            partial = first - values[-1]
            result = partial - flag
            out = (first < values[-1]) | (partial < flag)
        else:
            partial = first + values[-1]
            result = partial + flag
            out = (partial < first) | (result < partial)
        put(b, i, result)
        if gives:
            b.write(CARRY, i, out)

    return run


def _product(a: Value, b: Value, kind: str, high: bool) -> Value:
    if not high:
        return a * b
    wide, narrow = (np.int64, np.int32) if kind[0] == "s" else (np.uint64, np.uint32)
    return ((a.view(narrow).astype(wide) * b.view(narrow).astype(wide)) >> wide(32)).astype(narrow).view(np.uint32)


def product24(ins: Instruction) -> Fn:
    """mul24 and mad24: the low (or high) 32 bits of the 48-bit product of the operands' low 24 bits."""
    kind = ins.mods[-1]
    put, gets = setter(ins.operands[0], 4), [getter(operand, "b32") for operand in ins.operands[1:]]
    shift = np.int64(16 if "hi" in ins.mods else 0)

    def low24(value: Value) -> Value:
        if kind[0] == "s":
            return (value << np.uint32(8)).view(np.int32).astype(np.int64) >> np.int64(8)
        return (value & np.uint32(0xFFFFFF)).astype(np.int64)

    def run(b: Batch, i: Lanes) -> None:
        values = [get(b, i) for get in gets]
        product = ((low24(values[0]) * low24(values[1])) >> shift).astype(np.uint64).astype(np.uint32)
        put(b, i, product + values[2] if len(values) > 2 else product)

    return run


def dot4(ins: Instruction) -> Fn:
    """dp4a.atype.btype d, a, b, c: c plus the four products of bytes."""
    put, gets = setter(ins.operands[0], 4), [getter(operand, "b32") for operand in ins.operands[1:]]

    def byte(value: Value, n: int, kind: str) -> Value:
        part = ((value >> np.uint32(8 * n)) & np.uint32(0xFF)).astype(np.uint8)
        return (part.view(np.int8) if kind[0] == "s" else part).astype(np.int64)

    def run(b: Batch, i: Lanes) -> None:
        left, right, total = (get(b, i) for get in gets)
        products = sum(byte(left, n, ins.mods[0]) * byte(right, n, ins.mods[1]) for n in range(4))
        put(b, i, (total.astype(np.int64) + products).astype(np.uint64).astype(np.uint32))

    return run


def dot2(ins: Instruction) -> Fn:
    """dp2a.{lo,hi}.atype.btype d, a, b, c: c plus the products of a's two halves with b's lower or upper two bytes."""
    put, gets = setter(ins.operands[0], 4), [getter(operand, "b32") for operand in ins.operands[1:]]
    first = 0 if ins.mods[0] == "lo" else 2
    signed_a, signed_b = ins.mods[1][0] == "s", ins.mods[2][0] == "s"

    def run(b: Batch, i: Lanes) -> None:
        left, right, total = (get(b, i) for get in gets)
        result = total.astype(np.int64)
        for n in range(2):
            half = ((left >> np.uint32(16 * n)) & np.uint32(0xFFFF)).astype(np.uint16)
            part = ((right >> np.uint32(8 * (first + n))) & np.uint32(0xFF)).astype(np.uint8)
            result = result + (half.view(np.int16) if signed_a else half).astype(np.int64) * (
                part.view(np.int8) if signed_b else part
            ).astype(np.int64)
        put(b, i, result.astype(np.uint64).astype(np.uint32))

    return run
