"""The policy `budget` (muCUTLASS, section "budgeting"): when to stop working on a problem.

A problem is done if its best version beats the reference and either t_best <= (1 + epsilon) t_bound or `patience`
attempts in a row gave no gain. Without a time of the reference (no GPU) it does not have to be beaten, and the reason
says so.
"""

from __future__ import annotations

from workbench.errors import UserError
from workbench.records import record


@record
class BudgetSettings:
    """epsilon: accepted fraction above the bound; patience: attempts without a gain; most: attempts in total.

    The paper's best budgets use an epsilon of 0.25 to 2.5 and a patience of 12 to 16 attempts of a language model. A
    planner makes fewer and less random attempts (patience 4, inferred).
    """

    epsilon: float = 0.25
    patience: int = 4
    most: int = 40  # the paper's budget for one problem

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise UserError(f"epsilon is {self.epsilon:g}; it must be at least 0 (0.25 = within 25 % of the bound)")
        for name in ("patience", "most"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")


@record
class Standing:
    """The state of a problem in a loop. Times are seconds at the full case; None = unknown."""

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
