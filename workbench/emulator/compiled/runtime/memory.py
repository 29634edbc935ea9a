"""Helpers that access memory. Every address is checked; compiled code gives up at any irregular access
(layout.GAVE_UP).

Addresses of the lanes are in ADDRESS, values in DATA (vector n at n * ELEMENT, lane l at l * size). `spec` is the
number of the instruction, whose memory row counts the access. Sizes are in bytes; `vector` is the number of elements of
a lane's access.
"""

from __future__ import annotations

from workbench.emulator.compiled.codegen.layout import (
    ADDRESS,
    DATA,
    ELEMENT,
    ENTRY_BYTES,
    ENTRY_END,
    ENTRY_START,
    ENTRY_WRITABLE,
    ENTRY_WRITTEN,
    FAULT,
    GAVE_UP,
    LOCAL_STRIDE,
    RECENT,
    SHARED_LIMIT,
    TABLE,
    TABLE_COUNT,
    WARP_LOCAL,
    WARP_SHARED,
    WARP_WRITTEN,
)
from workbench.emulator.compiled.runtime.helper_compiler import (
    helper,
    load8,
    load16,
    load32,
    load64,
    lowest_bit,
    store8,
    store16,
    store32,
    store64,
)

ONES = 0x0101_0101_0101_0101  # the shadow of eight written bytes


@helper
def give_up(context: int) -> int:
    """Make the interpreter run this launch."""
    store64(context + FAULT, GAVE_UP)
    return 0


@helper
def find_entry(context: int, low: int, high: int) -> int:
    """The table entry that holds all of [low, high), 0 if there is none."""
    entry: int = load64(context + RECENT)
    if low >= load64(entry + ENTRY_START) and high <= load64(entry + ENTRY_END):
        return entry
    entry = load64(context + TABLE)
    for _ in range(load64(context + TABLE_COUNT)):
        if low >= load64(entry + ENTRY_START) and high <= load64(entry + ENTRY_END):
            store64(context + RECENT, entry)
            return entry
        entry += ENTRY_BYTES
    return 0


@helper
def has_unwritten(shadow: int, size: int) -> int:
    """Whether any of `size` bytes of a shadow is 0."""
    at = 0
    while at + 8 <= size:
        if load64(shadow + at) != ONES:
            return 1
        at += 8
    while at < size:
        if load8(shadow + at) != 1:
            return 1
        at += 1
    return 0


@helper
def find_common_entry(context: int, mask: int, total: int) -> int:
    """The entry that holds the accesses of all active lanes, 0 if they are in several; misaligned ones give up."""
    low = 0x7FFF_FFFF_FFFF_FFFF
    high = -low
    odd = 0
    if mask == 0xFFFF_FFFF:
        for lane in range(32):
            at: int = load64(context + ADDRESS + 8 * lane)
            odd |= at
            low = at if at < low else low
            high = at if at > high else high
    else:
        left = mask
        while left != 0:
            at = load64(context + ADDRESS + 8 * lowest_bit(left))
            left &= left - 1
            odd |= at
            low = at if at < low else low
            high = at if at > high else high
    if odd & (total - 1):
        give_up(context)
        return 0
    return find_entry(context, low, high + total)


@helper
def load_lane(context: int, lane: int, at: int, size: int, vector: int) -> int:
    """Load one lane's elements from memory into DATA."""
    to = context + DATA + lane * size
    for _ in range(vector):
        if size == 4:
            store32(to, load32(at))
        elif size == 8:
            store64(to, load64(at))
        elif size == 2:
            store16(to, load16(at))
        else:
            store8(to, load8(at))
        at += size
        to += ELEMENT
    return 0


@helper
def store_lane(context: int, lane: int, at: int, size: int, vector: int) -> int:
    """Store one lane's elements from DATA to memory."""
    source = context + DATA + lane * size
    for _ in range(vector):
        if size == 4:
            store32(at, load32(source))
        elif size == 8:
            store64(at, load64(source))
        elif size == 2:
            store16(at, load16(source))
        else:
            store8(at, load8(source))
        at += size
        source += ELEMENT
    return 0


@helper
def read_words(context: int, mask: int, base: int, vector: int) -> int:
    """Load all lanes' 4-byte elements at addresses plus `base`; for a full warp, the common case, the loop
    vectorises.
    """
    if mask == 0xFFFF_FFFF:
        for n in range(vector):
            for lane in range(32):
                store32(
                    context + DATA + ELEMENT * n + 4 * lane, load32(load64(context + ADDRESS + 8 * lane) + base + 4 * n)
                )
        return 0
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        load_lane(context, lane, load64(context + ADDRESS + 8 * lane) + base, 4, vector)
    return 0


@helper
def read_global(context: int, mask: int, size: int, vector: int) -> int:
    """Read global memory into DATA, with checks."""
    total = size * vector
    entry = find_common_entry(context, mask, total)
    if entry != 0 and load64(entry + ENTRY_WRITTEN) == 0 and size == 4:
        return read_words(context, mask, 0, vector)
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        at: int = load64(context + ADDRESS + 8 * lane)
        entry = find_entry(context, at, at + total)
        if entry == 0:
            return give_up(context)
        if load64(entry + ENTRY_WRITTEN) != 0 and has_unwritten(
            load64(entry + ENTRY_WRITTEN) + at - load64(entry + ENTRY_START), total
        ):
            return give_up(context)
        load_lane(context, lane, at, size, vector)
    return 0


@helper
def write_global(context: int, mask: int, size: int, vector: int) -> int:
    """Write DATA to global memory, with checks, lanes in rising order."""
    total = size * vector
    find_common_entry(context, mask, total)
    if load64(context + FAULT) != 0:
        return 0
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        at: int = load64(context + ADDRESS + 8 * lane)
        entry = find_entry(context, at, at + total)
        if entry == 0 or load64(entry + ENTRY_WRITABLE) == 0:
            return give_up(context)
        store_lane(context, lane, at, size, vector)
        if load64(entry + ENTRY_WRITTEN) != 0:
            mark_written(load64(entry + ENTRY_WRITTEN) + at - load64(entry + ENTRY_START), total)
    return 0


@helper
def mark_written(shadow: int, size: int) -> int:
    """Set the shadow of `size` bytes."""
    at = 0
    while at + 4 <= size:
        store32(shadow + at, ONES)
        at += 4
    while at < size:
        store8(shadow + at, 1)
        at += 1
    return 0


@helper
def shared_fits(context: int, mask: int, total: int) -> int:
    """Whether all active lanes' offsets are aligned and inside shared memory."""
    limit = load64(context + SHARED_LIMIT) - total
    left = mask
    bad = 0
    while left != 0:
        at: int = load64(context + ADDRESS + 8 * lowest_bit(left))
        left &= left - 1
        bad |= (at & (total - 1)) | (at >> 63) | ((limit - at) >> 63)
    return bad == 0


@helper
def read_shared(context: int, warp: int, mask: int, size: int, vector: int) -> int:
    """Read the CTA's shared memory into DATA, with checks."""
    total = size * vector
    if not shared_fits(context, mask, total):
        return give_up(context)
    shadow: int = load64(warp + WARP_WRITTEN)
    base: int = load64(warp + WARP_SHARED)
    left = mask
    bad = 0
    while left != 0:
        at: int = load64(context + ADDRESS + 8 * lowest_bit(left)) + shadow
        left &= left - 1
        if total == 4:
            bad |= load32(at) ^ (ONES & 0xFFFF_FFFF)
        elif total == 16:
            bad |= (load64(at) ^ ONES) | (load64(at + 8) ^ ONES)
        elif total == 8:
            bad |= load64(at) ^ ONES
        else:
            bad |= has_unwritten(at, total)
    if bad != 0:
        return give_up(context)
    if size == 4:
        return read_words(context, mask, base, vector)
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        load_lane(context, lane, load64(context + ADDRESS + 8 * lane) + base, size, vector)
    return 0


@helper
def write_shared(context: int, warp: int, mask: int, size: int, vector: int) -> int:
    """Write DATA to the CTA's shared memory, with checks."""
    total = size * vector
    if not shared_fits(context, mask, total):
        return give_up(context)
    shadow: int = load64(warp + WARP_WRITTEN)
    base: int = load64(warp + WARP_SHARED)
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        at: int = load64(context + ADDRESS + 8 * lane)
        store_lane(context, lane, at + base, size, vector)
        mark_written(at + shadow, total)
    return 0


@helper
def local_access(context: int, warp: int, mask: int, size: int, vector: int, write: int) -> int:
    """Read or write the lanes' own local memory, with checks."""
    total = size * vector
    stride: int = load64(context + LOCAL_STRIDE)
    aligned = (total if total < 16 else 16) - 1
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        offset = load64(context + ADDRESS + 8 * lane) & 0xFF_FFFF
        if offset + total > stride or offset & aligned:
            return give_up(context)
        at = load64(warp + WARP_LOCAL) + lane * stride + offset
        if write:
            store_lane(context, lane, at, size, vector)
        else:
            load_lane(context, lane, at, size, vector)
    return 0
