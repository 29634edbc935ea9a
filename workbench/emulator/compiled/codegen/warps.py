"""Warp-wide instructions and matrix instructions: the counterparts of isa/warp.py and isa/mma_sync.py."""

from __future__ import annotations

from workbench.emulator.compiled.codegen.arithmetic import allow_only
from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.codegen.emitter import Emitter, vector, vector_items
from workbench.emulator.compiled.codegen.layout import DATA, ELEMENT, EXTRA
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Reg, Vec

LANE = "<" + ", ".join(f"i32 {n}" for n in range(32)) + ">"
MULTIPLIED = {"f16": 0, "bf16": 1, "tf32": 2}
INNER = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8)}  # k of the shapes m16n8k


def shuffle(e: Emitter, ins: Instruction) -> None:
    """shfl.sync."""
    allow_only(ins, "sync", "up", "down", "bfly", "idx", "b32")
    t = vector(32)
    mode = next(mod for mod in ins.mods if mod in ("up", "down", "bfly", "idx"))
    targets = vector_items(ins.operands[0])
    amount = e.assign(f"and {t} {e.get(ins.operands[2], 'u32')}, splat (i32 31)")
    c = e.get(ins.operands[3], "u32")
    segment = e.assign(f"and {t} {e.assign(f'lshr {t} {c}, splat (i32 8)')}, splat (i32 31)")
    limit = e.assign(f"and {t} {c}, splat (i32 31)")
    outside = e.assign(f"xor {t} {segment}, splat (i32 -1)")
    low = e.assign(f"and {t} {LANE}, {segment}")
    top = e.assign(f"or {t} {low}, {e.assign(f'and {t} {limit}, {outside}')}")
    if mode == "idx":
        source = e.assign(f"or {t} {low}, {e.assign(f'and {t} {amount}, {outside}')}")
    else:
        source = e.assign(f"{ {'up': 'sub', 'down': 'add', 'bfly': 'xor'}[mode] } {t} {LANE}, {amount}")
    ok = e.assign(f"icmp {'sge' if mode == 'up' else 'sle'} {t} {source}, {top}")
    source = e.assign(f"and {t} {e.select(t, ok, source, LANE)}, splat (i32 31)")
    operand = ins.operands[1]
    e.store(t, e.merge_lanes(operand.name) if isinstance(operand, Reg) else e.get(operand, "b32"), "context", DATA)
    e.store(t, source, "context", EXTRA + ELEMENT)
    e.helper("permute", "%context_")
    e.put(targets[0], e.load(t, "context", EXTRA), 32)
    if len(targets) > 1:
        e.put_predicate(targets[1], ok)


def vote(e: Emitter, ins: Instruction) -> None:
    """vote.sync and activemask."""
    if ins.opcode == "activemask":
        e.put(ins.operands[0], e.splat("i32", e.assign(f"trunc i64 {e.now[0]} to i32")), 32)
        return
    allow_only(ins, "sync", "all", "any", "uni", "ballot", "pred", "b32")
    mode = ins.mods[1] if ins.mods[0] == "sync" else ins.mods[0]
    flags = e.assign(f"and <32 x i1> {e.predicate(ins.operands[1])}, {e.now[1]}")
    found = e.to_mask(flags)
    if mode == "ballot":
        e.put(ins.operands[0], e.splat("i32", e.assign(f"trunc i64 {found} to i32")), 32)
        return
    every, none = e.assign(f"icmp eq i64 {found}, {e.now[0]}"), e.assign(f"icmp eq i64 {found}, 0")
    result = {
        "all": lambda: every,
        "any": lambda: e.assign(f"xor i1 {none}, true"),
        "uni": lambda: e.assign(f"or i1 {every}, {none}"),
    }[mode]()
    e.put_predicate(ins.operands[0], e.splat("i1", result))


def reduce_sync(e: Emitter, ins: Instruction) -> None:
    """redux.sync on integers."""
    allow_only(ins, "sync", "add", "min", "max", "and", "or", "xor", "u32", "s32", "b32")
    op, kind = ins.mods[1], ins.mods[-1]
    t = vector(32)
    signed = kind == "s32"
    name = op if op not in ("min", "max") else ("s" if signed else "u") + op
    nothing = {"and": -1, "umin": -1, "smin": 2**31 - 1, "smax": -(2**31)}.get(name, 0)
    value = e.select(t, e.now[1], e.get(ins.operands[1], kind), f"splat (i32 {nothing})")
    e.put(ins.operands[0], e.splat("i32", e.call(f"llvm.vector.reduce.{name}.v32i32", "i32", (t, value))), 32)


def match(e: Emitter, ins: Instruction) -> None:
    """match.any.sync."""
    allow_only(ins, "any", "sync", "b32", "b64", "u32", "s32")
    kind = ins.mods[-1]
    if kind == "s32":
        raise Unsupported(ins.text)
    e.store(vector(64), e.resize(e.get(ins.operands[1], kind), int(kind[1:]), 64), "context", DATA)
    e.helper("match_any", "%context_", e.now[0])
    e.put(ins.operands[0], e.load(vector(32), "context", EXTRA), 32)


def elect(e: Emitter, ins: Instruction) -> None:
    """elect.sync."""
    target = ins.operands[0]
    if not isinstance(target, Vec):
        raise Unsupported(ins.text)
    leader = e.splat(
        "i32", e.assign(f"trunc i64 {e.call('llvm.cttz.i64', 'i64', ('i64', e.now[0]), ('i1', 'false'))} to i32")
    )
    e.put(target.items[0], leader, 32)
    e.put_predicate(target.items[1], e.assign(f"icmp eq {vector(32)} {LANE}, {leader}"))


def load_matrix(e: Emitter, ins: Instruction, number: int) -> None:
    """ldmatrix of 8 x 8 tiles."""
    count, trans = _tiles(ins)
    targets = vector_items(ins.operands[0])
    offset = e.set_base(ins.operands[1], "shared")
    e.helper("load_matrix", "%context_", "%warp_", e.now[0], number, count, trans, offset)
    for n, target in enumerate(targets):
        e.put(target, e.load(vector(32), "context", DATA + ELEMENT * n), 32)


def store_matrix(e: Emitter, ins: Instruction, number: int) -> None:
    """stmatrix of 8 x 8 tiles."""
    count, trans = _tiles(ins)
    sources = vector_items(ins.operands[1])
    offset = e.set_base(ins.operands[0], "shared")
    for n, source in enumerate(sources):
        e.store(vector(32), e.get(source, "b32"), "context", EXTRA + ELEMENT * n)
    e.helper("store_matrix", "%context_", "%warp_", e.now[0], number, count, trans, offset)


def _tiles(ins: Instruction) -> tuple[int, int]:
    allow_only(ins, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "cta", "b16")
    return next(int(mod[1:]) for mod in ins.mods if mod in ("x1", "x2", "x4")), int("trans" in ins.mods)


def multiply(e: Emitter, ins: Instruction) -> None:
    """mma.sync.m16n8 with f16, bf16 or tf32 operands."""
    kinds = [mod for mod in ins.mods if mod in ("f16", "bf16", "tf32", "f32")]
    shape = next((mod for mod in ins.mods if mod.startswith("m16n8k")), "")
    allow_only(ins, "sync", "aligned", shape, "row", "col", "f16", "bf16", "tf32", "f32")
    if not shape or len(kinds) != 4 or kinds[1] not in MULTIPLIED or kinds[0] not in ("f32", "f16"):
        raise Unsupported(ins.text)
    k = int(shape.removeprefix("m16n8k"))
    if k not in INNER[kinds[1]] or kinds[3] != kinds[0]:
        raise Unsupported(ins.text)
    for operand, base in zip(ins.operands[1:4], (DATA, EXTRA, EXTRA + 2 * ELEMENT), strict=True):
        for n, item in enumerate(vector_items(operand)):
            e.store(vector(32), e.get(item, "b32"), "context", base + ELEMENT * n)
    e.helper("multiply", "%context_", e.now[0], k, MULTIPLIED[kinds[1]], int(kinds[0] == "f16"))
    for n, item in enumerate(vector_items(ins.operands[0])):
        e.put(item, e.load(vector(32), "context", EXTRA + 2 * ELEMENT + ELEMENT * n), 32)
