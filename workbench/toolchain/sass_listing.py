"""Reads nvdisasm's listing of a module: the instructions of each kernel, and where its labels are."""

from __future__ import annotations

import re
from typing import NamedTuple

from workbench.records import record

_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", re.M)
_LABEL = re.compile(r"(\.L\w+):")
_GOES_TO = re.compile(r"`\((\.L\w+)\)")
_ENDS = re.compile(r"BRA(\.\w+)* `|EXIT$|RET\b|JMP\b")  # without a guard: the next instruction does not follow


class ListedInstruction(NamedTuple):
    """One machine instruction: byte offset in its kernel, text, opcode up to its first dot, and the comments before it
    that name its place in a source file.
    """

    offset: int
    text: str
    opcode: str
    sources: tuple[str, ...]

    @property
    def is_end(self) -> bool:
        """Whether the next instruction never follows."""
        return bool(_ENDS.match(self.text))


@record
class Listing:
    """The instructions of one kernel in order, and the place of the instruction at each label."""

    instructions: tuple[ListedInstruction, ...]
    labels: dict[str, int]

    def targets(self, place: int) -> list[int]:
        """The places that an instruction names: where it may jump, and where threads meet again."""
        names = _GOES_TO.findall(self.instructions[place].text)
        return [self.labels[name] for name in names if name in self.labels]


def parse_opcode(text: str) -> str:
    """`@!P0 IADD3.X R1, ...` -> `IADD3`."""
    words = text.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    return words[0].split(".")[0].rstrip(";") if words else ""


def split_kernels(sass: str) -> dict[str, str]:
    """The text of each kernel in nvdisasm's listing of a module."""
    parts = re.split(r"^//-+ \.text\.(\S+)\s+-+$", sass, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_listing(text: str) -> Listing:
    """The instructions of one kernel's listing, without the padding after its end."""
    found: list[ListedInstruction] = []
    labels: dict[str, int] = {}
    sources: list[str] = []
    for row in text.splitlines():
        if "//## File" in row:
            sources.append(row)
        elif match := _INSTRUCTION.match(row):
            found.append(ListedInstruction(int(match[1], 16), match[2], parse_opcode(match[2]), tuple(sources)))
            sources = []
        elif match := _LABEL.match(row):
            labels[match[1]] = len(found)
    while found and found[-1].opcode in ("NOP", "BRA"):
        found.pop()  # a branch to itself, then NOPs
    return Listing(instructions=tuple(found), labels=labels)
