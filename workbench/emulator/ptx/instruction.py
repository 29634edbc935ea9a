"""One PTX instruction with its form and its registers, and the kernel and module that hold instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.emulator.ptx.instruction_table import Form, find_form
from workbench.emulator.ptx.syntax import FloatBits, Imm, Mem, Name, Operand, address_registers, value_registers


@dataclass(slots=True)
class Instruction:
    """One instruction: `ld.global.v4.b32` has opcode "ld" and modifiers ("global", "v4", "b32").

    The constructor looks up the instruction's `form` in the table, and sets the names of the registers that are read as
    values, read as parts of addresses, and written. The guard is not among them.
    """

    opcode: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str | None
    negated: bool
    line: int | None
    text: str
    target: int = -1  # index of a branch's target, set when the kernel is complete
    file: str = ""  # the file of `line`, "" if the PTX names none
    form: Form = field(init=False)
    values: tuple[str, ...] = field(init=False)
    addresses: tuple[str, ...] = field(init=False)
    writes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.form = form = find_form(self.opcode, self.mods)
        usage, last = form.operands, len(form.operands) - 1
        values: list[str] = []
        addresses: list[str] = []
        writes: list[str] = []
        for n, operand in enumerate(self.operands):
            if isinstance(operand, (Imm, Name, FloatBits)):
                continue
            if isinstance(operand, Mem):
                addresses += address_registers(operand)
                continue
            names = value_registers(operand)
            access = usage[n] if n < last else usage[last]
            if access != "w":
                values += names
            if access != "r":
                writes += names
        self.values, self.addresses, self.writes = tuple(values), tuple(addresses), tuple(writes)

    @property
    def reads(self) -> tuple[str, ...]:
        """Every register that is read, except the guard."""
        return self.values + self.addresses

    @property
    def guards(self) -> tuple[str, ...]:
        """The guard's register, if it has a guard."""
        return (self.guard,) if self.guard else ()


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
    line: int | None = None  # that of its function
    file: str = ""  # the file of `line`


@dataclass(slots=True)
class Module:
    """All kernels of a PTX text, its constant data, and the source file table."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    constants: dict[str, bytes] = field(default_factory=dict)
    dynamic_shared: set[str] = field(default_factory=set)
