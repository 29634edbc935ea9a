"""matvec(x, vector) .rows(r): checks of a CTA that has several rows at once."""

from __future__ import annotations

from workbench.language.ir import Rejection, Stage, setting
from workbench.language.operation import THREADS_PER_ROW, UNROLL, VECTOR, Setting, reject_settings

REGISTERS_OF_SM, REGISTERS_OF_THREAD = 65_536, 256


def check(stage: Stage) -> list[Rejection]:
    """Rejections of settings that do not go with rows."""
    found = reject_settings(stage, ("cluster", "parts"), "with rows a CTA has its rows whole", "leave it out, or rows")
    values = [
        setting(stage, item.name, least) for item, least in ((ROWS, 1), (UNROLL, 1), (VECTOR, 1), (THREADS_PER_ROW, 32))
    ]
    if not all(isinstance(value, int) for value in values):
        return found  # what is no number is refused where it stands
    rows, unroll, vector, threads = map(int, map(str, values))
    if threads < 64:
        given = (
            f"with threads_per_row({threads})"
            if setting(stage, "threads_per_row") is not None
            else f"without threads_per_row, which is {threads} then,"
        )
        reason = f"all threads of a CTA share its rows, and {given} a CTA has several rows side by side"
        found.append(
            Rejection(
                field="rows",
                value=str(rows),
                reason=reason,
                legal=f"with threads_per_row 64 or more, as in .rows({rows}) .threads_per_row(128)",
            )
        )
    most = min(REGISTERS_OF_SM // max(threads, 64), REGISTERS_OF_THREAD) // 2
    if rows * unroll * vector > most:
        elements = f"each thread would load {rows * unroll * vector} elements of x at once"
        reason = f"{elements}, and at most half of its registers are for them"
        found.append(
            Rejection(
                field="rows", value=str(rows), reason=reason, legal=f"rows times unroll times vector up to {most}"
            )
        )
    return found


ROWS = Setting(
    name="rows",
    values=(2, 4, 8),
    reason="rows that a CTA has at once, each with sums of its own in every thread",
    meaning="a CTA has {values} rows at once, for which it loads the vector once; with threads_per_row 64 or more",
)
