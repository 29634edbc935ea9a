"""TMA loads in im2col mode: columns of pixels for a convolution, cp.async.bulk.tensor.Nd ... .im2col (PTX ISA, im2col
mode; 3 to 5 dimensions: channels, 1 to 3 of space, images).

The descriptor is a tile's (tma.py) but for the end: 32-bit word 13 has the traversal strides of dimensions 1, 2, 3
minus one in three bits each from bit 3, and channels - 1 in the top byte; word 14 the lower corners in its low half and
the upper corners in its high half, of dimensions 1, 2, 3, in 16, 8 or 5 bits each (1, 2 or 3 of space); word 15 pixels
- 1.

A load takes `pixels` positions in a row, from its coordinates on. Positions run over the bounding box, which begins at
the lower corner and ends the upper corner beyond the tensor's end, with the traversal strides: first along dimension 1,
last over images. What is loaded lies at the position plus the instruction's offsets; outside the tensor it is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Fn, getter
from workbench.emulator.isa.access import address
from workbench.emulator.isa.sm90.bulk import (
    lane_numbers,
    multicast_members,
    shared_range,
    start_copy,
)
from workbench.emulator.isa.sm90.descriptor import Descriptor, raw_descriptor, read_descriptor
from workbench.emulator.isa.sm90.tma import tensor_operand
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Vec

CORNER_BITS = {1: 16, 2: 8, 3: 5}  # number of spatial dimensions -> bits of one corner


@dataclass(frozen=True, slots=True)
class Box:
    """The bounding box: first position, number of positions and step of each spatial dimension; channels and pixels of
    a load.
    """

    first: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]
    channels: int
    pixels: int


def decode_box(raw: bytes, d: Descriptor) -> Box:
    """The bounding box of a descriptor of 128 bytes."""
    words = np.frombuffer(raw, dtype=np.uint32)
    space = len(d.extents) - 2
    width = CORNER_BITS[space]
    step = tuple((int(words[13]) >> 3 * (n + 1) & 7) + 1 for n in range(space))
    lower = tuple(_signed(int(words[14]) >> width * n, width) for n in range(space))
    upper = tuple(_signed(int(words[14]) >> 16 + width * n, width) for n in range(space))
    count = tuple(
        max((size + up - 1 - low) // by + 1, 0)
        for size, up, low, by in zip(d.extents[1:], upper, lower, step, strict=False)
    )
    return Box(lower, count, step, int(words[13] >> 24) + 1, (int(words[15]) & 0x3FF) + 1)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def load(ins: Instruction) -> Fn:
    """cp.async.bulk.tensor.Nd.shared.global.im2col.mbarrier{.multicast} [to], [descriptor, {c, w, h, d, n}],
    [mbarrier], {w, h, d offsets}{, mask}.
    """
    target, source, barrier, offsets = ins.operands[:4]
    assert isinstance(target, Mem) and isinstance(barrier, Mem) and isinstance(offsets, Vec)
    to, of = address(target, "shared"), address(barrier, "shared")
    desc_of, coordinates = tensor_operand(source)
    shifts = [getter(item, "u16") for item in offsets.items]
    mask_of = getter(ins.operands[4], "u16") if "multicast" in ins.text else None

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        places, barriers, maps = (lane_numbers(value(b, i), b, i) for value in (to, of, desc_of))
        at, by = ([lane_numbers(get(b, i), b, i) for get in gets] for gets in (coordinates, shifts))
        masks = lane_numbers(mask_of(b, i), b, i) if mask_of else [0] * len(lanes)
        for n, lane in enumerate(int(lane) for lane in lanes):
            d = read_descriptor(b, ins, lane, maps[n])
            data = _read_pixels(
                b,
                ins,
                lane,
                d,
                decode_box(raw_descriptor(b, ins, lane, maps[n]), d),
                tuple(values[n] for values in at),
                tuple(values[n] for values in by),
            )
            members = multicast_members(b, lane, masks[n]) if mask_of else None
            base, offset = shared_range(b, ins, lane, places[n], data.size, 128, True)
            start_copy(b, ins, lane, barriers[n], members, (base, offset, d.swizzle), data)

    return run


def _read_pixels(
    b: Batch, ins: Instruction, lane: int, d: Descriptor, box: Box, at: tuple[int, ...], by: tuple[int, ...]
) -> Array:
    """The bytes of a load's pixels, channels fastest, before the swizzle."""
    size = d.size
    linear: int = at[-1]
    for where, first, count, step in reversed(list(zip(at[1:-1], box.first, box.count, box.step, strict=True))):
        if not 0 <= where - first < count * step or (where - first) % step:
            raise b.fault(
                "bad_coordinates",
                f"a TMA im2col load at {at}, which is no position of its bounding box (from {box.first}, {box.count}"
                f" positions, steps of {box.step})",
                ins.line,
                lane,
            )
        linear = linear * count + (where - first) // step
    b.counting.count_bulk(ins, read=box.pixels * box.channels * size)
    if not b.moves_data:
        return np.empty(box.pixels * box.channels * size, dtype=np.uint8)
    positions: Array = linear + np.arange(box.pixels)
    inside = np.ones(box.pixels, dtype=bool)
    address_of = np.full(box.pixels, d.start, dtype=np.int64)
    for n, (first, count, step, shift) in enumerate(zip(box.first, box.count, box.step, by, strict=True), start=1):
        place = first + positions % count * step + shift
        positions = positions // count
        inside &= (place >= 0) & (place < d.extents[n])
        address_of += place * d.strides[n]
    inside &= positions < d.extents[-1]
    address_of += positions * d.strides[-1]
    out = np.zeros((box.pixels, box.channels, size), dtype=np.uint8)
    channels = min(box.channels, d.extents[0] - at[0])
    if channels > 0 and inside.any():
        out[inside, :channels] = _gather(b, ins, lane, address_of[inside] + at[0] * size, channels * size).reshape(
            -1, channels, size
        )
    return out.reshape(-1)


def _gather(b: Batch, ins: Instruction, lane: int, where: Array, size: int) -> Array:
    """(rows, size) bytes at addresses of one tensor; faults outside it or where nothing wrote."""
    found = b.memory.find(int(where.min()))
    if found is None or int(where.max()) + size > found.end:
        bad = int(where.min()) if found is None else found.end
        raise b.fault(
            "out_of_bounds",
            f"TMA im2col load is out of bounds: {b.memory.describe_nearest(bad)}",
            ins.line,
            lane,
            bad,
            hint="the descriptor's extents and strides must be those of the tensor",
        )
    index = (where - found.start)[:, None] + np.arange(size)
    if found.written is not None and not found.written[index].all():
        raise b.fault(
            "uninitialised",
            f"TMA im2col load of parts of {found.name} that nothing wrote",
            ins.line,
            lane,
            hint="write every element before it is read; torch.empty leaves memory undefined",
        )
    return found.data[index]
