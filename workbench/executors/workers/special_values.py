"""Inputs of special values: zeros and one sign, large, NaN and infinity. Integers and bools stay as drawn.

A trial takes zeros and large values only where the reference is at home: its results are finite, and torch eager's keep
the tolerance. A result for NaN and infinity is compared for these alone, and a difference is a doubt: a maximum
instruction drops NaN where torch keeps it, and KernelBench takes such kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from workbench.executors.workers.effects import Expectation
from workbench.executors.workers.tolerance import Tolerance

KINDS = ("zeros and one sign", "large")  # of the first and the second call
NOT_FINITE = "NaN and infinity"
ZEROS = 3  # every third element is zero
LARGE = 30.0
# places in an input, as parts of its elements, of the values that are not finite
PLACES = ((0.3, math.nan), (0.55, math.inf), (0.8, -math.inf))
FEWEST = 16  # elements of an input that gets them


def make_special(inputs: Sequence[object], call: int) -> list[object]:
    """The inputs of a call with other values, and the same shapes, strides and dtypes."""
    return [_change(value, call) for value in inputs]


def _is_wide_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() >= 2


def _change(value: object, call: int) -> object:
    if not isinstance(value, torch.Tensor) or not _is_wide_float(value):
        return value
    if call:
        return value * LARGE
    changed = value.abs()
    if changed.numel() and changed.is_contiguous():
        changed.view(-1)[::ZEROS] = 0
    return changed


def make_not_finite(inputs: Sequence[object]) -> list[object] | None:
    """The inputs with a few elements that are NaN or infinite; None if no input can have them."""
    changed: list[object] = []
    found = False
    for value in inputs:
        if isinstance(value, torch.Tensor) and _is_wide_float(value) and value.numel() >= FEWEST:
            value, found = value.clone(), True
            for part, number in PLACES:
                at = torch.unravel_index(torch.tensor(int(part * value.numel())), value.shape)
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


def mark(folder: Path, place: str) -> None:
    """Tell the candidate's process that the inputs of a trial are not finite."""
    (folder / "given" / f"{place}-not-finite").touch()


def is_marked(folder: Path, place: str) -> bool:
    """Whether the inputs of a trial are not finite."""
    return (folder / "given" / f"{place}-not-finite").exists()
