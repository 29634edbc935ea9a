"""PTX text -> parsed module: kernels as flat lists of instructions with labels resolved and source lines attached."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
         "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "pred": 1, "f16x2": 4, "bf16x2": 4, "tf32": 4}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reg:
    """A virtual register."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal; `value` is an int, or a float given by its bits as PTX writes it (0f..., 0d...)."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Mem:
    """[base + offset]; base is a register, a symbol or an absolute address. `coordinates`: of a tensor, as in [base, {c0, c1}]."""

    base: Reg | str | None
    offset: int
    coordinates: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True)
class Vec:
    """{a, b, ...}"""

    items: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A label, a symbol or a special register such as %tid.x."""

    name: str


@dataclass(slots=True)
class Instruction:
    """One instruction: `ld.global.v4.b32` has opcode "ld" and modifiers ("global", "v4", "b32")."""

    opcode: str
    mods: tuple[str, ...]
    operands: tuple[object, ...]
    guard: str | None
    negated: bool
    line: int | None
    text: str
    target: int = -1  # of a branch, filled in at the end
    file: str = ""  # that `line` is in, "" where the PTX names none


@dataclass(slots=True)
class Kernel:
    """One entry: parameters (name, size, alignment), instructions, shared and local symbols with their offsets."""

    name: str
    params: list[tuple[str, int, int]] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)  # prefix -> type
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    max_threads: int | None = None


@dataclass(slots=True)
class Module:
    """All kernels of a PTX text, its constant data, and the source file table."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    constants: dict[str, bytes] = field(default_factory=dict)
    dynamic_shared: set[str] = field(default_factory=set)


_TOKEN_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$")
_TOKEN_DOUBLE = re.compile(r"0[dD]([0-9a-fA-F]{16})$")
DSL_PACKAGE = "nvidia_cutlass_dsl"  # in the path of every file of CuTe DSL: such lines are its callers'
_WORD = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")


def _operand(text: str) -> object:
    text = text.strip()
    if text.startswith("{"):
        return Vec(tuple(_operand(item) for item in _split(text[1:-1])))
    if text.startswith("["):
        return _memory(text[1:-1].strip())
    if text.startswith("%"):
        return Name(text) if _special(text) else Reg(text)
    if match := _TOKEN_FLOAT.match(text):
        return Imm(struct.unpack(">f", bytes.fromhex(match[1]))[0]) if False else FloatBits(int(match[1], 16), 4)
    if match := _TOKEN_DOUBLE.match(text):
        return FloatBits(int(match[1], 16), 8)
    try:
        return Imm(int(text.rstrip("U"), 0))
    except ValueError:
        return Name(text)


@dataclass(frozen=True, slots=True)
class FloatBits:
    """A float literal by its bit pattern."""

    bits: int
    size: int


SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|smid|nsmid|gridid|clock|clock64|globaltimer|lanemask_\w+|cluster\w*|is_explicit_cluster|dynamic_smem_size|total_smem_size|envreg\d+|pm\d+|aggr_smem_size|current_graph_exec|globaltimer_lo|globaltimer_hi)(\.[xyz])?$")


def _special(text: str) -> bool:
    return SPECIAL.match(text) is not None


def _memory(text: str) -> Mem:
    if "{" in text:
        place, coordinates = _split(text)[:2]
        found, items = _memory(place.strip()), _operand(coordinates)
        return Mem(found.base, found.offset, items.items if isinstance(items, Vec) else (items,))
    parts = [part.strip() for part in re.split(r"(?<!^)\+", text)]
    base: Reg | str | None = None
    offset = 0
    for part in parts:
        if part.startswith("%"):
            base = Reg(part)
        elif re.match(r"-?(0[xX][0-9a-fA-F]+|\d+)$", part):
            offset += int(part, 0)
        else:
            base = part
    return Mem(base, offset)


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current)
    return parts


class _Parser:
    def __init__(self, text: str, source_file: str | None) -> None:
        self.text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        self.module = Module()
        self.source_file = source_file
        self.kernel: Kernel | None = None
        self.line: int | None = None
        self.file = ""
        self.place: tuple[int, str] | None = None  # the newest line and file that stands for more than the whole function
        self.scopes: list[int] = []
        self.locals: list[dict[str, str]] = []  # of each scope: registers declared without a %, as inline assembly does
        self.scope_count = 0
        for match in re.finditer(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', self.text, flags=re.M):
            self.module.files[int(match[1])] = match[2]

    def parse(self) -> Module:
        for statement in self._statements():
            self._statement(statement)
        for kernel in self.module.kernels.values():
            _resolve(kernel)
        return self.module

    def _statements(self) -> list[str]:
        out: list[str] = []
        current = ""
        depth = 0
        for raw in self.text.split("\n"):
            line = raw.split("//")[0].rstrip() if '"' not in raw else raw
            bare = line.strip()
            if not bare:
                continue
            if bare.startswith((".loc ", ".loc\t", ".file", ".version", ".target", ".address_size", ".section")) and not current.strip():
                out.append(bare)
                continue
            for char in line + "\n":
                if char == "(":
                    depth += 1
                elif char == ")":
                    depth -= 1
                if depth == 0 and char == "{" and not _inside_instruction(current):
                    out += [current.strip(), "{"] if current.strip() else ["{"]
                    current = ""
                elif depth == 0 and char == "}" and "{" not in current:
                    out += [current.strip(), "}"] if current.strip() else ["}"]
                    current = ""
                elif char == ";":
                    out.append(current.strip())
                    current = ""
                elif char == ":" and re.match(r"\s*[$\w]+$", current) and depth == 0:
                    out.append(current.strip() + ":")
                    current = ""
                else:
                    current += char
        if current.strip():
            out.append(current.strip())
        return out

    def _statement(self, text: str) -> None:
        if text.startswith((".loc ", ".loc\t")):
            self._loc(text)
        elif ".entry" in text:
            self._entry(text)
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
            self.kernel.labels[self._label(text[:-1])] = len(self.kernel.instructions)
        elif text.startswith("."):
            self._directive(text)
        elif self.kernel is not None and text:
            self._instruction(text)

    def _label(self, name: str) -> str:
        """Labels inside a nested scope repeat from scope to scope, so the scope's number becomes part of the name."""
        return f"{name}@{self.scopes[-1]}" if len(self.scopes) > 1 else name

    def _loc(self, text: str) -> None:
        """Inside inline assembly, which has a scope of its own, the compiler counts the lines of the assembly on from the source line: those are not lines of the file."""
        match = _LOC.match(text)
        if not match or len(self.scopes) > 1:
            return
        for file, line, column in ((match[1], match[2], match[3]), (match[4], match[5], match[6])):  # the innermost first, then its caller
            name = self.module.files.get(int(file), "") if file else None
            if name is not None and int(line) and (name == self.source_file if self.source_file else DSL_PACKAGE not in name):
                self.line, self.file = int(line), name
                if int(column):
                    self.place = int(line), name
                return

    def _entry(self, text: str) -> None:
        match = re.search(r"\.entry\s+([\w$]+)\s*\((.*?)\)", text, flags=re.S)
        head = re.search(r"\.entry\s+([\w$]+)", text)
        assert head is not None
        self.kernel = Kernel(head[1])
        self.line, self.file = None, ""
        self.place = None
        for param in _split(match[2]) if match else []:
            found = re.search(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[^%]*?\s)?([\w$]+)(?:\[(\d+)\])?\s*$", param.strip())
            if found:
                size = SIZES[found[2]] * int(found[4] or 1)
                self.kernel.params.append((found[3], size, int(found[1] or SIZES[found[2]])))
        if found := re.search(r"\.(?:max|req)ntid\s+([\d, ]+)", text):
            self.kernel.max_threads = int(eval("*".join(found[1].replace(" ", "").strip(",").split(","))))
        self.module.kernels[self.kernel.name] = self.kernel

    def _directive(self, text: str) -> None:
        kernel = self.kernel
        if found := re.match(r"\.reg\s+\.(\w+)\s+(.*)", text, flags=re.S):
            if kernel is not None:
                for name in found[2].split(","):
                    if not name.strip().startswith("%"):
                        self.locals[-1][name.strip()] = f"%{name.strip()}@{self.scopes[-1]}"
                    kernel.registers[re.sub(r"<\d+>", "", name.strip())] = found[1]
        elif found := re.search(r"\.(shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?", text):
            self._storage(found, text)
        elif found := re.search(r"\.(?:global|const)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)\[(\d+)\]\s*=\s*\{(.*)\}", text, flags=re.S):
            values = [int(value, 0) for value in found[4].split(",")]
            size = SIZES[found[1]]
            data = b"".join((value & ((1 << 8 * size) - 1)).to_bytes(size, "little") for value in values)
            self.module.constants[found[2]] = data.ljust(size * int(found[3]), b"\0")

    def _storage(self, found: re.Match[str], text: str) -> None:
        space, align, kind, name, count = found[1], int(found[2] or 1), found[3], found[4], found[5]
        if text.startswith(".extern"):
            self.module.dynamic_shared.add(name)
            return
        size = SIZES[kind] * int(count or 1)
        kernel = self.kernel
        if kernel is None:
            self.module.constants.setdefault(f"{space}:{name}", bytes(size))
            return
        if space == "shared":
            start = -(-kernel.shared_bytes // align) * align
            kernel.shared[name], kernel.shared_bytes = start, start + size
        else:
            start = -(-kernel.local_bytes // align) * align
            kernel.local[name], kernel.local_bytes = start, start + size

    def _renamed(self, text: str) -> str:
        """Registers of inline assembly under names of their own, since scopes repeat them."""
        known = {name: new for scope in self.locals for name, new in scope.items()}
        return _WORD.sub(lambda found: known.get(found[0], found[0]), text) if known else text

    def _instruction(self, text: str) -> None:
        assert self.kernel is not None
        text = self._renamed(" ".join(text.split()))
        guard, negated, body = None, False, text
        if match := re.match(r"@(!?)(%[\w$@]+)\s+(.*)", text, flags=re.S):
            negated, guard, body = bool(match[1]), match[2], match[3]
        head, _, rest = body.partition(" ")
        opcode, *mods = head.strip().split(".")
        operands: list[object] = []
        for part in _split(rest):
            if "|" in part and not part.strip().startswith(("[", "{")):
                operands.append(Vec(tuple(_operand(item) for item in part.split("|"))))
            else:
                operands.append(_operand(part.lstrip("!")) if not part.strip().startswith("!") else ("not", _operand(part.strip()[1:])))
        line, file = self.place if opcode in ("atom", "red") and self.place else (self.line, self.file)  # CuTe DSL gives atomics the function's own line; their addresses have the right one
        if opcode == "bra":
            label = operands[0].name if isinstance(operands[0], Name) else str(operands[0])
            operands = [Name(f"{label}@{self.scopes[-1]}" if len(self.scopes) > 1 else label), Name(label)]
        self.kernel.instructions.append(Instruction(opcode, tuple(m for mod in mods for m in mod.split("::")[:1] if m), tuple(operands), guard, negated, line, text, file=file))


def _inside_instruction(current: str) -> bool:
    """Whether a `{` opens a vector operand or an initialiser, not a scope."""
    bare = current.strip()
    return bool(bare) and (not bare.startswith(".") or "=" in bare) and ".entry" not in bare and ".func" not in bare


def _resolve(kernel: Kernel) -> None:
    for instruction in kernel.instructions:
        if instruction.opcode == "bra":
            scoped, plain = instruction.operands
            assert isinstance(scoped, Name) and isinstance(plain, Name)
            at = kernel.labels.get(scoped.name, kernel.labels.get(plain.name))
            if at is None:
                raise ValueError(f"no label {plain.name} in {kernel.name}")
            instruction.target = at


def parse(text: str, source_file: str | None = None) -> Module:
    """The parsed module; source lines are those of `source_file` when given, else of any file outside CuTe DSL (inlined code maps to its caller)."""
    return _Parser(text, source_file).parse()
