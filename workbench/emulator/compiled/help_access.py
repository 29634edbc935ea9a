"""Helpers that blocks call for memory instructions: counting, then the checked access of the space; asynchronous copies."""

from __future__ import annotations

from workbench.emulator.compiled.help_count import count_sectors, count_wavefronts
from workbench.emulator.compiled.help_memory import (
    find,
    give_up,
    global_read,
    global_write,
    local_access,
    shared_read,
    shared_write,
    unwritten,
)
from workbench.emulator.compiled.layout import ADDRESS, BASE, DATA, ELEMENT, ENTRY_START, ENTRY_WRITTEN, EXTRA, FAULT
from workbench.emulator.compiled.tiny import fill, helper, load8, load64, lowest_bit, store8, store64
from workbench.emulator.state import LOCAL_WINDOW, SHARED_WINDOW


@helper
def rebase(context: int, window: int) -> int:
    """Subtract a window of the generic space from all addresses."""
    for lane in range(32):
        store64(context + ADDRESS + 8 * lane, load64(context + ADDRESS + 8 * lane) - window)
    return 0


@helper
def generic_access(context: int, warp: int, mask: int, size: int, vector: int, write: int) -> int:
    """An access through the generic space, which the first active lane's window decides, as in the interpreter."""
    window = load64(context + ADDRESS + 8 * lowest_bit(mask)) >> 56
    if window == SHARED_WINDOW >> 56:
        rebase(context, SHARED_WINDOW)
        if write:
            shared_write(context, warp, mask, size, vector)
        else:
            shared_read(context, warp, mask, size, vector)
        return rebase(context, -SHARED_WINDOW)
    if window == LOCAL_WINDOW >> 56:
        rebase(context, LOCAL_WINDOW)
        local_access(context, warp, mask, size, vector, write)
        return rebase(context, -LOCAL_WINDOW)
    return global_write(context, mask, size, vector) if write else global_read(context, mask, size, vector)


@helper
def add_offset(context: int, offset: int) -> int:
    """ADDRESS = BASE + offset."""
    for lane in range(32):
        store64(context + ADDRESS + 8 * lane, load64(context + BASE + 8 * lane) + offset)
    return 0


@helper
def access_global(context: int, warp: int, mask: int, spec: int, size: int, vector: int, write: int, offset: int) -> int:
    """ld.global or st.global."""
    if mask == 0:
        return 0
    add_offset(context, offset)
    count_sectors(context, mask, spec, size * vector)
    return global_write(context, mask, size, vector) if write else global_read(context, mask, size, vector)


@helper
def access_shared(context: int, warp: int, mask: int, spec: int, size: int, vector: int, write: int, offset: int) -> int:
    """ld.shared or st.shared."""
    if mask == 0:
        return 0
    add_offset(context, offset)
    count_wavefronts(context, mask, spec, size * vector)
    return shared_write(context, warp, mask, size, vector) if write else shared_read(context, warp, mask, size, vector)


@helper
def access_local(context: int, warp: int, mask: int, spec: int, size: int, vector: int, write: int, offset: int) -> int:
    """ld.local or st.local, which are not counted."""
    add_offset(context, offset)
    return local_access(context, warp, mask, size, vector, write)


@helper
def access_generic(context: int, warp: int, mask: int, spec: int, size: int, vector: int, write: int, offset: int) -> int:
    """ld or st with no space, counted as the interpreter counts them: sectors."""
    if mask == 0:
        return 0
    add_offset(context, offset)
    count_sectors(context, mask, spec, size * vector)
    return generic_access(context, warp, mask, size, vector, write)


@helper
def copy_async(context: int, warp: int, mask: int, spec: int, size: int) -> int:
    """cp.async: sources in ADDRESS, targets in EXTRA, bytes to copy in EXTRA + ELEMENT (64 bits each); the rest is zeros."""
    whole = 0
    left = mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        if load64(context + EXTRA + ELEMENT + 8 * lane) == size:
            whole |= 1 << lane
    fill(context + DATA, 0, 4 * ELEMENT)
    if whole != 0:
        count_sectors(context, whole, spec, size)
        global_read(context, whole, 4, size // 4)
    left = mask & ~whole
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        copy_part(context, lane, load64(context + ADDRESS + 8 * lane), load64(context + EXTRA + ELEMENT + 8 * lane), size)
    for lane in range(32):
        store64(context + ADDRESS + 8 * lane, load64(context + EXTRA + 8 * lane))
    if mask == 0 or load64(context + FAULT) != 0:
        return 0
    count_wavefronts(context, mask, spec, size)
    return shared_write(context, warp, mask, 4, size // 4)


@helper
def copy_part(context: int, lane: int, at: int, count: int, size: int) -> int:
    """The first `count` bytes of one lane's copy; more than `size` of them, or an address that the interpreter may refuse, gives up."""
    if count <= 0:
        return 0
    entry = find(context, at, at + count)
    if entry == 0 or count > size or at & (count - 1):
        return give_up(context)
    if load64(entry + ENTRY_WRITTEN) != 0 and unwritten(load64(entry + ENTRY_WRITTEN) + at - load64(entry + ENTRY_START), count):
        return give_up(context)
    for n in range(count):
        store8(context + DATA + ELEMENT * (n // 4) + 4 * lane + n % 4, load8(at + n))
    return 0
