"""Device calls of `vprintf` (cute.printf compiles to them): parameters and the per-thread argument buffer -> text in
`Batch.printed`.

The buffer holds the arguments one after another, each aligned to its size: integers of 4 or 8 bytes, floats promoted to
8 (CUDA C++ programming guide, formatted output; layout read from the PTX). Threads print in the order of their numbers,
which a GPU does not guarantee.
"""

from __future__ import annotations

import ctypes
import re
import struct

import numpy as np

from workbench.emulator.arrays import Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Fn, Unknown, getter
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Name

PRINT_LIMIT = 65_536  # characters that a launch may print; the rest is dropped, as with a full device FIFO
_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d*)(?:\.(\d+))?(hh|h|ll|l|z|j|t)?([diuoxXcsfFeEgGaAp%])")


def store_param(ins: Instruction) -> Fn:
    """st.param.type [name], value: one argument of the next device call."""
    target, source = ins.operands[0], ins.operands[1]
    if not isinstance(target, Mem) or target.offset or any(m in ("v2", "v4") for m in ins.mods):
        raise Unknown(ins.text)
    name, get = str(target.base), getter(source, ins.mods[-1])

    def run(b: Batch, i: Lanes) -> None:
        values = b.call_params.setdefault(name, np.zeros(b.lanes, dtype=np.uint64))
        values[slice(None) if i is None else i] = get(b, i)

    return run


def call(ins: Instruction) -> Fn:
    """call.uni (retval), vprintf, (format, arguments); no other function is known."""
    if len(ins.operands) != 3 or ins.operands[1] != Name("vprintf"):
        raise Unknown(ins.text)
    returned, _, arguments = (str(getattr(operand, "name", "")).strip("()") for operand in ins.operands)
    text_at, values_at = (part.strip() for part in arguments.split(","))

    def run(b: Batch, i: Lanes) -> None:
        b.params[returned] = (1).to_bytes(4, "little")
        for lane in b.all_lanes(i):
            if b.print_room <= 0:
                return
            text = _string(b, int(b.call_params[text_at][lane]), ins)
            start = int(lane) * b.local_stride + (int(b.call_params[values_at][lane]) & 0xFFFFFF)
            line = render(
                text, b.local[start : (int(lane) + 1) * b.local_stride].tobytes(), lambda at: _string(b, at, ins)
            )
            b.printed.append(line[: b.print_room])
            b.print_room -= len(line)

    return run


def _string(b: Batch, address: int, ins: Instruction) -> str:
    """The zero-terminated text at a global address."""
    found = b.memory.find(address)
    if found is None:
        raise b.fault(
            "out_of_bounds",
            f"printf reads text at {address:#x}: {b.memory.describe_nearest(address)}",
            ins.line,
            None,
            address,
        )
    return ctypes.string_at(address, found.end - address).split(b"\0", 1)[0].decode("utf-8", "replace")


def render(text: str, buffer: bytes, string: object = None) -> str:
    """`text` with its C conversions filled in from `buffer`; `string` maps the address of a %s argument to text."""
    at = 0

    def take(size: int, kind: str) -> int | float:
        nonlocal at
        at = -(-at // size) * size
        raw, at = buffer[at : at + size].ljust(size, b"\0"), at + size
        return struct.unpack("<" + kind, raw)[0]  # type: ignore[no-any-return]

    def fill(match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        wide = length in ("l", "ll", "z", "j", "t")
        width = str(int(take(4, "i"))) if width == "*" else width
        form = "%" + flags + width + ("" if precision is None else "." + precision)
        if kind in "fFeEgG":
            return (form + kind) % take(8, "d")
        if kind in "aA":
            return float(take(8, "d")).hex()
        if kind == "s":
            where = int(take(8, "Q"))
            return (form + "s") % (string(where) if callable(string) else where)
        if kind == "p":
            return f"{int(take(8, 'Q')):#x}"
        value = take(8, "q") if wide else take(4, "i")
        if kind in "uoxX":
            value = int(value) & (2**64 - 1 if wide else 2**32 - 1)
        if kind == "c":
            return (form + "c") % (int(value) & 0xFF)
        return (form + ("d" if kind in "diu" else kind)) % value

    return _CONVERSION.sub(fill, text)


__all__ = ["PRINT_LIMIT", "call", "render", "store_param"]
