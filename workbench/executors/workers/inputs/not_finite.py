"""Inputs with a few elements that are NaN or infinite, and what results are compared for then.

Of floating-point results these alone are compared. A difference is a doubt: a maximum instruction drops NaN where torch
keeps it, and KernelBench takes such kernels. Of integer results, the indices that torch chooses are compared, for which
NaN is the largest value of all and the smallest, and bools, which are comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from workbench.executors.workers.effects import Expectation
from workbench.executors.workers.inputs.special_values import is_float
from workbench.problems.reference.choices import Choice, take_equal_values
from workbench.problems.results import as_computable

# places in an input, as parts of its elements, of the values that are not finite
PLACES = ((0.3, math.nan), (0.55, math.inf), (0.8, -math.inf))
FEWEST = 16  # elements of an input that gets them
REORDERED = "of infinite inputs, this kernel scales or sums in another order"
FINITE, NAN, INFINITE, UNKNOWN = 0, 1, 2, 3


def make_not_finite(inputs: Sequence[object], *, in_each_row: bool = False) -> list[object] | None:
    """The inputs with a few elements that are NaN or infinite, or a NaN in each row; None if no input can have them."""
    changed: list[object] = []
    found = False
    for value in inputs:
        if isinstance(value, torch.Tensor) and is_float(value) and value.numel() >= FEWEST:
            value, found = value.clone(), True
            if in_each_row and value.dim():
                value[..., int(PLACES[0][0] * value.shape[-1])] = math.nan
                changed.append(value)
                continue
            for part, number in PLACES:
                at = tuple(map(int, np.unravel_index(int(part * value.numel()), value.shape)))  # torch's loads sympy
                value[at] = number
        changed.append(value)
    return changed if found else None


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
        ("drops NaN", FINITE, NAN, "NaN in torch's result, and not here, for inputs with a few of both"),
        ("makes NaN", NAN, FINITE, "NaN here, and not in torch's result, for inputs with a few of both"),
        ("drops infinity", FINITE, INFINITE, "infinite in torch's result, and not here, for inputs with a few of both"),
        ("makes infinity", INFINITE, FINITE, "infinite here, and not in torch's result, for inputs with a few of both"),
        ("infinity for NaN", INFINITE, NAN, f"infinite here, and NaN in torch's result: {REORDERED}"),
        ("NaN for infinity", NAN, INFINITE, f"NaN here, and infinite in torch's result: {REORDERED}"),
    ):
        count = sum(int(((kind == own) & (want == wanted)).sum()) for kind, want in pairs)
        if count:
            return f"{code}: {count} element{'s are' if count > 1 else ' is'} {said}"
    return ""


def expected_integers(expected: Expectation, list_choices: Callable[[], Sequence[Choice]]) -> list[torch.Tensor | None]:
    """Of each output the indices or bools that NaN decides, if torch eager's are the same; None for any other."""
    found: list[torch.Tensor | None] = []
    for exact, own in zip(expected.found.exact[: expected.outputs], expected.found.eager or [], strict=False):
        is_clear = torch.equal(exact, own.reshape(exact.shape))
        found.append(exact if is_clear and (exact.dtype == torch.bool or _is_chosen(exact, list_choices)) else None)
    return found


def _is_chosen(value: torch.Tensor, list_choices: Callable[[], Sequence[Choice]]) -> bool:
    """Whether the integers are indices that an operation chose."""
    if value.dtype not in (torch.int64, torch.int32):
        return False
    return any(torch.equal(one.indices.reshape(-1), value.reshape(-1).long()) for one in list_choices())


def describe_integers(
    got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor | None], list_choices: Callable[[], Sequence[Choice]]
) -> str:
    """The first way in which indices and bools differ from the expected ones; "" if they do not."""
    for value, wanted in zip(got, expected, strict=True):
        count = 0 if wanted is None else int((value != take_equal_values(value, wanted, list_choices)).sum())
        if count and value.dtype == torch.bool:
            return f"drops NaN: {count} of {value.numel()} bools are not torch's, for inputs with a few NaN"
        if count:
            which = f"{count} of {value.numel()} indices are" if value.numel() > 1 else "the index is"
            return f"drops NaN: {which} not torch's, which chooses NaN before all numbers, for inputs with a few NaN"
    return ""
