"""Reductions as text: the state of a thread, how it absorbs an element, and how the states of two threads are merged.

The state of a variance is mean, sum of squares about it, and count (Welford; merged after Chan, Golub and LeVeque),
which is as accurate as two passes. Where one thread walks a whole row, the mean is compensated (Kahan): in a row with
long stretches of alike values the roundings of its steps all have one sign.
"""

from __future__ import annotations

from workbench.language.ir import Call
from workbench.records import record

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all", "var", "var1", "argmax", "argmin")
ARGS = ("argmax", "argmin")
BASE = {"mean": "sum", "var1": "var", "any": "max", "all": "min"}  # reductions that are kept as another is
COMBINE = {
    "sum": "{a} + {b}",
    "mean": "{a} + {b}",
    "prod": "{a} * {b}",
    "max": "cute.arch.fmax({a}, {b}, nan=True)",
    "min": "cute.arch.fmin({a}, {b}, nan=True)",
}


@record
class Reduction:
    """One reduction of an expression over a row: its operation, its argument, and its number in the kernel.

    A variance that is `compensated` keeps what the last step of its mean lost.
    """

    call: Call
    number: int
    compensated: bool = False

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
            lost = ("lost",) if self.compensated else ()
            return tuple(f"{self.name}_{part}" for part in (*self.parts, *lost))
        return (
            (f"{self.name}_best", f"{self.name}_place")
            if self.base in ARGS
            else (f"{self.name}_part" if self.op in ("mean", "var1", "any", "all") else self.name,)
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of the parts: f32, i32."""
        return ("f32", "i32") if self.base in ARGS else ("f32",) * len(self.state)

    @property
    def parts(self) -> tuple[str, ...]:
        """What the parts are, in words."""
        return parts_of(self.base)

    def value(self, count: str, index: str = "") -> str:
        """Text of the value once all elements are in."""
        own = [name + index for name in self.state]
        return {
            "mean": f"{own[0]} / {count}",
            "var": f"{own[1]} / {count}" if len(own) > 1 else "",
            "var1": f"{own[1]} / ({count} - 1)" if len(own) > 1 else "",
        }.get(self.op, own[-1])


def parts_of(base: str) -> tuple[str, ...]:
    """Names of the parts in a function that combines threads."""
    return ("center", "squares", "seen") if base == "var" else ("best", "place") if base in ARGS else ("value",)
