"""Forms in which a version leaves the workbench: whole files that need nothing of it."""

from __future__ import annotations

import re
import textwrap

from workbench.codegen.exports.rows import RowsGradient
from workbench.errors import UserError
from workbench.records import Facts, Problem

BENCHMARKS = ("flashinfer-bench", "sol-execbench")  # forms of several files
FORMS = ("kernelbench", "custom-op", *BENCHMARKS)


def add_times(source: str, times: str) -> str:
    """The file with its measured times as the last paragraph of its docstring; without them, or without a docstring,
    as it is.
    """
    start = re.match(r'(?:#.*\n|[ \t]*\n)*"""', source)
    if not times or start is None:
        return source
    end = source.index('"""', start.end())
    head = source[:end].rstrip()
    return f"{head}\n\n{textwrap.fill(times, 116)}\n{source[end:]}"


def write(
    form: str, source: str, problem: Problem, facts: Facts, device: str, gradient: RowsGradient | None = None
) -> dict[str, str]:
    """The files of a version in a form: name -> text, the main one first; a form of one file has no name for it.

    `gradient`: what an operator's backward pass has kernels for.

    Raises `UserError` for an unknown form, or a version that cannot have it.
    """
    if form == "kernelbench":
        return {"": source}
    if form == "custom-op":
        from workbench.codegen.exports.custom_op import write_custom_op  # late: libcst

        return {"": write_custom_op(source, problem, facts, gradient)}
    if form in BENCHMARKS:
        from workbench.codegen.exports.benchmarks import write_benchmark

        return write_benchmark(form, source, problem, facts, device)
    raise UserError(f"no form is called {form!r}; there are: {', '.join(FORMS)}")
