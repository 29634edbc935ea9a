"""Facts about a kernel's machine code that PTX does not have: how its loads wait, and how much of it is spills.

Input: the bytes of a cubin's text section for sm_80 or sm_90. Output: `CodeDepth`s. An instruction has 16 bytes: the
opcode in bits 0 to 11, a branch's offset (sm_80: 48 bits from bit 34 in units of 4 bytes; sm_90: 8 more bits below
these, in bits 16 to 23), and the scheduling bits from 105 on, among them the scoreboard that the instruction sets (110
to 112) and those that it waits for (116 to 121). These places were found by comparison with nvdisasm's listings
(tests/toolchain/test_machine_code.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from workbench.records import CodeDepth

WORD = 16
LOAD_GLOBAL, LOAD_LOCAL, STORE_LOCAL, BRANCH = 0x981, 0x983, 0x387, 0x947
SCOREBOARDS = 6


class Word(NamedTuple):
    """One instruction: opcode, the scoreboard that it sets (6 or 7: none), a mask of those that it waits for, and the
    index of a branch's target or -1.
    """

    opcode: int
    sets: int
    waits: int
    target: int


@dataclass(frozen=True, slots=True)
class Region:
    """The instructions of one loop without those of the loops in it; depth 0 is outside of all loops."""

    words: tuple[Word, ...]
    depth: int


def read_code(text: bytes, arch: str) -> tuple[CodeDepth, ...]:
    """Facts about a kernel's text section by the depth of loops, 0 first; none for another architecture."""
    if not arch.startswith(("sm_80", "sm_90")):
        return ()
    regions = _regions(list(decode(text, arch)))
    found = []
    for depth in range(max((region.depth for region in regions), default=-1) + 1):
        here = [region for region in regions if region.depth == depth]
        opcodes = [word.opcode for region in here for word in region.words]
        found.append(
            CodeDepth(
                instructions=len(opcodes),
                loads=opcodes.count(LOAD_GLOBAL),
                trips=sum(_count_trips(region) for region in here),
                local=opcodes.count(LOAD_LOCAL) + opcodes.count(STORE_LOCAL),
            )
        )
    return tuple(found)


def decode(text: bytes, arch: str) -> Iterator[Word]:
    """The instructions of a text section."""
    for at in range(0, len(text) // WORD * WORD, WORD):
        low, high = struct.unpack_from("<QQ", text, at)
        opcode, target = low & 0xFFF, -1
        if opcode == BRANCH:
            offset = (high & 0x3FFFF) << 30 | low >> 34
            offset -= (offset >> 47) << 48
            if not arch.startswith("sm_80"):
                offset = offset << 8 | low >> 16 & 0xFF
            target = at // WORD + 1 + offset * 4 // WORD
        yield Word(opcode, high >> 46 & 7, high >> 52 & 0x3F, target)


def _regions(words: list[Word]) -> list[Region]:
    """The code by innermost loop. A branch back to an earlier instruction makes a loop."""
    loops = {(word.target, n) for n, word in enumerate(words) if 0 <= word.target < n}
    owner, depth = [-1] * len(words), [0] * len(words)
    for number, (first, last) in enumerate(sorted(loops, key=lambda one: (one[0] - one[1], one))):  # the longest first
        for n in range(first, last + 1):
            owner[n], depth[n] = number, depth[n] + 1
    found: dict[int, list[int]] = {}
    for n, number in enumerate(owner):
        found.setdefault(number, []).append(n)
    return [Region(tuple(words[n] for n in inside), depth[inside[0]]) for inside in found.values()]


def _count_trips(region: Region) -> float:
    """Waits for loads, one after the other, in one pass of a region.

    A loop is gone through three times, since a load may be waited for in the next turn.
    """
    trips, first = 0, 0
    pending: dict[int, int] = {}  # by scoreboard: the trips before its load
    for turn in range(3 if region.depth else 1):
        for word in region.words:
            for board in range(SCOREBOARDS):
                if word.waits >> board & 1 and board in pending:
                    trips = max(trips, pending.pop(board) + 1)
            if word.opcode == LOAD_GLOBAL and word.sets < SCOREBOARDS:
                pending[word.sets] = trips
        if turn == 0:
            first = trips
    return (trips - first) / 2 if region.depth else max(trips, int(bool(pending)))


__all__ = ["Word", "decode", "read_code"]
