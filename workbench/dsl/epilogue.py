"""Epilogues of a product: what happens to each sum in float32 before it is stored, and a reduction of rows or columns that may close them.

Element by element: bias(c), residual(r), add, sub, mul, div, max, min with a number or a tensor, scale(s), clamp(lo, hi), any function of `pieces`.
A tensor is (m, n), or with along=n or along=m a vector. Then at most one of rowsum, rowmean, rowmax, rowmin, colsum, colmean, colmax, colmin, of
which alone is the result; calls after it work on what it gives. cast(f16 | bf16 | f32) comes last.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from workbench.dsl.expecting import called, expect
from workbench.dsl.ir import Call, Rejection, Stage, setting
from workbench.dsl.operation import COMBINERS, READERS, of_epilogues, role_of
from workbench.dsl.scalars import FUNCTIONS, INFIX, UNARY, arity, spelt
from workbench.records import record

REDUCTIONS = tuple(side + how for side, how in itertools.product(("row", "col"), ("sum", "mean", "max", "min")))
NAMES = (*READERS, "scale", "clamp", *COMBINERS, *UNARY, *REDUCTIONS, "cast")
CASTS = {"f16": ("cutlass.Float16", "torch.float16", 2), "bf16": ("cutlass.BFloat16", "torch.bfloat16", 2), "f32": ("cutlass.Float32", "torch.float32", 4)}  # in CuTe DSL's and in torch's words, bytes
START = {"sum": "cutlass.Float32(0.0)", "mean": "cutlass.Float32(0.0)", "max": "cutlass.Float32(-cutlass.Float32.inf)", "min": "cutlass.Float32(cutlass.Float32.inf)"}


@record
class Read:
    """A tensor that an epilogue reads: what the kernel calls it, and whether it goes along n, along m, or is (m, n): both."""

    role: str
    along: str


@record
class Chain:
    """The epilogues of a stage in order: element by element, then a reduction, then what is done to its results."""

    calls: tuple[tuple[Call, Read | None], ...] = ()
    reduction: Call | None = None
    after: tuple[tuple[Call, Read | None], ...] = ()
    cast: str | None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        """The tensors."""
        return tuple(read for _, read in self.calls if read is not None)

    @property
    def parameters(self) -> str:
        """The tensors as parameters of a function, each with a comma after it."""
        return "".join(f"{read.role}: cute.Tensor, " for read in self.reads)

    @property
    def arguments(self) -> str:
        """The tensors as arguments of a function, each with a comma after it."""
        return "".join(f"{read.role}, " for read in self.reads)

    def dtype(self, otherwise: str) -> str:
        """torch's word for the result's type: that of the cast, if there is one."""
        return CASTS[self.cast][1] if self.cast else otherwise

    @property
    def by_rows(self) -> bool:
        """Whether rows are reduced, not columns."""
        return self.reduction is not None and self.reduction.name.startswith("row")

    @property
    def how(self) -> str:
        """sum, mean, max or min."""
        return self.reduction.name[3:] if self.reduction is not None else ""

    @property
    def keepdim(self) -> bool:
        """Whether the reduced extent stays, as 1."""
        return self.reduction is not None and bool(dict(self.reduction.named).get("keepdim", 0))


def chain_of(stage: Stage) -> Chain:
    """The epilogues of a checked stage."""
    calls: list[tuple[Call, Read | None]] = []
    after: list[tuple[Call, Read | None]] = []
    reduction, cast = None, None
    for index, call in enumerate(stage.epilogues):
        role = role_of(stage, index)
        if call.name in REDUCTIONS:
            reduction = call
        elif call.name == "cast":
            cast = str(call.positional[0])
        else:
            usual = "n" if call.name == "bias" else "both"
            item = (call, Read(role=role, along=str(dict(call.named).get("along", usual))) if role else None)
            (calls if reduction is None else after).append(item)
    return Chain(calls=tuple(calls), reduction=reduction, after=tuple(after), cast=cast)


def lines(calls: Iterable[tuple[Call, Read | None]], element: Callable[[Read], str]) -> list[str]:
    """Python statements that take `total` (float32) through the calls; `element` gives the text of a tensor's element."""
    return [_line(call, f"{element(read)}.to(cutlass.Float32)" if read is not None else None) for call, read in calls]


def _line(call: Call, element: str | None) -> str:
    if call.name in ("bias", "residual"):
        return f"total = total + {element}"
    if call.name == "scale":
        return f"total = total * {_number(call)!r}"
    if call.name == "clamp":
        low, high = (float(str(value)) for value in call.positional)
        return f"total = cute.arch.fmin(cute.arch.fmax(total, cutlass.Float32({low!r}), nan=True), cutlass.Float32({high!r}), nan=True)"
    if call.name in COMBINERS:
        by = element or f"cutlass.Float32({_number(call)!r})"
        return f"total = total {INFIX[call.name]} {by}" if call.name in INFIX else f"total = cute.arch.f{call.name}(total, {by}, nan=True)"
    return f"total = {spelt(call.name)}({', '.join(['total', *(repr(float(str(value))) for value in call.positional)])})"


def _number(call: Call) -> float:
    return float(str(call.positional[0]))


def plain(read: Read) -> str:
    """The element of a tensor where a kernel has batch, row and column."""
    return {"n": f"{read.role}[column]", "m": f"{read.role}[row]"}.get(read.along, f"{read.role}[batch, row, column]")


def functions_of(stage: Stage) -> tuple[str, ...]:
    """Names of the scalar functions that the epilogues use."""
    return tuple(dict.fromkeys(call.name for call in stage.epilogues if call.name in FUNCTIONS))


def views(chain: Chain, bound: dict[str, str]) -> list[str]:
    """The kernel's arguments that are read by the epilogues; d is the result; `spread` is defined where one is (m, n)."""
    return [
        f"from_dlpack({bound.get(read.role, read.role)}.detach()).mark_layout_dynamic()" if read.along != "both" else f"from_dlpack(spread({bound.get(read.role, read.role)}, d.shape)).mark_layout_dynamic(leading_dim=2)"
        for read in chain.reads
    ]


def keys(chain: Chain, bound: dict[str, str]) -> str:
    """What a compiled kernel depends on beyond its operands: the dtypes of these tensors."""
    return "".join(f"{bound.get(read.role, read.role)}.dtype, " for read in chain.reads)


def expected(chain: Chain, bound: dict[str, str], m: str, n: str, shape: str) -> list[str]:
    """Lines of forward that refuse tensors of other shapes than the epilogues read."""
    wanted = {"n": f"({n},)", "m": f"({m},)"}
    return [expect(called(read.role, bound), bound.get(read.role, read.role), wanted.get(read.along, shape), "EXACT", spread=read.along == "both") for read in chain.reads]


SPREAD = '''
def spread(tensor, shape):
    """A tensor that the epilogue reads, with the product's shape, as (batch, m, n), contiguous along n."""
    view = torch.broadcast_to(tensor.detach(), shape)
    view = view if view.stride(-1) == 1 else view.contiguous()
    return view if view.dim() == 3 else view.unsqueeze(0)

'''


def check(stage: Stage) -> list[Rejection]:
    """Rejections of arguments and of the order."""
    found: list[Rejection] = []
    closed = False
    for index, call in enumerate(stage.epilogues):
        if call.name == "cast" and index != len(stage.epilogues) - 1:
            found.append(Rejection(field="cast", value=_said(call), reason="the result's type, decided when all maths is done", legal="as the last epilogue"))
        if call.name in REDUCTIONS and closed:
            found.append(Rejection(field=call.name, value="", reason="one reduction closes the epilogues", legal="only one; write reduce(...) as a stage after it"))
        if closed and role_of(stage, index) is not None:
            found.append(Rejection(field=call.name, value=_said(call), reason="after a reduction there is one value per row or column", legal="a number, or elementwise(...) as a stage after it"))
        closed = closed or call.name in REDUCTIONS
        reason = _wrong(call)
        if reason is not None:
            found.append(Rejection(field=call.name, value=_said(call), reason=reason[0], legal=reason[1]))
    if closed and setting(stage, "schedule") is None:
        found.append(Rejection(field="epilogue", value=next(call.name for call in stage.epilogues if call.name in REDUCTIONS), reason="only kernels with a schedule reduce in their epilogue", legal="add .schedule(cooperative) and .arch(sm_90a), or write h = gemm(...) |> reduce(h, ...)"))
    elif closed and setting(stage, "splitk") is not None:
        found.append(Rejection(field="splitk", value=str(setting(stage, "splitk")), reason="a part of k is no value to reduce yet", legal="leave it out where the epilogue reduces"))
    return found


def _said(call: Call) -> str:
    return ", ".join([*(str(value) for value in call.positional), *(f"{name}={value}" for name, value in call.named)])


def _wrong(call: Call) -> tuple[str, str] | None:
    """(reason, legal) where a call's arguments are not what it takes."""
    numbers = [value for value in call.positional if isinstance(value, int | float)]
    names = [value for value in call.positional if isinstance(value, str)]
    keywords = dict(call.named)
    count, along = len(call.positional), keywords.pop("along", None)
    vector = call.name == "bias" or (call.name in COMBINERS and bool(names))
    if along is not None and (not vector or along not in ("m", "n")):
        return "which extent a vector goes along", "along=n or along=m, of bias or of a tensor that is added, multiplied, ..."
    if call.name in REDUCTIONS:
        return None if not count and keywords.keys() <= {"keepdim"} and keywords.get("keepdim", 0) in (0, 1) else ("it takes no tensor", "nothing, or keepdim=1")
    if keywords:
        return "it has no such argument", "along=m for a vector along m" if vector else "none by name"
    if call.name in READERS:
        return None if count == len(names) <= 1 else ("the tensor that is added", "its name, or nothing")
    if call.name == "cast":
        return None if count == 1 and names and names[0] in CASTS else ("the type of the result", ", ".join(CASTS))
    if call.name == "clamp":
        return None if count == len(numbers) == 2 and numbers[0] <= numbers[1] else ("the least and the largest value", "two numbers, the smaller one first")
    if call.name == "scale":
        return None if count == len(numbers) == 1 else ("a factor", "one number")
    if call.name in COMBINERS:
        return None if count == 1 and len(numbers) + len(names) == 1 else ("what it is combined with", "one number, or a tensor's name")
    further = arity(call.name)[1] - 1
    return (f"a function of the value and {further or 'nothing'} more", f"at most {further} numbers" if further else "no argument") if count != len(numbers) or count > further else None


__all__ = ["CASTS", "NAMES", "REDUCTIONS", "SPREAD", "START", "Chain", "Read", "chain_of", "check", "expected", "functions_of", "keys", "lines", "of_epilogues", "plain", "views"]
