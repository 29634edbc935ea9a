"""Helpers for warp-wide and per-lane work that LLVM vectors do not express: shuffles, matches, atomics, 64-bit
division, matrix instructions.
"""

from __future__ import annotations

from workbench.emulator.compiled.codegen.layout import (
    ADDRESS,
    DATA,
    ELEMENT,
    EXTRA,
    FAULT,
    LOOP_ARGUMENTS,
    LOOP_COUNT,
    LOOP_STEPS,
    LOOPS,
    TEMP,
    WARP_SHARED,
)
from workbench.emulator.compiled.runtime.access import add_offset
from workbench.emulator.compiled.runtime.count import count_matrix_rows, count_sectors, count_wavefronts
from workbench.emulator.compiled.runtime.helper_compiler import (
    call4,
    fma80,
    helper,
    load16,
    load32,
    load64,
    load_f16,
    load_f32,
    load_f64,
    lowest_bit,
    store16,
    store32,
    store64,
    store_f16,
    store_f32,
    store_f64,
    unsigned_divide,
    unsigned_less,
)
from workbench.emulator.compiled.runtime.memory import give_up, read_global, read_shared, write_global, write_shared

OLD, NEW = EXTRA + 3 * ELEMENT, EXTRA + 4 * ELEMENT
ADD, MIN, MAX, AND, OR, XOR, EXCHANGE, INCREMENT, DECREMENT, SWAP = range(10)
UNSIGNED, SIGNED, FLOAT = range(3)
A_FLOATS, B_FLOATS, C_FLOATS = TEMP, TEMP + 1024, TEMP + 2048


@helper
def permute(context: int) -> int:
    """EXTRA[lane] = DATA[EXTRA + ELEMENT [lane]], 32 bits each."""
    for lane in range(32):
        store32(context + EXTRA + 4 * lane, load32(context + DATA + 4 * load32(context + EXTRA + ELEMENT + 4 * lane)))
    return 0


@helper
def match_any(context: int, mask: int) -> int:
    """EXTRA[lane] = the mask of the active lanes whose 64 bits of DATA equal the lane's own."""
    for lane in range(32):
        same = 0
        for other in range(32):
            same |= (load64(context + DATA + 8 * other) == load64(context + DATA + 8 * lane)) << other
        store32(context + EXTRA + 4 * lane, same & mask)
    return 0


@helper
def approximate(context: int, which: int) -> int:
    """EXTRA = numpy's function of the 32 doubles in DATA."""
    store64(context + LOOP_ARGUMENTS, context + DATA)
    store64(context + LOOP_ARGUMENTS + 8, context + EXTRA)
    store64(context + LOOP_COUNT, 32)
    store64(context + LOOP_STEPS, 8)
    store64(context + LOOP_STEPS + 8, 8)
    row = context + LOOPS + 16 * which
    call4(load64(row), context + LOOP_ARGUMENTS, context + LOOP_COUNT, context + LOOP_STEPS, load64(row + 8))
    return 0


@helper
def divide64(context: int, mask: int, signed: int) -> int:
    """EXTRA = DATA / (DATA + ELEMENT) in 64 bits as the interpreter divides; gives up at the smallest integer."""
    for lane in range(32):
        a: int = load64(context + DATA + 8 * lane)
        b: int = load64(context + DATA + ELEMENT + 8 * lane)
        result = -1
        if mask >> lane & 1 and b != 0:
            if signed == 0:
                result = unsigned_divide(a, b)
            elif (a == -a and a != 0) or b == -b:
                give_up(context)
            else:
                result = a // b
        store64(context + EXTRA + 8 * lane, result)
    return 0


@helper
def fma64(context: int) -> int:
    """EXTRA = DATA * (DATA + ELEMENT) + (DATA + 2 ELEMENT), doubles, rounded as the interpreter's long double."""
    for lane in range(32):
        at = context + DATA + 8 * lane
        store_f64(context + EXTRA + 8 * lane, fma80(at, at + ELEMENT, at + 2 * ELEMENT))
    return 0


@helper
def load_integer(at: int, size: int, signed: int) -> int:
    """Load an integer of 4 or 8 bytes."""
    if size == 8:
        return load64(at)
    return load32(at) << 32 >> 32 if signed else load32(at)


@helper
def combine(before: int, value: int, swap: int, op: int, signed: int) -> int:
    """The new value of an integer atomic."""
    less = before < value if signed else unsigned_less(before, value)
    if op == ADD:
        return before + value
    if op == MIN:
        return before if less else value
    if op == MAX:
        return value if less else before
    if op == AND:
        return before & value
    if op == OR:
        return before | value
    if op == XOR:
        return before ^ value
    if op == EXCHANGE:
        return value
    if op == INCREMENT:
        return before + 1 if less else 0
    if op == DECREMENT:
        return value if before == 0 or unsigned_less(value, before) else before - 1
    return swap if before == value else before


@helper
def atomic_step(context: int, lane: int, op: int, size: int, kind: int) -> int:
    """One lane's update: DATA holds the old value, OLD the operands, NEW the values to swap in; the result goes to
    DATA.
    """
    memory = context + DATA + lane * size
    value = context + OLD + lane * size
    if kind == FLOAT and op == ADD:
        if size == 4:
            store_f32(memory, load_f32(memory) + load_f32(value))
        else:
            store_f64(memory, load_f64(memory) + load_f64(value))
        return 0
    signed = kind == SIGNED
    result = combine(
        load_integer(memory, size, signed),
        load_integer(value, size, signed),
        load_integer(context + NEW + lane * size, size, signed),
        op,
        signed,
    )
    if size == 4:
        store32(memory, result)
    else:
        store64(memory, result)
    return 0


@helper
def atomic(context: int, warp: int, mask: int, spec: int, space: int, op: int, size: int, kind: int) -> int:
    """atom and red, lanes in rising order; the old values go to EXTRA. `space`: 0 global, 1 shared."""
    if mask == 0:
        return 0
    if space == 1:
        count_wavefronts(context, mask, spec, size, 1)
    else:
        count_sectors(context, mask, spec, size)
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        one = 1 << lane
        if space == 0:
            read_global(context, one, size, 1)
        else:
            read_shared(context, warp, one, size, 1)
        if load64(context + FAULT) != 0:
            return 0
        before: int = load64(context + DATA + lane * size)
        if size == 4:
            store32(context + EXTRA + 4 * lane, before)
        else:
            store64(context + EXTRA + 8 * lane, before)
        atomic_step(context, lane, op, size, kind)
        if space == 0:
            write_global(context, one, size, 1)
        else:
            write_shared(context, warp, one, size, 1)
    return 0


@helper
def load_matrix(context: int, warp: int, mask: int, spec: int, count: int, trans: int, offset: int) -> int:
    """ldmatrix: `count` tiles of 8 x 8 16-bit elements, row addresses in ADDRESS; fragment n in DATA + n * ELEMENT."""
    if mask != 0xFFFF_FFFF:
        return give_up(context) if mask else 0
    rows = (1 << 8 * count) - 1
    add_offset(context, offset)
    count_matrix_rows(context, spec, count)
    read_shared(context, warp, rows, 4, 4)
    if load64(context + FAULT) != 0:
        return 0
    base: int = load64(warp + WARP_SHARED)
    for n in range(count):
        for lane in range(32):
            row = lane >> 2
            column = (lane & 3) * 2
            if trans:
                low = load16(base + load64(context + ADDRESS + 64 * n + 8 * column) + 2 * row)
                value = low | load16(base + load64(context + ADDRESS + 64 * n + 8 * column + 8) + 2 * row) << 16
            else:
                value = load32(base + load64(context + ADDRESS + 64 * n + 8 * row) + 2 * column)
            store32(context + DATA + ELEMENT * n + 4 * lane, value)
    return 0


@helper
def store_matrix(context: int, warp: int, mask: int, spec: int, count: int, trans: int, offset: int) -> int:
    """stmatrix: the reverse of load_matrix, fragments in EXTRA."""
    if mask != 0xFFFF_FFFF:
        return give_up(context) if mask else 0
    for n in range(count):
        for lane in range(32):
            row = lane >> 2
            column = (lane & 3) * 2
            value: int = load32(context + EXTRA + ELEMENT * n + 4 * lane)
            if trans:
                place_half(context, 8 * n + column, row, value)
                place_half(context, 8 * n + column + 1, row, value >> 16)
            else:
                place_half(context, 8 * n + row, column, value)
                place_half(context, 8 * n + row, column + 1, value >> 16)
    add_offset(context, offset)
    count_matrix_rows(context, spec, count)
    return write_shared(context, warp, (1 << 8 * count) - 1, 4, 4)


@helper
def place_half(context: int, row: int, column: int, value: int) -> int:
    """Place a 16-bit element of a row of 16 bytes where `write_shared` takes its 4-byte elements from."""
    store16(context + DATA + ELEMENT * (column // 2) + 4 * row + 2 * (column % 2), value)
    return 0


@helper
def decode(to: int, at: int, kind: int) -> int:
    """One element of a fragment as a float32: kind 0 f16, 1 bf16, 2 tf32."""
    if kind == 0:
        store_f32(to, load_f16(at))
    elif kind == 1:
        store32(to, load16(at) << 16)
    else:
        store32(to, load32(at) & 0xFFFF_E000)
    return 0


@helper
def multiply(context: int, mask: int, k: int, kind: int, half: int) -> int:
    """mma m16n8: A in DATA, B in EXTRA, C in EXTRA + 2 ELEMENT (fragments as in the PTX ISA); D replaces C. Sums run
    over k in rising order.
    """
    if mask != 0xFFFF_FFFF:
        return give_up(context) if mask else 0
    shift = 0 if kind == 2 else 1  # a register holds 1 << shift elements
    odd = (1 << shift) - 1
    for lane in range(32):
        group = lane >> 2
        inner = (lane & 3) << shift
        for e in range(k >> 1):
            register = e >> shift
            at = context + DATA + ELEMENT * register + 4 * lane + 2 * (e & odd)
            decode(
                context
                + A_FLOATS
                + 4 * ((group + 8 * (register & 1)) * k + inner + (e & odd) + (4 << shift) * (register >> 1)),
                at,
                kind,
            )
        for e in range(k >> 2):
            at = context + EXTRA + ELEMENT * (e >> shift) + 4 * lane + 2 * (e & odd)
            decode(context + B_FLOATS + 4 * ((inner + (e & odd) + (4 << shift) * (e >> shift)) * 8 + group), at, kind)
    for row in range(16):
        sum_row(context + A_FLOATS + 4 * row * k, context + B_FLOATS, context + C_FLOATS + 32 * row, k)
    for lane in range(32):
        for g in range(4):
            total = load_f32(context + C_FLOATS + 4 * (((lane >> 2) + 8 * (g // 2)) * 8 + (lane & 3) * 2 + g % 2))
            at = (
                context
                + EXTRA
                + 2 * ELEMENT
                + (ELEMENT * (g // 2) + 4 * lane + 2 * (g % 2) if half else ELEMENT * g + 4 * lane)
            )
            if half:
                store_f16(at, total + load_f16(at))
            else:
                store_f32(at, total + load_f32(at))
    return 0


@helper
def sum_row(a: int, b: int, c: int, k: int) -> int:
    """c[0:8] = sum over n of a[n] * b[n][0:8]."""
    for column in range(8):
        store32(c + 4 * column, 0)
    for n in range(k):
        factor = load_f32(a + 4 * n)
        for column in range(8):
            store_f32(c + 4 * column, load_f32(c + 4 * column) + factor * load_f32(b + 32 * n + 4 * column))
    return 0
