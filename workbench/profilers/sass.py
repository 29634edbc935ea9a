"""Profiles the SASS of a version: its static instruction mix as a whole, by source line and by pipe; no counters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

from workbench.emulator.ptx.parser import parse
from workbench.emulator.ptx.source_lines import choose_donors, find_blocks
from workbench.protocols import PLAIN, Profiler, RunContext
from workbench.records import Job, KernelBuild, LineProfile, Outcome, Profile
from workbench.toolchain.sass_listing import Listing, read_listing, split_kernels

CANDIDATE = "candidate.py"  # name of a candidate's file in its job's folder
# Opcode (to its first dot) -> the unit that ncu counts it for, sm_80 to sm_90. From Nsight Compute's list of pipelines
# and the CUDA binary utilities' tables of opcodes. An opcode of none of them is "other".
PIPES = (
    ("tensor", ("HMMA", "IMMA", "BMMA", "HGMMA", "QGMMA", "IGMMA", "DMMA")),
    ("fma", ("FFMA", "FMUL", "FADD", "IMAD", "FSWZADD", "IDP", "IDP4A", "FFMA32I", "FMUL32I", "FADD32I", "IMUL")),
    ("fp16", ("HADD2", "HMUL2", "HFMA2", "HSETP2", "HMNMX2", "HSET2")),
    ("fp64", ("DADD", "DMUL", "DFMA", "DSETP")),
    ("xu", ("MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV")),
    (
        "lsu",
        (
            "LDG",
            "STG",
            "LDS",
            "STS",
            "LDSM",
            "STSM",
            "LD",
            "ST",
            "LDL",
            "STL",
            "LDGSTS",
            "ATOM",
            "ATOMG",
            "ATOMS",
            "RED",
            "REDG",
            "SHFL",
            "LDGDEPBAR",
            "MEMBAR",
            "CCTL",
            "ERRBAR",
            "FENCE",
        ),
    ),
    ("tma", ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "UTMAPF", "UTMACCTL", "UTMACMDFLUSH", "UBLKPF")),
    (
        "uniform",
        (
            "ULDC",
            "UMOV",
            "UIADD3",
            "UIMAD",
            "ULOP3",
            "USHF",
            "ULEA",
            "UISETP",
            "USEL",
            "R2UR",
            "UPLOP3",
            "UPRMT",
            "UFLO",
            "UPOPC",
            "USGXT",
            "VOTEU",
            "S2UR",
            "REDUX",
            "UP2UR",
            "UR2UP",
        ),
    ),
    (
        "branch",
        (
            "BRA",
            "EXIT",
            "BSSY",
            "BSYNC",
            "RET",
            "CALL",
            "BREAK",
            "JMP",
            "BRX",
            "NANOSLEEP",
            "YIELD",
            "WARPSYNC",
            "WARPGROUP",
            "ELECT",
            "ENDCOLLECTIVE",
            "PREEXIT",
            "ACQBULK",
            "BMOV",
            "KILL",
        ),
    ),
    ("barrier", ("BAR", "SYNCS", "DEPBAR", "UCGABAR_ARV", "UCGABAR_WAIT", "ARRIVES", "B2R")),
    (
        "alu",
        (
            "IADD3",
            "LOP3",
            "SHF",
            "LEA",
            "ISETP",
            "IADD",
            "PRMT",
            "SEL",
            "IMNMX",
            "VIADD",
            "VIMNMX",
            "FSETP",
            "FSEL",
            "FMNMX",
            "FCHK",
            "MOV",
            "PLOP3",
            "F2FP",
            "I2FP",
            "FSET",
            "SGXT",
            "BMSK",
            "LDC",
            "S2R",
            "CS2R",
            "P2R",
            "R2P",
            "VOTE",
            "MATCH",
            "I2I",
            "VABSDIFF",
            "IABS",
            "VIADDMNMX",
        ),
    ),
)
_PIPE_OF = {opcode: pipe for pipe, opcodes in PIPES for opcode in opcodes}
_FILE = re.compile(r'//## File "([^"]*)", line (\d+)')


class Instruction(NamedTuple):
    """One machine instruction: byte offset in its kernel, text, opcode up to its first dot, source line if known."""

    offset: int
    text: str
    opcode: str
    line: int | None

    @property
    def pipe(self) -> str:
        """The unit that executes the instruction."""
        return _PIPE_OF.get(self.opcode, "other")


class SassProfiler(Profiler):
    """Profiles from the binary alone."""

    name = "sass"
    reads_emulation = True

    def why_not(self) -> str | None:
        """Needs nvdisasm."""
        from workbench.errors import Unavailable
        from workbench.toolchain.binary import nvdisasm

        try:
            nvdisasm()
        except Unavailable as error:
            return str(error)
        return None

    def profile(self, job: Job, outcome: Outcome, context: RunContext = PLAIN, /) -> Profile:
        """Builds with their instruction mix, and instructions by line and pipe if there is SASS.

        The summary names registers, spills and the most frequent instruction class.
        """
        said = "; ".join(describe(build) for build in outcome.builds) or "nothing was compiled"
        lines = source_lines(outcome.builds, job.candidate.source)
        notes = (
            ()
            if lines or not outcome.builds
            else ("no SASS was kept with this run, so there are no instructions by line",)
        )
        return Profile(
            launches=(),
            builds=outcome.builds,
            occupancy=(),
            limits=(),
            findings=(),
            summary=said,
            by=self.name,
            lines=lines,
            notes=notes,
            device=outcome.device,
        )


def describe(build: KernelBuild) -> str:
    """One kernel in a phrase: registers, spills, and the most frequent class of its instructions."""
    parts = [f"{build.registers} registers" if build.registers is not None else "registers unknown"]
    parts.append(f"spills {build.spill_bytes} bytes per thread" if build.spill_bytes else "no spills")
    if build.mix:
        name, count = max(build.mix, key=lambda item: item[1])
        parts.append(f"{count} of {sum(number for _, number in build.mix)} instructions are {name}")
    return f"{build.kernel}: {', '.join(parts)}"


def parse_instructions(text: str, file: str = CANDIDATE, statements: frozenset[int] | None = None) -> list[Instruction]:
    """The instructions of one kernel's listing (nvdisasm -gi), in order.

    Inlined library code counts for the line of the candidate into which it was inlined. With `statements`, lines
    outside this set are replaced by that of a statement: nvdisasm shows no columns, so that the line of a whole
    function looks like any other, and lines that were counted on in inline assembly do too.
    """
    listing = read_listing(text)
    found: list[Instruction] = []
    line: int | None = None
    for item in listing.instructions:
        for row in item.sources:
            places = [
                int(number)
                for path, number in _FILE.findall(row.replace('inlined at "', '//## File "'))
                if path.rsplit("/", 1)[-1] == file
            ]
            line = places[-1] if places else line
        found.append(Instruction(item.offset, item.text, item.opcode, line))
    return found if statements is None else _fill_lines(found, listing, statements)


def _fill_lines(found: list[Instruction], listing: Listing, statements: frozenset[int]) -> list[Instruction]:
    """The instructions with lines of statements; with none where no instruction has one.

    A label that an instruction names is a place where it may jump, and so is the place where threads meet again.
    """
    has_line = [item.line in statements for item in found]
    if not any(has_line):
        return [item._replace(line=None) for item in found]
    jumps = {n: listing.targets(n) for n in range(len(found)) if listing.targets(n)}
    ends = [n for n, item in enumerate(listing.instructions) if item.is_end]
    donors = choose_donors(has_line, find_blocks(len(found), jumps, ends))
    return [item._replace(line=found[donor].line) for item, donor in zip(found, donors, strict=True)]


def _statement_lines(ptx: str, file: str) -> dict[str, frozenset[int]]:
    """Kernel -> lines of `file` that have instructions in the PTX."""
    return {
        name: frozenset(
            ins.line for ins in kernel.instructions if ins.line is not None and PurePath(ins.file).name == file
        )
        for name, kernel in parse(ptx).kernels.items()
    }


def listings(builds: Iterable[KernelBuild], file: str = CANDIDATE) -> dict[str, list[Instruction]]:
    """Kernel -> instructions, for all builds with SASS."""
    found: dict[str, list[Instruction]] = {}
    statements: dict[str, dict[str, frozenset[int]]] = {}  # by PTX, which kernels of a module share
    for build in builds:
        if build.sass and build.kernel not in found:
            if build.ptx not in statements:
                statements[build.ptx] = _statement_lines(build.ptx, file)
            text = split_kernels(build.sass).get(build.kernel, "")
            found[build.kernel] = parse_instructions(text, file, statements[build.ptx].get(build.kernel))
    return found


def source_lines(builds: Iterable[KernelBuild], source: str, file: str = CANDIDATE) -> tuple[LineProfile, ...]:
    """Machine instructions by source line and pipe, summed over all kernels, in the order of the lines."""
    counted: dict[int, Counter[str]] = {}
    for listing in listings(builds, file).values():
        for item in listing:
            if item.line is not None:
                counted.setdefault(item.line, Counter())[item.pipe] += 1
    texts = source.splitlines()
    return tuple(
        LineProfile(
            line=line,
            text=texts[line - 1].strip() if 0 < line <= len(texts) else "",
            instructions=tuple(pipes.most_common()),
        )
        for line, pipes in sorted(counted.items())
    )
