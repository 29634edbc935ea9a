"""The table of PTX instructions: one row for each opcode, or for an opcode with certain modifiers.

Input: an opcode and its modifiers. Output: a `Form` with the use of operands, the role, the state space, the class in
the counters, latency and FLOPs. The parser attaches the form to every instruction; no other module has such a list.

Latencies are in cycles of the SM clock and inferred: round numbers close to the results of microbenchmarks of Hopper
(such as Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024), not
copied from a table of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

FLOAT, DOUBLE, INTEGER = 4, 16, 5
SPECIAL, CONVERT, EXCHANGE = 23, 8, 24
SHARED, ATOMIC, SHARED_ATOMIC, MMA = 30, 600, 60, 33

FLOAT_TYPES = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
WIDE_TYPES = ("s64", "u64", "b64")  # 64-bit integers take two issue slots
SPACES = ("global", "shared", "local", "param", "const")
STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))

# Columns:
#   opcodes    the opcodes of the row
#   modifiers  the modifiers that the row needs: runs of neighbours, joined by dots; the first matching row of an
#              opcode counts
#   operands   a letter for each operand, the last one for all further operands: w written, r read, x read and written.
#              Registers of an address are always read.
#   role       the kind of instruction
#   class      its class in the counters: "type" is the float type or int, "{space}" the state space
#   latency    cycles until the result is ready; None: FLOAT, DOUBLE or INTEGER by type
#   flops      FLOPs of one thread for each element of a float type
#   timing     the timeline's rule if a latency is not enough (timing/cta_timeline.py)
#   space      state space of its memory: "*" by modifier; a>b copies from a to b
#   flags      see `Form`
ROWS: tuple[tuple[str, str, str, str, str, int | None, int, str, str, str], ...] = (
    ("add sub",                  "cc", "wr", "arithmetic", "type",         None, 1, "", "", "carry_out"),
    ("mad",                      "cc", "wr", "arithmetic", "type",         None, 2, "", "", "carry_out"),
    ("add sub mul min max",      "", "wr", "arithmetic", "type",         None, 1, "", "", ""),
    ("fma mad",                  "", "wr", "arithmetic", "type",         None, 2, "", "", ""),
    ("addc subc madc",           "cc", "wr", "arithmetic", "int",          None, 0, "", "", "carry_in carry_out"),
    ("addc subc madc",           "", "wr", "arithmetic", "int",          None, 0, "", "", "carry_in"),
    ("neg abs copysign",         "", "wr", "arithmetic", "int",          None, 0, "", "", ""),
    ("mul24 mad24 dp2a dp4a",    "", "wr", "arithmetic", "int",          None, 0, "", "", ""),
    ("div",                      "f64", "wr", "arithmetic", "type",       DOUBLE, 1, "", "", ""),
    ("div",                      "", "wr", "arithmetic", "type",      SPECIAL, 1, "", "", ""),
    ("rem",                      "", "wr", "arithmetic", "int",       SPECIAL, 0, "", "", ""),
    ("ex2 lg2 rcp rsqrt sqrt",   "f64", "wr", "arithmetic", "special function", DOUBLE,  1, "", "", ""),
    ("ex2 lg2 rcp rsqrt sqrt",   "", "wr", "arithmetic", "special function", SPECIAL, 1, "", "", ""),
    ("sin cos tanh",             "", "wr", "arithmetic", "special function", SPECIAL, 1, "", "", ""),
    ("and or xor not cnot lop3", "", "wr", "arithmetic", "int",          None, 0, "", "", ""),
    ("shl shr shf prmt",         "", "wr", "arithmetic", "int",          None, 0, "", "", ""),
    ("popc clz brev bfe bfi bfind", "", "wr", "arithmetic", "int",          None, 0, "", "", ""),
    ("set setp selp isspacep",   "", "wr", "arithmetic", "int",          None, 0, "", "", ""),
    ("mapa",                     "", "wr", "arithmetic", "int",          None, 0, "", "", "sink"),
    ("getctarank",               "", "wr", "arithmetic", "int",          None, 0, "", "", ""),
    ("mov",                      "", "wr", "move", "move",            0, 0, "", "", "free"),
    ("cvta",                     "", "wr", "address", "move",            0, 0, "", "", "free"),
    ("cvt",                      "f64", "wr", "conversion", "conversion", DOUBLE, 0, "", "", ""),
    ("cvt",                      "", "wr", "conversion", "conversion", CONVERT, 0, "", "", ""),
    ("ld",                       "param", "wr", "load", "load {space}",    0, 0, "", "*", "free pinned"),
    ("ld ldu",                   "shared", "wr", "load", "load {space}", SHARED, 0, "", "*", "pinned"),
    ("ld ldu",                   "local", "wr", "load", "load {space}", SHARED, 0, "", "*", "pinned"),
    ("ld ldu",                   "", "wr", "load", "load {space}", SHARED, 0, "load", "*", "pinned"),
    ("st",                       "async", "rr", "store", "store {space}", None, 0, "", "*", "asynchronous sink"),
    ("st",                       "global", "rr", "store", "store {space}", None, 0, "", "*", "sink"),
    ("st",                       "param", "rr", "store", "store {space}", None, 0, "", "*", "sink"),
    ("st",                       "", "rr", "store", "store {space}", None, 0, "", "*", ""),
    ("atom",                     "shared", "wr", "atomic", "atomic {space}", SHARED_ATOMIC, 0, "", "*",
        "atomic pinned sink waits"),
    ("atom",                     "", "wr", "atomic", "atomic {space}", ATOMIC, 0, "", "*",
        "atomic pinned sink waits"),
    ("red",                      "async", "rr", "reduction", "atomic {space}", ATOMIC, 0, "", "*",
        "asynchronous atomic sink waits"),
    ("red",                      "", "rr", "reduction", "atomic {space}", ATOMIC, 0, "", "*", "atomic sink waits"),
    ("multimem",                 "ld_reduce", "wr", "multimem", "int",          None, 0, "", "global", "sink"),
    ("multimem",                 "", "rr", "multimem", "int",          None, 0, "", "global", "sink"),
    ("ldmatrix",                 "", "wr", "matrix_load", "load shared", SHARED, 0, "", "shared", "pinned"),
    ("stmatrix",                 "", "rr", "matrix_store", "store shared",  None, 0, "", "shared", "sink"),
    ("mma",                      "", "wr", "mma", "tensor core",    MMA, 0, "", "", ""),
    ("wgmma",                    "mma_async", "xr", "wgmma", "tensor core",      0, 0, "wgmma", "shared",
        "asynchronous async_proxy waits"),
    ("wgmma",                    "commit_group", "r", "wgmma_group", "tensor core",  0, 0, "commit", "",
        "async_proxy waits"),
    ("wgmma",                    "wait_group", "r", "wgmma_group", "tensor core",    0, 0, "wait", "",
        "async_proxy waits"),
    ("wgmma",                    "", "r", "wgmma_group", "tensor core",      0, 0, "", "", "async_proxy waits"),
    ("cp",                       "bulk.commit_group", "r", "bulk_group", "async copy", 0, 0, "bulk_commit", "",
        "async_proxy sink"),
    ("cp",                       "bulk.wait_group", "r", "bulk_group", "async copy", 0, 0, "bulk_wait", "",
        "async_proxy sink"),
    ("cp",                       "bulk prefetch", "r", "bulk_copy", "async copy",    0, 0, "bulk_store", "global",
        "asynchronous async_proxy sink"),
    ("cp",                       "reduce bulk global.shared", "r", "bulk_copy", "async copy", 0, 0, "bulk_store",
        "shared>global", "asynchronous async_proxy atomic sink"),
    ("cp",                       "bulk global.shared", "r", "bulk_copy", "async copy", 0, 0, "bulk_store",
        "shared>global", "asynchronous async_proxy sink"),
    ("cp",                       "reduce bulk shared.shared", "r", "bulk_copy", "async copy", 0, 0, "bulk_load",
        "shared>shared", "asynchronous async_proxy atomic sink"),
    ("cp",                       "bulk shared.shared", "r", "bulk_copy", "async copy", 0, 0, "bulk_load",
        "shared>shared", "asynchronous async_proxy sink"),
    ("cp",                       "bulk mbarrier", "r", "bulk_copy", "async copy",    0, 0, "bulk_load",
        "global>shared", "asynchronous async_proxy sink"),
    ("cp",                       "bulk", "r", "bulk_copy", "async copy",       0, 0, "bulk_store",
        "global>shared", "asynchronous async_proxy sink"),
    ("cp",                       "commit_group", "r", "copy_group", "async copy",    0, 0, "copy_commit", "", "sink"),
    ("cp",                       "wait_group", "r", "copy_group", "async copy",      0, 0, "copy_wait", "", "sink"),
    ("cp",                       "wait_all", "r", "copy_group", "async copy",       0, 0, "copy_wait", "", "sink"),
    ("cp",                       "mbarrier", "r", "copy_group", "async copy",       0, 0, "copy", "shared",
        "asynchronous sink"),
    ("cp",                       "", "r", "copy", "async copy",       0, 0, "copy", "global>shared",
        "asynchronous sink"),
    ("mbarrier",                 "try_wait", "wr", "mbarrier", "barrier",        None, 0, "", "shared",
        "parks sink waits"),
    ("mbarrier",                 "init", "r", "mbarrier", "barrier",        None, 0, "", "shared", "sink waits"),
    ("mbarrier",                 "inval", "r", "mbarrier", "barrier",        None, 0, "", "shared", "sink waits"),
    ("mbarrier",                 "arrive", "wr", "mbarrier", "barrier",        None, 0, "", "shared", "sink waits"),
    ("mbarrier",                 "expect_tx", "r", "mbarrier", "barrier",        None, 0, "", "shared", "sink waits"),
    ("mbarrier",                 "complete_tx", "r", "mbarrier", "barrier",        None, 0, "", "shared", "sink waits"),
    ("mbarrier",                 "", "wr", "mbarrier", "barrier",        None, 0, "", "shared", "sink waits"),
    ("bar",                      "", "r", "barrier", "barrier",        None, 0, "", "",
        "aligned ends_block sink waits"),
    ("barrier",                  "", "r", "barrier", "barrier",        None, 0, "", "", "ends_block sink waits"),
    ("fence",                    "proxy.tensormap", "r", "proxy_fence", "int",     None, 0, "", "", "waits"),
    ("fence",                    "proxy", "r", "proxy_fence", "int",            None, 0, "", "", "waits"),
    ("fence",                    "mbarrier_init", "r", "proxy_fence", "int",       None, 0, "", "", "waits"),
    ("fence membar",             "", "r", "fence", "int",            None, 0, "", "", "waits"),
    ("tensormap",                "", "r", "tensormap", "int",            None, 0, "", "*", ""),
    ("shfl",                     "", "wr", "warp", "warp",       EXCHANGE, 0, "", "", "pinned other_lanes"),
    ("vote redux match",         "", "wr", "warp", "warp",       EXCHANGE, 0, "", "", ""),
    ("elect",                    "", "wr", "warp", "int",        EXCHANGE, 0, "", "", ""),
    ("activemask",               "", "wr", "warp", "int",            None, 0, "", "", ""),
    ("bra",                      "", "r", "branch", "branch",         None, 0, "", "", "ends_block"),
    ("brx",                      "", "r", "indexed_branch", "int",           None, 0, "", "", "ends_block"),
    ("ret exit",                 "", "r", "exit", "branch",         None, 0, "", "", "ends_block"),
    ("trap",                     "", "r", "trap", "int",            None, 0, "", "", "ends_block"),
    ("call",                     "", "r", "call", "int",            None, 0, "", "", "sink"),
    ("nanosleep",                "", "r", "hint", "int",            None, 0, "", "", ""),
    ("setmaxnreg griddepcontrol", "", "r", "hint", "int",               0, 0, "", "", "free"),
    ("prefetch prefetchu discard", "", "r", "hint", "int",               0, 0, "", "*", "free"),
    ("pragma",                   "", "r", "hint", "int",               0, 0, "", "", "free"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table; the columns are described above `ROWS`."""

    opcodes: tuple[str, ...]
    modifiers: tuple[tuple[str, ...], ...]
    operands: str
    role: str
    counter_class: str
    latency: int | None
    flops: int
    timing: str
    space: str
    flags: frozenset[str]

    def matches(self, mods: tuple[str, ...]) -> bool:
        """Whether `mods` contains every run of modifiers that the row needs."""
        return all(
            any(mods[at : at + len(run)] == run for at in range(len(mods) - len(run) + 1)) for run in self.modifiers
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An opcode with its modifiers: everything about an instruction that does not depend on its operands."""

    opcode: str
    known: bool  # whether the table has a row for it; other opcodes are assumed to write their first operand
    operands: str  # how each operand is used, see `ROWS`
    role: str
    counter_class: str  # class in the counters
    latency: int  # cycles
    issue: int  # issue slots
    flops: int  # FLOPs of one thread
    timing: str
    space: str  # state space of its memory: "generic" if no modifier names it, "" if it accesses none
    float_type: str  # the first float type among the modifiers, "" for none
    packed: bool  # whether a modifier is a packed pair's type
    strong: bool  # other threads see it (PTX ISA, memory consistency model: strong operations)
    orders: bool  # an acquire or a release
    asynchronous: bool  # its effect ends later than the instruction
    async_proxy: bool  # belongs to the asynchronous proxy: bulk copies and wgmma
    atomic: bool  # reads and writes memory atomically
    ends_block: bool  # the last instruction of a basic block
    parks: bool  # lanes wait at it and run it again
    aligned: bool  # needs every thread of the warp
    sink: bool  # an undefined value must not reach it
    pinned: bool  # compilers do not move it across a fence
    waits: bool  # may wait for other threads, or makes them wait
    other_lanes: bool  # reads registers of other lanes, which may be inactive
    carry_in: bool  # reads the carry flag
    carry_out: bool  # writes the carry flag


def _rows_by_opcode() -> dict[str, tuple[Row, ...]]:
    """The rows of each opcode, in the table's order."""
    found: dict[str, tuple[Row, ...]] = {}
    for opcodes, modifiers, operands, role, counter_class, latency, flops, timing, space, flags in ROWS:
        names = tuple(opcodes.split())
        runs = tuple(tuple(run.split(".")) for run in modifiers.split())
        row = Row(names, runs, operands, role, counter_class, latency, flops, timing, space, frozenset(flags.split()))
        for name in names:
            found[name] = (*found.get(name, ()), row)
    return found


TABLE = _rows_by_opcode()
UNKNOWN = Row((), (), "wr", "unknown", "int", None, 0, "", "", frozenset())


def _latency(row: Row, mods: tuple[str, ...], float_type: str) -> int:
    if row.latency is not None:
        return row.latency
    return DOUBLE if "f64" in mods else FLOAT if float_type else INTEGER


def _counter_class(row: Row, float_type: str, space: str) -> str:
    if row.counter_class == "type":
        return float_type or "int"
    return row.counter_class.format(space=space if space in ("global", "shared", "local", "param") else "global")


@lru_cache(maxsize=4096)
def find_form(opcode: str, mods: tuple[str, ...]) -> Form:
    """The form of an opcode with its modifiers (`::` suffixes left out)."""
    row = next((row for row in TABLE.get(opcode, ()) if row.matches(mods)), UNKNOWN)
    float_type = next((mod for mod in mods if mod in FLOAT_TYPES), "")
    space = next((mod for mod in mods if mod in SPACES), "generic") if row.space == "*" else row.space
    packed = any(mod.endswith("x2") for mod in mods)
    free = "free" in row.flags
    wide = not row.timing and any(mod in WIDE_TYPES for mod in mods)
    return Form(
        opcode=opcode,
        known=row is not UNKNOWN,
        operands=row.operands,
        role=row.role,
        counter_class=_counter_class(row, float_type, space),
        latency=_latency(row, mods, float_type),
        issue=0 if free else 2 if wide else 1,
        flops=row.flops * (2 if packed else 1) if float_type else 0,
        timing=row.timing,
        space=space,
        float_type=float_type,
        packed=packed,
        strong=not STRONG.isdisjoint(mods),
        orders=any(mod in ("acquire", "release", "acq_rel") for mod in mods),
        aligned="aligned" in row.flags or "aligned" in mods,
        asynchronous="asynchronous" in row.flags,
        async_proxy="async_proxy" in row.flags,
        atomic="atomic" in row.flags,
        ends_block="ends_block" in row.flags,
        parks="parks" in row.flags,
        sink="sink" in row.flags,
        pinned="pinned" in row.flags,
        waits="waits" in row.flags,
        other_lanes="other_lanes" in row.flags,
        carry_in="carry_in" in row.flags,
        carry_out="carry_out" in row.flags,
    )
