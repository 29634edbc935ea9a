"""Finds the class that is a problem's `Model` in its text, and what its `__init__` consists of. Imports no torch."""

from __future__ import annotations

import ast
import functools
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


@functools.lru_cache(maxsize=64)
def returns_nothing(source: str) -> bool:
    """Whether the text has the model's forward, and that returns no value."""
    method = find_method(ast.parse(source).body, "forward")
    if method is None:
        return False
    waiting: list[ast.AST] = [*method.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return) and not (node.value is None or _is_none(node.value)):
            return False
        waiting += ast.iter_child_nodes(node)
    return True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


@functools.lru_cache(maxsize=64)
def signature_of(source: str) -> str:
    """The parameters of the model's forward after self, without annotations; "" if the text does not have it.

    A default that is no literal may be a name that only this text has; it is None instead.
    """
    method = find_method(ast.parse(source).body, "forward")
    if method is None:
        return ""
    given = method.args
    own = [*given.posonlyargs, *given.args][:1]
    for one in [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]:
        one.annotation = None
    given.defaults = [_literal_or_none(value) for value in given.defaults]
    given.kw_defaults = [value and _literal_or_none(value) for value in given.kw_defaults]
    for group in (given.posonlyargs, given.args):
        group[:] = [one for one in group if one not in own]
    return ast.unparse(given)


def _literal_or_none(value: ast.expr) -> ast.expr:
    try:
        ast.literal_eval(value)
    except ValueError:
        return ast.Constant(None)
    return value


def result_classes(form: str, structure: str) -> str:
    """The text of the named tuples and dataclasses in the form of a result (`Facts`): a kernel's file has its own."""
    found = {}
    for node in ast.walk(ast.parse(form.replace("*", "0"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            is_data = f"dataclass {name}(" in structure
            head = f"@dataclasses.dataclass\nclass {name}:" if is_data else f"class {name}(NamedTuple):"
            found[name] = "\n".join([head, *(f"    {one.arg}: object" for one in node.keywords)])
    return "\n\n\n".join(found.values())


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
