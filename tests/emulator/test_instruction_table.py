"""The table of PTX instructions: it has a row for every form that CuTe DSL emits, and says what the interpreter really
reads and writes.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.counters import Counting
from workbench.emulator.execution.dispatch import FAMILIES
from workbench.emulator.execution.interpreter import Program
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.isa.integers import CARRY
from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.ptx.instruction_table import ROWS, TABLE, find_form
from workbench.emulator.ptx.parser import parse
from workbench.emulator.ptx.syntax import Mem, Reg
from workbench.emulator.sanitizer.uninitialized import UninitializedRegisters
from workbench.emulator.sanitizer.wgmma_registers import WgmmaRegisters

FORMS = Path(__file__).parent / "conformance" / "forms.csv"
LANES, SHARED, DATA = 128, 96 << 10, 1 << 16
UNEXECUTED = ("multimem", "brx")  # rows of the table that no family executes
F32, U32 = 7, 2  # data types of a TMA descriptor


class TracedBatch(Batch):
    """A batch that notes which registers are read and written."""

    def trace(self) -> None:
        """Begin to note."""
        self.seen: set[str] = set()
        self.made: set[str] = set()

    def read(self, name: str, idx: Lanes) -> Value:
        """A register's bits."""
        self.seen.add(name)
        return super().read(name, idx)

    def write(self, name: str, idx: Lanes, value: Value) -> None:
        """Set a register."""
        self.made.add(name)
        super().write(name, idx, value)


def forms() -> list[dict[str, str]]:
    with FORMS.open(newline="") as file:
        return list(csv.DictReader(file))


def kernel_of(example: str) -> Kernel:
    """A kernel that executes one instruction."""
    body = re.sub(r"(bra\S*) \S+$", r"\1 $L_here", example)
    text = f".visible .entry k() {{\n {body};\n $L_here:\n ret;\n}}"
    kernel = parse(text).kernels["k"]
    kernel.local_bytes = 256
    return kernel


def descriptor(ins: Instruction, address: int) -> bytes:
    """A TMA descriptor of as many dimensions as the instruction has coordinates, 4 elements each."""
    rank = max([1, *(len(operand.coordinates) for operand in ins.operands if isinstance(operand, Mem))])
    words = np.zeros(32, dtype=np.uint32)
    bitwise = bool({"and", "or", "xor", "inc", "dec"} & set(ins.mods))
    words[2] = (rank - 1) << 4 | (U32 if bitwise else F32) << 7
    words[3:7] = 4
    words[8:13] = 3
    raw = bytearray(address.to_bytes(8, "little") + words.tobytes()[8:])
    raw[55:60] = bytes([3] * 5)
    if "im2col" in ins.mods:
        raw[52:64] = bytes(12)
    return bytes(raw)


def traced(example: str) -> tuple[Instruction, TracedBatch]:
    """The instruction and the batch that executed it."""
    kernel = kernel_of(example)
    program = Program(kernel)
    program.uninitialized = UninitializedRegisters(replace(kernel, instructions=[]), [0])
    program.uninitialized.steps = [None] * len(kernel.instructions)
    ins = kernel.instructions[0]
    held = np.zeros(DATA + 256, dtype=np.uint8)
    start = held.ctypes.data + -held.ctypes.data % 256
    data = held[start - held.ctypes.data :]
    memory = GlobalMemory()
    memory.register(start, DATA, "data")
    data[:128] = np.frombuffer(descriptor(ins, start + 1024), dtype=np.uint8)
    request = GridRequest(entry="k", grid=(1, 1, 1), block=(LANES, 1, 1), dynamic_shared_bytes=SHARED)
    b = TracedBatch(kernel, request, DeviceLimits(), memory, 0, 1)
    wgmma = WgmmaRegisters(LANES // 32)
    b.attach(
        Counting(program.instructions, enabled=True),
        wgmma,
        params=defaultdict(lambda: bytes(256)),
        symbols=defaultdict(int) if ins.form.space == "const" else {},
        print_room=100,
    )
    b.shared.view(np.int64)[:] = 1000 | 1000 << 20  # every word is an mbarrier that expects 1000 arrivals
    b.shared_written[:] = 1
    b.barriers[:] = 1
    b.cluster_phase[:] = 1  # of the cluster barrier: complete
    wgmma.fence(b, None)
    for name in (*ins.guards, *ins.reads):
        if name.lower().startswith("%p"):
            b.registers[name] = np.bool_(name != ins.guard or not ins.negated)
        elif ins.form.role == "mbarrier" and name in ins.values:
            b.registers[name] = np.uint64(1) if name.startswith("%rd") else np.uint32(1)
    for n, operand in enumerate(ins.operands):
        if isinstance(operand, Mem) and isinstance(operand.base, Reg):
            b.registers[operand.base.name] = base(ins, n, operand, start)
    b.trace()
    with np.errstate(all="ignore"):
        assert program.execute(b, lambda: False)
    return ins, b


def base(ins: Instruction, position: int, operand: Mem, start: int) -> Value:
    """A register that makes a valid address: of shared memory, or of the data."""
    source, _, target = ins.form.space.partition(">")
    space = (target if position == 0 else source if position == 1 else "shared") if target else source
    if ins.form.role == "hint" or space in ("global", "generic", "") or operand.coordinates:
        return np.uint64(start)
    return np.uint32(4096 * position) if space == "shared" else np.uint32(0)


def test_every_form_has_a_row() -> None:
    unknown = [row["form"] for row in forms() if not kernel_of(row["example"]).instructions[0].form.known]
    assert not unknown


def test_every_row_is_executed_and_every_family_has_one() -> None:
    ends = {opcode for opcode in TABLE if find_form(opcode, ()).ends_block}
    assert set(FAMILIES) | ends | set(UNEXECUTED) == set(TABLE)


def test_an_earlier_row_never_hides_a_later_one() -> None:
    for opcode, rows in TABLE.items():
        for n, row in enumerate(rows):
            mods = tuple(mod for run in row.modifiers for mod in run)
            assert not any(earlier.matches(mods) for earlier in rows[:n]), (opcode, mods)
    assert sum(len(rows) for rows in TABLE.values()) >= len(ROWS)


def ignored(ins: Instruction) -> set[str]:
    """Registers that the table says are read, but that change nothing the emulator models."""
    if ins.form.role in ("hint", "proxy_fence"):
        return set(ins.reads)
    found: set[str] = set()
    if "cache_hint" in ins.text:
        found |= set(ins.values[-1:])
    if ins.form.role == "warp":  # the mask of participating threads: those that are active
        found |= set(ins.values[1:])
    if ins.form.role == "bulk_copy" and ins.form.space == "global":  # a prefetch
        found |= set(ins.reads)
    if "try_wait" in ins.mods:  # its time limit
        found |= set(ins.values[1:])
    return found


def test_the_interpreter_reads_and_writes_what_the_table_says() -> None:
    examples = {row["form"]: row["example"] for row in forms() if row["supported"] == "yes"}
    wrong = []
    for example in examples.values():
        ins, b = traced(example)
        writes = {*ins.writes, *((CARRY,) if ins.form.carry_out else ())}
        reads = {*ins.reads, *ins.guards, *((CARRY,) if ins.form.carry_in else ())}
        if b.made != writes or not b.seen <= reads or not reads - b.seen <= ignored(ins):
            wrong.append((example, b.made ^ writes, b.seen - reads, reads - b.seen - ignored(ins)))
    assert not wrong, wrong[:5]
    assert len(examples) > 850
