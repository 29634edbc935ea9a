"""Finds the class that is a problem's `Model` in its text, and what its `__init__` consists of. Imports no torch."""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Iterator, Sequence

NAME = "Model"
PLAIN_INIT = "def __init__(self):\n    super().__init__()\n"


def bound_names(body: Sequence[ast.stmt]) -> set[str]:
    """Names that a text defines at its top level: classes, functions, imports and names that are assigned."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def find_model(body: Sequence[ast.stmt]) -> ast.ClassDef | None:
    """The class of that name, or the one to which the name is assigned (`Model = RMSNorm`); None if there is none."""
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    assigned = {
        target.id: node.value.id
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    name = NAME
    for _ in range(len(assigned) + 1):
        if name in classes:
            return classes[name]
        name = assigned.get(name, "")
    return None


def find_method(body: Sequence[ast.stmt], name: str) -> ast.FunctionDef | None:
    """A method of the model, its own or that of a base class of the same text; None if there is none."""
    return next((item for item in _methods(body) if item.name == name), None)


def default_texts(body: Sequence[ast.stmt]) -> tuple[tuple[str, str], ...]:
    """(argument, text of its default) of the last arguments of the model's forward whose defaults are constants."""
    method = find_method(body, "forward")
    if method is None:
        return ()
    plain = [*method.args.posonlyargs, *method.args.args]
    pairs = [
        *zip(plain[len(plain) - len(method.args.defaults) :], method.args.defaults, strict=True),
        *zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True),
    ]
    last = list(itertools.takewhile(lambda pair: isinstance(pair[1], ast.Constant), reversed(pairs)))
    return tuple((one.arg, ast.unparse(value)) for one, value in reversed(last) if value is not None)


def init_source(source: str) -> str:
    """The text of the model's `def __init__`, dedented, and of its methods that this one calls.

    ModelNew owns the same parameters by it.
    """
    body = ast.parse(source).body
    methods = {item.name: item for item in reversed([*_methods(body)])}
    if "__init__" not in methods:
        return PLAIN_INIT
    wanted = ["__init__"]
    for name in wanted:  # grows while it runs
        read = {_name_in_self(node) for node in ast.walk(methods[name])}
        wanted += [other for other in methods if other in read and other not in (*wanted, "forward")]
    return "\n".join(_dedented(source, methods[name]) for name in wanted)


def _methods(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Methods of the model, then those of its base classes in the same text."""
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    waiting, seen = [find_model(body)], set[str]()
    while waiting:
        node = waiting.pop(0)
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        yield from (item for item in node.body if isinstance(item, ast.FunctionDef))
        waiting += [classes.get(base.id) for base in node.bases if isinstance(base, ast.Name)]


def _name_in_self(node: ast.AST) -> str:
    """name of `self.name`; empty for anything else."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if isinstance(node, ast.Attribute) and is_own else ""


def _dedented(source: str, method: ast.FunctionDef) -> str:
    """The text of a method with its decorators, without the indentation of its class."""
    first = min([method.lineno, *(one.lineno for one in method.decorator_list)])
    lines = source.splitlines()[first - 1 : method.end_lineno]
    return textwrap.dedent("\n".join(lines)) + "\n"
