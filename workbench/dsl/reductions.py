"""Reductions as text: what a thread keeps of the elements it has seen, how it takes in one more, how two threads' parts become one.

A variance is kept as mean, squares about it, and count (Welford; merged after Chan, Golub and LeVeque), so that it is as accurate as two passes.
"""

from __future__ import annotations

from workbench.dsl.ir import Call
from workbench.dsl.scalars import definitions
from workbench.records import record

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all", "var", "var1", "argmax", "argmin")
ARGS = ("argmax", "argmin")
BASE = {"mean": "sum", "var1": "var", "any": "max", "all": "min"}  # reductions that are kept as another is
COMBINE = {"sum": "{a} + {b}", "mean": "{a} + {b}", "prod": "{a} * {b}", "max": "cute.arch.fmax({a}, {b}, nan=True)", "min": "cute.arch.fmin({a}, {b}, nan=True)"}
START = {"sum": "cutlass.Float32(0.0)", "prod": "cutlass.Float32(1.0)", "max": "-cutlass.Float32.inf", "min": "+cutlass.Float32.inf", "argmax": "-cutlass.Float32.inf", "argmin": "+cutlass.Float32.inf"}
BEFORE = {"argmax": "larger", "argmin": "smaller"}
COMES_FIRST = {
    base: f'''
def {name}(a, b):
    """Whether a is the {which} of both, b not; as in torch, whatever is no number counts as {name} than any."""
    return (a {sign} b) | ((a != a) & (b == b))

''' for base, name, which, sign in (("argmax", "larger", "largest", ">"), ("argmin", "smaller", "smallest", "<"))
}  # fmt: skip
INT = "cutlass.Int32"
FLOAT = "cutlass.Float32"

FROM_CTA = '''
@cute.jit
def from_cta(memory, place: cutlass.Constexpr, rank: cutlass.Constexpr):
    """An element of the shared memory of CTA `rank` of the cluster."""
    kind = "f32" if cutlass.const_expr(memory.element_type is cutlass.Float32) else "s32"
    there = cute.arch.map_dsmem_ptr(memory.iterator + place, rank)
    return cute.arch.inline_ptx("ld.shared::cluster." + kind + " {$w0}, [{$r0}];", write_only_types=[memory.element_type], read_only_args=[there.toint()])
'''


@record
class Reduction:
    """One reduction of an expression over a row: its operation, its argument, and its number in the kernel."""

    call: Call
    number: int

    @property
    def op(self) -> str:
        """sum, max, ..."""
        return self.call.name

    @property
    def base(self) -> str:
        """The reduction whose state this one keeps."""
        return BASE.get(self.op, self.op)

    @property
    def name(self) -> str:
        """What its value is called in the kernel."""
        return f"{self.op}_{self.number}"

    @property
    def state(self) -> tuple[str, ...]:
        """What its parts are called in the kernel."""
        if self.base == "var":
            return tuple(f"{self.name}_{part}" for part in ("center", "squares", "seen"))
        return (f"{self.name}_best", f"{self.name}_place") if self.base in ARGS else (f"{self.name}_part" if self.op in ("mean", "var1", "any", "all") else self.name,)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the parts."""
        return (FLOAT, INT) if self.base in ARGS else (FLOAT,) * len(self.state)

    @property
    def starts(self) -> tuple[str, ...]:
        """What the parts are before any element."""
        return ("cutlass.Float32(0.0)",) * 3 if self.base == "var" else (START[self.base], "cutlass.Int32(0)") if self.base in ARGS else (START[self.base],)

    def absorb(self, element: str, place: str, index: str = "") -> list[str]:
        """Lines that take in one element; `index` follows the name of each part."""
        own = [name + index for name in self.state]
        if self.base == "var":
            center, squares, seen = own
            return [
                f"away = {element} - {center}", f"{seen} = {seen} + 1.0", f"{center} = {center} + away * cute.arch.rcp_approx({seen})",
                f"{squares} = {squares} + away * ({element} - {center})",
            ]  # fmt: skip
        if self.base in ARGS:
            best, at = own
            return [f"better = {BEFORE[self.base]}({element}, {best})", f"{best} = choose(better, {element}, {best})", f"{at} = cutlass.Int32(cutlass.select_(better, {place}, {at}))"]
        if self.op in ("any", "all"):
            element = f"choose({element} != 0.0, cutlass.Float32(1.0), cutlass.Float32(0.0))"
        return [f"{own[0]} = {combined(self.base, own[0], element)}"]

    def value(self, count: str, index: str = "") -> str:
        """Text of the value once all elements are in."""
        own = [name + index for name in self.state]
        return {"mean": f"{own[0]} / {count}", "var": f"{own[1]} / {count}" if len(own) > 1 else "", "var1": f"{own[1]} / ({count} - 1)" if len(own) > 1 else ""}.get(self.op, own[-1])


def combined(base: str, a: str, b: str) -> str:
    """Text of two values as one, for reductions that keep one value."""
    if base in ("max", "min"):
        return f"cute.arch.f{base}({a}, {b}, nan=True)"
    return f"{a} {'*' if base == 'prod' else '+'} {b}"


def merge(base: str, own: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
    """Lines that merge another part into one's own."""
    if base == "var":
        return [
            f"away = {other[0]} - {own[0]}", f"share = {other[2]} * cute.arch.rcp_approx(cute.arch.fmax({own[2]} + {other[2]}, cutlass.Float32(1.0)))",
            f"{own[1]} = {own[1]} + {other[1]} + away * away * {own[2]} * share", f"{own[0]} = {own[0]} + away * share", f"{own[2]} = {own[2]} + {other[2]}",
        ]  # fmt: skip
    if base in ARGS:
        before = BEFORE[base]
        return [
            f"better = {before}({other[0]}, {own[0]}) | (({other[1]} < {own[1]}) & (not {before}({own[0]}, {other[0]})))",
            f"{own[0]} = choose(better, {other[0]}, {own[0]})", f"{own[1]} = cutlass.Int32(cutlass.select_(better, {other[1]}, {own[1]}))",
        ]  # fmt: skip
    return [f"{own[0]} = {combined(base, own[0], other[0])}"]


def parts_of(base: str) -> tuple[str, ...]:
    """Names of the parts in a function that combines threads."""
    return ("center", "squares", "seen") if base == "var" else ("best", "place") if base in ARGS else ("value",)


def across(base: str, warps: int, cluster: int = 1) -> str:
    """A function that combines the threads of a row: a warp by shuffles, warps through shared memory, CTAs of a cluster through each other's."""
    own = parts_of(base)
    other = tuple(f"other_{name}" for name in own)
    result = ", ".join(own)
    memory = [f"{name}_memory" for name in own] if warps > 1 or cluster > 1 else []
    lines = ["for step in cutlass.range_constexpr(5):"]
    lines += [f"    {theirs} = cute.arch.shuffle_sync_bfly({mine}, offset=16 >> step)" for mine, theirs in zip(own, other, strict=True)]
    lines += [f"    {line}" for line in merge(base, own, other)]
    if warps > 1:
        lines += ["if thread % 32 == 0:", *(f"    {place}[thread // 32] = {mine}" for place, mine in zip(memory, own, strict=True)), "cute.arch.sync_threads()"]
        lines += [f"{mine} = {place}[0]" for place, mine in zip(memory, own, strict=True)]
        lines += [f"for warp in cutlass.range_constexpr(1, {warps}):", *(f"    {theirs} = {place}[warp]" for place, theirs in zip(memory, other, strict=True)), *(f"    {line}" for line in merge(base, own, other))]
        lines += ["cute.arch.sync_threads()"]
    if cluster > 1:
        lines += _over_cluster(base, own, other, memory, warps, cluster)
    doc = "Combine over the threads of a row; every thread gets the result."
    parameters = ", ".join((*own, *memory, *(["thread"] if warps > 1 or cluster > 1 else [])))
    return f'\n@cute.jit\ndef across_{base}({parameters}):\n    """{doc}"""\n' + "\n".join(f"    {line}" for line in lines) + f"\n    return {result}\n"


def _over_cluster(base: str, own: tuple[str, ...], other: tuple[str, ...], memory: list[str], warps: int, cluster: int) -> list[str]:
    """Every CTA leaves its part behind the warps' and reads those of all CTAs, in the same order everywhere."""
    lines = ["if thread == 0:", *(f"    {place}[{warps}] = {mine}" for place, mine in zip(memory, own, strict=True)), "cute.arch.cluster_arrive()", "cute.arch.cluster_wait()"]
    for place, mine in zip(memory, own, strict=True):
        lines.append(f"{mine} = from_cta({place}, {warps}, 0)")
    lines.append(f"for rank in cutlass.range_constexpr(1, {cluster}):")
    for place, theirs in zip(memory, other, strict=True):
        lines.append(f"    {theirs} = from_cta({place}, {warps}, rank)")
    return [*lines, *(f"    {line}" for line in merge(base, own, other)), "cute.arch.cluster_arrive()", "cute.arch.cluster_wait()"]


def helpers(found: tuple[Reduction, ...], used: tuple[str, ...]) -> str:
    """Definitions of what the text of the reductions calls, and of the scalar functions in `used`."""
    chosen = ("choose",) if any(item.op in (*ARGS, "any", "all") for item in found) else ()
    return definitions((*chosen, *used)) + "".join(COMES_FIRST[base] for base in dict.fromkeys(item.base for item in found) if base in ARGS)
