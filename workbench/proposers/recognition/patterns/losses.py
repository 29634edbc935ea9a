"""Matches cross entropy of logits or logarithms of shares, also with smoothed labels."""

from __future__ import annotations

import math

from workbench.language import Call
from workbench.proposers.recognition.graph import (
    Computation,
    aten_name,
    find_producer,
    parse_number,
    plain_name,
    python_expression,
)
from workbench.proposers.recognition.types import ROUNDED
from workbench.records import Facts, Operation

LOSSES = {"0": "none", "1": "mean", "2": "sum"}  # ATen's numbers for the reduction of a loss
IGNORED = "-100"  # the class that torch ignores; the kernel ignores all negative ones
ByName = dict[str, Operation]


def match_crossentropy(facts: Facts, by_name: ByName, output: str) -> Computation | None:
    plain, smoothing = _split_smoothing(by_name, output) or (output, 0.0)
    loss = find_producer(by_name, plain)
    if (
        loss is None
        or aten_name(loss) != "nll_loss_forward"
        or loss.operands[2] != "None"
        or loss.operands[4:] != (IGNORED,)
        or loss.operands[3] not in LOSSES
        or loss.operands[1] in by_name
    ):
        return None
    shares = by_name.get(loss.operands[0])
    if shares is not None and (aten_name(shares) != "_log_softmax" or shares.operands[1] not in ("1", "-1")):
        return None
    x = skip_widening(by_name, shares.operands[0]) if shares is not None else loss.operands[0]
    if len(next((spec.shape for spec in facts.cases[0].inputs if spec.name == x), ())) != 2:
        return None
    named = (
        *((("reduction", LOSSES[loss.operands[3]]),) if loss.operands[3] != "1" else ()),
        *(() if shares is not None else (("logits", 0),)),
        *((("smoothing", smoothing),) if smoothing else ()),
    )
    return Computation(
        kind="crossentropy",
        operation=Call(name="crossentropy", positional=("x", "target"), named=named),
        operands=(("x", python_expression(x)), ("target", python_expression(loss.operands[1]))),
    )


def skip_widening(by_name: ByName, value: str) -> str:
    """The value before a cast to float32, in which the kernel computes, and before its rounding to what it is stored as
    (`mark_roundings`).
    """
    op = by_name.get(value)
    if op is not None and aten_name(op) == "_to_copy" and op.result[0].dtype == "float32":
        value = op.operands[0]
    rounded = by_name.get(value) if value.endswith(ROUNDED) else None
    return rounded.operands[0] if rounded is not None else value


def _split_smoothing(by_name: ByName, output: str) -> tuple[str, float] | None:
    """(the loss of the labels, the smoothing) of (1 - s) * loss + s / classes * the losses of all classes.

    None if this is no loss with smoothed labels.
    """
    total = by_name.get(output)
    if total is None or aten_name(total) != "add" or total.keywords or len(total.operands) != 2:
        return None
    parts = [_split_factor(by_name, value) for value in total.operands]
    for plain, spread in ((parts[0], parts[1]), (parts[1], parts[0])):
        if plain is None or spread is None:
            continue
        loss = find_producer(by_name, plain[0])
        if loss is None or aten_name(loss) != "nll_loss_forward":
            continue
        shares = by_name.get(loss.operands[0])
        smoothing = round(1 - plain[1], 9)
        if shares is None or not _is_loss_of_all(by_name, spread[0], loss):
            continue
        if math.isclose(spread[1] * shares.result[0].shape[-1], smoothing, rel_tol=1e-6):
            return plain[0], smoothing
    return None


def _split_factor(by_name: ByName, value: str) -> tuple[str, float] | None:
    """(the value, the number) of a product of a value and a number."""
    op = by_name.get(value)
    if op is None or aten_name(op) != "mul" or op.keywords or (by := parse_number(op.operands[1])) is None:
        return None
    return op.operands[0], by


def _is_loss_of_all(by_name: ByName, value: str, loss: Operation) -> bool:
    """Whether a value is minus the sum of the logarithms of all shares, reduced as the loss is; ignored rows are 0."""
    kind, op = LOSSES.get(loss.operands[3]), by_name.get(value)
    if kind == "mean":
        if op is None or aten_name(op) != "div" or not _is_count(by_name, op.operands[1], loss.operands[1]):
            return False
        op = by_name.get(op.operands[0])
    if kind != "none":
        if op is None or op.target != "aten.sum.default":
            return False
        op = by_name.get(op.operands[0])
    return op is not None and _is_row_of_all(by_name, op, loss)


def _is_row_of_all(by_name: ByName, op: Operation, loss: Operation) -> bool:
    """Whether an operation gives minus the sum of the logarithms of a row's shares, and 0 for ignored rows."""
    shares, target = loss.operands[:2]
    if plain_name(op) != "masked_fill" or parse_number(op.operands[2]) != 0:
        return False
    negative = by_name.get(op.operands[0])
    summed = by_name.get(negative.operands[0]) if negative is not None and aten_name(negative) == "neg" else None
    return (
        summed is not None
        and aten_name(summed) == "sum"
        and summed.operands[:2] in ((shares, "[1]"), (shares, "[-1]"))
        and _is_ignored(by_name, op.operands[1], target)
    )


def _is_count(by_name: ByName, value: str, target: str) -> bool:
    """Whether a value is the number of rows that are not ignored."""
    count = by_name.get(value)
    kept = by_name.get(count.operands[0]) if count is not None and count.target == "aten.sum.default" else None
    return (
        kept is not None
        and aten_name(kept) in ("bitwise_not", "logical_not")
        and _is_ignored(by_name, kept.operands[0], target)
    )


def _is_ignored(by_name: ByName, value: str, target: str) -> bool:
    """Whether a value is true where the target is the class that is ignored."""
    op = by_name.get(value)
    return op is not None and aten_name(op) == "eq" and op.operands[:2] == (target, IGNORED)
