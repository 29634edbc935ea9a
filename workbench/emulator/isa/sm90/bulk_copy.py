"""cp.async.bulk of a range of bytes: global to shared, shared to global, shared to another CTA's shared memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.copies import Finish, Selection
from workbench.emulator.execution.operands import Fn, Unknown, getter
from workbench.emulator.isa.access import address
from workbench.emulator.isa.sm90.bulk import (
    ALIGNMENT,
    check_readable,
    lane_numbers,
    multicast_members,
    note_bulk_read,
    shared_range,
    start_copy,
)
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem


def copy_bytes(ins: Instruction) -> Fn:
    """cp.async.bulk of a range of bytes: global to shared, shared to global, shared to another CTA's shared memory."""
    if ins.form.atomic:
        raise Unknown(ins.text)
    return _store(ins) if ins.form.space == "shared>global" else _load(ins)


def _store(ins: Instruction) -> Fn:
    target, source = ins.operands[:2]
    assert isinstance(target, Mem) and isinstance(source, Mem)
    gets = (address(target, "global"), address(source, "shared"), getter(ins.operands[2], "u32"))

    def run(b: Batch, i: Lanes) -> None:
        into, out, sizes = (lane_numbers(get(b, i), b, i) for get in gets)
        for n, lane in enumerate(b.all_lanes(i).tolist()):
            _check_size(b, ins, lane, sizes[n])
            start, offset = shared_range(b, ins, lane, out[n], sizes[n], ALIGNMENT, False)
            source_bytes = slice(start + offset, start + offset + sizes[n])
            target_bytes = _global_range(b, ins, lane, into[n], sizes[n], True)
            if not b.moves_data:
                continue
            check_readable(b, ins, lane, source_bytes, "a bulk store")
            done = note_bulk_read(b, lane, np.arange(source_bytes.start, source_bytes.stop), ins)
            b.stores.add(ins, np.array([lane]), _make_store_finish(b, target_bytes, source_bytes, done))

    return run


def _load(ins: Instruction) -> Fn:
    target, source, _, barrier = ins.operands[:4]
    assert isinstance(target, Mem) and isinstance(source, Mem) and isinstance(barrier, Mem)
    remote = ins.form.space == "shared>shared"
    gets = (
        address(target, "shared"),
        address(source, "shared" if remote else "global"),
        getter(ins.operands[2], "u32"),
        address(barrier, "shared"),
    )
    mask_of = getter(ins.operands[4], "u16") if "multicast" in ins.text else None

    def run(b: Batch, i: Lanes) -> None:
        into, out, sizes, barriers = (lane_numbers(get(b, i), b, i) for get in gets)
        masks = lane_numbers(mask_of(b, i), b, i) if mask_of else []
        for n, lane in enumerate(b.all_lanes(i).tolist()):
            size = sizes[n]
            _check_size(b, ins, lane, size)
            if remote:
                start, offset = shared_range(b, ins, lane, out[n], size, ALIGNMENT, False)
                data = b.shared[start + offset : start + offset + size]
            else:
                data = _global_range(b, ins, lane, out[n], size, False)
            members = multicast_members(b, lane, masks[n]) if mask_of else None
            start, offset = shared_range(b, ins, lane, into[n], size, ALIGNMENT, True)
            start_copy(b, ins, lane, barriers[n], members, (start, offset, 0), data.copy() if b.moves_data else data)

    return run


def _check_size(b: Batch, ins: Instruction, lane: int, size: int) -> None:
    if size % ALIGNMENT:
        raise b.fault(
            "misaligned", f"a bulk copy of {size} bytes, which is not a multiple of {ALIGNMENT}", ins.line, lane
        )


def _make_store_finish(b: Batch, target: Array, source: slice, done: Callable[[], None]) -> Finish:
    """The function that ends a store: it copies a range of shared memory to global memory."""

    def finish(_: Selection) -> None:
        target[...] = b.shared[source]
        done()

    return finish


def _global_range(b: Batch, ins: Instruction, lane: int, where: int, size: int, write: bool) -> Array:
    """The bytes of a range of global memory, as a view."""
    if where % ALIGNMENT:
        raise b.fault(
            "misaligned",
            f"a bulk copy {'to' if write else 'from'} an address that is not a multiple of {ALIGNMENT}:"
            f" {b.memory.describe_nearest(where)}",
            ins.line,
            lane,
            where,
        )
    found = b.memory.find(where)
    if found is None or where + size > found.end:
        raise b.fault(
            "out_of_bounds",
            f"bulk copy of {size} bytes is out of bounds:"
            f" {b.memory.describe_nearest(where if found is None else found.end)}",
            ins.line,
            lane,
            where,
        )
    if found.narrow and not any(view.contains(np.array([where]), size).all() for view in found.views):
        raise b.fault(
            "out_of_bounds",
            f"bulk copy of {size} bytes is out of bounds of the tensor, inside its storage:"
            f" {b.memory.describe_nearest(where)}",
            ins.line,
            lane,
            where,
        )
    begin = where - found.start
    if write and not found.writable:
        raise b.fault("write_to_constant", f"a bulk copy to read-only {found.name}", ins.line, lane, where)
    if b.races is not None and (write or b.races.checks_reads(found)):
        at = begin + np.arange(0, size, ALIGNMENT)
        if write:
            b.races.store_global(b, np.full(len(at), lane), found, at, ALIGNMENT, ins, None)
        else:
            b.races.load_global(b, np.full(len(at), lane), found, at, ALIGNMENT, ins)
    if found.written is not None:
        if write:
            found.written[begin : begin + size] = 1
        elif not found.written[begin : begin + size].all():
            raise b.fault(
                "uninitialised", f"bulk copy of bytes of {found.name} that nothing wrote", ins.line, lane, where
            )
    b.changes += write
    b.counting.count_bulk(ins, **{"written" if write else "read": size})
    return found.data[begin : begin + size]
