"""TMA descriptors: 128 bytes of memory -> a `Descriptor`.

NVIDIA's format is undocumented; this is the format that CuTe DSL 4.8 writes, found by differential probes: 64 bits
global address; 32-bit word 2: rank - 1 in bits 4-6, data type in bits 7-10, swizzle in bits 13-14; words 3-6 strides of
dimensions 1-4 in units of 16 bytes; words 8-12 extents - 1; bytes 55-59 box extents - 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.ptx.instruction import Instruction

# data type code -> (PTX type of an element, bytes): CUtensorMapDataType's order; f32 also flushed and tf32
KINDS = {
    0: ("u8", 1),
    1: ("u16", 2),
    2: ("u32", 4),
    3: ("s32", 4),
    4: ("u64", 8),
    5: ("s64", 8),
    6: ("f16", 2),
    7: ("f32", 4),
    8: ("f32", 4),
    9: ("f64", 8),
    10: ("bf16", 2),
    11: ("f32", 4),
    12: ("f32", 4),
}
# swizzle none, 32, 64, 128 bytes -> bits of an address that are XORed with those three above
STRIDE_UNIT = 16  # bytes
SWIZZLE_BITS = {0: 0, 1: 0x10, 2: 0x30, 3: 0x70}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor map: extents and box in elements, strides in bytes; dimension 0 is the contiguous one."""

    start: int
    kind: str
    size: int
    swizzle: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def box_bytes(self) -> int:
        """Bytes of one whole box in shared memory. An mbarrier gets this number, clipped or not."""
        return int(np.prod(self.box)) * self.size


@lru_cache(maxsize=256)
def decode_descriptor(raw: bytes) -> Descriptor:
    """Decodes 128 bytes; raises ValueError for an unknown data type or rank."""
    words = np.frombuffer(raw, dtype=np.uint32)
    flags = int(words[2])
    rank = (flags >> 4 & 7) + 1
    code = flags >> 7 & 15
    if code not in KINDS or rank > 5:
        raise ValueError(f"data type {code}, rank {rank}")
    kind, size = KINDS[code]
    strides = (size, *(int(words[2 + n]) * STRIDE_UNIT for n in range(1, rank)))
    extents = tuple(int(words[8 + n]) + 1 for n in range(rank))
    return Descriptor(
        int.from_bytes(raw[:8], "little"),
        kind,
        size,
        flags >> 13 & 3,
        extents,
        strides,
        tuple(raw[55 + n] + 1 for n in range(rank)),
    )


def swizzle_addresses(where: Array, swizzle: int) -> Array:
    """Byte addresses after the swizzle: bits 4-6 XOR bits 7-9 as far as the swizzle reaches (PTX ISA,
    swizzling modes).
    """
    found: Array = where ^ (where >> 3 & SWIZZLE_BITS[swizzle])
    return found


def raw_descriptor(b: Batch, ins: Instruction, lane: int, where: int) -> bytes:
    """The 128 bytes of a descriptor; faults outside memory, or if TMA may have an older version in its cache."""
    found = b.memory.find(where)
    if found is None or where + 128 > found.end:
        raise b.fault(
            "bad_descriptor", "a TMA descriptor that lies in no tensor and no kernel parameter", ins.line, lane, where
        )
    if where % 64:
        raise b.fault("misaligned", "a TMA descriptor must be aligned to 64 bytes", ins.line, lane, where)
    raw = found.data[where - found.start : where - found.start + 128].tobytes()
    if b.tensor_maps.has_edits:
        problem = b.tensor_maps.find_problem(int(b.cta[lane]), where, raw)
        if problem is not None:
            message, hint = problem
            raise b.fault("tensormap_fence_missing", message, ins.line, lane, where, hint=hint)
    return raw


def read_descriptor(b: Batch, ins: Instruction, lane: int, where: int) -> Descriptor:
    """The descriptor at an address; faults if the bytes are none."""
    try:
        return decode_descriptor(raw_descriptor(b, ins, lane, where))
    except ValueError as error:
        raise b.fault("bad_descriptor", f"no TMA descriptor: {error}", ins.line, lane, where) from None
