"""The line of an access to memory, where the compiler gives it the line of a helper that computes its index.

CuTe DSL calls helpers while it traces a kernel, and an access without a place of its own gets the last place before it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

ACCESS = re.compile(r"\[|copy\(|\.load\(|\.store\(|gemm\(")  # text of a line with an access
DEEPEST = 4  # helpers that call each other

Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_access(source: str, line: int | None) -> int | None:
    """The first line that accesses memory with the result of the helper that `line` is in; else `line` itself."""
    texts = source.splitlines()
    found = line
    for _ in range(DEEPEST):
        if found is None or not 0 < found <= len(texts) or ACCESS.search(texts[found - 1]):
            return found
        uses = _list_uses(source, found)
        found = next((use for use in uses if ACCESS.search(texts[use - 1])), uses[0] if uses else line)
        if found == line:
            break
    return line


def _list_uses(source: str, line: int) -> list[int]:
    """The lines where the result of the function around a line is used: as an index, else where it is called."""
    tree = _parse(source)
    helper = _function_at(tree, line) if tree is not None else None
    if tree is None or helper is None:
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, Function) and node is not helper]
    return [
        _find_use(statement, _statements(function))
        for function in functions
        for statement in _statements(function)
        if _calls(statement, helper.name)
    ]


def _find_use(statement: ast.stmt, others: Sequence[ast.stmt]) -> int:
    """The line where the names that a statement assigns to are in an index; else its own."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {node.id for to in targets for node in ast.walk(to) if isinstance(node, ast.Name)}
    used = (use for other in others if (use := _index_by(other, names, statement.lineno)))
    return next(used, statement.lineno)


def _index_by(statement: ast.stmt, names: set[str], after: int) -> int | None:
    """The line of a statement, after the line `after`, where one of the names is in an index."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript) and node.lineno > after:
            inner = (each for each in ast.walk(node.slice) if isinstance(each, ast.Name))
            if any(each.id in names for each in inner):
                return node.lineno
    return None


@functools.lru_cache(maxsize=4)
def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _function_at(tree: ast.Module, line: int) -> Function | None:
    """The innermost function around a line."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _statements(function: Function) -> list[ast.stmt]:
    """The statements of a function that have no others in them, in the order of their lines."""
    inner = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    return sorted(inner, key=lambda node: node.lineno)


def _calls(statement: ast.stmt, name: str) -> bool:
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(isinstance(node.func, ast.Name) and node.func.id == name for node in calls)
