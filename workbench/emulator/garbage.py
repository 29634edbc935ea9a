"""How bits that nothing wrote go through an instruction: one rule a family, as precise as kernels that drop what they read past an edge need.

A rule returns, for each register that the instruction writes, an array over the active lanes (see unwritten.py) or None for "all defined".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.emulator.access import address, place_of, spread
from workbench.emulator.deferred import GARBAGE  # a mark that any later store or copy clears
from workbench.emulator.operands import getter, size_of
from workbench.emulator.ptx import Imm, Instruction, Mem, Name, Reg, Vec
from workbench.emulator.state import WARP, Batch, Lanes

BYTES = 0xFF
Follow = Callable[[Batch, Lanes, Any], list[Any]]


def of(b: Batch, i: Lanes, operand: object) -> Any:
    """The state of an operand over the active lanes, None where it is all defined."""
    if not isinstance(operand, Reg):
        return None
    found = b.garbage.get(operand.name)
    return found if found is None or i is None else found[i]


def joined(parts: list[Any]) -> Any:
    """Garbage of any part: bytes together, the latest first use."""
    result = None
    for part in parts:
        if part is not None:
            result = part if result is None else (result | part) & BYTES | np.maximum(result >> 8, part >> 8) << 8
    return result


def used(garbage: Any, line: int | None) -> Any:
    """The result of computing with garbage: all of it, first used here unless it was before."""
    if garbage is None:
        return None
    return np.where(garbage & BYTES, BYTES | np.where(garbage >> 8, garbage >> 8, line or 0) << 8, 0)


def _bytes(garbage: Any, shift: int, keep: int) -> Any:
    """Byte marks moved up by `shift` bytes (down where negative), those in `keep` kept."""
    if garbage is None:
        return None
    marks = garbage & BYTES
    marks = (marks << shift if shift >= 0 else marks >> -shift) & keep
    return np.where(marks, garbage & ~np.int64(BYTES) | marks, 0)


def _sources(ins: Instruction) -> list[object]:
    found: list[object] = []
    for operand in ins.operands[1:]:
        inner = operand[1] if isinstance(operand, tuple) else operand
        found += inner.items if isinstance(inner, Vec) else (inner,)
    return found


def generic(ins: Instruction) -> Follow:
    """Every bit of the result depends on every bit of the operands; packed halves on their own half."""
    sources = _sources(ins)
    packed = any(mod.endswith("x2") for mod in ins.mods)
    targets = len(ins.operands[0].items) if ins.operands and isinstance(ins.operands[0], Vec) else 1

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        found = joined([of(b, i, source) for source in sources])
        if found is None:
            return [None] * targets
        if packed:
            low, high = used(_bytes(found, 0, 3), ins.line), used(_bytes(found, 0, 12), ins.line)
            return [joined([_bytes(low, 0, 3), _bytes(high, 0, 12)])]
        return [used(found, ins.line)] * targets

    return follow


def _move(ins: Instruction) -> Follow:
    size = size_of(ins.mods[-1]) if ins.mods[-1] != "pred" else 8
    target, source = ins.operands[0], ins.operands[1]
    if isinstance(target, Vec):
        each = max(size // len(target.items), 1)

        def unpack(b: Batch, i: Lanes, step: Any) -> list[Any]:
            found = of(b, i, source)
            named = [n for n, item in enumerate(target.items) if isinstance(item, Reg)]
            return [_bytes(found, -n * each, (1 << each) - 1) for n in named]

        return unpack
    if isinstance(source, Vec):
        part = max(size // len(source.items), 1)
        return lambda b, i, step: [joined([_bytes(_bytes(of(b, i, item), 0, (1 << part) - 1), n * part, BYTES) for n, item in enumerate(source.items)])]
    return lambda b, i, step: [of(b, i, source)]


def _convert(ins: Instruction) -> Follow:
    kinds = [mod for mod in ins.mods if mod[0] in "usbf" and mod[-1].isdigit() and mod != "rn"][-2:]
    if len(kinds) == 2 and kinds[1][0] in "ub" and kinds[0][0] in "usb" and len(ins.operands) == 2:
        keep = (1 << min(size_of(kinds[0]), size_of(kinds[1]))) - 1
        return lambda b, i, step: [_bytes(of(b, i, ins.operands[1]), 0, keep)]
    sources = _sources(ins)

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        found = joined([of(b, i, source) for source in sources])
        return [None if found is None else np.where(found & BYTES, found | BYTES, 0)]

    return follow


def _logic(ins: Instruction) -> Follow:
    """and, or: a bit that the other operand decides is defined; by bytes, and for predicates."""
    kind = ins.mods[-1]
    decides = 0 if ins.opcode == "and" else BYTES
    operands = list(ins.operands[1:3])
    gets = [getter(operand, kind) for operand in operands]
    size = size_of(kind) or 1

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        states = [of(b, i, operand[1] if isinstance(operand, tuple) else operand) for operand in operands]
        kept = []
        for state, other, get in ((states[0], states[1], gets[1]), (states[1], states[0], gets[0])):
            if state is None:
                continue
            value = spread(b, i, get(b, i))
            if kind == "pred":
                open_bytes = np.where(value.astype(bool) == (ins.opcode == "and"), BYTES, 0)
            else:
                raw = np.ascontiguousarray(value).view(np.uint8).reshape(len(value), size) != decides
                open_bytes = (raw * (1 << np.arange(size))).sum(axis=1)
            if other is not None:
                open_bytes = open_bytes | (other & BYTES)
            marks = state & BYTES & open_bytes
            kept.append(np.where(marks, state & ~np.int64(BYTES) | marks, 0))
        found = joined(kept)
        return [used(found, ins.line) if kind == "pred" else found]

    return follow


def _shift(ins: Instruction) -> Follow:
    amount = ins.operands[2]
    if not isinstance(amount, Imm) or int(amount.value) % 8 or ins.mods[-1][0] == "s":
        return generic(ins)
    by = int(amount.value) // 8 * (1 if ins.opcode == "shl" else -1)
    keep = (1 << size_of(ins.mods[-1])) - 1
    return lambda b, i, step: [_bytes(_bytes(of(b, i, ins.operands[1]), 0, keep), by, keep)]


def _permute(ins: Instruction) -> Follow:
    selector = ins.operands[3]
    if not isinstance(selector, Imm) or len(ins.mods) > 1 or any(int(selector.value) >> 4 * n & 8 for n in range(4)):
        return generic(ins)
    picks = [int(selector.value) >> 4 * n & 7 for n in range(4)]

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        parts = [of(b, i, operand) for operand in ins.operands[1:3]]
        return [joined([_bytes(_bytes(parts[pick // 4], -(pick % 4), 1), n, BYTES) for n, pick in enumerate(picks)])]

    return follow


def _select(ins: Instruction) -> Follow:
    choose = getter(ins.operands[3], "pred")

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        condition = ins.operands[3][1] if isinstance(ins.operands[3], tuple) else ins.operands[3]
        one, other, which = of(b, i, ins.operands[1]), of(b, i, ins.operands[2]), of(b, i, condition)
        if one is None and other is None and which is None:
            return [None]
        count = b.lanes if i is None else len(i)
        zero = np.zeros(count, dtype=np.int64)
        picked = np.where(spread(b, i, choose(b, i)).astype(bool), zero if one is None else one, zero if other is None else other)
        return [joined([picked, used(which, ins.line)])]

    return follow


def _shuffle(ins: Instruction) -> Follow:
    """Garbage moves between lanes as the values do: the instruction itself is run on it."""
    from workbench.emulator.warp import shuffle

    names = ("%garbage", "%moved")
    target = ins.operands[0]
    into = Vec((Reg(names[1]), *target.items[1:])) if isinstance(target, Vec) else Reg(names[1])
    move = shuffle(replace(ins, operands=(into, Reg(names[0]), *ins.operands[2:])))
    extra = len(target.items) - 1 if isinstance(target, Vec) else 0

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        control = used(joined([of(b, i, operand) for operand in ins.operands[2:]]), ins.line)
        found = b.garbage.get(ins.operands[1].name) if isinstance(ins.operands[1], Reg) else None
        if found is None:
            return [control] * (1 + extra)
        b.registers[names[0]] = found.astype(np.uint32)
        move(b, i)
        moved = spread(b, i, b.read(names[1], i)).astype(np.int64)
        return [joined([used(moved, ins.line), control]), *[control] * extra]

    return follow


def _across(ins: Instruction) -> Follow:
    """vote, match, redux: garbage in one active lane is garbage for the warp."""
    sources = _sources(ins)

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        found = used(joined([of(b, i, source) for source in sources]), ins.line)
        if found is None:
            return [None, None]
        warp = b.all_lanes(i) // WARP
        worst = np.zeros(b.lanes // WARP, dtype=np.int64)
        np.maximum.at(worst, warp, found)
        return [worst[warp]] * 2

    return follow


def _multiply(ins: Instruction) -> Follow:
    """mma.m16n8: rows of A go to the four lanes of a quad, columns of B to the lanes that hold them, the accumulator stays."""
    d, a, b_operand, c = (operand.items if isinstance(operand, Vec) else (operand,) for operand in ins.operands[:4])

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        left, right = (joined([of(b, i, item) for item in items]) for items in (a, b_operand))
        spread = []
        if left is not None:
            spread.append(np.repeat(left.reshape(-1, 4).max(axis=1), 4))
        if right is not None:
            columns = right.reshape(-1, 8, 4).max(axis=2).reshape(-1, 4, 2).max(axis=2)
            spread.append(np.tile(columns, 8).reshape(-1))
        both = joined(spread)
        return [used(joined([of(b, i, item), both]), ins.line) for item in (c if len(c) == len(d) else c * len(d))]

    return follow


def _wgmma(ins: Instruction) -> Follow:
    """The accumulator counts only where it is kept; A in registers always."""
    d, a, _, keep = ins.operands[:4]
    assert isinstance(d, Vec)
    kept = getter(keep, "pred")
    registers = a.items if isinstance(a, Vec) else ()

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        step.refuse(b, i, _or_zero(joined([of(b, i, operand) for operand in (ins.operands[2], a) if not isinstance(operand, Vec)]), b, i), "a matrix descriptor")
        left = joined([of(b, i, item) for item in registers])
        if not np.any(kept(b, i)):
            return [used(left, ins.line)] * len(d.items)
        return [used(joined([of(b, i, item), left]), ins.line) for item in d.items]

    return lambda b, i, step: follow(b, i, step)


def _or_zero(garbage: Any, b: Batch, i: Lanes) -> Any:
    return np.zeros(b.lanes if i is None else len(i), dtype=np.int64) if garbage is None else garbage


def _load(ins: Instruction) -> Follow:
    """From shared and local memory comes what was stored there."""
    targets = ins.operands[0].items if isinstance(ins.operands[0], Vec) else (ins.operands[0],)
    source = ins.operands[1]
    assert isinstance(source, Mem)
    space = next((mod for mod in ins.mods if mod in ("global", "shared", "local", "param", "const")), "generic")
    size = 16 if ins.mods[-1] == "b128" else size_of("b16" if ins.mods[-1] == "bf16" else ins.mods[-1])
    where = address(source, space) if space != "param" else None

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        if where is None:
            return [None] * len(targets)
        place, at = place_of(space, spread(b, i, where(b, i)))
        marks, start = _memory(b, i, place, at)
        if marks is None:
            return [None] * len(targets)
        found = []
        for n in range(len(targets)):
            index = np.clip(start[:, None] + n * size + np.arange(size), 0, len(marks) - 1)
            bad = ((marks[index] & GARBAGE != 0) * (1 << np.arange(size))).sum(axis=1) & BYTES
            found.append(np.where(bad, bad | b.garbage_line << 8, 0))
        return found

    return follow


def _memory(b: Batch, i: Lanes, place: str, at: Any) -> tuple[Any, Any]:
    """(marks by byte, first byte of each lane) of shared or local memory, None where no garbage was stored."""
    if not b.garbage_stored or place not in ("shared", "local"):
        return None, None
    lanes = b.all_lanes(i)
    if place == "local":
        return b.local_garbage, lanes * b.local_stride + (at & 0xFFFFFF)
    return b.shared_written, b.cta[lanes] * b.shared_bytes + at


def _store(ins: Instruction) -> Follow:
    """Garbage in shared and local memory is marked there; in global memory it is an error (also where the address is generic)."""
    target, source = ins.operands[:2]
    items = source.items if isinstance(source, Vec) else (source,)
    if not isinstance(target, Mem) or "param" in ins.mods or "async" in ins.mods:
        return lambda b, i, step: []
    space = next((mod for mod in ins.mods if mod in ("global", "shared", "local")), "generic")
    where, size = address(target, space), size_of("b16" if ins.mods[-1] == "bf16" else ins.mods[-1])

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        states = [of(b, i, item) for item in items]
        place, at = place_of(space, spread(b, i, where(b, i)))
        if place == "global":
            step.refuse(b, i, _or_zero(joined(states), b, i), "what is stored to global memory")
            return []
        found = joined(states)
        if found is not None and (found & BYTES).any():
            if b.local_garbage is None:
                b.local_garbage = np.zeros(len(b.local), dtype=np.uint8)
            b.garbage_stored, b.garbage_line = True, int((found >> 8).max())
        marks, start = _memory(b, i, place, at)
        if marks is not None:
            for n, state in enumerate(states):
                _mark(marks, start + n * size, size, _or_zero(state, b, i))
        return []

    return follow


def _mark(marks: Any, start: Any, size: int, state: Any) -> None:
    index = start[:, None] + np.arange(size)
    bad = (state[:, None] >> np.arange(size)) & 1 != 0
    marks[index] = marks[index] & np.uint8(0xFF ^ GARBAGE) | np.where(bad, np.uint8(GARBAGE), np.uint8(0))


def _load_matrix(ins: Instruction) -> Follow:
    """ldmatrix of garbage is an error, like ldmatrix of shared memory that nothing wrote."""
    source = ins.operands[1]
    assert isinstance(source, Mem)
    where = address(source, "shared")
    targets = len(ins.operands[0].items) if isinstance(ins.operands[0], Vec) else 1
    rows = 8 * targets

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        marks, start = _memory(b, i, "shared", spread(b, i, where(b, i)))
        if marks is not None:
            index = np.clip(start[:, None] + np.arange(16), 0, len(marks) - 1)
            bad = (marks[index] & GARBAGE != 0).any(axis=1) & (b.all_lanes(i) % WARP < rows)
            step.refuse(b, i, np.where(bad, 1 | b.garbage_line << 8, 0), "ldmatrix")
        return [None] * targets

    return follow


def _dot(ins: Instruction) -> Follow:
    """dp2a, dp4a: bytes that are multiplied by zero, or not at all, do not matter; compilers leave them undefined."""
    a, c = getter(ins.operands[1], "u32"), ins.operands[3]
    half = 2 if "hi" in ins.mods else 0

    def follow(b: Batch, i: Lanes, step: Any) -> list[Any]:
        one, other = of(b, i, ins.operands[1]), of(b, i, ins.operands[2])
        if other is not None:
            weights = spread(b, i, a(b, i))
            each, size = (2, 16) if ins.opcode == "dp2a" else (4, 8)
            counts = sum(((weights >> np.uint32(n * size)) & np.uint32((1 << size) - 1) != 0).astype(np.int64) << (n + half) for n in range(each))
            marks = other & counts
            other = np.where(marks & BYTES, other, 0)
        return [used(joined([one, other, of(b, i, c)]), ins.line)]

    return follow


def _with_predicates(ins: Instruction) -> Follow:
    return _logic(ins) if ins.mods and (ins.mods[-1] == "pred" or ins.mods[-1][0] == "b") and not any(isinstance(o, Name) for o in ins.operands) else generic(ins)


RULES: dict[str, Callable[[Instruction], Follow]] = {
    "mov": _move, "cvt": _convert, "and": _with_predicates, "or": _with_predicates, "shl": _shift, "shr": _shift, "prmt": _permute, "selp": _select, "dp2a": _dot, "dp4a": _dot,
    "shfl": _shuffle, **dict.fromkeys(("vote", "match", "redux", "activemask"), _across), "mma": _multiply, "ld": _load, "ldu": _load, "st": _store, "ldmatrix": _load_matrix,
    "wgmma": lambda ins: _wgmma(ins) if ins.mods[0] == "mma_async" else (lambda b, i, step: []),
}  # fmt: skip
