"""Compares an output with its float64 reference, in units of its tolerance. Runs on the CPU and on a GPU.

NaN matches only NaN, an infinity only the same infinity; bools must be equal, and integers, but where rounding decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from workbench.executors.workers.error_patterns import describe
from workbench.executors.workers.tolerance import Block, Tolerance, as_matrix, blocks, differences, on_device
from workbench.problems.results import as_computable
from workbench.wire import Json

PERCENTILES_OF = 1 << 20  # elements that the percentiles are taken of, about


@dataclass
class _Found:
    """What the blocks compared so far have in common."""

    bad: int = 0
    gross: int = 0  # of the bad ones: those whose error is more than that of an outlier
    worst: float = -1.0  # error in tolerances
    worst_at: int = 0  # index in the flat output
    absolute: float = 0.0
    relative: float = 0.0
    first: tuple[torch.Tensor, torch.Tensor] | None = None  # element of what came out, and of the reference
    constant: list[bool] = field(default_factory=lambda: [True, True])  # whether all their elements equal the first
    sample: list[torch.Tensor] = field(default_factory=list)


class Readable(Protocol):
    """A tensor that is compared block by block: in memory, or in a file (jobs/shared_tensors.py)."""

    @property
    def shape(self) -> torch.Size:
        """Its extents."""

    def numel(self) -> int:
        """The number of elements."""

    def reshape(self, *shape: int) -> Any:
        """The same elements in another shape."""

    def to(self, device: torch.device) -> torch.Tensor:
        """The whole tensor on a device."""


def compare(
    got: Readable,
    expected: torch.Tensor,
    tolerance: Tolerance,
    operands: Callable[[], Mapping[str, torch.Tensor]] = dict,
) -> Json:
    """Returns the fields of `records.Check` for one output; `operands` are asked for if it is wrong."""
    if got.shape != expected.shape:
        message = f"the output has shape {list(got.shape)}, expected {list(expected.shape)}"
        size = expected.numel()
        return {"passed": False, "elements": size, "bad_elements": size, "max_error": math.inf, "message": message}
    if not got.numel():
        return {"passed": True, "elements": 0}
    value, wanted = as_matrix(got), as_matrix(expected)
    found = _Found()
    for at in blocks(wanted):
        exact, given = on_device(wanted[at]), as_computable(on_device(value[at]))
        gap, error = _block_errors(given, exact, tolerance, at)
        _note_constants(found, given, exact)
        found.gross += int(((error > 1) & ~(gap - tolerance.rounding_of(exact) <= tolerance.outlier_limit(at))).sum())
        _add(found, gap, error, exact, at, wanted.shape[1])
        found.sample.append(error.reshape(-1)[:: max(wanted.numel() // PERCENTILES_OF, 1)])
    index = tuple(int(i) for i in np.unravel_index(found.worst_at, expected.shape))  # torch's loads sympy
    row, column = divmod(found.worst_at, wanted.shape[1])
    here, there = (float(one[row : row + 1, column : column + 1]) for one in (value, wanted))
    middle, high = _percentiles(torch.cat(found.sample))
    excused = tolerance.excuses(found.bad, found.gross, got.numel(), found.worst, found.absolute)
    message, bad = "", 0 if excused else found.bad
    if bad:
        message = (
            f"{bad} of {got.numel()} elements are wrong; the worst is [{', '.join(map(str, index))}]: "
            f"got {here:.6g}, expected {there:.6g}"
        )
    wrong = None
    if bad:
        wrong = describe(
            as_computable(got.to(expected.device)), expected, _find_bad(value, wanted, tolerance), operands()
        )
    return {
        "passed": not bad,
        "elements": got.numel(),
        "bad_elements": bad,
        "max_error": found.worst,
        "p50_error": middle,
        "p99_error": high,
        "max_absolute": found.absolute,
        "max_relative": found.relative,
        "worst_index": index,
        "worst_got": here,
        "worst_expected": there,
        "message": message,
        "trivial": _trivial_kind(found),
        "eager_error": tolerance.eager_error,
        "eager_absolute": tolerance.eager_absolute,
        "wrong": wrong,
    }


def _find_bad(value: Any, wanted: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Which elements are wrong."""
    bad = torch.zeros(wanted.shape, dtype=torch.bool, device=wanted.device)
    for at in blocks(wanted):
        bad[at] = (_block_errors(as_computable(on_device(value[at])), on_device(wanted[at]), tolerance, at)[1] > 1).to(
            bad.device
        )
    return bad


def _block_errors(
    got: torch.Tensor, wanted: torch.Tensor, tolerance: Tolerance, at: Block
) -> tuple[torch.Tensor, torch.Tensor]:
    """(|got - wanted|, the same in tolerances) of a block; the second is inf where only one of the two is finite."""
    if not wanted.is_floating_point():
        wrong = ~tolerance.allows(got, wanted, at)
        return (got.double() - wanted.double()).abs(), wrong.double() * 2
    gap = differences(got, wanted)
    return gap, (gap / tolerance.allowed(wanted, at)).nan_to_num_(math.inf, math.inf)


def _add(found: _Found, gap: torch.Tensor, error: torch.Tensor, wanted: torch.Tensor, at: Block, columns: int) -> None:
    """Add the errors of the block `at` of a matrix with so many columns to what was found."""
    found.bad += int((error > 1).sum())
    top, place = error.reshape(-1).max(0)
    if float(top) > found.worst:
        row, column = divmod(int(place), error.shape[1])
        found.worst = float(top)
        found.worst_at = (at[0].start + row) * columns + at[1].start + column
    finite = gap.nan_to_num_(0.0, 0.0)
    found.absolute = max(found.absolute, float(finite.max()))
    size = wanted if wanted.dtype == torch.bool else wanted.abs()
    ratio = finite.div_(size).nan_to_num_(0.0, 0.0)  # an element of 0 has no relative error
    found.relative = max(found.relative, float(ratio.max()))


def _percentiles(errors: torch.Tensor) -> tuple[float, float]:
    """The median and the 99th percentile of the finite errors."""
    ranked = errors[errors.isfinite()].sort().values
    if not len(ranked):
        return math.inf, math.inf
    middle, high = (float(ranked[round(part * (len(ranked) - 1))]) for part in (0.5, 0.99))
    return middle, high


def _note_constants(found: _Found, got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Note whether the elements of a block equal the first of all; a kind that is known to vary is not read again."""
    if found.first is None:
        found.first = (got[0, 0], wanted[0, 0])
    for n, (block, first) in enumerate(zip((got, wanted), found.first, strict=True)):
        found.constant[n] = found.constant[n] and bool((block == first).all())


def _trivial_kind(found: _Found) -> str:
    """ "zero" or "constant" if all elements of the output are equal, as a no-op kernel leaves them, and the reference's
    are not; else "".
    """
    if found.first is None or found.constant[1] or not found.constant[0]:
        return ""
    return "zero" if float(found.first[0]) == 0 else "constant"
