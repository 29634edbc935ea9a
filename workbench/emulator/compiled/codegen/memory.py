"""Loads, stores, atomics, address conversions, asynchronous copies: the counterparts of isa/loads.py, isa/atomics.py
and isa/cp_async.py. runtime/memory.py does the work.
"""

from __future__ import annotations

from workbench.emulator.compiled.codegen.arithmetic import allow_only
from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.codegen.emitter import Emitter, vector, vector_items
from workbench.emulator.compiled.codegen.layout import ADDRESS, DATA, ELEMENT, EXTRA, PARAMS
from workbench.emulator.compiled.runtime import warp
from workbench.emulator.execution.batch import CONST_WINDOW, LOCAL_WINDOW, SHARED_WINDOW
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.instruction_table import STRONG
from workbench.emulator.ptx.syntax import Mem

SPACES = ("global", "shared", "local", "param", "const")
CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1", "L2", "weak", "cta", "gpu", "sys", "cluster", *STRONG)
KINDS = ("b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW}
OPERATIONS = {
    "add": warp.ADD,
    "min": warp.MIN,
    "max": warp.MAX,
    "and": warp.AND,
    "or": warp.OR,
    "xor": warp.XOR,
    "exch": warp.EXCHANGE,
    "inc": warp.INCREMENT,
    "dec": warp.DECREMENT,
    "cas": warp.SWAP,
}


def _shape(ins: Instruction) -> tuple[str, int, int]:
    """(space, bytes of an element, number of elements)."""
    allow_only(ins, *SPACES, *CACHES, *KINDS, *VECTORS)
    space = next((mod for mod in ins.mods if mod in SPACES), "generic")
    if space in ("const", "generic") or ins.mods[-1] not in KINDS:
        raise Unsupported(ins.text)
    return (
        space,
        (2 if ins.mods[-1] == "bf16" else int(ins.mods[-1][1:]) // 8),
        next((VECTORS[mod] for mod in ins.mods if mod in VECTORS), 1),
    )


def load(e: Emitter, ins: Instruction, number: int) -> None:
    """ld and ldu."""
    space, size, count = _shape(ins)
    targets = vector_items(ins.operands[0])
    source = ins.operands[1]
    if not isinstance(source, Mem) or size * count > 32 or len(targets) != count:
        raise Unsupported(ins.text)
    if space == "param":
        _load_param(e, ins, source, size)
        return
    offset = e.set_base(source, space)
    e.helper(f"access_{space}", "%context_", "%warp_", e.now[0], number, size, count, 0, offset)
    for n, target in enumerate(targets):
        value = e.load(vector(8 * size), "context", DATA + ELEMENT * n)
        signed, wide = ins.mods[-1][0] == "s" and size < 8, 8 * size
        if signed or size == 1:
            wide = 64 if signed else 32  # the register may be wider than the loaded value: it is extended with the sign
            value = e.assign(f"{'sext' if signed else 'zext'} {vector(8 * size)} {value} to {vector(wide)}")
        e.put(target, value, wide)


def _load_param(e: Emitter, ins: Instruction, source: Mem, size: int) -> None:
    targets = vector_items(ins.operands[0])
    if source.base not in e.params or not isinstance(source.base, str):
        raise Unsupported(ins.text)
    length = next(length for name, length, _ in e.kernel.params if name == source.base)
    table = e.load("ptr", "context", PARAMS)
    for n, target in enumerate(targets):
        offset = source.offset + n * size
        if offset < 0 or offset + size > length:
            raise Unsupported(ins.text)
        value = e.assign(
            f"load i{8 * size}, ptr {e.assign(f'getelementptr i8, ptr {table}, i64 {e.params[source.base] + offset}')},"
            " align 1"
        )
        wide = 8 * size
        if ins.mods[-1][0] == "s" and size < 8:
            wide = 64
            value = e.assign(f"sext i{8 * size} {value} to i64")
        e.put(target, e.splat(f"i{wide}", value), wide)


def store(e: Emitter, ins: Instruction, number: int) -> None:
    """st."""
    space, size, count = _shape(ins)
    sources = vector_items(ins.operands[1])
    if space == "param" or size * count > 32 or len(sources) != count:
        raise Unsupported(ins.text)
    offset = e.set_base(ins.operands[0], space)
    for n, source in enumerate(sources):
        e.store(vector(8 * size), e.get(source, f"b{8 * size}"), "context", DATA + ELEMENT * n)
    e.helper(f"access_{space}", "%context_", "%warp_", e.now[0], number, size, count, 1, offset)


def atomic(e: Emitter, ins: Instruction, number: int) -> None:
    """atom and red on 32- and 64-bit integers, and additions of f32 and f64."""
    allow_only(
        ins,
        "global",
        "shared",
        *CACHES,
        *OPERATIONS,
        "b32",
        "u32",
        "s32",
        "f32",
        "b64",
        "u64",
        "s64",
        "f64",
        "noftz",
        "cta",
    )
    op = next(mod for mod in ins.mods if mod in OPERATIONS)
    kind = ins.mods[-1]
    floating = kind[0] == "f"
    if kind not in KINDS or (floating and op not in ("add", "exch")) or (op in ("inc", "dec") and kind != "u32"):
        raise Unsupported(ins.text)
    size = int(kind[1:]) // 8
    operands = ins.operands if ins.form.role == "reduction" else ins.operands[1:]
    space = next(mod for mod in ins.mods if mod in ("shared", "global"))
    e.store(vector(64), e.address(operands[0], space), "context", ADDRESS)
    e.store(vector(8 * size), e.get(operands[1], kind), "context", warp.OLD)
    if op == "cas":
        e.store(vector(8 * size), e.get(operands[2], kind), "context", warp.NEW)
    number_class = warp.FLOAT if floating else warp.SIGNED if kind[0] == "s" else warp.UNSIGNED
    e.helper(
        "atomic",
        "%context_",
        "%warp_",
        e.now[0],
        number,
        ("global", "shared").index(space),
        OPERATIONS[op],
        size,
        number_class,
    )
    if ins.form.role == "atomic":
        e.put(ins.operands[0], e.load(vector(8 * size), "context", EXTRA), 8 * size)


def convert_address(e: Emitter, ins: Instruction) -> None:
    """cvta."""
    allow_only(ins, "to", "shared", "local", "global", "const", "param", "u64")
    space = next(mod for mod in ins.mods if mod in SPACES)
    value = e.get(ins.operands[1], "u64")
    result = e.assign(
        f"{'sub' if 'to' in ins.mods else 'add'} {vector(64)} {value}, splat (i64 {WINDOWS.get(space, 0)})"
    )
    e.put(ins.operands[0], result, 64)


def space_test(e: Emitter, ins: Instruction) -> None:
    """isspacep."""
    allow_only(ins, "shared", "local", "global", "const")
    top = e.assign(f"lshr {vector(64)} {e.get(ins.operands[1], 'u64')}, splat (i64 56)")
    e.put_predicate(
        ins.operands[0], e.assign(f"icmp eq {vector(64)} {top}, splat (i64 {WINDOWS.get(ins.mods[0], 0) >> 56})")
    )
