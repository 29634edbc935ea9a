"""Inputs of special values for one trial: zeros, one sign, large. Integers and bools stay as drawn: they may index.

A trial takes them only where the reference is at home: its results are finite, and torch eager's keep the tolerance.
NaN and infinity are not tried: a maximum instruction drops NaN where torch keeps it, and KernelBench takes
such kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workbench.executors.workers.effects import Expectation
from workbench.executors.workers.tolerance import Tolerance

KINDS = ("zeros and one sign", "large")  # of the first and the second call
ZEROS = 3  # every third element is zero
LARGE = 30.0


def make_special(inputs: Sequence[object], call: int) -> list[object]:
    """The inputs of a call with other values, and the same shapes, strides and dtypes."""
    return [_change(value, call) for value in inputs]


def _change(value: object, call: int) -> object:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.element_size() < 2:
        return value
    if call:
        return value * LARGE
    changed = value.abs()
    if changed.numel() and changed.is_contiguous():
        changed.view(-1)[::ZEROS] = 0
    return changed


def suits(expected: Expectation, tolerances: Sequence[Tolerance]) -> bool:
    """Whether the reference's results are a yardstick: finite, and torch eager keeps their tolerance."""
    found = expected.found
    if found.eager is None:
        return False
    finite = all(bool(value.isfinite().all()) for value in (*found.exact, *found.eager))
    return finite and all((one.eager_error or 0.0) <= 1 for one in tolerances)
