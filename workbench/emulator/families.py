"""Which builder decodes an instruction: one for each family of opcodes. What no family knows is a fault that names the instruction."""

from __future__ import annotations

from collections.abc import Callable

from workbench.emulator import (
    atomics,
    bitwise,
    cluster,
    convert,
    copies,
    deferred,
    floats,
    fp8,
    im2col,
    integers,
    loads,
    matrix,
    mbarrier,
    moves,
    printing,
    tensormap,
    tma,
    warp,
    wgmma,
)
from workbench.emulator.operands import Fn, Unknown
from workbench.emulator.ptx import Instruction

FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
MISFITS = (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError, OverflowError, ZeroDivisionError)
ENDS = ("bra", "ret", "exit", "bar", "barrier", "trap", "brx")


def _by_type(ins: Instruction) -> Fn:
    if "cc" in ins.mods:
        return integers.carry(ins)
    return floats.float_arithmetic(ins) if any(m in FLOATS for m in ins.mods) else integers.int_arithmetic(ins)


def _convert(ins: Instruction) -> Fn:
    return fp8.convert(ins) if any(m in ("e4m3x2", "e5m2x2") for m in ins.mods) else convert.convert(ins)


def _copy(ins: Instruction) -> Fn:
    if "bulk" in ins.mods:
        return im2col.load(ins) if "im2col" in ins.mods and "prefetch" not in ins.mods and ".global.shared" not in ins.text else tma.copy(ins)
    return mbarrier.arrive_after_copies(ins) if "mbarrier" in ins.mods[:2] else copies.copy_async(ins)


def _fence(ins: Instruction) -> Fn:
    if ins.mods[1:2] == ("tensormap",):
        return tensormap.fence(ins)
    return deferred.fence(ins) if ins.mods[:2] == ("proxy", "async") else _nothing(ins)


def _nothing(ins: Instruction) -> Fn:
    return lambda b, i: None


FAMILIES: dict[str, Callable[[Instruction], Fn]] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "div", "min", "max", "neg", "abs"), _by_type),
    **dict.fromkeys(("fma", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"), floats.float_arithmetic),
    "rem": integers.int_arithmetic,
    **dict.fromkeys(("addc", "subc", "madc"), integers.carry), **dict.fromkeys(("mul24", "mad24"), integers.product24), "dp4a": integers.dot4, "dp2a": integers.dot2,
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "lop3", "popc", "clz", "brev", "prmt", "bfe", "bfi", "bfind", "cnot"), bitwise.logic),
    "shf": bitwise.funnel, "setp": moves.compare, "set": moves.compare, "selp": moves.select, "mov": moves.move, "cvt": _convert,
    "ld": loads.load, "ldu": loads.load, "st": loads.store, "cvta": loads.convert_address, "atom": atomics.atomic, "red": atomics.atomic, "isspacep": loads.space_test,
    "cp": _copy, "shfl": warp.shuffle, "vote": warp.vote, "activemask": warp.vote, "redux": warp.reduce_sync, "match": warp.match, "elect": warp.elect,
    "call": printing.call, "ldmatrix": matrix.load_matrix, "stmatrix": matrix.store_matrix, "mma": matrix.multiply,
    "mbarrier": mbarrier.operation, "wgmma": wgmma.multiply, "mapa": cluster.map_address, "getctarank": cluster.cta_rank,
    "fence": _fence, "tensormap": tensormap.operation,
    **dict.fromkeys(("setmaxnreg", "membar", "nanosleep", "griddepcontrol", "prefetch", "prefetchu", "discard", "pragma"), _nothing),
}  # fmt: skip


def knows(ins: Instruction) -> bool:
    """Whether the machine can execute an instruction; what it cannot is a fault that names the instruction."""
    if parks(ins):
        return True
    if ins.opcode in ENDS:
        return ins.opcode != "brx" and not (ins.opcode in ("bar", "barrier") and "red" in ins.mods)
    return decode(ins) is not None


def decode(ins: Instruction) -> Fn | None:
    """What executes an instruction, None for a form that no family knows."""
    family = FAMILIES.get(ins.opcode)
    try:
        return family(ins) if family else None
    except (Unknown, StopIteration, *MISFITS):
        return None


def parks(ins: Instruction) -> bool:
    """Whether an instruction waits at an mbarrier."""
    return ins.opcode == "mbarrier" and ins.mods[0] == "try_wait"
