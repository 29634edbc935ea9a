"""TMA descriptors that a kernel edits: tensormap.replace, tensormap.cp_fenceproxy, and the fences of the tensormap
proxy.

TMA reads descriptors through its own proxy, which has a cache. An edited descriptor in global memory may be used only
after the edit was released to that proxy, and after the using CTA acquired it (execution/tensor_maps.py checks this).
The format is in descriptor.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.operands import Fn, Unknown, getter
from workbench.emulator.isa.access import address, broadcast, global_allocation, resolve_space, shared_index
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Imm, Mem, immediate_value

if TYPE_CHECKING:
    from workbench.emulator.execution.batch import Batch

BYTES = 128
CHUNK = 16
# field -> (offset of its first element, bytes of an element, stored form of a value); strides are in units of 16
# bytes from the second dimension on, extents and boxes are stored minus one
FIELDS: dict[str, tuple[int, int, Callable[[int], int]]] = {
    "global_address": (0, 8, lambda v: v),
    "global_stride": (12, 4, lambda v: v // CHUNK),
    "global_dim": (32, 4, lambda v: v - 1),
    "box_dim": (55, 1, lambda v: v - 1),
}


def operation(ins: Instruction) -> Fn:
    """tensormap.replace.tile.field and tensormap.cp_fenceproxy."""
    return _publish(ins) if ins.mods[0] == "cp_fenceproxy" else _replace(ins)


def fence(ins: Instruction) -> Fn:
    """fence.proxy.tensormap::generic.release.scope, and .acquire.scope [address], 128."""
    if "acquire" not in ins.mods:

        def release(b: Batch, i: Lanes) -> None:
            b.tensor_maps.released.update(dict.fromkeys(b.tensor_maps.released, True))

        return release
    assert isinstance(ins.operands[0], Mem)
    where = address(ins.operands[0], "global")

    def acquire(b: Batch, i: Lanes) -> None:
        at, lanes = broadcast(b, i, where(b, i)), b.all_lanes(i)
        for lane, place in {
            (int(b.cta[lane]), int(place)): (int(lane), int(place)) for lane, place in zip(lanes, at, strict=True)
        }.values():
            b.tensor_maps.acquired[int(b.cta[lane]), place] = _global_descriptor(b, ins, lane, place, False).tobytes()

    return acquire


def _global_descriptor(b: Batch, ins: Instruction, lane: int, where: int, write: bool) -> Array:
    """The 128 bytes of a descriptor in global memory; faults outside every tensor, misaligned or read-only."""
    ((found, _),) = global_allocation(b, np.array([lane]), np.array([where]), BYTES, write, ins)
    b.changes += write
    if write and found.written is not None:
        found.written[where - found.start : where - found.start + BYTES] = 1
    return found.data[where - found.start : where - found.start + BYTES]


def _shared_descriptor(b: Batch, ins: Instruction, lane: int, where: int, write: bool) -> Array:
    """The 128 bytes of a descriptor in shared memory; faults outside it or misaligned."""
    start = int(shared_index(b, np.array([lane]), np.array([where]), BYTES, write, ins)[0])
    return b.shared[start : start + BYTES]


def _replace(ins: Instruction) -> Fn:
    """tensormap.replace.tile.field{.space}.b1024.type [address], {dimension,} value."""
    field = ins.mods[2]
    if field not in FIELDS:
        raise Unknown(ins.text)
    first, size, stored = FIELDS[field]
    *_, value = ins.operands
    space = "shared" if "shared::cta" in ins.text else "global" if "global" in ins.mods[3:] else "generic"
    assert isinstance(ins.operands[0], Mem)
    where, get = (
        address(ins.operands[0], space),
        getter(value, "u64" if size == 8 or field == "global_stride" else "u32"),
    )
    dimension = immediate_value(ins.operands[1]) if isinstance(ins.operands[1], Imm) and len(ins.operands) == 3 else 0

    def run(b: Batch, i: Lanes) -> None:
        lanes, values = b.all_lanes(i), broadcast(b, i, get(b, i))
        place, at = resolve_space(space, broadcast(b, i, where(b, i)))
        for lane, target, given in zip(lanes, at, values, strict=True):
            if field in ("global_address", "global_stride") and int(given) % CHUNK:
                raise b.fault(
                    "bad_descriptor",
                    f"a TMA descriptor's {field.replace('global_', '')} must be a multiple of {CHUNK} bytes, not"
                    f" {int(given)}",
                    ins.line,
                    int(lane),
                )
            raw = (
                _shared_descriptor(b, ins, int(lane), int(target), False)
                if place == "shared"
                else _global_descriptor(b, ins, int(lane), int(target), True)
            )
            if place != "shared":
                b.tensor_maps.released[int(target)] = False
            begin = first + dimension * size
            raw[begin : begin + size] = np.frombuffer(
                int(stored(int(given)) % (1 << 8 * size)).to_bytes(size, "little"), dtype=np.uint8
            )

    return run


def _publish(ins: Instruction) -> Fn:
    """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [to], [from], 128: a
    whole warp makes one copy.
    """
    assert isinstance(ins.operands[0], Mem) and isinstance(ins.operands[1], Mem)
    to, frm = address(ins.operands[0], "global"), address(ins.operands[1], "shared")

    def run(b: Batch, i: Lanes) -> None:
        lanes, targets, sources = b.all_lanes(i), broadcast(b, i, to(b, i)), broadcast(b, i, frm(b, i))
        for lane, target, source in zip(lanes, targets, sources, strict=True):
            _global_descriptor(b, ins, int(lane), int(target), True)[:] = _shared_descriptor(
                b, ins, int(lane), int(source), False
            )
            b.tensor_maps.released[int(target)] = True

    return run
