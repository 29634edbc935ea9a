"""Turns comparisons with the reference into the failure of a wrong result. Only this module decides what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.records import Check, Failure


def wrong_result(checks: Sequence[Check], unmapped_parameters: Sequence[str] = ()) -> Failure | None:
    """The failure of the first failed comparison; None if all passed.

    `unmapped_parameters` of the reference have no partner in the candidate, which may be the cause.
    """
    wrong = next((check for check in checks if not check.passed), None)
    if wrong is None:
        return None
    is_nan = wrong.worst_got is not None and math.isnan(wrong.worst_got)
    hint = (
        "these parameters have no partner in Model by name and shape, so they kept their own values: "
        + ", ".join(unmapped_parameters)
        if unmapped_parameters
        else ""
    )
    return Failure(
        stage="check",
        kind="not_finite" if is_nan else "wrong_result",
        message=f"wrong result at case {wrong.case}: {wrong.message}",
        hint=hint,
    )
