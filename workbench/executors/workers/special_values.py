"""Inputs of special values (zeros, one sign, large, NaN, infinity) and of other layouts.

Integers and bools stay as drawn.

A call takes special values only where the reference is at home: its results are finite, and torch eager's keep the
tolerance. A result for NaN and infinity is compared for these alone, and a difference is a doubt: a maximum instruction
drops NaN where torch keeps it, and KernelBench takes such kernels.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from workbench.executors.jobs.trials import APART, LARGE, NEGATIVE, SMALL, ZEROS
from workbench.executors.workers.effects import Expectation
from workbench.executors.workers.tolerance import Tolerance
from workbench.problems.results import as_computable

EVERY = 3  # with zeros, every third element is one
FACTOR = 30.0  # of large values
SMALLER = 0.01  # factor of small ones
# places in an input, as parts of its elements, of the values that are not finite
PLACES = ((0.3, math.nan), (0.55, math.inf), (0.8, -math.inf))
FEWEST = 16  # elements of an input that gets them


def make_special(inputs: Sequence[object], kind: str) -> list[object]:
    """Inputs with values of a kind, and the same shapes, strides and dtypes."""
    return [_change(value, kind) if kind else value for value in inputs]


def has_floats(inputs: Sequence[object]) -> bool:
    """Whether any of the inputs can have special values."""
    return any(map(_is_float, inputs))


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _change(value: object, kind: str) -> object:
    """A tensor with values of a kind, those of 8 bits within their range; anything else as it is."""
    if not isinstance(value, torch.Tensor) or not _is_float(value):
        return value
    if value.itemsize > 1:
        return _change_float(value, kind)
    largest = torch.finfo(value.dtype).max
    return _change_float(value.float(), kind).clamp(-largest, largest).to(value.dtype)


def _change_float(value: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == LARGE:
        return value * FACTOR
    changed = value.abs()
    if kind == NEGATIVE:
        return -(changed + 1)
    if kind == SMALL:
        return (changed + 1) * SMALLER
    if kind == ZEROS and changed.numel() and changed.is_contiguous():
        changed.view(-1)[::EVERY] = 0
    return changed


def lay_out(inputs: Sequence[object], layout: str) -> list[object] | None:
    """The inputs as views of other strides: the middle third along the last axis of a wider tensor, or the transpose of
    a contiguous one. None if no input is contiguous and has elements and, to be transposed, two axes.
    """
    least = 1 if layout == APART else 2
    changed = [
        _lay_out(value, layout)
        if isinstance(value, torch.Tensor) and value.dim() >= least and value.numel() > 1 and value.is_contiguous()
        else value
        for value in inputs
    ]
    return None if all(map(operator.is_, changed, inputs)) else changed


def _lay_out(value: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == APART:
        wide = value.new_zeros((*value.shape[:-1], 3 * value.shape[-1]))
        return wide.chunk(3, -1)[1].copy_(value)
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def make_not_finite(inputs: Sequence[object]) -> list[object] | None:
    """The inputs with a few elements that are NaN or infinite; None if no input can have them."""
    changed: list[object] = []
    found = False
    for value in inputs:
        if isinstance(value, torch.Tensor) and _is_float(value) and value.numel() >= FEWEST:
            value, found = value.clone(), True
            for part, number in PLACES:
                at = tuple(map(int, np.unravel_index(int(part * value.numel()), value.shape)))  # torch's loads sympy
                value[at] = number
        changed.append(value)
    return changed if found else None


def suits(expected: Expectation, tolerances: Sequence[Tolerance]) -> bool:
    """Whether the reference's results are a yardstick: finite, and torch eager keeps their tolerance."""
    found = expected.found
    if found.eager is None:
        return False
    finite = all(bool(value.isfinite().all()) for value in (*found.exact, *found.eager))
    return finite and all((one.eager_error or 0.0) <= 1 for one in tolerances)


# ---- NaN and infinity -----------------------------------------------------------------------------------------------

FINITE, NAN, INFINITE, UNKNOWN = 0, 1, 2, 3


def classify(value: torch.Tensor) -> torch.Tensor:
    """For each element whether it is finite, NaN or infinite."""
    value = as_computable(value)
    return value.isnan().to(torch.uint8) * NAN + value.isinf().to(torch.uint8) * INFINITE


def expected_kinds(expected: Expectation) -> list[torch.Tensor]:
    """What each element of the outputs is in float64; unknown where torch eager's is something else."""
    eager = expected.found.eager or []
    kinds = []
    for exact, own in zip(expected.found.exact[: expected.outputs], eager, strict=False):
        kind = classify(exact)
        kinds.append(kind.where(kind == classify(own).reshape(kind.shape), UNKNOWN))
    return kinds


def describe_kinds(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    """The first way in which outputs differ in what is NaN or infinite; "" if they do not."""
    pairs = [(classify(value), kind) for value, kind in zip(got, expected, strict=True)]
    for code, own, wanted, said in (
        ("drops NaN", (FINITE, INFINITE), (NAN,), "{} in torch's result, and not here"),
        ("makes NaN", (NAN,), (FINITE, INFINITE), "{} here, and not in torch's result"),
        ("drops infinity", (FINITE,), (INFINITE,), "{} in torch's result, and not here"),
        ("makes infinity", (INFINITE,), (FINITE,), "{} here, and not in torch's result"),
    ):
        count = sum(
            int((torch.isin(kind, torch.tensor(own)) & torch.isin(want, torch.tensor(wanted))).sum())
            for kind, want in pairs
        )
        if count:
            what = "NaN" if code.endswith("NaN") else "infinite"
            number = f"{count} element{'s are' if count > 1 else ' is'} {what}"
            return f"{code}: {said.format(number)}, for inputs with a few of both"
    return ""


def leave_out(folder: Path, place: str) -> None:
    """Tell the candidate's process that a trial is left out."""
    (folder / "given" / f"{place}-left-out").touch()


def is_left_out(folder: Path, place: str) -> bool:
    """Whether a trial is left out."""
    return (folder / "given" / f"{place}-left-out").exists()
