"""Matches products of a matrix with a matrix or vector, with element-wise epilogues, then a reduction or softmax."""

from __future__ import annotations

import dataclasses

from workbench.language import Call, Program, Stage, check
from workbench.language.expressions.lowering import log_sum
from workbench.language.operations.epilogue import write_expression
from workbench.proposers.recognition.epilogue_chain import EpilogueChain, find_chain, tensor_specs
from workbench.proposers.recognition.graph import (
    DISTANCES,
    Computation,
    aten_name,
    find_producer,
    operand,
    python_expression,
)
from workbench.records import Facts, Operation

REDUCTIONS = {
    "sum": "sum",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
    "max": "max",
    "min": "min",
    "logsumexp": "logsumexp",
}
FUSED = ("sum", "mean", "max", "min")  # reductions that a product's epilogue has
PRODUCTS = ("mm", "bmm", "addmm", "mv", DISTANCES)


def match_gemm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A product with its epilogues.

    A reduction of rows or columns after it is fused; its unfused form has a stage for it. A softmax is a stage.
    """
    chain = find_chain(facts, by_name, output, read_operand)
    if chain is None:
        return None
    if aten_name(chain.source) in PRODUCTS:
        return _make_product(by_name, chain)
    source = find_producer(by_name, chain.source.name) or chain.source
    if chain.tensors:
        return None
    inner = find_chain(facts, by_name, source.operands[0], read_operand) if source.operands else None
    if inner is None or aten_name(inner.source) not in PRODUCTS:
        return None
    found = _make_product(by_name, inner)
    return _fuse_reduction(facts, source, chain.calls, found) if found is not None and found.kind == "gemm" else None


def match_grouped_gemm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """torch._grouped_mm of rows that are sorted by group: a (rows, k), b (groups, k, n), offsets (groups)."""
    chain = find_chain(facts, by_name, output, read_operand)
    if chain is None or aten_name(chain.source) != "_grouped_mm" or chain.tensors:
        return None
    op = chain.source
    if (
        len(op.operands) != 3
        or op.keywords
        or op.operands[2] in by_name
        or not op.result
        or len(op.result[0].shape) != 2
    ):
        return None
    a, b = operand(by_name, op.operands[0]), operand(by_name, op.operands[1])
    specs = {
        **{spec.name: spec for spec in facts.cases[0].inputs},
        **{f"param:{spec.name}": spec for spec in facts.parameters},
    }
    ranks = [len(specs[name].shape) if (name := _leaf(by_name, value)) in specs else 0 for value in op.operands[:2]]
    if a is None or b is None or ranks != [2, 3]:
        return None
    operands = (("a", a[0]), ("b", b[0]), ("offsets", python_expression(op.operands[2])))
    return Computation(
        kind="ggemm",
        operation=Call(name="ggemm", positional=("a", "b", "offsets")),
        operands=operands,
        epilogues=chain.calls,
    )


def _leaf(by_name: dict[str, Operation], value: str) -> str:
    return by_name[value].operands[0] if value in by_name else value


def read_operand(facts: Facts, op: Operation, value: str) -> tuple[str, str] | None:
    """(expression, "n", "m" or "both" as its axes) of a tensor that is combined with an (m, n) value.

    The tensor belongs to forward or to the module.
    """
    specs = tensor_specs(facts)
    wanted = op.result[0].shape if op.result else ()
    spec = specs.get(value)
    if spec is None or len(wanted) < 2:
        return None
    shape = tuple(spec.shape)
    if shape == wanted[-1:]:
        return python_expression(value), "n"
    if shape == (1, wanted[-1]) and wanted[-2] != 1:
        return f"{python_expression(value)}.reshape(-1)", "n"
    if shape == (wanted[-2], 1) and len(wanted) == 2 and wanted[-1] != 1:
        return f"{python_expression(value)}.reshape(-1)", "m"
    broadcast = len(shape) <= len(wanted) and all(
        have in (1, want) for have, want in zip(reversed(shape), reversed(wanted), strict=False)
    )
    return (python_expression(value), "both") if broadcast else None


def _make_product(by_name: dict[str, Operation], chain: EpilogueChain) -> Computation | None:
    """The product with the chain as its epilogues. A product with one column is a matvec."""
    op, is_product = chain.source, aten_name(chain.source) != DISTANCES
    if op.keywords and is_product:
        return None
    if aten_name(op) == "addmm" and (len(op.operands) != 3 or op.operands[0] in by_name):
        return None
    epilogues, tensors = _with_bias(chain) if aten_name(op) == "addmm" else (chain.calls, chain.tensors)
    a, b = (operand(by_name, name) for name in op.operands[-2:])
    if a is None or b is None:
        return None
    if (aten_name(op) == "mv" or (aten_name(op) == "mm" and op.result[0].shape[-1] == 1)) and not a[1]:
        if epilogues:
            return None
        keep = (("keepdim", 1),) if aten_name(op) == "mm" else ()
        return Computation(
            kind="matvec",
            operation=Call(name="matvec", positional=("x", "vector"), named=keep),
            operands=(("x", a[0]), ("vector", b[0])),
        )
    if aten_name(op) == "mv":
        return None
    layout = tuple((name, "column") for name, (_, column) in (("a", a), ("b", b)) if column)
    return Computation(
        kind="gemm",
        operation=Call(name="gemm", positional=("a", "b"), named=() if is_product else op.keywords),
        operands=(("a", a[0]), ("b", b[0]), *tensors),
        epilogues=epilogues,
        layout=layout,
    )


def _with_bias(chain: EpilogueChain) -> tuple[tuple[Call, ...], tuple[tuple[str, str], ...]]:
    """(epilogues, tensors) of an addmm: its first operand becomes a bias before the chain."""
    role = "bias" if "bias" not in dict(chain.tensors) else "bias0"
    bias = Call(name="bias", positional=() if role == "bias" else (role,))
    return (bias, *chain.calls), ((role, python_expression(chain.source.operands[0])), *chain.tensors)


def _softmax_after(
    source: Operation, rank: int, rows: tuple[Call, ...], after: tuple[Call, ...], found: Computation
) -> Computation | None:
    """A product with a softmax over its last axis as a stage."""
    last = source.operands[1] in ("-1", str(rank - 1))
    if not last or (len(source.operands) > 2 and source.operands[2] not in ("False", "None")) or source.keywords:
        return None
    stage = Stage(
        operation=Call(name="softmax", positional=(_name_product(found),)), settings=(*rows, Call(name="kept"))
    )
    return _with_stages(found, stage, after)


def _fuse_reduction(facts: Facts, source: Operation, after: tuple[Call, ...], found: Computation) -> Computation | None:
    """A product whose rows or columns are reduced, or go through a softmax."""
    shape = _shape_before(facts, source)
    if shape is None:
        return None
    wide = 4 if facts.cases[0].outputs and facts.cases[0].outputs[0].dtype == "float32" else 8
    rows = (Call(name="threads_per_row", positional=(256,)), Call(name="vector", positional=(wide,)))
    if aten_name(source) in ("_softmax", "softmax"):
        return _softmax_after(source, len(shape), rows, after, found)
    place = _reduced_axis(source, len(shape))
    if place is None:
        return None
    how, axis, keep = place
    unfused = None
    if axis == -1:
        kept = (("keepdim", 1),) if keep else ()
        call = (
            Call(name="rowwise", positional=(log_sum(_name_product(found)),), named=kept)
            if how == "logsumexp"
            else Call(name="reduce", positional=(_name_product(found),), named=(("op", how), ("axis", "last"), *kept))
        )
        unfused = _with_stages(found, Stage(operation=call, settings=rows), after)
    if how not in FUSED:
        return unfused
    closing = Call(name=("row" if axis == -1 else "col") + how, named=(("keepdim", 1),) if keep else ())
    return dataclasses.replace(found, epilogues=(*found.epilogues, closing, *after), unfused=unfused)


def _shape_before(facts: Facts, source: Operation) -> tuple[int, ...] | None:
    """The shape of an operation's first operand."""
    op = next((op for op in facts.graph if op.name == source.operands[0]), None)
    return tuple(op.result[0].shape) if op is not None and op.result else None


def _reduced_axis(source: Operation, rank: int) -> tuple[str, int, bool] | None:
    """(kind, -1 for the last axis or -2 for the one before, keepdim) of a reduction over one axis, else None."""
    how = REDUCTIONS.get(aten_name(source))
    if how is None or len(source.operands) < 2 or source.keywords:
        return None
    text = source.operands[1].strip("[]")
    if text.lstrip("-").isdigit() is False:
        return None
    axis = int(text) % rank - rank
    keep = source.operands[2] if len(source.operands) > 2 else "False"
    if axis not in (-1, -2) or keep not in ("True", "False") or len(source.operands) > 3:
        return None
    return how, axis, keep == "True"


def _name_product(found: Computation) -> str:
    """A name for the product's result between stages that no operand has."""
    taken = {name for operand in found.operands for name in operand}
    return next(name for name in ("h", "hidden", "product", "h1") if name not in taken)


def _with_stages(found: Computation, stage: Stage, after: tuple[Call, ...]) -> Computation | None:
    """The product, a stage on its result h, and a stage for the element-wise calls on that stage's result.

    None if the language has no such stage.
    """
    stages: tuple[Stage, ...] = (stage,)
    if after:
        expression = write_expression(((call, ()) for call in after), "g")
        stages = (
            dataclasses.replace(stage, result="g"),
            Stage(operation=Call(name="elementwise", positional=(expression,))),
        )
    made = dataclasses.replace(found, result=_name_product(found), after=stages)
    main = Stage(operation=found.operation, epilogues=found.epilogues, result=_name_product(found))
    return None if check(Program(stages=(main, *stages))) else made
