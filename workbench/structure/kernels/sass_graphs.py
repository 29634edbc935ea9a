"""The graph of a SASS kernel's instructions, from nvdisasm's listing.

An instruction's results are the operands that come first. How many registers an operand has is told from widths in the
opcode and the operand (.64, .128, the shape of an MMA's result); where none is named it is one.
"""

from __future__ import annotations

import re

from workbench.errors import UserError
from workbench.structure.graph import Graph
from workbench.structure.kernels.instruction_graphs import CodeNode, instruction_graph
from workbench.toolchain.sass_listing import ListedInstruction, Listing, read_listing, split_kernels

BARRIERS = ("BAR", "MEMBAR", "FENCE", "DEPBAR", "LDGDEPBAR", "SYNCS", "WARPGROUP", "UCGABAR_ARV", "UCGABAR_WAIT")
SPACES = {
    "global": ("LDG", "STG", "LDGSTS", "ATOMG", "REDG", "RED", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP"),
    "shared": ("LDS", "STS", "LDSM", "STSM", "ATOMS", "LDGSTS", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP"),
    "local": ("LDL", "STL"),
}
LOADS = ("LDG", "LDS", "LDSM", "LDL")
COPIES = ("LDGSTS", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP")
NO_RESULT = (
    "ST",
    "RED",
    "BAR",
    "BRA",
    "BRX",
    "EXIT",
    "RET",
    "MEMBAR",
    "FENCE",
    "DEPBAR",
    "NOP",
    "UTMA",
    "UBLK",
    "LDGSTS",
)
AFTER_PREDICATE = ("SHFL", "ATOM", "VOTE", "MATCH", "SYNCS")  # their first result is a predicate, the second a register
_REGISTER = re.compile(r"\b(U?R)(\d+)(\.64)?")
_PREDICATE = re.compile(r"\bU?P\d\b")
_PLAIN_PREDICATE = re.compile(r"U?P[0-9T]$")
_SHAPE = re.compile(r"\.(\d+)x(\d+)x\d+")


def sass_graph(text: str, name: str = "") -> Graph:
    """The graph of a kernel of nvdisasm's listing, by default of its longest; nodes and edges are as those of PTX.

    Raises `UserError` for a text in which there is no kernel of this name.
    """
    kernels = {kernel: read_listing(part) for kernel, part in split_kernels(text).items()}
    chosen = kernels.get(name) if name else max(kernels.values(), key=lambda one: len(one.instructions), default=None)
    if chosen is None or not chosen.instructions:
        raise UserError(f"the listing has no kernel {name}; it has {', '.join(kernels) or 'none'}")
    return listing_graph(chosen)


def listing_graph(listing: Listing) -> Graph:
    """The graph of a kernel's listing (see `instruction_graph`). Kinds are such as LDG.128, HMMA, BAR."""
    return instruction_graph([_read(listing, place) for place in range(len(listing.instructions))])


def _read(listing: Listing, place: int) -> CodeNode:
    one = listing.instructions[place]
    guard, _, rest = one.text.partition(" ") if one.text.startswith("@") else ("", "", one.text)
    opcode, _, operands = rest.partition(" ")
    parts = [part.strip() for part in operands.split(",")]
    results = 0 if one.opcode.startswith(NO_RESULT) else _count_results(one.opcode, parts)
    writes = [name for part in parts[:results] for name in _list_registers(part, _width(opcode, result=True))]
    reads = [name for part in parts[results:] for name in _list_registers(part, _width(opcode, result=False))]
    jumps = [*listing.targets(place), -1] if one.opcode in ("BRA", "BRX", "JMP") else [-1]
    return CodeNode(
        kind=_describe(one, opcode),
        text=one.text,
        reads=tuple(dict.fromkeys((*_PREDICATE.findall(guard), *reads))),
        writes=tuple(dict.fromkeys(writes)),
        target=jumps[0],
        ends=one.opcode in ("BRA", "BRX", "JMP", "EXIT", "RET"),
        guarded=bool(guard),
        access="load" if one.opcode in LOADS else "copy" if one.opcode in COPIES else "store",
        spaces=tuple(space for space, opcodes in SPACES.items() if one.opcode in opcodes),
        barrier=one.opcode in BARRIERS,
    )


def _describe(one: ListedInstruction, opcode: str) -> str:
    """The opcode, with the width of an access of more than a word."""
    return one.opcode + "".join(f".{width}" for width in ("64", "128") if f".{width}" in opcode)


def _count_results(opcode: str, parts: list[str]) -> int:
    """How many of the operands are results: the first, and predicates that follow at once."""
    if not _PLAIN_PREDICATE.match(parts[0]):
        count = 1
    else:
        count = 2 if opcode.startswith(AFTER_PREDICATE) else 1
    while count < len(parts) - 1 and _PLAIN_PREDICATE.match(parts[count]):
        count += 1
    return count


def _width(opcode: str, *, result: bool) -> int:
    """Registers of an operand, as far as the opcode tells."""
    if "MMA" in opcode:
        shape = _SHAPE.search(opcode)
        if not result:
            return 1
        return max(int(shape[2]) // 2, 1) if shape and opcode.startswith("HGMMA") else 4 if "F32" in opcode else 2
    if ".128" in opcode:
        return 4
    if opcode.startswith("LDSM"):
        return 4 if opcode.endswith(".4") else 2 if opcode.endswith(".2") else 1
    is_double = opcode.startswith(("DADD", "DMUL", "DFMA"))
    return 2 if ".64" in opcode or is_double or (result and ".WIDE" in opcode) else 1


def _list_registers(operand: str, width: int) -> list[str]:
    """Registers and predicates of an operand; an address has as many registers as it says, a value `width`."""
    inside = operand.partition("[")[2]
    found = _PREDICATE.findall(operand)
    for file, number, wide in _REGISTER.findall(operand):
        count = 2 if wide else 1 if inside else width
        found += [f"{file}{int(number) + more}" for more in range(count)]
    return found
