"""How far the time model is off on a device that it was not fitted on, from kernels that were measured there.

Each row has the logarithm of measured over modelled, `error`, and the plain interval's half width, `width`, which is
ELSEWHERE times that of the fitted device. The rows of a problem are one observation, because they share most of their
error: it has the mean of its rows' errors, and the mean square of their errors in widths.

- **Shift**: the mean of the P problems' errors under a normal prior around no error that counts as one problem,
  sum / (1 + P).
- **Width**: errors in widths are normal with an unknown scale, whose prior (scaled inverse chi-squared) counts as four
  problems and says that the plain interval is right. A new error in widths then has Student's t distribution, and the
  interval of 90 % is, with t(n) half the width of that of n degrees of freedom,

      factor = t(4 + P) sqrt((4 s^2 + sum of squares) / (4 + P))      s = 1 / t(4)

  The squares of a problem are about the shift that the other problems give, so that no problem helps to judge itself.

With fewer than LEAST problems there is no shift, and the factor is at least 1. Source: Gelman et al., Bayesian Data
Analysis (3rd edition, 2013), sections 2.5, 2.6 and 3.3. That the priors count as one and as four problems is inferred.

The programs are in files (measured.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from workbench.analysis.statistics import student_t
from workbench.records import record

LEVEL = 0.9
LEAST = 3  # problems that a shift and a narrower interval need
PRIOR_SHIFT, PRIOR_WIDTH = 1, 4  # problems that the priors count as (inferred)


@record
class DeviceRow:
    """A program that was measured on a device, and what the time model says of it without a refinement."""

    key: str  # of the problem
    problem: str  # its name
    program: str
    measured_s: float
    modelled_s: float
    low_s: float  # the plain interval, around `modelled_s`
    high_s: float

    @property
    def error(self) -> float:
        """The logarithm of measured over modelled."""
        return math.log(self.measured_s / self.modelled_s)

    @property
    def width(self) -> float:
        """Half the width of the plain interval, on a logarithmic scale."""
        return math.log(self.high_s / self.low_s) / 2


@record
class Refinement:
    """What the rows of a device say: seconds are e^shift times those of the plain model, and intervals `factor` times
    as wide as its plain ones, on a logarithmic scale.
    """

    shift: float = 0.0
    factor: float = 1.0
    problems: int = 0
    rows: int = 0


PLAIN = Refinement()


def refine(rows: Sequence[DeviceRow]) -> Refinement:
    """The refinement that some rows of one device give."""
    groups = list(group_rows(rows).values())
    if not groups:
        return PLAIN
    errors = [fmean(row.error for row in group) for group in groups]
    squares = 0.0
    for number, group in enumerate(groups):
        others = _shift([*errors[:number], *errors[number + 1 :]]) if len(groups) >= LEAST else 0.0
        squares += fmean(((row.error - others) / row.width) ** 2 for row in group)
    freedom = PRIOR_WIDTH + len(groups)
    scale = math.sqrt((PRIOR_WIDTH / student_t(PRIOR_WIDTH, LEVEL) ** 2 + squares) / freedom)
    factor = student_t(freedom, LEVEL) * scale
    is_enough = len(groups) >= LEAST
    return Refinement(
        shift=_shift(errors) if is_enough else 0.0,
        factor=factor if is_enough else max(factor, 1.0),
        problems=len(groups),
        rows=len(rows),
    )


def _shift(errors: Sequence[float]) -> float:
    return math.fsum(errors) / (PRIOR_SHIFT + len(errors))


def group_rows(rows: Sequence[DeviceRow]) -> dict[str, list[DeviceRow]]:
    """The rows of each problem, by its key."""
    groups: dict[str, list[DeviceRow]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return groups
