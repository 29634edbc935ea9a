"""Inputs of special values (zeros, one sign, large, tiny rows) and of other layouts. Integers and bools stay as drawn.

A call takes special values only where the reference is at home: its results are finite, and torch eager's keep the
tolerance.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path

import torch

from workbench.executors.jobs.trials import APART, FAINT, FAINT_ONLY, LARGE, NEGATIVE, SMALL, ZEROS
from workbench.executors.workers.effects import Expectation
from workbench.executors.workers.tolerance import Tolerance
from workbench.problems.results import as_computable

EVERY = 3  # with zeros, every third element is one
FACTOR = 30.0  # of large values
SMALLER = 0.01  # factor of small ones
# of the slices 1, 2 and 3 along each axis. Squares of 1e-4 are below each usual eps, and 1e-7 is near one that is added
# to a norm
FADES = {FAINT: (1e-4, 0.0, 1e-7), FAINT_ONLY: (1e-4, 1e-3)}


def make_special(inputs: Sequence[object], kind: str) -> list[object]:
    """Inputs with values of a kind, and the same shapes, strides and dtypes."""
    if kind in FADES:
        return _fade(inputs, FADES[kind])
    return [_change(value, kind) if kind else value for value in inputs]


def has_floats(inputs: Sequence[object]) -> bool:
    """Whether any of the inputs can have special values."""
    return any(map(is_float, inputs))


def is_float(value: object) -> bool:
    """Whether it is a tensor of floating point."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _change(value: object, kind: str) -> object:
    """A tensor with values of a kind, those of 8 bits within their range; anything else as it is."""
    if not isinstance(value, torch.Tensor) or not is_float(value):
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


def _fade(inputs: Sequence[object], factors: Sequence[float]) -> list[object]:
    """The inputs with slices along each axis that are zero or tiny, so that some are whatever axes a result reduces.
    Vectors are tiny as a whole if no input has more axes.
    """
    axes = max(value.dim() for value in inputs if isinstance(value, torch.Tensor) and is_float(value))
    return [_fade_one(value, factors, is_whole=axes == 1) if is_float(value) else value for value in inputs]


def _fade_one(value: torch.Tensor, factors: Sequence[float], is_whole: bool) -> torch.Tensor:
    computable = as_computable(value)
    if is_whole:
        return (computable * factors[0]).to(value.dtype)
    factor = torch.ones(value.shape, dtype=torch.float64)
    for axis, extent in enumerate(value.shape):
        for index, part in zip(range(1, extent), factors, strict=False):
            factor.select(axis, index).clamp_(max=part)
    faded = (computable * factor).where(factor > 0, 0.0).to(value.dtype)  # not 0 * inf
    return torch.empty_like(value).copy_(faded)  # of the same strides


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


def are_contiguous(inputs: Sequence[object]) -> bool:
    """Whether all tensors are contiguous."""
    return all(value.is_contiguous() for value in inputs if isinstance(value, torch.Tensor))


def _lay_out(value: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == APART:
        wide = value.new_zeros((*value.shape[:-1], 3 * value.shape[-1]))
        return wide.chunk(3, -1)[1].copy_(value)
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def why_unsuitable(expected: Expectation, tolerances: Sequence[Tolerance]) -> str:
    """Why the reference's results are no yardstick; "" if they are finite, and torch eager keeps their tolerance."""
    found = expected.found
    if found.eager is None:
        return "torch does not run in the problem's precision"
    if not all(bool(value.isfinite().all()) for value in (*found.exact, *found.eager)):
        return "the reference gives NaN or infinity there"
    if found.is_disturbed and any(_is_unsure(*pair) for pair in zip(found.exact, found.eager, strict=True)):
        return "the integers of the reference depend on rounding there"
    if not all((one.eager_error or 0.0) <= 1 for one in tolerances):
        return "rounding decides the reference's results there"
    return ""


def _is_unsure(exact: torch.Tensor, eager: torch.Tensor) -> bool:
    """Whether an integer result depends on rounding."""
    is_exact = not exact.is_floating_point() and not exact.is_complex()
    return is_exact and not torch.equal(exact, eager.reshape(exact.shape))


def leave_out(folder: Path, place: str) -> None:
    """Tell the candidate's process that a trial is left out."""
    (folder / "given" / f"{place}-left-out").touch()


def is_left_out(folder: Path, place: str) -> bool:
    """Whether a trial is left out."""
    return (folder / "given" / f"{place}-left-out").exists()
