"""Finds the module-level numbers of a problem's source text, checks settings, writes new values in. Imports no torch.

A setting is a module-level name with a number or a bool as its value: a literal, an arithmetic expression of literals
(`N = 2048 * 2`), one name of a tuple assignment (`M, N = 4, 8`), or one item of a tuple or list (`shape = (64, 32)` has
`shape[0]` and `shape[1]`). A name whose expression uses other names is derived: it follows them, and a person may still
set it. New values are spliced into the text, so line numbers stay those of the file.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from workbench.errors import ProblemError
from workbench.records import Scalar, Settings, record

Number = bool | int | float

LARGEST = 1 << 62  # a number beyond 64 bits is no size
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


@record
class Assigned:
    """One number in the text. `derived`: its expression uses other names.

    `span` is first line, first column, last line, last column.
    Lines count from 1, columns are in UTF-8 bytes.
    """

    name: str
    value: Number
    derived: bool
    span: tuple[int, int, int, int]


def find_assignments(source: str) -> tuple[Assigned, ...]:
    """Every module-level number in the order of the text. A name that is assigned twice appears twice."""
    found: list[Assigned] = []
    known: dict[str, Number] = {}
    for node in ast.parse(source).body:
        for name, expression in _list_pairs(node):
            items = expression.elts if isinstance(expression, (ast.Tuple, ast.List)) else None
            parts = (
                [(f"{name}[{n}]", item) for n, item in enumerate(items)] if items is not None else [(name, expression)]
            )
            for label, part in parts:
                value = _fold(part, known)
                if value is None:
                    known.pop(label, None)
                    continue
                known[label] = value
                derived = any(isinstance(inner, ast.Name) for inner in ast.walk(part))
                span = (
                    part.lineno,
                    part.col_offset,
                    part.end_lineno or part.lineno,
                    part.end_col_offset or part.col_offset,
                )
                found.append(Assigned(name=label, value=value, derived=derived, span=span))
    return tuple(found)


def _list_pairs(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """(name, expression) of an assignment to plain names."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target = node.targets[0]
    if isinstance(target, ast.Name):
        return [(target.id, node.value)]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
        return [
            (left.id, right)
            for left, right in zip(target.elts, node.value.elts, strict=True)
            if isinstance(left, ast.Name)
        ]
    return []


def _fold(node: ast.expr, known: dict[str, Number]) -> Number | None:
    """The value of an expression of literals and known names; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (bool, int, float)) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _fold(node.operand, known)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _fold(node.left, known), _fold(node.right, known)
    if left is None or right is None:
        return None
    if (
        isinstance(node.op, (ast.Pow, ast.LShift))
        and isinstance(left, int)
        and isinstance(right, int)
        and 0 <= right <= 64
    ):
        result: Number = left**right if isinstance(node.op, ast.Pow) else left << right
        return result if abs(result) < LARGEST else None
    action = _BINARY.get(type(node.op))
    if action is None or (right == 0 and isinstance(node.op, (ast.FloorDiv, ast.Div, ast.Mod))):
        return None
    return action(left, right)


def module_scalars(source: str) -> dict[str, Scalar]:
    """Names and values of the settings that are not derived, in the order of the text."""
    return {item.name: item.value for item in find_assignments(source) if not item.derived}


def check_settings(source: str, settings: Settings) -> None:
    """Raise `ProblemError` if a name is not a setting of the source, or a value has another type."""
    known = {item.name: item.value for item in find_assignments(source)}
    for name, value in settings:
        if name not in known:
            raise ProblemError(f"the problem has no setting {name!r}; it has: {', '.join(known) or 'none'}")
        if not isinstance(value, (bool, int, float)):
            raise ProblemError(f"setting {name}={value!r} is not a number")
        old = known[name]
        if isinstance(old, bool) != isinstance(value, bool):
            wanted = "a bool; write True or False" if isinstance(old, bool) else "a number, not a bool"
            raise ProblemError(f"setting {name}={value!r}: {name} is {wanted}")
        if isinstance(old, int) and isinstance(value, float):
            raise ProblemError(f"setting {name}={value!r}: {name} is an integer in the problem")


def with_settings(source: str, settings: Settings) -> str:
    """The source with new values in place of the old expressions; line numbers do not change."""
    values = dict(settings)
    lines = source.encode().splitlines(keepends=True)  # bytes split where Python's own lines do
    for item in reversed(find_assignments(source)):
        if item.name not in values:
            continue
        first, start, last, end = item.span
        text = repr(values[item.name]).encode() + b"\n" * (last - first)
        lines[first - 1 : last] = [lines[first - 1][:start] + text + lines[last - 1][end:], *[b""] * (last - first)]
    return b"".join(lines).decode()
