"""Chooses the builder that decodes an instruction, one for each family of opcodes.

An instruction that no family knows becomes a fault that names it.
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.emulator.arrays import Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Fn, Unknown
from workbench.emulator.isa import (
    atomics,
    bitwise,
    convert,
    cp_async,
    floats,
    fp8,
    integers,
    loads,
    mma_sync,
    moves,
    vprintf,
    warp,
)
from workbench.emulator.isa.sm90 import async_copies, cluster, im2col, mbarrier, tensormap, tma, wgmma
from workbench.emulator.ptx.instruction import Instruction

MISFITS = (
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    OverflowError,
    ZeroDivisionError,
)


def _arithmetic(ins: Instruction) -> Fn:
    if "cc" in ins.mods:
        return integers.carry(ins)
    return floats.float_arithmetic(ins) if ins.form.float_type else integers.int_arithmetic(ins)


def _convert(ins: Instruction) -> Fn:
    return fp8.convert(ins) if any(m in ("e4m3x2", "e5m2x2") for m in ins.mods) else convert.convert(ins)


def _copy(ins: Instruction) -> Fn:
    if "bulk" in ins.mods:
        im2col_load = "im2col" in ins.mods and "prefetch" not in ins.mods and ins.form.space != "shared>global"
        return im2col.load(ins) if im2col_load else tma.copy(ins)
    return mbarrier.arrive_after_copies(ins) if "mbarrier" in ins.mods[:2] else cp_async.copy_async(ins)


def _fence(ins: Instruction) -> Fn:
    if ins.mods[1:2] == ("tensormap",):
        return tensormap.fence(ins)
    return async_copies.fence(ins) if ins.mods[:2] == ("proxy", "async") else _no_operation(ins)


def _grid_dependency(ins: Instruction) -> Fn:
    """griddepcontrol: only checks of the order of launches depend on it (sanitizer/launch_order.py)."""
    waits = "wait" in ins.mods

    def run(b: Batch, i: Lanes) -> None:
        if b.races is not None and waits:
            b.races.wait_for_launches(b, b.all_lanes(i), ins)
        elif b.races is not None:
            b.races.launch_dependents(b.all_lanes(i), ins)

    return run


def count_nothing(b: Batch, i: Lanes) -> None:
    """Leave registers, memory and counts as they are."""


def _no_operation(ins: Instruction) -> Fn:
    return count_nothing


FAMILIES: dict[str, Callable[[Instruction], Fn]] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "div", "min", "max", "neg", "abs"), _arithmetic),
    **dict.fromkeys(
        ("fma", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"), floats.float_arithmetic
    ),
    "rem": integers.int_arithmetic,
    **dict.fromkeys(("addc", "subc", "madc"), integers.carry),
    **dict.fromkeys(("mul24", "mad24"), integers.product24),
    "dp4a": integers.dot4,
    "dp2a": integers.dot2,
    **dict.fromkeys(
        ("and", "or", "xor", "not", "shl", "shr", "lop3", "popc", "clz", "brev", "prmt", "bfe", "bfi", "bfind", "cnot"),
        bitwise.logic,
    ),
    "shf": bitwise.funnel,
    "setp": moves.compare,
    "set": moves.compare,
    "selp": moves.select,
    "mov": moves.move,
    "cvt": _convert,
    "ld": loads.load,
    "ldu": loads.load,
    "st": loads.store,
    "cvta": loads.convert_address,
    "atom": atomics.atomic,
    "red": atomics.atomic,
    "isspacep": loads.space_test,
    "cp": _copy,
    "shfl": warp.shuffle,
    "vote": warp.vote,
    "activemask": warp.vote,
    "redux": warp.reduce_sync,
    "match": warp.match,
    "elect": warp.elect,
    "call": vprintf.call,
    "ldmatrix": mma_sync.load_matrix,
    "stmatrix": mma_sync.store_matrix,
    "mma": mma_sync.multiply,
    "mbarrier": mbarrier.operation,
    "wgmma": wgmma.operation,
    "mapa": cluster.map_address,
    "getctarank": cluster.cta_rank,
    "fence": _fence,
    "tensormap": tensormap.operation,
    "griddepcontrol": _grid_dependency,
    **dict.fromkeys(
        ("setmaxnreg", "membar", "nanosleep", "prefetch", "prefetchu", "discard", "pragma"),
        _no_operation,
    ),
}


COUNTED: dict[str, Callable[[Instruction], Fn]] = {
    "load": loads.count_access,
    "store": loads.count_access,
    "atomic": atomics.count_access,
    "reduction": atomics.count_access,
    "copy": cp_async.count_copy,
    "matrix_load": mma_sync.count_rows,
    "matrix_store": mma_sync.count_rows,
    "mma": mma_sync.count_product,
    "wgmma": wgmma.count_product,
}


def decode_counted(ins: Instruction) -> Fn:
    """The function that counts an instruction of a sample and leaves registers and memory as they are."""
    return COUNTED.get(ins.form.role, _no_operation)(ins)


def knows(ins: Instruction) -> bool:
    """Whether the machine can execute an instruction. An unknown one is a fault that names it."""
    form = ins.form
    if form.parks:
        return True
    if form.ends_block:
        return form.role != "indexed_branch" and not (form.role == "barrier" and "red" in ins.mods)
    return decode(ins) is not None


def decode(ins: Instruction) -> Fn | None:
    """The function that executes an instruction; None for a form that no family knows."""
    family = FAMILIES.get(ins.opcode)
    try:
        return family(ins) if family else None
    except (Unknown, StopIteration, *MISFITS):
        return None
