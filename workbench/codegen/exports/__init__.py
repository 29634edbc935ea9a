"""Forms in which a version leaves the workbench: whole files that need nothing of it."""

from __future__ import annotations

import ast
import re
import textwrap

from workbench.codegen.exports.rows import RowsGradient
from workbench.codegen.guards import check_value
from workbench.codegen.module import WRITTEN_IN
from workbench.errors import UserError
from workbench.records import Facts, Problem, Version

BENCHMARKS = ("flashinfer-bench", "sol-execbench")
AHEAD = "ahead-of-time"
FOLDERS = (AHEAD, *BENCHMARKS)  # forms of several files
UNTESTED = "was only tested at {}; leave this check out if the kernel takes others"
FORMS = ("kernelbench", "custom-op", "operators", *FOLDERS)


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


def add_checks(source: str, facts: Facts) -> str:
    """The file, whose forward refuses numbers that it was not tested with; one of the planner's does so already."""
    given = {one.name: repr(one.value) for one in facts.given if not one.others and not one.follows}
    forward = _find_forward(source)
    if not given or forward is None or WRITTEN_IN.partition("{}")[2] in source:
        return source
    own = [one.arg for one in (*forward.args.posonlyargs, *forward.args.args)][1:]
    names = dict(zip(facts.forward_arguments, own, strict=False))
    checks = [check_value(names[name], value, UNTESTED) for name, value in given.items() if name in names]
    body = forward.body[1:] if ast.get_docstring(forward) is not None and len(forward.body) > 1 else forward.body
    lines = source.splitlines(keepends=True)
    line = lines[body[0].lineno - 1].encode()
    before, after = line[: body[0].col_offset].decode(), line[body[0].col_offset :].decode()
    indent = " " * (forward.col_offset + 4)
    head = before.rstrip() + "\n" if before.strip() else ""  # the body follows on the line of `def`
    lines[body[0].lineno - 1] = head + textwrap.indent("".join(checks), indent) + (indent if head else before) + after
    return "".join(lines)


def _find_forward(source: str) -> ast.FunctionDef | None:
    """The method forward of ModelNew."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
    methods = [node for one in classes for node in one.body if isinstance(node, ast.FunctionDef)]
    return next((node for node in methods if node.name == "forward"), None)


def describe_export(version: Version, path: str) -> str:
    """What is said of a version that was written: where, and that it is not known to be right if it is not."""
    verdict = version.trials[-1].verdict if version.trials else None
    warning = ""
    if verdict is None:
        warning = "; it was not tested"
    elif not verdict.correct:
        warning = f"; it is NOT CORRECT: {verdict.failure.message if verdict.failure else 'its results are wrong'}"
    return f"v{version.number} written to {path}{warning}"


def write(
    form: str,
    source: str,
    problem: Problem,
    facts: Facts,
    device: str,
    arch: str,
    gradient: RowsGradient | None = None,
) -> dict[str, str]:
    """The files of a version in a form: name -> text, the main one first; a form of one file has no name for it.

    `arch`: what the version is compiled for. `gradient`: what an operator's backward pass has kernels for.

    Raises `UserError` for an unknown form, or a version that cannot have it.
    """
    try:
        ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 1)
        raise UserError(f"this version is no Python (line {line}: {error}): mend it, or export another one") from None
    source = add_checks(source, facts)
    if form != AHEAD:
        from workbench.codegen.exports.plans import add_plans  # late: libcst

        source = add_plans(source, problem.name)
    if form == "kernelbench":
        return {"": source}
    if form == "custom-op":
        from workbench.codegen.exports.custom_op import write_custom_op  # late: libcst

        return {"": write_custom_op(source, problem, facts, gradient)}
    if form == "operators":
        from workbench.codegen.exports.registry import write_operators  # late: libcst

        return {"": write_operators(source, problem, facts, arch)}
    if form == AHEAD:
        from workbench.codegen.exports.ahead import write_ahead

        return write_ahead(source, problem)
    if form in BENCHMARKS:
        from workbench.codegen.exports.benchmarks import write_benchmark

        return write_benchmark(form, source, problem, facts, device)
    raise UserError(f"no form is called {form!r}; there are: {', '.join(FORMS)}")
