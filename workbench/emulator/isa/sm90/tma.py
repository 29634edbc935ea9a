"""TMA: bulk copies of tensors through descriptors, 1 to 5 dimensions, all swizzles, multicast, reduction; loads in tile
mode.

descriptor.py has the descriptor's format, im2col.py loads in im2col mode, bulk_copy.py copies of plain ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import WARP, Batch
from workbench.emulator.execution.copies import Selection
from workbench.emulator.execution.launch import Allocation
from workbench.emulator.execution.operands import Fn, Get, Unknown, getter
from workbench.emulator.isa.access import address
from workbench.emulator.isa.atomics import ATOMIC, as_bits, as_values
from workbench.emulator.isa.sm90.bulk import (
    byte_offsets,
    check_readable,
    lane_numbers,
    multicast_members,
    note_bulk_read,
    shared_range,
    start_copy,
)
from workbench.emulator.isa.sm90.bulk_copy import copy_bytes
from workbench.emulator.isa.sm90.descriptor import Descriptor, read_descriptor
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Operand, immediate_value


def copy(ins: Instruction) -> Fn:
    """cp{.reduce}.async.bulk{.tensor}: the forms that CuTe DSL emits."""
    if "commit_group" in ins.mods:
        return lambda b, i: b.stores.commit(b.all_lanes(i))
    if "wait_group" in ins.mods:
        newest = immediate_value(ins.operands[0])
        return lambda b, i: b.stores.wait(b.all_lanes(i), newest)
    if "prefetch" in ins.mods:
        return lambda b, i: None
    if any(m.startswith("im2col") for m in ins.mods):  # loads in that mode are in im2col.py
        raise Unknown(ins.text)
    if "tensor" in ins.mods:
        return _store_tensor(ins) if ins.form.space == "shared>global" else _load_tensor(ins)
    return copy_bytes(ins)


def tensor_operand(operand: Operand) -> tuple[Get, list[Get]]:
    """(address of the descriptor, coordinates) of the operand [desc, {c0, c1, ...}]."""
    assert isinstance(operand, Mem) and operand.coordinates
    return address(Mem(operand.base, operand.offset), "global"), [getter(item, "s32") for item in operand.coordinates]


def _load_tensor(ins: Instruction) -> Fn:
    target, source, barrier = ins.operands[:3]
    assert isinstance(target, Mem) and isinstance(barrier, Mem)
    to, of = address(target, "shared"), address(barrier, "shared")
    desc_of, coordinates = tensor_operand(source)
    mask_of = getter(ins.operands[3], "u16") if "multicast" in ins.text else None

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        places, barriers = lane_numbers(to(b, i), b, i), lane_numbers(of(b, i), b, i)
        maps, at = lane_numbers(desc_of(b, i), b, i), [lane_numbers(get(b, i), b, i) for get in coordinates]
        masks = lane_numbers(mask_of(b, i), b, i) if mask_of else [0] * len(lanes)
        for n, lane in enumerate(lanes):
            d = read_descriptor(b, ins, int(lane), maps[n])
            _check_rank(b, ins, int(lane), d, at)
            data = _read_box(b, ins, int(lane), d, tuple(column[n] for column in at))
            bases = multicast_members(b, int(lane), masks[n]) if mask_of else None
            base, offset = shared_range(b, ins, int(lane), places[n], d.box_bytes, 128, True)
            start_copy(b, ins, int(lane), barriers[n], bases, (base, offset, d.swizzle), data)

    return run


def _store_tensor(ins: Instruction) -> Fn:
    """cp.async.bulk.tensor.Nd.global.shared::cta and cp.reduce.async.bulk.tensor.Nd.global.shared::cta.op.

    Lanes of a warp that store the same box store it once: NVIDIA's dense_gemm stores with whole warps, and its measured
    times (tests/bench/results/foreign_times.json) leave no room for 32 stores. A reduction is executed for each lane.
    """
    source = ins.operands[1]
    assert isinstance(source, Mem)
    frm = address(source, "shared")
    desc_of, coordinates = tensor_operand(ins.operands[0])
    op = next((m for m in ins.mods if m in ATOMIC), None) if "reduce" in ins.mods else None

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        places, maps, at = (
            lane_numbers(frm(b, i), b, i),
            lane_numbers(desc_of(b, i), b, i),
            [lane_numbers(get(b, i), b, i) for get in coordinates],
        )
        stored = set[tuple[int, ...]]()
        for n, lane in enumerate(lanes):
            box = (int(lane) // WARP, int(places[n]), int(maps[n]), *(int(column[n]) for column in at))
            if op is None and box in stored:
                continue
            stored.add(box)
            d = read_descriptor(b, ins, int(lane), maps[n])
            _check_rank(b, ins, int(lane), d, at)
            start, offset = shared_range(b, ins, int(lane), places[n], d.box_bytes, 128, False)
            clipped = _clip(d, tuple(column[n] for column in at))
            if clipped is None:
                continue
            inside, first, count = clipped
            b.counting.count_bulk(ins, written=int(np.prod(count)) * d.size)
            if not b.moves_data:
                continue
            shape = (*reversed(d.box), d.size)
            source_bytes = byte_offsets(start, offset, d.box_bytes, d.swizzle).reshape(shape)[inside]
            check_readable(b, ins, int(lane), source_bytes, "a TMA store")
            found, target, flags = _window(b, ins, int(lane), d, first, count, True)
            if b.races is not None:
                b.races.store_global(b, *_elements(int(lane), found, d, first, count), d.size, ins, None)
            done = note_bulk_read(b, int(lane), source_bytes, ins)
            store = _Store(b, d, op, target=target, flags=flags, source=source_bytes, done=done)
            b.stores.add(ins, np.array([lane]), store.finish)

    return run


@dataclass(frozen=True, slots=True)
class _Store:
    """A store in flight, from `source` in shared memory to `target` in global memory; its end marks the bytes as
    written.
    """

    b: Batch
    d: Descriptor
    op: str | None
    _: KW_ONLY
    target: Array
    flags: Array | None
    source: Array
    done: Callable[[], None]

    def finish(self, _: Selection) -> None:
        """Read, combine and write."""
        data = self.b.shared[self.source]
        self.target[...] = _reduce(self.target, data, self.d, self.op) if self.op else data
        if self.flags is not None:
            self.flags[...] = 1
        self.done()


def _check_rank(b: Batch, ins: Instruction, lane: int, d: Descriptor, at: list[list[int]]) -> None:
    """Fault if the descriptor's rank differs from the instruction's number of coordinates."""
    if len(at) != len(d.box):
        raise b.fault(
            "bad_descriptor",
            f"a TMA instruction of {len(at)} dimension{'s' if len(at) > 1 else ''} with a descriptor of {len(d.box)}",
            ins.line,
            lane,
            hint="a static extent of 1 makes CuTe drop a dimension: mark the layout as dynamic (mark_layout_dynamic)",
        )


def _clip(d: Descriptor, at: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[int, ...], tuple[int, ...]] | None:
    """(part of the box inside the tensor, its first coordinates, its extents), slowest dimension first in the slices;
    None if all of it is outside.
    """
    low = [max(-c, 0) for c in at]
    high = [min(box, extent - c) for c, box, extent in zip(at, d.box, d.extents, strict=True)]
    if any(h <= lo for lo, h in zip(low, high, strict=True)):
        return None
    inside = tuple(slice(lo, h) for lo, h in zip(reversed(low), reversed(high), strict=True))
    return (
        inside,
        tuple(c + lo for c, lo in zip(at, low, strict=True)),
        tuple(h - lo for lo, h in zip(low, high, strict=True)),
    )


def _window(
    b: Batch, ins: Instruction, lane: int, d: Descriptor, first: tuple[int, ...], count: tuple[int, ...], write: bool
) -> tuple[Allocation, Array, Array | None]:
    """The allocation and strided views (bytes of elements, written flags or None) of a part of the tensor, slowest
    dimension first.
    """
    offset = sum(c * stride for c, stride in zip(first, d.strides, strict=True))
    last = offset + sum((n - 1) * stride for n, stride in zip(count, d.strides, strict=True)) + d.size
    found = b.memory.find(d.start + offset)
    if found is None or d.start + last > found.end:
        bad = d.start + offset if found is None else found.end
        raise b.fault(
            "out_of_bounds",
            f"TMA {'store' if write else 'load'} of a box at {first} is out of bounds:"
            f" {b.memory.describe_nearest(bad)}",
            ins.line,
            lane,
            bad,
            hint="the descriptor's extents and strides must be those of the tensor",
        )
    if write and not found.writable:
        raise b.fault("write_to_constant", f"a TMA store to read-only {found.name}", ins.line, lane, d.start + offset)
    b.changes += write
    shape = (*reversed(count), d.size)
    strides = (*reversed(d.strides), 1)
    begin = d.start + offset - found.start
    data = np.lib.stride_tricks.as_strided(found.data[begin:], shape=shape, strides=strides)
    flags = (
        None
        if found.written is None
        else np.lib.stride_tricks.as_strided(found.written[begin:], shape=shape, strides=strides)
    )
    return found, data, flags


def _read_box(b: Batch, ins: Instruction, lane: int, d: Descriptor, at: tuple[int, ...]) -> Array:
    """A box's bytes in their order in shared memory before the swizzle; zeros outside the tensor."""
    b.counting.count_bulk(ins, read=d.box_bytes)
    if not b.moves_data:
        return np.empty(d.box_bytes, dtype=np.uint8)
    out = np.zeros((*reversed(d.box), d.size), dtype=np.uint8)
    clipped = _clip(d, at)
    if clipped is not None:
        inside, first, count = clipped
        found, data, flags = _window(b, ins, lane, d, first, count, False)
        if flags is not None and not flags.all():
            raise b.fault(
                "uninitialised",
                f"TMA load of a box at {first} of {found.name}, parts of which nothing wrote",
                ins.line,
                lane,
                hint="write every element before it is read; torch.empty leaves memory undefined",
            )
        if b.races is not None and b.races.checks_reads(found):
            b.races.load_global(b, *_elements(lane, found, d, first, count), d.size, ins)
        out[inside] = data
    return out.reshape(-1)


def _elements(
    lane: int, found: Allocation, d: Descriptor, first: tuple[int, ...], count: tuple[int, ...]
) -> tuple[Array, Allocation, Array]:
    """(lane of each element of a part of a tensor, its allocation, the elements' offsets in it), for the race
    checks.
    """
    offsets = np.array([d.start - found.start], dtype=np.int64)
    for begin, n, stride in zip(first, count, d.strides, strict=True):
        offsets = (offsets[:, None] + (begin + np.arange(n)) * stride).reshape(-1)
    return np.full(len(offsets), lane), found, offsets


def _reduce(old: Array, new: Array, d: Descriptor, op: str) -> Array:
    """old op new, element by element, both as bytes."""
    kind = np.dtype(
        {
            "f16": np.float16,
            "bf16": np.float32,
            "f32": np.float32,
            "f64": np.float64,
            "s32": np.int32,
            "s64": np.int64,
        }.get(d.kind, f"u{d.size}")
    )
    raw = np.dtype(f"u{d.size}")
    before, after = (np.ascontiguousarray(part).view(raw)[..., 0] for part in (old, new))
    result = ATOMIC[op](as_values(before, d.kind, kind), as_values(after, d.kind, kind)).astype(kind)
    return np.ascontiguousarray(as_bits(result, d.kind, d.size))[..., None].view(np.uint8)
