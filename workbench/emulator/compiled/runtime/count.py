"""Helpers that count memory requests exactly as counters.py defines them, one warp at a time."""

from __future__ import annotations

from workbench.emulator.compiled.codegen.layout import ADDRESS, COUNTING, ROW_BYTES, ROWS, TEMP
from workbench.emulator.compiled.runtime.helper_compiler import (
    fill,
    helper,
    highest_bit,
    load64,
    lowest_bit,
    popcount,
    store64,
)

SECTOR, BANKS, WORD = 32, 32, 4
KEYS = TEMP  # up to 32 sorted keys
TAKEN = TEMP + 256  # words in each bank
WORDS_OF = TEMP + 512  # 32 banks of up to 32 words each, 8 bytes a word


@helper
def count_distinct(context: int, mask: int, shift: int) -> int:
    """The number of different values of the active lanes' addresses without their `shift` low bits."""
    before = -1
    count = 0
    rising = 1
    left = mask
    while left != 0:
        key = load64(context + ADDRESS + 8 * lowest_bit(left)) >> shift
        left &= left - 1
        if key < before:
            rising = 0
            break
        if key != before:
            count += 1
        before = key
    if rising:
        return count
    return count_distinct_sorted(context, mask, shift)


@helper
def count_distinct_sorted(context: int, mask: int, shift: int) -> int:
    """The same for addresses in any order: insertion into a sorted list without repeats."""
    count = 0
    left = mask
    while left != 0:
        key = load64(context + ADDRESS + 8 * lowest_bit(left)) >> shift
        left &= left - 1
        place = count
        while place > 0 and load64(context + KEYS + 8 * place - 8) > key:
            place -= 1
        if place > 0 and load64(context + KEYS + 8 * place - 8) == key:
            continue
        back = count
        while back > place:
            store64(context + KEYS + 8 * back, load64(context + KEYS + 8 * back - 8))
            back -= 1
        store64(context + KEYS + 8 * place, key)
        count += 1
    return count


@helper
def add_row(context: int, spec: int, size: int, requests: int, units: int, ideal: int) -> int:
    """Add to an instruction's memory row."""
    row = load64(context + ROWS) + spec * ROW_BYTES
    store64(row, load64(row) + size)
    store64(row + 8, load64(row + 8) + requests)
    store64(row + 16, load64(row + 16) + units)
    store64(row + 24, load64(row + 24) + ideal)
    return 0


@helper
def is_regular(context: int, mask: int, size: int) -> int:
    """Whether all active lanes have one address, or all 32 lanes have consecutive addresses."""
    first: int = load64(context + ADDRESS + 8 * lowest_bit(mask))
    apart = 0
    unlike = 0
    for lane in range(32):
        at: int = load64(context + ADDRESS + 8 * lane)
        unlike |= at ^ first if mask >> lane & 1 else 0
        apart |= at ^ (first + lane * size)
    return unlike == 0 or (apart == 0 and mask == 0xFFFF_FFFF)


@helper
def count_sectors(context: int, mask: int, spec: int, size: int) -> int:
    """Count one request to global memory: 32-byte sectors, and the fewest that the distinct bytes need."""
    if load64(context + COUNTING) == 0:
        return 0
    if is_regular(context, mask, size):
        first: int = load64(context + ADDRESS + 8 * lowest_bit(mask))
        last: int = load64(context + ADDRESS + 8 * highest_bit(mask))
        bytes_needed = last - first + size
        return add_row(
            context,
            spec,
            popcount(mask) * size,
            1,
            (last >> 5) - (first >> 5) + 1,
            (bytes_needed + SECTOR - 1) // SECTOR,
        )
    pieces = count_distinct(context, mask, lowest_bit(size))
    return add_row(
        context,
        spec,
        popcount(mask) * size,
        1,
        count_distinct(context, mask, 5),
        (pieces * size + SECTOR - 1) // SECTOR,
    )


@helper
def clear_banks(context: int) -> int:
    """Remove all words from the banks."""
    fill(context + TAKEN, 0, 256)
    return 0


@helper
def put_words(context: int, at: int, size: int) -> int:
    """Add the words of one access to the banks, without repeats.

    Returns how many are new.
    """
    fresh = 0
    first = at >> 2
    for n in range(size // WORD if size >= WORD else 1):
        word = first + n
        bank = word & (BANKS - 1)
        taken: int = load64(context + TAKEN + 8 * bank)
        found = 0
        for k in range(taken):
            if load64(context + WORDS_OF + 256 * bank + 8 * k) == word:
                found = 1
                break
        if found == 0:
            store64(context + WORDS_OF + 256 * bank + 8 * taken, word)
            store64(context + TAKEN + 8 * bank, taken + 1)
            fresh += 1
    return fresh


@helper
def worst_bank(context: int) -> int:
    """The largest number of words in one bank."""
    worst = 0
    for bank in range(32):
        taken: int = load64(context + TAKEN + 8 * bank)
        worst = taken if taken > worst else worst
    return worst


@helper
def reads_in_pairs(context: int, mask: int) -> int:
    """Whether, in a whole warp, every lane has the address of its neighbour, or of its neighbour but one."""
    next_differs = 0
    second_differs = 0
    for lane in range(32):
        at: int = load64(context + ADDRESS + 8 * lane)
        next_differs |= at ^ load64(context + ADDRESS + 8 * (lane ^ 1))
        second_differs |= at ^ load64(context + ADDRESS + 8 * (lane ^ 2))
    return mask == 0xFFFF_FFFF and (next_differs == 0 or second_differs == 0)


@helper
def count_wavefronts(context: int, mask: int, spec: int, size: int, write: int) -> int:
    """Count one request to shared memory: 8-byte accesses by half warps, 16-byte ones by quarters, counted along the
    active lanes; see counters.py.
    """
    if load64(context + COUNTING) == 0:
        return 0
    parts = size // WORD if size >= WORD else 1
    if parts > 1 and write == 0 and reads_in_pairs(context, mask):
        parts = parts // 2
    if is_regular(context, mask, size):
        groups = ((popcount(mask) - 1) * parts >> 5) + 1
        return add_row(context, spec, popcount(mask) * size, 1, groups, groups)
    units = 0
    ideal = 0
    fresh = 0
    position = 0
    group = 0
    clear_banks(context)
    left = mask
    while left != 0:
        if position * parts >> 5 != group:
            group = position * parts >> 5
            units += worst_bank(context)
            ideal += (fresh + BANKS - 1) // BANKS
            fresh = 0
            clear_banks(context)
        fresh += put_words(context, load64(context + ADDRESS + 8 * lowest_bit(left)), size)
        left &= left - 1
        position += 1
    units += worst_bank(context)
    ideal += (fresh + BANKS - 1) // BANKS
    return add_row(context, spec, popcount(mask) * size, 1, units, ideal)


@helper
def count_matrix_rows(context: int, spec: int, count: int) -> int:
    """Count ldmatrix and stmatrix: each group of eight rows of 16 bytes is one request."""
    if load64(context + COUNTING) == 0:
        return 0
    for group in range(count):
        fresh = 0
        clear_banks(context)
        for row in range(8):
            fresh += put_words(context, load64(context + ADDRESS + 64 * group + 8 * row), 16)
        add_row(context, spec, 128, 1, worst_bank(context), (fresh + BANKS - 1) // BANKS)
    return 0
