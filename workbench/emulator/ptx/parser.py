"""Parses PTX text into a module: kernels as flat lists of instructions, with labels resolved and source lines
attached.
"""

from __future__ import annotations

import math
import re

from workbench.emulator.ptx.instruction import Instruction, Kernel, Module
from workbench.emulator.ptx.source_lines import choose_donors, find_blocks
from workbench.emulator.ptx.statements import split_at_commas, split_statements
from workbench.emulator.ptx.syntax import SIZES, FloatBits, Imm, Mem, Name, Not, Operand, Reg, Vec

DSL_PACKAGE = "nvidia_cutlass_dsl"  # in the path of every file of CuTe DSL; its lines are replaced by the caller's
_COMMENT = re.compile(r"/\*.*?\*/", flags=re.S)
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$")
_DOUBLE = re.compile(r"0[dD]([0-9a-fA-F]{16})$")
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)$")
_WORD = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', flags=re.M)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)", flags=re.S)
_NAME = re.compile(r"\.entry\s+([\w$]+)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[^%]*?\s)?([\w$]+)(?:\[(\d+)\])?\s*$")
_THREADS = re.compile(r"\.(?:max|req)ntid\s+([\d, ]+)")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", flags=re.S)
_STORAGE = re.compile(r"\.(shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?")
_DATA = re.compile(r"\.(?:global|const)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)\[(\d+)\]\s*=\s*\{(.*)\}", flags=re.S)
_GUARD = re.compile(r"@(!?)(%[\w$@]+)\s+(.*)", flags=re.S)
_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|smid|nsmid|gridid|clock|clock64|globaltimer|lanemask_\w+"
    r"|n?cluster\w*|is_explicit_cluster|dynamic_smem_size|total_smem_size|envreg\d+|pm\d+|aggr_smem_size"
    r"|current_graph_exec|globaltimer_lo|globaltimer_hi)(\.[xyz])?$"
)


def parse(text: str, source_file: str | None = None) -> Module:
    """The parsed module.

    Source lines are those of `source_file` if it is given, else of any file outside CuTe DSL: inlined code gets the
    line of its caller. Raises ValueError, or another Python error, for text that is not PTX.
    """
    return _Parser(text, source_file).parse()


def _parse_operand(text: str) -> Operand:
    text = text.strip()
    if text.startswith("{"):
        return Vec(tuple(_parse_operand(item) for item in split_at_commas(text[1:-1])))
    if text.startswith("["):
        return _parse_memory(text[1:-1].strip())
    if text.startswith("%"):
        return Name(text) if _SPECIAL.match(text) else Reg(text)
    if match := _FLOAT.match(text):
        return FloatBits(int(match[1], 16), 4)
    if match := _DOUBLE.match(text):
        return FloatBits(int(match[1], 16), 8)
    try:
        return Imm(int(text.rstrip("U"), 0))
    except ValueError:
        return Name(text)


def _parse_argument(text: str) -> Operand:
    """An operand that may be negated, or a pair a|b."""
    bare = text.strip()
    if "|" in bare and bare[0] not in "[{":
        return Vec(tuple(_parse_operand(item) for item in bare.split("|")))
    return Not(_parse_operand(bare[1:])) if bare.startswith("!") else _parse_operand(bare)


def _parse_memory(text: str) -> Mem:
    if "{" in text:
        place, coordinates = split_at_commas(text)[:2]
        found, items = _parse_memory(place.strip()), _parse_operand(coordinates)
        return Mem(found.base, found.offset, items.items if isinstance(items, Vec) else (items,))
    base: Reg | str | None = None
    offset = 0
    for part in (part.strip() for part in re.split(r"(?<!^)\+", text)):
        if part.startswith("%"):
            base = Reg(part)
        elif _INTEGER.match(part):
            offset += int(part, 0)
        else:
            base = part
    return Mem(base, offset)


class _Parser:
    def __init__(self, text: str, source_file: str | None) -> None:
        self.text = _COMMENT.sub(" ", text)
        self.module = Module()
        self.source_file = source_file
        self.kernel: Kernel | None = None
        self.line: int | None = None
        self.file = ""
        self.is_exact = False  # whether the line is that of a statement; without a column it is a whole function's
        self.inexact: dict[str, set[int]] = {}  # kernel -> its instructions without a line of a statement
        self.scopes: list[int] = []
        self.locals: list[
            dict[str, str]
        ] = []  # registers of each scope that are declared without a %, as in inline assembly
        self.scope_count = 0
        for match in _FILE.finditer(self.text):
            self.module.files[int(match[1])] = match[2]

    def parse(self) -> Module:
        for statement in split_statements(self.text):
            self._parse_statement(statement)
        for kernel in self.module.kernels.values():
            _resolve_branches(kernel)
            _fill_lines(kernel, self.inexact.get(kernel.name, set()))
        return self.module

    def _parse_statement(self, text: str) -> None:
        if text.startswith((".loc ", ".loc\t")):
            self._set_location(text)
        elif ".entry" in text:
            self._parse_entry(text)
        elif text == "{":
            self.scope_count += 1
            self.scopes.append(self.scope_count)
            self.locals.append({})
        elif text == "}":
            self.scopes.pop()
            self.locals.pop()
            if not self.scopes:
                self.kernel = None
        elif text.endswith(":") and self.kernel is not None:
            self.kernel.labels[self._scoped_label(text[:-1])] = len(self.kernel.instructions)
        elif text.startswith("."):
            self._parse_directive(text)
        elif self.kernel is not None and text:
            self._parse_instruction(text)

    def _scoped_label(self, name: str) -> str:
        """Labels repeat in nested scopes, so the scope's number becomes part of the name."""
        return f"{name}@{self.scopes[-1]}" if len(self.scopes) > 1 else name

    def _set_location(self, text: str) -> None:
        """Set the source line: that of the innermost function, else of its caller.

        At a place in another file the line remains, but not as that of a statement: the text before may be of another
        branch. Inline assembly has its own scope. In it the compiler counts the lines of the assembly on from the
        source line, and those are not lines of the file.
        """
        match = _LOC.match(text)
        if not match or len(self.scopes) > 1:
            return
        for file, line, column in ((match[1], match[2], match[3]), (match[4], match[5], match[6])):
            name = self.module.files.get(int(file), "") if file else None
            if name is None or not int(line):
                continue
            if name == self.source_file if self.source_file else DSL_PACKAGE not in name:
                self.line, self.file, self.is_exact = int(line), name, int(column) > 0
                if self.kernel is not None and self.kernel.line is None:
                    self.kernel.line, self.kernel.file = self.line, self.file
                return
        self.is_exact = False

    def _parse_entry(self, text: str) -> None:
        match, head = _ENTRY.search(text), _NAME.search(text)
        assert head is not None
        self.kernel = Kernel(head[1])
        self.line, self.file, self.is_exact = None, "", False
        for param in split_at_commas(match[2]) if match else []:
            if found := _PARAMETER.search(param.strip()):
                size = SIZES[found[2]] * int(found[4] or 1)
                self.kernel.params.append((found[3], size, int(found[1] or SIZES[found[2]])))
        if found := _THREADS.search(text):
            self.kernel.max_threads = math.prod(int(extent) for extent in found[1].split(",") if extent.strip())
        self.module.kernels[self.kernel.name] = self.kernel

    def _parse_directive(self, text: str) -> None:
        if found := _REGISTERS.match(text):
            self._declare(found[1], found[2])
        elif found := _STORAGE.search(text):
            self._declare_storage(found, text)
        elif found := _DATA.search(text):
            values = [int(value, 0) for value in found[4].split(",")]
            size = SIZES[found[1]]
            data = b"".join((value & ((1 << 8 * size) - 1)).to_bytes(size, "little") for value in values)
            self.module.constants[found[2]] = data.ljust(size * int(found[3]), b"\0")

    def _declare(self, kind: str, names: str) -> None:
        """Declare registers of one type; those without a % are local to their scope."""
        if self.kernel is None:
            return
        for name in (name.strip() for name in names.split(",")):
            if not name.startswith("%"):
                self.locals[-1][name] = f"%{name}@{self.scopes[-1]}"
            self.kernel.registers[re.sub(r"<\d+>", "", name)] = kind

    def _declare_storage(self, found: re.Match[str], text: str) -> None:
        space, align, kind, name, count = found[1], int(found[2] or 1), found[3], found[4], found[5]
        if text.startswith(".extern"):
            self.module.dynamic_shared.add(name)
            return
        size = SIZES[kind] * int(count or 1)
        kernel = self.kernel
        if kernel is None:
            self.module.constants.setdefault(f"{space}:{name}", bytes(size))
        elif space == "shared":
            start = -(-kernel.shared_bytes // align) * align
            kernel.shared[name], kernel.shared_bytes = start, start + size
        else:
            start = -(-kernel.local_bytes // align) * align
            kernel.local[name], kernel.local_bytes = start, start + size

    def _rename_locals(self, text: str) -> str:
        """Gives registers of inline assembly unique names, since scopes repeat them."""
        known = {name: new for scope in self.locals for name, new in scope.items()}
        return _WORD.sub(lambda found: known.get(found[0], found[0]), text) if known else text

    def _parse_instruction(self, text: str) -> None:
        assert self.kernel is not None
        text = self._rename_locals(" ".join(text.split()))
        guard, negated, body = None, False, text
        if match := _GUARD.match(text):
            negated, guard, body = bool(match[1]), match[2], match[3]
        head, _, rest = body.partition(" ")
        opcode, *suffixes = head.strip().split(".")
        mods = tuple(mod.partition("::")[0] for mod in suffixes)
        operands = tuple(_parse_argument(part) for part in split_at_commas(rest))
        if opcode == "bra":
            label = operands[0].name if isinstance(operands[0], Name) else str(operands[0])
            operands = (Name(self._scoped_label(label)), Name(label))
        ins = Instruction(
            opcode, tuple(mod for mod in mods if mod), operands, guard, negated, self.line, text, file=self.file
        )
        if not self.is_exact:
            self.inexact.setdefault(self.kernel.name, set()).add(len(self.kernel.instructions))
        self.kernel.instructions.append(ins)


def _fill_lines(kernel: Kernel, inexact: set[int]) -> None:
    """Give instructions that have only the line of a whole function that of a statement.

    Those of a kernel without any statement get the line of its function.
    """
    instructions = kernel.instructions
    if not inexact:
        return
    if len(inexact) == len(instructions):
        for ins in instructions:
            ins.line, ins.file = kernel.line, kernel.file
        return
    jumps = {n: (ins.target,) for n, ins in enumerate(instructions) if ins.target >= 0}
    ends = {n for n, ins in enumerate(instructions) if not ins.guard and ins.form.role in ("branch", "exit", "trap")}
    flow = find_blocks(len(instructions), jumps, ends)
    donors = choose_donors([n not in inexact for n in range(len(instructions))], flow)
    for ins, donor in zip(instructions, donors, strict=True):
        ins.line, ins.file = instructions[donor].line, instructions[donor].file


def _resolve_branches(kernel: Kernel) -> None:
    for instruction in kernel.instructions:
        if instruction.opcode == "bra":
            scoped, plain = instruction.operands
            assert isinstance(scoped, Name) and isinstance(plain, Name)
            at = kernel.labels.get(scoped.name, kernel.labels.get(plain.name))
            if at is None:
                raise ValueError(f"no label {plain.name} in {kernel.name}")
            instruction.target = at
