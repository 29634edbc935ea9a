"""Bulk asynchronous copies: tensors through TMA descriptors (1 to 5 dimensions, all swizzles, multicast, reduction) and plain ranges of bytes.

The descriptor is NVIDIA's undocumented 128-byte format as CuTe DSL 4.8 writes it, read off by differential probes: 64 bits global address;
32-bit word 2: rank - 1 in bits 4-6, data type in bits 7-10, swizzle in bits 13-14; words 3-6 strides of dimensions 1-4 in units of 16 bytes;
words 8-12 extents - 1; bytes 55-59 box extents - 1. A load reads when it is issued and arrives as late as possible; a store reads and writes at
the wait for its group (deferred.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.emulator.access import address, spread
from workbench.emulator.atomics import ATOMIC, as_bits, as_values
from workbench.emulator.deferred import IN_FLIGHT, WRITTEN, Copy, unreadable
from workbench.emulator.launch import Allocation
from workbench.emulator.mbarrier import complete_tx
from workbench.emulator.operands import Fn, Unknown, getter
from workbench.emulator.ptx import Instruction, Mem
from workbench.emulator.state import RANK_SHIFT, Batch, Lanes

# data type code -> (PTX type of an element, bytes): CUtensorMapDataType's order; f32 also flushed and tf32
KINDS = {0: ("u8", 1), 1: ("u16", 2), 2: ("u32", 4), 3: ("s32", 4), 4: ("u64", 8), 5: ("s64", 8), 6: ("f16", 2), 7: ("f32", 4), 8: ("f32", 4), 9: ("f64", 8), 10: ("bf16", 2), 11: ("f32", 4), 12: ("f32", 4)}
SWIZZLE_BITS = {0: 0, 1: 0x10, 2: 0x30, 3: 0x70}  # none, 32, 64, 128 bytes: bits of an address that are XORed with those three above
CHUNK = 16


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor map: extents and box in elements, strides in bytes, dimension 0 the contiguous one."""

    start: int
    kind: str
    size: int
    swizzle: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def box_bytes(self) -> int:
        """Bytes of one whole box in shared memory, which is what an mbarrier is told, clipped or not."""
        return int(np.prod(self.box)) * self.size


@lru_cache(maxsize=256)
def decode(raw: bytes) -> Descriptor:
    """The descriptor in 128 bytes; raises ValueError for a data type that is none."""
    words = np.frombuffer(raw, dtype=np.uint32)
    flags = int(words[2])
    rank = (flags >> 4 & 7) + 1
    code = flags >> 7 & 15
    if code not in KINDS or rank > 5:
        raise ValueError(f"data type {code}, rank {rank}")
    kind, size = KINDS[code]
    strides = (size, *(int(words[2 + n]) * CHUNK for n in range(1, rank)))
    extents = tuple(int(words[8 + n]) + 1 for n in range(rank))
    return Descriptor(int.from_bytes(raw[:8], "little"), kind, size, flags >> 13 & 3, extents, strides, tuple(raw[55 + n] + 1 for n in range(rank)))


def swizzled(where: Any, swizzle: int) -> Any:
    """Byte addresses after the swizzle: bits 4-6 XOR bits 7-9 as far as the swizzle reaches (PTX ISA, swizzling modes)."""
    return where ^ (where >> 3 & SWIZZLE_BITS[swizzle])


def copy(ins: Instruction) -> Fn:
    """cp{.reduce}.async.bulk{.tensor}: the forms that CuTe DSL emits."""
    if "commit_group" in ins.mods:
        return lambda b, i: b.stores.commit(b.all_lanes(i))
    if "wait_group" in ins.mods:
        newest = int(ins.operands[0].value)  # type: ignore[attr-defined]
        return lambda b, i: b.stores.wait(b.all_lanes(i), newest)
    if "prefetch" in ins.mods:
        return lambda b, i: None
    if any(m.startswith("im2col") for m in ins.mods):  # loads in that mode are in im2col.py
        raise Unknown(ins.text)
    if "tensor" in ins.mods:
        return _store_tensor(ins) if ".global.shared" in ins.text else _load_tensor(ins)
    return _bulk(ins)


def _same_rank(b: Batch, ins: Instruction, lane: int, d: Descriptor, at: list[Any]) -> None:
    """Fault where a descriptor has another number of dimensions than the instruction gives coordinates."""
    if len(at) != len(d.box):
        raise b.fault("bad_descriptor", f"a TMA instruction of {len(at)} dimension{'s' if len(at) > 1 else ''} with a descriptor of {len(d.box)}", ins.line, lane,
                      hint="a static extent of 1 makes CuTe drop a dimension: mark the layout as dynamic (mark_layout_dynamic)")  # fmt: skip


def _clip(d: Descriptor, at: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[int, ...], tuple[int, ...]] | None:
    """(part of the box inside the tensor, its first coordinates, its extents), slowest dimension first in the slices; None where nothing is inside."""
    low = [max(-c, 0) for c in at]
    high = [min(box, extent - c) for c, box, extent in zip(at, d.box, d.extents, strict=True)]
    if any(h <= lo for lo, h in zip(low, high, strict=True)):
        return None
    inside = tuple(slice(lo, h) for lo, h in zip(reversed(low), reversed(high), strict=True))
    return inside, tuple(c + lo for c, lo in zip(at, low, strict=True)), tuple(h - lo for lo, h in zip(low, high, strict=True))


def _window(b: Batch, ins: Instruction, lane: int, d: Descriptor, first: tuple[int, ...], count: tuple[int, ...], write: bool) -> tuple[Allocation, Any, Any]:
    """The allocation and strided views (bytes of elements, written flags or None) of a part of the tensor, slowest dimension first."""
    offset = sum(c * stride for c, stride in zip(first, d.strides, strict=True))
    last = offset + sum((n - 1) * stride for n, stride in zip(count, d.strides, strict=True)) + d.size
    found = b.memory.find(d.start + offset)
    if found is None or d.start + last > found.end:
        bad = d.start + offset if found is None else found.end
        raise b.fault("out_of_bounds", f"TMA {'store' if write else 'load'} of a box at {first} is out of bounds: {b.memory.nearest(bad)}", ins.line, lane, bad,
                      hint="the descriptor's extents and strides must be those of the tensor")  # fmt: skip
    if write and not found.writable:
        raise b.fault("write_to_constant", f"a TMA store to read-only {found.name}", ins.line, lane, d.start + offset)
    b.changes += write
    shape = (*reversed(count), d.size)
    strides = (*reversed(d.strides), 1)
    begin = d.start + offset - found.start
    data = np.lib.stride_tricks.as_strided(found.data[begin:], shape=shape, strides=strides)
    flags = None if found.written is None else np.lib.stride_tricks.as_strided(found.written[begin:], shape=shape, strides=strides)
    return found, data, flags


def _raw(b: Batch, ins: Instruction, lane: int, where: int) -> bytes:
    """The 128 bytes of a descriptor; faults where there is none, or one that TMA need not know yet."""
    found = b.memory.find(where)
    if found is None or where + 128 > found.end:
        raise b.fault("bad_descriptor", "a TMA descriptor that lies in no tensor and no kernel parameter", ins.line, lane, where)
    if where % 64:
        raise b.fault("misaligned", "a TMA descriptor must be aligned to 64 bytes", ins.line, lane, where)
    raw = found.data[where - found.start : where - found.start + 128].tobytes()
    if b.tensor_maps.used:
        b.tensor_maps.check(b, ins, lane, where, raw)
    return raw


def _descriptor(b: Batch, ins: Instruction, lane: int, where: int) -> Descriptor:
    try:
        return decode(_raw(b, ins, lane, where))
    except ValueError as error:
        raise b.fault("bad_descriptor", f"no TMA descriptor: {error}", ins.line, lane, where) from None


def _shared_range(b: Batch, ins: Instruction, lane: int, where: int, size: int, alignment: int, write: bool) -> tuple[int, int]:
    """(start in the batch's shared memory of the CTA that an address means, offset in it); faults outside it or misaligned."""
    rank, offset = where >> RANK_SHIFT, where & ((1 << RANK_SHIFT) - 1)
    if offset % alignment:
        raise b.fault("misaligned", f"a bulk copy at offset {offset} of shared memory, which is not a multiple of {alignment}", ins.line, lane, offset, hint="align the buffer: 128 bytes, with a swizzle up to 1024")
    if offset + size > b.shared_limit:
        raise b.fault("shared_out_of_bounds", f"a bulk copy {'writes' if write else 'reads'} {size} bytes at offset {offset} of shared memory, but the CTA has {b.shared_limit}", ins.line, lane, offset)
    own = int(b.cta[lane])
    return (own if rank == 0 else own // b.cluster_size * b.cluster_size + rank - 1) * b.shared_bytes, offset


def _members(b: Batch, lane: int, mask: int) -> list[int]:
    """Batch numbers of the CTAs that a multicast mask names."""
    base = int(b.cta[lane]) // b.cluster_size * b.cluster_size
    return [base + rank for rank in range(b.cluster_size) if mask >> rank & 1]


def _tensor_operand(operand: object) -> tuple[Callable[[Batch, Lanes], Any], list[Any]]:
    """(address of the descriptor, coordinates) out of [desc, {c0, c1, ...}]."""
    assert isinstance(operand, Mem) and operand.coordinates is not None
    return address(Mem(operand.base, operand.offset), "global"), [getter(item, "s32") for item in operand.coordinates]


def _numbers(value: Any, b: Batch, i: Lanes) -> list[int]:
    return [int(v) for v in spread(b, i, value)]


def _load_tensor(ins: Instruction) -> Fn:
    target, source, barrier = ins.operands[:3]
    assert isinstance(target, Mem) and isinstance(barrier, Mem)
    to, of = address(target, "shared"), address(barrier, "shared")
    desc_of, coordinates = _tensor_operand(source)
    mask_of = getter(ins.operands[3], "u16") if "multicast" in ins.text else None

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        places, barriers = _numbers(to(b, i), b, i), _numbers(of(b, i), b, i)
        maps, at = _numbers(desc_of(b, i), b, i), [_numbers(get(b, i), b, i) for get in coordinates]
        masks = _numbers(mask_of(b, i), b, i) if mask_of else [0] * len(lanes)
        for n, lane in enumerate(lanes):
            d = _descriptor(b, ins, int(lane), maps[n])
            _same_rank(b, ins, int(lane), d, at)
            data = _box(b, ins, int(lane), d, tuple(column[n] for column in at))
            bases = _members(b, int(lane), masks[n]) if mask_of else None
            base, offset = _shared_range(b, ins, int(lane), places[n], d.box_bytes, 128, True)
            starts = [base] if bases is None else [cta * b.shared_bytes for cta in bases]
            _later(b, ins, int(lane), barriers[n], bases, [_places(start, offset, data.size, d.swizzle) for start in starts], data)

    return run


def _later(b: Batch, ins: Instruction, lane: int, barrier: int, members: list[int] | None, places: list[Any], data: Any) -> None:
    """A load in flight: its bytes are marked now, and written and counted on the mbarrier when it is finished."""
    clock = b.races.bulk_write(b, lane, places, ins) if b.races is not None else None
    for at in places:
        b.shared_written[at] = IN_FLIGHT

    def finish(_: Any) -> None:
        for at in places:
            b.shared[at] = data
            b.shared_written[at] = WRITTEN
        _arrived(b, ins, lane, barrier, data.size, members, clock)

    b.arrivals.append(Copy(ins, np.array([lane]), np.array([0]), finish))


def _arrived(b: Batch, ins: Instruction, lane: int, where: int, size: int, members: list[int] | None, clock: Any) -> None:
    """Count the bytes of a finished copy on the mbarrier: one, or the same place in every CTA of a multicast."""
    if members is None:
        complete_tx(b, np.array([lane]), np.array([where]), np.array([size]), ins, clock)
        return
    base = int(b.cta[lane]) // b.cluster_size * b.cluster_size
    offset = where & ((1 << RANK_SHIFT) - 1)
    for cta in members:
        complete_tx(b, np.array([lane]), np.array([offset | (cta - base + 1) << RANK_SHIFT]), np.array([size]), ins, clock)


def _box(b: Batch, ins: Instruction, lane: int, d: Descriptor, at: tuple[int, ...]) -> Any:
    """A box's bytes as they come to lie in shared memory before the swizzle; zeros outside the tensor."""
    out = np.zeros((*reversed(d.box), d.size), dtype=np.uint8)
    clipped = _clip(d, at)
    if clipped is not None:
        inside, first, count = clipped
        found, data, flags = _window(b, ins, lane, d, first, count, False)
        if flags is not None and not flags.all():
            raise b.fault("uninitialised", f"TMA load of a box at {first} of {found.name}, parts of which nothing wrote", ins.line, lane, hint="write every element before it is read; torch.empty leaves memory undefined")
        if b.races is not None and b.races.record.was_written(found):
            b.races.load_global(b, *_elements(lane, found, d, first, count), d.size, ins)
        out[inside] = data
    b.counting.bulk(ins, read=int(out.size))
    return out.reshape(-1)


def _places(start: int, offset: int, size: int, swizzle: int) -> Any:
    """Index of each byte of a box in the batch's shared memory."""
    return start + swizzled(offset + np.arange(size, dtype=np.int64), swizzle)


def _store_tensor(ins: Instruction) -> Fn:
    """cp.async.bulk.tensor.Nd.global.shared::cta and cp.reduce.async.bulk.tensor.Nd.global.shared::cta.op."""
    source = ins.operands[1]
    assert isinstance(source, Mem)
    frm = address(source, "shared")
    desc_of, coordinates = _tensor_operand(ins.operands[0])
    op = next((m for m in ins.mods if m in ATOMIC), None) if "reduce" in ins.mods else None

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        places, maps, at = _numbers(frm(b, i), b, i), _numbers(desc_of(b, i), b, i), [_numbers(get(b, i), b, i) for get in coordinates]
        for n, lane in enumerate(lanes):
            d = _descriptor(b, ins, int(lane), maps[n])
            _same_rank(b, ins, int(lane), d, at)
            start, offset = _shared_range(b, ins, int(lane), places[n], d.box_bytes, 128, False)
            clipped = _clip(d, tuple(column[n] for column in at))
            if clipped is None:
                continue
            inside, first, count = clipped
            shape = (*reversed(d.box), d.size)
            source_bytes = _places(start, offset, d.box_bytes, d.swizzle).reshape(shape)[inside]
            _readable(b, ins, int(lane), source_bytes, "a TMA store")
            found, target, flags = _window(b, ins, int(lane), d, first, count, True)
            if b.races is not None:
                b.races.store_global(b, *_elements(int(lane), found, d, first, count), d.size, ins, None)
            done = _reading(b, int(lane), source_bytes, ins)

            def finish(_: Any, target: Any = target, flags: Any = flags, source_bytes: Any = source_bytes, d: Descriptor = d, done: Callable[[], None] = done) -> None:
                target[...] = _reduced(target, b.shared[source_bytes], d, op) if op else b.shared[source_bytes]
                if flags is not None:
                    flags[...] = 1
                done()

            b.stores.add(ins, np.array([lane]), finish)
            b.counting.bulk(ins, written=int(np.prod(count)) * d.size)

    return run


def _elements(lane: int, found: Allocation, d: Descriptor, first: tuple[int, ...], count: tuple[int, ...]) -> tuple[Any, Allocation, Any]:
    """(the lane for each element of a part of a tensor, its allocation, the elements' offsets in it), for the races."""
    offsets = np.array([d.start - found.start], dtype=np.int64)
    for begin, n, stride in zip(first, count, d.strides, strict=True):
        offsets = (offsets[:, None] + (begin + np.arange(n)) * stride).reshape(-1)
    return np.full(len(offsets), lane), found, offsets


def _reading(b: Batch, lane: int, places: Any, ins: Instruction) -> Callable[[], None]:
    """Note that a bulk store reads these bytes of shared memory; the value says that it is over."""
    if b.races is None:
        return lambda: None
    races, tick = b.races, b.races.bulk_read(b, lane, places, ins)
    return lambda: races.bulk_done(lane, tick)


def _readable(b: Batch, ins: Instruction, lane: int, places: Any, what: str) -> None:
    """Fault unless these bytes of shared memory hold values that the asynchronous proxy may read."""
    marks = b.shared_written[places]
    if (marks != WRITTEN).any():
        fault = unreadable(b, ins, lane, marks, np.arange(places.start, places.stop) if isinstance(places, slice) else places, what)
        if fault is not None:
            raise fault


def _reduced(old: Any, new: Any, d: Descriptor, op: str) -> Any:
    """old op new, element by element, both as bytes."""
    kind = np.dtype({"f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64, "s32": np.int32, "s64": np.int64}.get(d.kind, f"u{d.size}"))
    raw = np.dtype(f"u{d.size}")
    before, after = (np.ascontiguousarray(part).view(raw)[..., 0] for part in (old, new))
    result = ATOMIC[op](as_values(before, d.kind, kind), as_values(after, d.kind, kind)).astype(kind)
    return np.ascontiguousarray(as_bits(result, d.kind, d.size))[..., None].view(np.uint8)


def _bulk(ins: Instruction) -> Fn:
    """cp.async.bulk of a range of bytes: global to shared, shared to global, shared to another CTA's shared."""
    if "reduce" in ins.mods:
        raise Unknown(ins.text)
    target, source = ins.operands[:2]
    assert isinstance(target, Mem) and isinstance(source, Mem)
    stores, remote = ".bulk.global" in ins.text, ".shared::cluster.shared::cta" in ins.text
    to, frm = address(target, "global" if stores else "shared"), address(source, "shared" if stores or remote else "global")
    size_of_copy = getter(ins.operands[2], "u32")
    of = address(ins.operands[3], "shared") if not stores and isinstance(ins.operands[3], Mem) else None
    mask_of = getter(ins.operands[4], "u16") if "multicast" in ins.text else None

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        into, out, sizes = _numbers(to(b, i), b, i), _numbers(frm(b, i), b, i), _numbers(size_of_copy(b, i), b, i)
        barriers = _numbers(of(b, i), b, i) if of else []
        masks = _numbers(mask_of(b, i), b, i) if mask_of else []
        for n, lane in enumerate(int(lane) for lane in lanes):
            size = sizes[n]
            if size % CHUNK:
                raise b.fault("misaligned", f"a bulk copy of {size} bytes, which is not a multiple of {CHUNK}", ins.line, lane)
            if stores:
                start, offset = _shared_range(b, ins, lane, out[n], size, CHUNK, False)
                _readable(b, ins, lane, slice(start + offset, start + offset + size), "a bulk store")
                target_bytes = _global_range(b, ins, lane, into[n], size, True)
                done = _reading(b, lane, np.arange(start + offset, start + offset + size), ins)

                def finish(_: Any, target_bytes: Any = target_bytes, begin: int = start + offset, size: int = size, done: Callable[[], None] = done) -> None:
                    target_bytes[...] = b.shared[begin : begin + size]
                    done()

                b.stores.add(ins, np.array([lane]), finish)
                continue
            if remote:
                start, offset = _shared_range(b, ins, lane, out[n], size, CHUNK, False)
                data = b.shared[start + offset : start + offset + size].copy()
            else:
                data = _global_range(b, ins, lane, out[n], size, False)
            members = _members(b, lane, masks[n]) if mask_of else None
            start, offset = _shared_range(b, ins, lane, into[n], size, CHUNK, True)
            starts = [start] if members is None else [cta * b.shared_bytes for cta in members]
            _later(b, ins, lane, barriers[n], members, [_places(begin, offset, size, 0) for begin in starts], data.copy())

    return run


def _global_range(b: Batch, ins: Instruction, lane: int, where: int, size: int, write: bool) -> Any:
    """The bytes of a range of global memory, as a view."""
    if where % CHUNK:
        raise b.fault("misaligned", f"a bulk copy {'to' if write else 'from'} an address that is not a multiple of {CHUNK}: {b.memory.nearest(where)}", ins.line, lane, where)
    found = b.memory.find(where)
    if found is None or where + size > found.end:
        raise b.fault("out_of_bounds", f"bulk copy of {size} bytes is out of bounds: {b.memory.nearest(where if found is None else found.end)}", ins.line, lane, where)
    if found.narrow and not any(view.holds(np.array([where]), size).all() for view in found.views):
        raise b.fault("out_of_bounds", f"bulk copy of {size} bytes is out of bounds of the tensor, inside its storage: {b.memory.nearest(where)}", ins.line, lane, where)
    begin = where - found.start
    if write and not found.writable:
        raise b.fault("write_to_constant", f"a bulk copy to read-only {found.name}", ins.line, lane, where)
    if b.races is not None and (write or b.races.record.was_written(found)):
        at = begin + np.arange(0, size, CHUNK)
        if write:
            b.races.store_global(b, np.full(len(at), lane), found, at, CHUNK, ins, None)
        else:
            b.races.load_global(b, np.full(len(at), lane), found, at, CHUNK, ins)
    if found.written is not None:
        if write:
            found.written[begin : begin + size] = 1
        elif not found.written[begin : begin + size].all():
            raise b.fault("uninitialised", f"bulk copy of bytes of {found.name} that nothing wrote", ins.line, lane, where)
    b.changes += write
    b.counting.bulk(ins, **{"written" if write else "read": size})
    return found.data[begin : begin + size]
