"""Common parts of bulk copies: offsets in shared memory, multicast, completion on mbarriers, checks of reads.

A load reads when it is issued and arrives as late as possible; a store reads and writes at the wait for its group
(async_copies.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Array, Lanes, Value
from workbench.emulator.execution.batch import RANK_SHIFT, Batch
from workbench.emulator.execution.copies import IN_FLIGHT, WRITTEN, Copy, Selection
from workbench.emulator.isa.access import broadcast
from workbench.emulator.isa.sm90.async_copies import unreadable_fault
from workbench.emulator.isa.sm90.descriptor import swizzle_addresses
from workbench.emulator.isa.sm90.mbarrier import complete_tx
from workbench.emulator.ptx.instruction import Instruction

ALIGNMENT = 16  # alignment in bytes of addresses and sizes of bulk copies


def shared_range(
    b: Batch, ins: Instruction, lane: int, where: int, size: int, alignment: int, write: bool
) -> tuple[int, int]:
    """(start of the addressed CTA in the batch's shared memory, offset in it); faults outside it or if misaligned."""
    rank, offset = where >> RANK_SHIFT, where & ((1 << RANK_SHIFT) - 1)
    if offset % alignment:
        raise b.fault(
            "misaligned",
            f"a bulk copy at offset {offset} of shared memory, which is not a multiple of {alignment}",
            ins.line,
            lane,
            offset,
            hint="align the buffer: 128 bytes, with a swizzle up to 1024",
        )
    if offset + size > b.shared_limit:
        raise b.fault(
            "shared_out_of_bounds",
            f"a bulk copy {'writes' if write else 'reads'} {size} bytes at offset {offset} of shared memory, but the"
            f" CTA has {b.shared_limit}",
            ins.line,
            lane,
            offset,
        )
    own = int(b.cta[lane])
    return (own if rank == 0 else own // b.cluster_size * b.cluster_size + rank - 1) * b.shared_bytes, offset


def multicast_members(b: Batch, lane: int, mask: int) -> list[int]:
    """Batch numbers of the CTAs in a multicast mask."""
    base = int(b.cta[lane]) // b.cluster_size * b.cluster_size
    return [base + rank for rank in range(b.cluster_size) if mask >> rank & 1]


def lane_numbers(value: Value, b: Batch, i: Lanes) -> list[int]:
    """A value as one number for each active lane."""
    return [int(v) for v in broadcast(b, i, value)]


def byte_offsets(start: int, offset: int, size: int, swizzle: int) -> Array:
    """Index of each byte of a box in the batch's shared memory."""
    return start + swizzle_addresses(offset + np.arange(size, dtype=np.int64), swizzle)


def start_copy(
    b: Batch,
    ins: Instruction,
    lane: int,
    barrier: int,
    members: list[int] | None,
    target: tuple[int, int, int],
    data: Array,
) -> None:
    """Start a load to `target`: the start of the CTA's part of the batch's shared memory, the offset in it and the
    swizzle; `members` are the CTAs of a multicast. The bytes are marked now; when the load finishes, they are written
    and counted on the mbarrier.
    """
    if not b.moves_data:
        b.landed.append((ins, [(lane, at) for at in _barriers(b, lane, barrier, members)], data.size))
        return
    own, offset, swizzle = target
    starts = [own] if members is None else [cta * b.shared_bytes for cta in members]
    places = [byte_offsets(start, offset, data.size, swizzle) for start in starts]
    clock = b.races.bulk_write(b, lane, places, ins) if b.races is not None else None
    for at in places:
        b.shared_written[at] = IN_FLIGHT

    def finish(_: Selection) -> None:
        for at in places:
            b.shared[at] = data
            b.shared_written[at] = WRITTEN
        for word in _barriers(b, lane, barrier, members):
            complete_tx(b, np.array([lane]), np.array([word]), np.array([data.size]), ins, clock)

    b.arrivals.append(Copy(ins, np.array([lane]), np.array([0]), finish))


def _barriers(b: Batch, lane: int, where: int, members: list[int] | None) -> list[int]:
    """The mbarrier's address, or those of the same one in every CTA of a multicast."""
    if members is None:
        return [where]
    base = int(b.cta[lane]) // b.cluster_size * b.cluster_size
    offset = where & ((1 << RANK_SHIFT) - 1)
    return [offset | (cta - base + 1) << RANK_SHIFT for cta in members]


def finish_landed(b: Batch) -> None:
    """Count the bytes of the loads that a sample only counts on their mbarriers."""
    landed, b.landed = b.landed, []
    for ins, group in itertools.groupby(landed, key=lambda one: one[0]):
        rows = [(lane, at, size) for _, places, size in group for lane, at in places]
        lanes, where, sizes = np.array(rows).T
        complete_tx(b, lanes, where, sizes, ins)


def note_bulk_read(b: Batch, lane: int, places: Array, ins: Instruction) -> Callable[[], None]:
    """Note that a bulk store reads these bytes of shared memory; returns a function that ends the read."""
    if b.races is None:
        return lambda: None
    races, tick = b.races, b.races.bulk_read(b, lane, places, ins)
    return lambda: races.finish_bulk_read(lane, tick)


def check_readable(b: Batch, ins: Instruction, lane: int, places: Array | slice, what: str) -> None:
    """Fault unless these bytes of shared memory hold values that the asynchronous proxy may read."""
    marks = b.shared_written[places]
    if (marks != WRITTEN).any():
        fault = unreadable_fault(
            b, ins, lane, marks, np.arange(places.start, places.stop) if isinstance(places, slice) else places, what
        )
        if fault is not None:
            raise fault
