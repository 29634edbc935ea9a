"""Forms in which a version leaves the workbench: whole files that need nothing of it."""

from __future__ import annotations

from workbench.errors import UserError
from workbench.records import Facts, Problem

FORMS = ("kernelbench", "custom-op")


def write(form: str, source: str, problem: Problem, facts: Facts) -> str:
    """The text of a version in a form. Raises `UserError` for an unknown form, or a version that cannot have it."""
    if form == "kernelbench":
        return source
    if form == "custom-op":
        from workbench.codegen.exports.custom_op import write_custom_op  # late: libcst

        return write_custom_op(source, problem, facts)
    raise UserError(f"no form is called {form!r}; there are: {', '.join(FORMS)}")
