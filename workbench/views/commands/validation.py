"""Checks that a problem and a kernel fit together, from their source texts. Nothing is run.

It checks the order of the two arguments, and that the kernel's class takes as many inputs as the problem's.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path

from workbench import problems
from workbench.errors import ProgramError, UserError
from workbench.records import Problem

KERNEL, REFERENCE = "ModelNew", "Model"


def check_order(command: str, spec: str, candidate: str) -> None:
    """Raise `UserError` if the kernel and the problem are given in the wrong order."""
    if KERNEL in _class_names(spec) and (candidate in problems.shipped() or REFERENCE in _class_names(candidate)):
        raise UserError(
            f"{spec} is a kernel and {candidate} a problem: the problem comes first: "
            f"cutegen {command} {candidate} {spec}"
        )


def check_kernel(path: str, source: str, problem: Problem) -> None:
    """Raise `UserError` for a file without class ModelNew, or with one that takes other inputs than Model.

    A file with a syntax error passes; the compiler reports it.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    made = _find_class(tree, KERNEL)
    if made is None:
        if not any(
            isinstance(node, (ast.Name, ast.alias))
            and KERNEL in (getattr(node, "id", ""), getattr(node, "name", ""), getattr(node, "asname", ""))
            for node in ast.walk(tree)
        ):
            found = ", ".join(node.name for node in tree.body if isinstance(node, ast.ClassDef))
            raise UserError(
                f"{path} defines no class {KERNEL}, which a kernel for {problem.name} is"
                f"{f'; it has {found}' if found else ''}"
            )
        return
    given = _find_class(ast.parse(problem.source), REFERENCE)
    for method, what in (("forward", "inputs of the problem"), ("__init__", "get_init_inputs() of the problem")):
        own, wanted = (_parameters(one, method) for one in (made, given))
        if own is not None and wanted is not None and (own[0] > wanted[1] or own[1] < wanted[0]):
            raise UserError(
                f"{path} does not fit {problem.name}: {KERNEL}.{method} takes {own[2]}, "
                f"and {REFERENCE}.{method} {wanted[2]} ({what}); is it a kernel for another problem?"
            )


def hint_for_program(spec: str) -> str:
    """A hint for a program or an expression that was given as the problem; empty for any other text."""
    from workbench.language import OPERATIONS, parse

    if "(" not in spec:
        return ""
    try:
        known = parse(spec).stages[0].operation.name in OPERATIONS
    except ProgramError:
        known = False
    if known:
        return (
            f"{spec!r} is a program of muCUTLASS, not a problem: name the problem that it computes, and the program "
            f"beside it: cutegen run PROBLEM --program {spec!r} "
            f"(in a notebook %cutegen problem PROBLEM, then %cutegen program {spec})"
        )
    return (
        f'{spec!r} is an expression: say its inputs too, as in --inputs "x: f32[4096, 4096]", '
        'and write it in PyTorch: "torch.softmax(x, -1)"'
    )


def _class_names(path: str) -> tuple[str, ...]:
    """Names of the classes in a Python file; empty for any other file."""
    try:
        return tuple(
            node.name
            for node in ast.parse(Path(path).read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef)
        )
    except (OSError, SyntaxError, ValueError):
        return ()


def _find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _parameters(made: ast.ClassDef | None, method: str) -> tuple[int, float, str] | None:
    """(fewest, most, names) of the parameters of a method without self; None if a base class may define it."""
    function = (
        next((node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == method), None)
        if made is not None
        else None
    )
    if function is None or function.decorator_list:
        return None
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][1:]
    return (
        len(names) - len(function.args.defaults),
        math.inf if function.args.vararg else len(names),
        ", ".join(names) or "nothing",
    )
