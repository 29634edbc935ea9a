"""Comparison, selection and moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import UNSIGNED, Fn, Unsigned, getter, predicate, setter, size_of
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Vec

COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}


def _comparison(name: str, floating: bool) -> Callable[[Value, Value], Value]:
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name[-1] == "u" and name[:-1] in COMPARE:
        ordered = COMPARE[name[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    plain = COMPARE[name]
    if name == "ne" and floating:
        return lambda a, b: plain(a, b) & ~(np.isnan(a) | np.isnan(b))
    return plain


def compare(ins: Instruction) -> Fn:
    """setp.CmpOp{.BoolOp}{.ftz}.type p{|q}, a, b{, c} and set.CmpOp.dtype.stype."""
    kind = ins.mods[-1]
    floating = kind in ("f16", "bf16", "f32", "f64")
    test = _comparison(ins.mods[0], floating)
    combine = next((m for m in ins.mods[1:] if m in ("and", "or", "xor")), None)
    a, c = getter(ins.operands[1], kind), getter(ins.operands[2], kind)
    third = predicate(ins.operands[3]) if combine else None
    logical = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(combine or "")
    targets = ins.operands[0].items if isinstance(ins.operands[0], Vec) else (ins.operands[0],)
    if ins.opcode == "set":
        out = ins.mods[-2]
        put = setter(ins.operands[0], size_of(out))
        one = np.float32(1) if out == "f32" else np.uint32(0xFFFFFFFF)
        return lambda b, i: put(b, i, np.where(test(a(b, i), c(b, i)), one, one.dtype.type(0)))
    puts = [setter(target, 0) for target in targets]

    def run(b: Batch, i: Lanes) -> None:
        result = test(a(b, i), c(b, i))
        both = [result, np.logical_not(result)][
            : len(puts)
        ]  # the second is (not t) BoolOp c, not the first one's opposite
        if logical is not None and third is not None:
            other = third(b, i)
            both = [logical(value, other) for value in both]
        for put, value in zip(puts, both, strict=True):
            put(b, i, np.asarray(value) if isinstance(value, np.ndarray) else np.bool_(value))

    return run


def select(ins: Instruction) -> Fn:
    """selp.type d, a, b, p."""
    kind = ins.mods[-1]
    put, a, c, p = (
        setter(ins.operands[0], size_of(kind)),
        getter(ins.operands[1], _raw(kind)),
        getter(ins.operands[2], _raw(kind)),
        predicate(ins.operands[3]),
    )
    return lambda b, i: put(b, i, np.where(p(b, i), a(b, i), c(b, i)))


def _raw(kind: str) -> str:
    return "b16" if kind == "bf16" else kind


def move(ins: Instruction) -> Fn:
    """mov.type d, a; mov.b32 d, {a, b}; mov.b64 {a, b}, d; cvta."""
    kind = ins.mods[-1]
    target, source = ins.operands[0], ins.operands[1]
    if kind == "pred":
        put, get = setter(target, 0), predicate(source)
        return lambda b, i: put(b, i, get(b, i))
    size = 16 if kind == "b128" else size_of(kind)
    if isinstance(source, Vec):
        part = size // len(source.items)
        gets = [getter(item, f"b{8 * part}") for item in source.items]
        put = setter(target, size)
        whole = UNSIGNED[size]
        return lambda b, i: put(b, i, _pack([get(b, i) for get in gets], part, whole))
    if isinstance(target, Vec):
        part = size // len(target.items)
        puts = [setter(item, part) for item in target.items]
        get = getter(source, f"b{8 * size}")

        def unpack(b: Batch, i: Lanes) -> None:
            value = get(b, i)
            for n, put_one in enumerate(puts):
                put_one(b, i, (value >> value.dtype.type(8 * part * n)).astype(UNSIGNED[part]))

        return unpack
    put, get = setter(target, size), getter(source, _raw(kind))
    return lambda b, i: put(b, i, get(b, i))


def _pack(parts: list[Value], part: int, whole: type[Unsigned]) -> Value:
    result = parts[0].astype(whole)
    for n, value in enumerate(parts[1:], 1):
        result = result | (value.astype(whole) << whole(8 * part * n))
    return result
