"""cp.async: copies of a few bytes per thread from global to shared memory, which complete in groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.copies import IN_FLIGHT, WRITTEN, Selection
from workbench.emulator.execution.operands import Fn, Unknown, getter
from workbench.emulator.isa.access import address, broadcast, global_allocation, read_global, shared_index
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Reg, immediate_value


def _make_places(ins: Instruction) -> tuple[Callable[[Batch, Lanes], tuple[Array, Array, Array]], int]:
    """(a function that gives the targets, the sources and the bytes that are read, one each per lane; the copy's
    size).
    """
    if "shared" not in ins.mods or "bulk" in ins.mods:
        raise Unknown(ins.text)
    target, source = ins.operands[0], ins.operands[1]
    assert isinstance(target, Mem) and isinstance(source, Mem)
    to, frm = address(target, "shared"), address(source, "global")
    size = immediate_value(ins.operands[2])
    if size not in (4, 8, 16):
        raise Unknown(ins.text)
    ignore = getter(ins.operands[3], "u32") if len(ins.operands) > 3 and isinstance(ins.operands[3], Reg) else None
    fixed = immediate_value(ins.operands[3]) if len(ins.operands) > 3 and not isinstance(ins.operands[3], Reg) else size

    def places(b: Batch, i: Lanes) -> tuple[Array, Array, Array]:
        into, at = broadcast(b, i, to(b, i)), broadcast(b, i, frm(b, i))
        count = broadcast(b, i, ignore(b, i)).astype(np.int64) if ignore else np.full(len(at), fixed)
        return into, at, count

    return places, size


def count_copy(ins: Instruction) -> Fn:
    """cp.async.{ca,cg}.shared.global that is only counted; nothing is copied. Global addresses are checked."""
    places, size = _make_places(ins)

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        into, at, count = places(b, i)
        some = count == size
        if some.any():
            b.count_memory(ins, "global", lanes[some], at[some], size, False)
            global_allocation(b, lanes[some], at[some], size, False, ins)
        b.count_memory(ins, "shared", lanes, into, size, True)

    return run


def copy_async(ins: Instruction) -> Fn:
    """cp.async.{ca,cg}.shared.global [d], [s], size{, src-size}, and its groups and waits. A copy reads at once and
    writes at the wait that covers it.
    """
    if "commit_group" in ins.mods:
        return lambda b, i: b.copies.commit(b.all_lanes(i))
    if "wait_group" in ins.mods or "wait_all" in ins.mods:
        newest = immediate_value(ins.operands[0]) if "wait_group" in ins.mods else None
        return lambda b, i: b.copies.wait(b.all_lanes(i), newest)
    places, size = _make_places(ins)

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        into, at, count = places(b, i)
        part = np.zeros((len(lanes), size // 4), dtype=np.uint32)
        whole = count == size
        if whole.any():
            some = np.nonzero(whole)[0]
            b.count_memory(ins, "global", lanes[some], at[some], size, False)
            part[some] = read_global(b, lanes[some], at[some], 4, size // 4, ins)
        for n in np.nonzero(~whole & (count > 0))[0]:
            raw = read_global(b, lanes[n : n + 1], at[n : n + 1], 1, int(count[n]), ins)
            part[n] = np.frombuffer(raw.tobytes().ljust(size, b"\0"), dtype=np.uint32)
        b.count_memory(ins, "shared", lanes, into, size, True)
        at = shared_index(b, lanes, into, size, True, ins)
        words = at[:, None] // 4 + np.arange(size // 4)
        if b.races is not None:
            b.races.issue_copy(b, lanes, at, size, ins)
        b.shared_written.view(np.uint32)[words] = IN_FLIGHT * 0x01010101

        def finish(pick: Selection) -> None:
            if b.races is not None:
                b.races.store(b, lanes[pick], at[pick], size, ins, np.ascontiguousarray(part[pick]).view(np.uint8))
            b.shared.view(np.uint32)[words[pick]] = part[pick]
            b.shared_written.view(np.uint32)[words[pick]] = WRITTEN * 0x01010101

        b.copies.add(ins, lanes, finish)

    return run
