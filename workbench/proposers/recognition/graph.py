"""Traced reference (ATen calls): what all matchers share.

Values are named as in `Facts.graph`: forward's arguments by their names, parameters `param:<name>`, intermediates by
node names.
"""

from __future__ import annotations

from workbench.language import Call, Stage
from workbench.records import Facts, Operation, record

BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "max", "minimum": "min"}
YOURSELF = "write one yourself: %%cutegen edit in a notebook, or a file and cutegen test"
TRANSPOSES = ("t", "permute", "transpose", "numpy_T")


@record
class Computation:
    """The main stage and its operands, name -> Python expression in forward; `kind` names its ladder."""

    kind: str
    operation: Call
    operands: tuple[tuple[str, str], ...]
    epilogues: tuple[Call, ...] = ()
    layout: tuple[tuple[str, str], ...] = ()  # gemm: which operand is stored by columns
    middle: bool = False
    before: tuple[
        Stage, ...
    ] = ()  # stages of a pipeline that come first, and what the main one's result is called for those that come after
    result: str | None = None
    after: tuple[Stage, ...] = ()
    unfused: Computation | None = (
        None  # the same with stages of their own for what `epilogues` closes with, for kernels that cannot fuse it
    )
    pieces: tuple[
        Piece, ...
    ] = ()  # of a pipeline: what it is made of, in order; the rest then says nothing but the operands


@record
class Piece:
    """A part of a pipeline: as recognised by itself, with its names in the pipeline, and the facts of it alone."""

    alone: Computation
    named: Computation
    facts: Facts
    work: int  # FLOPs of products and elements moved, for an order of importance; inferred weights


class Unrecognised(Exception):
    """The graph holds something that the planner cannot write; the text names it."""


def short(op: Operation) -> str:
    """`aten.addmm.default` is addmm."""
    return op.target.removeprefix("aten.").split(".")[0]


def python(value: str) -> str:
    """The Python expression of a value in forward."""
    if ":" not in value:
        return value
    first, *rest = value.removeprefix("param:").removeprefix("buffer:").split(".")
    return f"self.{first}" + "".join(
        f"[{part}]" if part.isdigit() else f".{part}" for part in rest
    )  # nn.Sequential and nn.ModuleList number their modules


def through_getitem(by_name: dict[str, Operation], value: str) -> Operation | None:
    """The operation behind a value, or behind the first item of its result."""
    op = by_name.get(value)
    if op is not None and "getitem" in op.target:
        op = by_name.get(op.operands[0]) if op.operands[1] == "0" else None
    return op


def is_last(axis: str, op: Operation) -> bool:
    """Whether an axis is the last of the operation's result."""
    rank = len(op.result[0].shape)
    return axis in ("-1", str(rank - 1))


def number(text: str) -> float | None:
    """The number that a text spells, if it does."""
    try:
        return float(text)
    except ValueError:
        return None


def operand(by_name: dict[str, Operation], value: str) -> tuple[str, bool] | None:
    """(Python expression, whether it is stored by columns) of a matrix operand, looking through one transposition."""
    op = by_name.get(value)
    if op is None:
        return python(value), False
    if short(op) in TRANSPOSES and op.operands[0] not in by_name:
        if short(op) == "permute" and op.operands[1].replace(" ", "") not in ("[1,0]", "[0,2,1]"):
            return None
        return f"{python(op.operands[0])}.transpose(-2, -1)", True
    if short(op) in ("detach", "alias"):
        return operand(by_name, op.operands[0])
    return None


def names(text: str, *, numbers: bool = False) -> list[str]:
    """The values in an operand's text, which may be a list; with `numbers` the numbers in it too."""
    parts = [part.strip() for part in text.strip("[]").split(",")]
    return parts if numbers else [part for part in parts if number(part) is None]
