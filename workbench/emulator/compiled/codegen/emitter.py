"""LLVM IR text for one block of a kernel: values are vectors over the 32 lanes of a warp, registers are their bits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from workbench.emulator.compiled.codegen import layout
from workbench.emulator.compiled.codegen.cfg import Unsupported, width
from workbench.emulator.execution.operands import TYPES, getter
from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.ptx.syntax import FloatBits, Imm, Mem, Name, Reg, Vec

FLOAT_OF = {16: "half", 32: "float", 64: "double"}
EXPORTED = (
    "advance",
    "exit_lanes",
    "park",
    "give_up",
    "access_global",
    "access_shared",
    "access_local",
    "permute",
    "match_any",
    "approximate",
    "divide64",
    "fma64",
    "atomic",
    "load_matrix",
    "store_matrix",
    "multiply",
)
FIELDS = {
    "%ctaid.x": ("warp", layout.CTAID_X),
    "%ctaid.y": ("warp", layout.CTAID_Y),
    "%ctaid.z": ("warp", layout.CTAID_Z),
    "%smid": ("warp", layout.SMID),
    "%clusterid.x": ("warp", layout.CTAID_X),
    "%clusterid.y": ("warp", layout.CTAID_Y),
    "%clusterid.z": ("warp", layout.CTAID_Z),
    "%warpid": ("warp", layout.WARP_INDEX),
    "%ntid.x": ("context", layout.BLOCK_X),
    "%ntid.y": ("context", layout.BLOCK_Y),
    "%ntid.z": ("context", layout.BLOCK_Z),
    "%nctaid.x": ("context", layout.GRID_X),
    "%nctaid.y": ("context", layout.GRID_Y),
    "%nctaid.z": ("context", layout.GRID_Z),
    "%nclusterid.x": ("context", layout.GRID_X),
    "%nclusterid.y": ("context", layout.GRID_Y),
    "%nclusterid.z": ("context", layout.GRID_Z),
    "%nwarpid": ("context", layout.CTA_WARPS),
    "%nsmid": ("context", layout.SMS),
    "%dynamic_smem_size": ("context", layout.DYNAMIC_SHARED),
    "%total_smem_size": ("context", layout.SHARED_LIMIT),
}
CONSTANT = {
    "%clock": 0,
    "%clock64": 0,
    "%globaltimer": 0,
    "%gridid": 1,
    "%cluster_ctarank": 0,
    "%cluster_nctarank": 1,
    **{f"%cluster_{n}.{a}": v for n, v in (("ctaid", 0), ("nctaid", 1)) for a in "xyz"},
}
LANE_VALUES = {
    "%laneid": lambda n: n,
    "%lanemask_eq": lambda n: 1 << n,
    "%lanemask_lt": lambda n: (1 << n) - 1,
    "%lanemask_le": lambda n: (2 << n) - 1,
    "%lanemask_gt": lambda n: ~((2 << n) - 1) & layout.FULL,
    "%lanemask_ge": lambda n: ~((1 << n) - 1) & layout.FULL,
}
TID = {"%tid.x": layout.TID_X, "%tid.y": layout.TID_Y, "%tid.z": layout.TID_Z}


def vector_items(operand: object) -> tuple[object, ...]:
    """The items of a vector operand, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def vector(bits: int) -> str:
    """The LLVM type of an integer over all lanes."""
    return f"<32 x i{bits}>"


def floats(kind: str) -> str:
    """The LLVM type of a float ("float", "double", "half") over all lanes."""
    return f"<32 x {kind}>"


class Emitter:
    """Writes the IR of one block.

    `now` is the mask of the current instruction's lanes: (i64 value, <32 x i1> value).
    """

    def __init__(
        self, kernel: Kernel, slots: dict[str, int], symbols: dict[str, int], declared: set[str], params: dict[str, int]
    ) -> None:
        self.kernel, self.slots, self.symbols, self.params = kernel, slots, symbols, params
        self.declared = declared  # the module's declarations of intrinsics
        self.lines: list[str] = []
        self.values: dict[str, str] = {}
        self.written: set[str] = set()
        self.count = 0
        self.now = ("%mask", "%lanes")
        self.guarded = False
        self.based = ""  # the value in BASE

    # ---- text --------------------------------------------------------------------------------------
    def assign(self, line: str) -> str:
        """Write an instruction with a result, and return its name."""
        self.count += 1
        self.lines.append(f"  %x{self.count} = {line}")
        return f"%x{self.count}"

    def emit(self, line: str) -> None:
        """Write an instruction without a result."""
        self.lines.append("  " + line)

    def call(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an LLVM intrinsic; arguments are (type, value)."""
        self.declared.add(f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})")
        return self.assign(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def unary(self, name: str, kind: str, value: str) -> str:
        """Call an intrinsic of one vector, overloaded on its type."""
        return self.call(f"llvm.{name}.v32{_type_suffix(kind)}", kind, (kind, value))

    def binary(self, name: str, kind: str, a: str, b: str) -> str:
        """Call an intrinsic of two vectors of one type."""
        return self.call(f"llvm.{name}.v32{_type_suffix(kind)}", kind, (kind, a), (kind, b))

    def helper(self, name: str, *arguments: object) -> None:
        """Call a helper function through the context's table."""
        place = self.assign(f"getelementptr i8, ptr %context, i64 {8 * EXPORTED.index(name) + layout.HELPER_TABLE}")
        function = self.assign(f"load ptr, ptr {place}")
        self.emit(f"call i64 {function}({', '.join(f'i64 {argument}' for argument in arguments)})")

    def pointer(self, base: str, offset: int) -> str:
        """The address `base` + offset, of "context" or "warp"."""
        return self.assign(f"getelementptr i8, ptr %{base}, i64 {offset}")

    def load(self, kind: str, base: str, offset: int) -> str:
        """Load a value from the context or the warp's record."""
        return self.assign(f"load {kind}, ptr {self.pointer(base, offset)}, align 4")

    def store(self, kind: str, value: str, base: str, offset: int) -> None:
        """Store a value in the context or the warp's record."""
        self.emit(f"store {kind} {value}, ptr {self.pointer(base, offset)}, align 4")

    def splat(self, kind: str, value: str) -> str:
        """A scalar in all lanes."""
        first = self.assign(f"insertelement <32 x {kind}> poison, {kind} {value}, i64 0")
        return self.assign(f"shufflevector <32 x {kind}> {first}, <32 x {kind}> poison, <32 x i32> zeroinitializer")

    def select(self, kind: str, flag: str, a: str, b: str) -> str:
        """a if flag else b, for vectors of one type."""
        return self.assign(f"select <32 x i1> {flag}, {kind} {a}, {kind} {b}")

    def to_mask(self, flags: str) -> str:
        """A vector of flags as an i64 mask."""
        return self.assign(f"zext i32 {self.assign(f'bitcast <32 x i1> {flags} to i32')} to i64")

    def to_flags(self, mask: str) -> str:
        """An i32 mask as a vector of flags."""
        return self.assign(f"bitcast i32 {mask} to <32 x i1>")

    def resize(self, value: str, have: int, want: int) -> str:
        """Zero-extend or truncate."""
        if have == want:
            return value
        return self.assign(f"{'zext' if want > have else 'trunc'} {vector(have)} {value} to {vector(want)}")

    # ---- registers ---------------------------------------------------------------------------------
    def read(self, name: str) -> str:
        """A register's bits, or its flags."""
        if name not in self.values:
            bits = width(self.kernel, name)
            value = self.load("i32" if bits == 1 else vector(bits), "warp", self.slots[name])
            self.values[name] = self.to_flags(value) if bits == 1 else value
        return self.values[name]

    def write(self, name: str, value: str) -> None:
        """Set a register for the current instruction's lanes; other lanes get their values back when the block ends."""
        if self.guarded and (name in self.values or name in self.slots):
            value = self.select(vector(width(self.kernel, name)), self.now[1], value, self.read(name))
        self.values[name] = value
        self.written.add(name)

    def merge_lanes(self, name: str) -> str:
        """A register, with the old values in lanes outside the block's mask."""
        if name not in self.written:
            return self.read(name)
        bits = width(self.kernel, name)
        return self.select(vector(bits), "%lanes", self.values[name], self.load(vector(bits), "warp", self.slots[name]))

    def write_back(self, names: set[str]) -> None:
        """Store the registers that the block has set."""
        for name in sorted(self.written & names):
            bits = width(self.kernel, name)
            if bits == 1:
                old = self.to_flags(self.load("i32", "warp", self.slots[name]))
                flags = self.select("<32 x i1>", "%lanes", self.values[name], old)
                self.store("i32", self.assign(f"bitcast <32 x i1> {flags} to i32"), "warp", self.slots[name])
            else:
                self.store(vector(bits), self.merge_lanes(name), "warp", self.slots[name])

    # ---- operands ----------------------------------------------------------------------------------
    def bits(self, operand: object, size: int) -> str:
        """An operand as integers of `size` bits."""
        if isinstance(operand, Reg):
            have = width(self.kernel, operand.name)
            if have == 1:
                raise Unsupported(f"predicate {operand.name} as a number")
            return self.resize(self.read(operand.name), have, size)
        if isinstance(operand, Name) and operand.name.startswith("%"):
            return self._special(operand.name, size)
        if isinstance(operand, Name):
            return self.symbol(operand.name, size)
        raise Unsupported(f"operand {operand}")

    def get(self, operand: object, kind: str) -> str:
        """An operand as the integer bits of PTX type `kind`; literals are read as the interpreter reads them."""
        size = 16 if kind == "bf16" else 32 if kind in ("f16x2", "bf16x2") else 8 * np.dtype(TYPES[kind]).itemsize
        if isinstance(operand, (Imm, FloatBits)):
            nothing: Any = None
            constant = getter(operand, "b16" if kind == "bf16" else kind)(nothing, nothing)
            return f"splat (i{size} {int(constant.view(f'u{size // 8}'))})"
        return self.bits(operand, size)

    def put(self, operand: object, value: str, have: int) -> None:
        """Write integers of `have` bits to the register of an operand."""
        if isinstance(operand, Name) and operand.name == "_":
            return
        if not isinstance(operand, Reg):
            raise Unsupported(f"target {operand}")
        want = width(self.kernel, operand.name)
        if want == 1:
            raise Unsupported(f"number in predicate {operand.name}")
        self.write(operand.name, self.resize(value, have, want))

    def predicate(self, operand: object) -> str:
        """An operand as flags."""
        if isinstance(operand, tuple):
            return self.assign(f"xor <32 x i1> {self.predicate(operand[1])}, splat (i1 true)")
        if isinstance(operand, Imm):
            return f"splat (i1 {int(bool(operand.value))})"
        if isinstance(operand, Reg) and width(self.kernel, operand.name) == 1:
            return self.read(operand.name)
        if operand == Name("%is_explicit_cluster"):
            return "splat (i1 false)"
        raise Unsupported(f"predicate {operand}")

    def put_predicate(self, operand: object, flags: str) -> None:
        """Write flags to a predicate register."""
        if isinstance(operand, Name) and operand.name == "_":
            return
        if not isinstance(operand, Reg) or width(self.kernel, operand.name) != 1:
            raise Unsupported(f"predicate target {operand}")
        self.write(operand.name, flags)

    def address(self, operand: object, space: str) -> str:
        """The lanes' addresses, 64 bits each."""
        if not isinstance(operand, Mem):
            raise Unsupported(f"address {operand}")
        if operand.base is None:
            return f"splat (i64 {operand.offset})"
        if isinstance(operand.base, Reg):
            base = self.bits(operand.base, 64)
        elif operand.base in self.symbols:
            base = self.symbol(operand.base, 64)
        else:
            table = self.kernel.shared if space == "shared" else self.kernel.local
            return f"splat (i64 {table.get(operand.base, self.kernel.shared_bytes) + operand.offset})"
        return self.assign(f"add {vector(64)} {base}, splat (i64 {operand.offset})") if operand.offset else base

    def set_base(self, operand: object, space: str) -> int:
        """Store the lanes' addresses without their offset in BASE, unless they are there already; returns the
        offset.
        """
        if not isinstance(operand, Mem):
            raise Unsupported(f"address {operand}")
        source = self.read(operand.base.name) if isinstance(operand.base, Reg) else str(operand.base)
        if self.based != source:
            self.store(vector(64), self.address(Mem(operand.base, 0), space), "context", layout.BASE)
            self.based = source
        return operand.offset

    def symbol(self, name: str, size: int) -> str:
        """The address of a module's variable, or the offset of one in shared or local memory."""
        if name in self.symbols:
            table = self.load("ptr", "context", layout.SYMBOLS)
            value = self.assign(
                f"load i64, ptr {self.assign(f'getelementptr i8, ptr {table}, i64 {8 * self.symbols[name]}')}"
            )
            return self.resize(self.splat("i64", value), 64, size)
        kernel = self.kernel
        return f"splat (i{size} {kernel.shared.get(name, kernel.local.get(name, kernel.shared_bytes))})"

    def _special(self, name: str, size: int) -> str:
        if name in TID:
            return self.resize(self.load(vector(32), "warp", TID[name]), 32, size)
        if name in LANE_VALUES:
            numbers = ", ".join(f"i32 {LANE_VALUES[name](lane)}" for lane in range(32))
            return self.resize(self.assign(f"add {vector(32)} <{numbers}>, zeroinitializer"), 32, size)
        if name in FIELDS:
            base, offset = FIELDS[name]
            return self.resize(self.splat("i32", self.load("i32", base, offset)), 32, size)
        if name in CONSTANT:
            return f"splat (i{size} {CONSTANT[name]})"
        raise Unsupported(f"special register {name}")

    # ---- instructions ------------------------------------------------------------------------------
    def begin(self, ins: Instruction, number: int) -> None:
        """Set the mask for an instruction, and count its lanes when it is guarded."""
        self.now, self.guarded = ("%mask", "%lanes"), ins.guard is not None
        if ins.guard is None:
            return
        lanes = self.guard_lanes(ins)
        self.now = (self.to_mask(lanes), lanes)
        row = self.load("ptr", "context", layout.GUARDED)
        count_up(self, self.assign(f"getelementptr i8, ptr {row}, i64 {8 * number}"), self.now[0])

    def guard_lanes(self, ins: Instruction) -> str:
        """The block's lanes whose guard holds."""
        flags = self.predicate(Reg(str(ins.guard)))
        if ins.negated:
            flags = self.assign(f"xor <32 x i1> {flags}, splat (i1 true)")
        return self.assign(f"and <32 x i1> {flags}, %lanes")


def count_up(e: Emitter, place: str, mask: str) -> None:
    """Add the number of lanes in a mask to a counter in memory."""
    lanes = e.call("llvm.ctpop.i64", "i64", ("i64", mask))
    total = e.assign(f"add i64 {e.assign(f'load i64, ptr {place}')}, {lanes}")
    e.emit(f"store i64 {total}, ptr {place}")


def _type_suffix(kind: str) -> str:
    """LLVM's name for a vector's elements in an overloaded intrinsic."""
    inner = re.sub(r"<32 x (\w+)>", r"\1", kind)
    return {"half": "f16", "float": "f32", "double": "f64"}.get(inner, inner)
