"""The policy `budget` (muCUTLASS, section "budgeting"): when to stop working on a problem.

A problem is done when its best version beats the reference and either is within `epsilon` of the bound, t_best <= (1 +
epsilon) t_bound, or `patience` attempts in a row gave no gain. Where the reference was not timed (no GPU), beating it
is not asked for, and the reason says so.
"""

from __future__ import annotations

from workbench.errors import UserError
from workbench.records import record


@record
class BudgetSettings:
    """epsilon: fraction above the bound that is near enough; patience: attempts without a gain; most: all attempts.

    The paper's best budgets use 0.25 to 2.5 and 12 to 16 attempts of a language model; a planner's attempts are fewer
    and less random (inferred: 4).
    """

    epsilon: float = 0.25
    patience: int = 4
    most: int = 40  # the paper's budget of one problem

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise UserError(f"epsilon is {self.epsilon:g}; it must be at least 0 (0.25 = within 25 % of the bound)")
        for name in ("patience", "most"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")


@record
class Standing:
    """Where a problem stands. Seconds at the full case; None where they are not known."""

    best_s: float | None = None
    bound_s: float | None = None
    reference_s: float | None = None  # torch eager, by the same clock
    idle: int = 0  # attempts since the last gain
    attempts: int = 0


def why_stop(settings: BudgetSettings, standing: Standing) -> str | None:
    """The reason to stop, in words; None to go on."""
    best, bound, reference = standing.best_s, standing.bound_s, standing.reference_s
    if best is not None and (reference is None or best < reference):
        beats = f"torch is beaten ({reference / best:.2f}x)" if reference is not None else "torch was not timed here"
        if bound is not None and best <= (1 + settings.epsilon) * bound:
            return f"within {settings.epsilon:.0%} of the bound ({best / bound:.2f} times it), and {beats}"
        if standing.idle >= settings.patience:
            return f"{standing.idle} attempts in a row gave no gain, and {beats}" + (
                f"; {best / bound:.2f} times the bound" if bound is not None else ""
            )
    if standing.attempts >= settings.most:
        short = (
            "nothing is correct yet"
            if best is None
            else f"torch is {best / reference:.2f}x faster"
            if reference is not None and best >= reference
            else "there may be more to gain"
        )
        return f"{standing.attempts} attempts are used up; {short}"
    return None
