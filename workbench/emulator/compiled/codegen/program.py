"""A kernel -> LLVM IR: one function per basic block, `void block(context, warp)`, and a table of them called
`blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.emulator.compiled.codegen import arithmetic, convert, integers, memory, warps
from workbench.emulator.compiled.codegen.cfg import Block, Unsupported, assign_slots, lockstep_scope, split_blocks
from workbench.emulator.compiled.codegen.emitter import Emitter
from workbench.emulator.compiled.codegen.layout import BARRIERS, MASK
from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.ptx.syntax import Imm

# instructions: unoptimised code keeps about 300 bytes of each on the stack (inferred), of which a thread has 8 MiB
BLOCK_LIMIT = 10_000


def _arithmetic(e: Emitter, ins: Instruction) -> None:
    (arithmetic.float_arithmetic if ins.form.float_type else integers.int_arithmetic)(e, ins)


def _no_operation(e: Emitter, ins: Instruction) -> None:
    """An instruction without an effect that the emulator models."""


PLAIN: dict[str, Callable[[Emitter, Instruction], None]] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "div", "min", "max", "neg", "abs"), _arithmetic),
    **dict.fromkeys(
        ("fma", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"), arithmetic.float_arithmetic
    ),
    "rem": integers.int_arithmetic,
    **dict.fromkeys(
        ("and", "or", "xor", "not", "shl", "shr", "lop3", "popc", "clz", "brev", "prmt", "bfe", "bfi", "bfind", "cnot"),
        integers.logic,
    ),
    "shf": integers.funnel,
    "setp": arithmetic.compare,
    "set": arithmetic.compare,
    "selp": arithmetic.select,
    "mov": arithmetic.move,
    "cvt": convert.convert,
    "cvta": memory.convert_address,
    "isspacep": memory.space_test,
    "shfl": warps.shuffle,
    "vote": warps.vote,
    "activemask": warps.vote,
    "redux": warps.reduce_sync,
    "match": warps.match,
    "elect": warps.elect,
    "mma": warps.multiply,
    **dict.fromkeys(
        ("membar", "fence", "nanosleep", "griddepcontrol", "prefetch", "prefetchu", "discard", "pragma"), _no_operation
    ),
}
COUNTED: dict[str, Callable[[Emitter, Instruction, int], None]] = {
    "ld": memory.load,
    "ldu": memory.load,
    "st": memory.store,
    "atom": memory.atomic,
    "red": memory.atomic,
    "ldmatrix": warps.load_matrix,
    "stmatrix": warps.store_matrix,
}


@dataclass(frozen=True, slots=True)
class Program:
    """The blocks and the memory layout of a kernel: all facts besides the code that its launches need."""

    kernel: Kernel
    blocks: list[Block]
    slots: dict[str, int]  # offset of each register in a warp's record
    warp_bytes: int
    params: dict[str, int]  # offsets in the parameter buffer
    symbols: dict[str, int]  # positions in the symbol table
    scope: str  # see cfg.lockstep_scope

    @property
    def barriers(self) -> list[bool]:
        """Whether each block ends with a barrier."""
        return [self.kernel.instructions[block.last - 1].form.role == "barrier" for block in self.blocks]


def plan_program(kernel: Kernel, symbols: tuple[str, ...]) -> Program:
    """The program of a kernel; raises `Unsupported` for unknown register types, and for enormous blocks."""
    blocks = split_blocks(kernel)
    longest = max((block.last - block.first for block in blocks), default=0)
    if longest > BLOCK_LIMIT:
        raise Unsupported(f"{longest} instructions with no branch between them")
    slots, size = assign_slots(kernel, blocks)
    params, at = {}, 0
    for name, length, _ in kernel.params:
        params[name], at = at, at + -(-length // 16) * 16
    return Program(
        kernel, blocks, slots, size, params, {name: n for n, name in enumerate(symbols)}, lockstep_scope(kernel)
    )


def translate_program(program: Program, parts: int) -> list[str]:
    """The IR in up to `parts` modules of about the same size, each with a table `blocks` of its functions in order and
    their `count`.

    Raises `Unsupported` with the instruction for an unknown one.
    """
    starts = {block.first: block.number for block in program.blocks}
    functions, needs = [], []
    for block in program.blocks:
        declared: set[str] = set()
        functions.append(
            _function(
                program.kernel,
                block,
                starts,
                Emitter(program.kernel, program.slots, program.symbols, declared, program.params),
            )
        )
        needs.append(declared)
    total, texts, first = sum(map(len, functions)), [], 0
    for part in range(parts):
        last, size = first, 0
        while last < len(functions) and (part == parts - 1 or size < total / parts):
            size, last = size + len(functions[last]), last + 1
        if last > first:
            names = ", ".join(f"ptr @b{n}" for n in range(first, last))
            table = f"@blocks = constant [{last - first} x ptr] [{names}]\n@count = constant i64 {last - first}\n"
            texts.append("\n".join([*sorted(set().union(*needs[first:last])), *functions[first:last], table]))
        first = last
    return texts


def _function(kernel: Kernel, block: Block, starts: dict[int, int], e: Emitter) -> str:
    e.emit("%context_ = ptrtoint ptr %context to i64")
    e.emit("%warp_ = ptrtoint ptr %warp to i64")
    e.emit(f"%place = getelementptr i8, ptr %warp, i64 {MASK}")
    e.emit("%mask = load i64, ptr %place")
    e.emit("%mask_ = trunc i64 %mask to i32")
    e.emit("%lanes = bitcast i32 %mask_ to <32 x i1>")
    last = kernel.instructions[block.last - 1]
    ended = last.form.ends_block
    for number in range(block.first, block.last - ended):
        _instruction(e, kernel.instructions[number], number)
    e.now, e.guarded = ("%mask", "%lanes"), False
    taken = e.to_mask(e.guard_lanes(last)) if ended and last.guard else "%mask"
    e.write_back(block.live_out)
    _end_block(starts, block, e, last if ended else None, taken)
    return (
        f"define internal void @b{block.number}(ptr %context, ptr %warp) {{\n"
        + "\n".join(e.lines)
        + "\n  ret void\n}\n"
    )


def _instruction(e: Emitter, ins: Instruction, number: int) -> None:
    try:
        e.begin(ins, number)
        if ins.opcode in COUNTED:
            COUNTED[ins.opcode](e, ins, number)
        else:
            PLAIN[ins.opcode](e, ins)
    except Unsupported:
        raise Unsupported(ins.text) from None
    except (KeyError, StopIteration, IndexError, ValueError, AttributeError) as error:
        raise Unsupported(ins.text) from error


def _end_block(starts: dict[int, int], block: Block, e: Emitter, ins: Instruction | None, taken: str) -> None:
    """Set where the lanes go on."""
    here = ("%context_", "%warp_", block.number)
    if ins is None:
        e.helper("advance", *here, 0, 0)
    elif ins.form.role == "branch":
        e.helper("advance", *here, taken, starts.get(ins.target, len(starts)))
    elif ins.form.role == "exit":
        e.helper("exit_lanes", *here, taken)
    elif ins.form.role == "barrier":
        _barrier(e, ins, taken, here)
    elif ins.form.role == "trap":
        stop = e.assign(f"icmp ne i64 {taken}, 0")
        e.helper("advance", *here, 0, 0)
        e.emit(f"br i1 {stop}, label %trapped, label %done")
        e.lines.append("trapped:")
        e.helper("give_up", "%context_")
        e.emit("br label %done")
        e.lines.append("done:")
    else:
        raise Unsupported(ins.text)


def _barrier(e: Emitter, ins: Instruction, taken: str, here: tuple[str, str, int]) -> None:
    if "cluster" in ins.mods or "warp" in ins.mods:
        e.helper("advance", *here, 0, 0)
        return
    arithmetic.allow_only(ins, "sync", "arrive", "cta", "aligned")
    number = ins.operands[0] if ins.operands else Imm(0)
    count = ins.operands[1] if len(ins.operands) > 1 else Imm(0)
    if (
        not isinstance(number, Imm)
        or not isinstance(count, Imm)
        or not 0 <= int(number.value) < BARRIERS
        or len(ins.operands) > 2
    ):
        raise Unsupported(ins.text)
    e.helper("park", *here, taken, int(number.value), int(count.value), int("arrive" in ins.mods))
