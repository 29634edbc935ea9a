"""Rules that carry undefined bits through an instruction, one for each family.

They are as precise as kernels need that drop the values they read past an edge. Input: an instruction. Output: a rule,
`undef_state.Follow`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from workbench.emulator.arrays import Lanes
from workbench.emulator.execution.batch import WARP, Batch
from workbench.emulator.execution.operands import getter, size_of
from workbench.emulator.isa.access import broadcast
from workbench.emulator.isa.warp import shuffle
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Imm, Name, Operand, Reg, Vec, strip_negation
from workbench.emulator.sanitizer import undef_memory
from workbench.emulator.sanitizer.undef_state import (
    BYTES,
    Follow,
    Refuse,
    State,
    computed_state,
    join,
    move_bytes,
    operand_state,
    state_array,
)


def _sources(ins: Instruction) -> list[Operand]:
    found: list[Operand] = []
    for operand in ins.operands[1:]:
        inner = strip_negation(operand)
        found += inner.items if isinstance(inner, Vec) else (inner,)
    return found


def generic(ins: Instruction) -> Follow:
    """Every bit of the result depends on every bit of the operands; packed halves depend on their own half."""
    sources = _sources(ins)
    packed = ins.form.packed
    targets = len(ins.operands[0].items) if ins.operands and isinstance(ins.operands[0], Vec) else 1

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        found = join([operand_state(b, i, source) for source in sources])
        if found is None:
            return [None] * targets
        if packed:
            low, high = (
                computed_state(move_bytes(found, 0, 3), ins.line),
                computed_state(move_bytes(found, 0, 12), ins.line),
            )
            return [join([move_bytes(low, 0, 3), move_bytes(high, 0, 12)])]
        return [computed_state(found, ins.line)] * targets

    return follow


def _move(ins: Instruction) -> Follow:
    size = size_of(ins.mods[-1]) if ins.mods[-1] != "pred" else 8
    target, source = ins.operands[0], ins.operands[1]
    if isinstance(target, Vec):
        each = max(size // len(target.items), 1)

        def unpack(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
            found = operand_state(b, i, source)
            named = [n for n, item in enumerate(target.items) if isinstance(item, Reg)]
            return [move_bytes(found, -n * each, (1 << each) - 1) for n in named]

        return unpack
    if isinstance(source, Vec):
        part = max(size // len(source.items), 1)
        return lambda b, i, refuse: [
            join(
                [
                    move_bytes(move_bytes(operand_state(b, i, item), 0, (1 << part) - 1), n * part, BYTES)
                    for n, item in enumerate(source.items)
                ]
            )
        ]
    return lambda b, i, refuse: [operand_state(b, i, source)]


def _convert(ins: Instruction) -> Follow:
    kinds = [mod for mod in ins.mods if mod[0] in "usbf" and mod[-1].isdigit() and mod != "rn"][-2:]
    if len(kinds) == 2 and kinds[1][0] in "ub" and kinds[0][0] in "usb" and len(ins.operands) == 2:
        keep = (1 << min(size_of(kinds[0]), size_of(kinds[1]))) - 1
        return lambda b, i, refuse: [move_bytes(operand_state(b, i, ins.operands[1]), 0, keep)]
    sources = _sources(ins)

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        found = join([operand_state(b, i, source) for source in sources])
        return [None if found is None else np.where(found & BYTES, found | BYTES, 0)]

    return follow


def _logic(ins: Instruction) -> Follow:
    """and, or: a bit that the other operand decides is defined; by bytes, and for predicates."""
    kind = ins.mods[-1]
    decides = 0 if ins.opcode == "and" else BYTES
    operands = list(ins.operands[1:3])
    gets = [getter(operand, kind) for operand in operands]
    size = size_of(kind) or 1

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        states = [operand_state(b, i, strip_negation(operand)) for operand in operands]
        kept = []
        for state, other, get in ((states[0], states[1], gets[1]), (states[1], states[0], gets[0])):
            if state is None:
                continue
            value = broadcast(b, i, get(b, i))
            if kind == "pred":
                open_bytes = np.where(value.astype(bool) == (ins.opcode == "and"), BYTES, 0)
            else:
                raw = np.ascontiguousarray(value).view(np.uint8).reshape(len(value), size) != decides
                open_bytes = (raw * (1 << np.arange(size))).sum(axis=1)
            if other is not None:
                open_bytes = open_bytes | (other & BYTES)
            marks = state & BYTES & open_bytes
            kept.append(np.where(marks, state & ~np.int64(BYTES) | marks, 0))
        found = join(kept)
        return [computed_state(found, ins.line) if kind == "pred" else found]

    return follow


def _shift(ins: Instruction) -> Follow:
    amount = ins.operands[2]
    if not isinstance(amount, Imm) or int(amount.value) % 8 or ins.mods[-1][0] == "s":
        return generic(ins)
    by = int(amount.value) // 8 * (1 if ins.opcode == "shl" else -1)
    keep = (1 << size_of(ins.mods[-1])) - 1
    return lambda b, i, refuse: [move_bytes(move_bytes(operand_state(b, i, ins.operands[1]), 0, keep), by, keep)]


def _permute(ins: Instruction) -> Follow:
    selector = ins.operands[3]
    if not isinstance(selector, Imm) or len(ins.mods) > 1 or any(int(selector.value) >> 4 * n & 8 for n in range(4)):
        return generic(ins)
    picks = [int(selector.value) >> 4 * n & 7 for n in range(4)]

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        parts = [operand_state(b, i, operand) for operand in ins.operands[1:3]]
        return [
            join([move_bytes(move_bytes(parts[pick // 4], -(pick % 4), 1), n, BYTES) for n, pick in enumerate(picks)])
        ]

    return follow


def _select(ins: Instruction) -> Follow:
    choose = getter(ins.operands[3], "pred")

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        condition = strip_negation(ins.operands[3])
        one, other, which = (
            operand_state(b, i, ins.operands[1]),
            operand_state(b, i, ins.operands[2]),
            operand_state(b, i, condition),
        )
        if one is None and other is None and which is None:
            return [None]
        count = b.lanes if i is None else len(i)
        zero = np.zeros(count, dtype=np.int64)
        picked = np.where(
            broadcast(b, i, choose(b, i)).astype(bool), zero if one is None else one, zero if other is None else other
        )
        return [join([picked, computed_state(which, ins.line)])]

    return follow


def _shuffle(ins: Instruction) -> Follow:
    """Undefined bytes move between lanes as the values do: the instruction itself is run on their marks."""
    names = ("%undef", "%moved")
    target = ins.operands[0]
    into = Vec((Reg(names[1]), *target.items[1:])) if isinstance(target, Vec) else Reg(names[1])
    move = shuffle(replace(ins, operands=(into, Reg(names[0]), *ins.operands[2:])))
    extra = len(target.items) - 1 if isinstance(target, Vec) else 0

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        control = computed_state(join([operand_state(b, i, operand) for operand in ins.operands[2:]]), ins.line)
        found = b.undefined.get(ins.operands[1].name) if isinstance(ins.operands[1], Reg) else None
        if found is None:
            return [control] * (1 + extra)
        b.registers[names[0]] = found.astype(np.uint32)
        move(b, i)
        moved = broadcast(b, i, b.read(names[1], i)).astype(np.int64)
        return [join([computed_state(moved, ins.line), control]), *[control] * extra]

    return follow


def _combine_warp(ins: Instruction) -> Follow:
    """vote, match, redux: an undefined value in one active lane makes the warp's result undefined."""
    sources = _sources(ins)

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        found = computed_state(join([operand_state(b, i, source) for source in sources]), ins.line)
        if found is None:
            return [None, None]
        warp = b.all_lanes(i) // WARP
        worst = np.zeros(b.lanes // WARP, dtype=np.int64)
        np.maximum.at(worst, warp, found)
        return [worst[warp]] * 2

    return follow


def _multiply(ins: Instruction) -> Follow:
    """mma.m16n8: rows of A go to the four lanes of a quad, columns of B to the lanes that hold them, the accumulator
    stays.
    """
    d, a, b_operand, c = (operand.items if isinstance(operand, Vec) else (operand,) for operand in ins.operands[:4])

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        left, right = (join([operand_state(b, i, item) for item in items]) for items in (a, b_operand))
        broadcast = []
        if left is not None:
            broadcast.append(np.repeat(left.reshape(-1, 4).max(axis=1), 4))
        if right is not None:
            columns = right.reshape(-1, 8, 4).max(axis=2).reshape(-1, 4, 2).max(axis=2)
            broadcast.append(np.tile(columns, 8).reshape(-1))
        both = join(broadcast)
        return [
            computed_state(join([operand_state(b, i, item), both]), ins.line)
            for item in (c if len(c) == len(d) else c * len(d))
        ]

    return follow


def _wgmma(ins: Instruction) -> Follow:
    """A in registers always reaches the result, the accumulator only in lanes whose scale-d is true."""
    d, a = ins.operands[:2]
    assert isinstance(d, Vec)
    scale_d = getter(ins.operands[3], "pred")
    registers = a.items if isinstance(a, Vec) else ()

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        refuse(
            b,
            i,
            state_array(
                join(
                    [operand_state(b, i, operand) for operand in (ins.operands[2], a) if not isinstance(operand, Vec)]
                ),
                b,
                i,
            ),
            "a matrix descriptor",
        )
        left = join([operand_state(b, i, item) for item in registers])
        keep = broadcast(b, i, scale_d(b, i)) != 0
        if not keep.any():
            return [computed_state(left, ins.line)] * len(d.items)
        sums = [operand_state(b, i, item) for item in d.items]
        if not keep.all():
            sums = [None if state is None else np.where(keep, state, 0) for state in sums]
        return [computed_state(join([state, left]), ins.line) for state in sums]

    return lambda b, i, refuse: follow(b, i, refuse)


def _dot(ins: Instruction) -> Follow:
    """dp2a, dp4a: bytes that are multiplied by zero, or not at all, do not matter; compilers leave them undefined."""
    a, c = getter(ins.operands[1], "u32"), ins.operands[3]
    half = 2 if "hi" in ins.mods else 0

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        one, other = operand_state(b, i, ins.operands[1]), operand_state(b, i, ins.operands[2])
        if other is not None:
            weights = broadcast(b, i, a(b, i))
            each, size = (2, 16) if ins.opcode == "dp2a" else (4, 8)
            counts = sum(
                ((weights >> np.uint32(n * size)) & np.uint32((1 << size) - 1) != 0).astype(np.int64) << (n + half)
                for n in range(each)
            )
            marks = other & counts
            other = np.where(marks & BYTES, other, 0)
        return [computed_state(join([one, other, operand_state(b, i, c)]), ins.line)]

    return follow


def _logic_or_generic(ins: Instruction) -> Follow:
    return (
        _logic(ins)
        if ins.mods
        and (ins.mods[-1] == "pred" or ins.mods[-1][0] == "b")
        and not any(isinstance(o, Name) for o in ins.operands)
        else generic(ins)
    )


RULES: dict[str, Callable[[Instruction], Follow]] = {
    "mov": _move,
    "cvt": _convert,
    "and": _logic_or_generic,
    "or": _logic_or_generic,
    "shl": _shift,
    "shr": _shift,
    "prmt": _permute,
    "selp": _select,
    "dp2a": _dot,
    "dp4a": _dot,
    "shfl": _shuffle,
    **dict.fromkeys(("vote", "match", "redux", "activemask"), _combine_warp),
    "mma": _multiply,
    "ld": undef_memory.load,
    "ldu": undef_memory.load,
    "st": undef_memory.store,
    "ldmatrix": undef_memory.load_matrix,
    "wgmma": lambda ins: _wgmma(ins) if ins.mods[0] == "mma_async" else (lambda b, i, refuse: []),
}
