"""Inlines functions of a written file that only forward: `return x`, `return 4`, or `return f(x, y)` of parameters.

The library decides at such places by the configuration; once it is decided, nothing is left that a reader needs.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence

from workbench.records import record

ATOMS = (ast.Attribute, ast.Call, ast.Constant, ast.Name, ast.Subscript)  # expressions that need no parentheses
OPAQUE = ("cute.Tensor", "cutlass.Constexpr", "cute.CopyAtom", "cute.TiledMma")  # annotations that convert nothing


@record
class Forward:
    """A forwarding function: its parameters and the expression that it returns."""

    parameters: tuple[str, ...]
    value: ast.expr


@record
class Definition:
    """One definition of the file: the name that it defines, what it forwards, and all names in it."""

    name: str
    forward: Forward | None
    mentioned: frozenset[str]


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


@functools.lru_cache(maxsize=4096)
def _read_definition(text: str) -> Definition:
    node = _parse(text).body[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    mentioned = frozenset(item.id for item in ast.walk(node) if isinstance(item, ast.Name))
    forward = _read_forward(node) if isinstance(node, ast.FunctionDef) else None
    return Definition(name=node.name, forward=forward, mentioned=mentioned)


def inline_forwards(definitions: Sequence[str], model: str) -> tuple[list[str], str]:
    """The definitions without forwarding functions, and the model's text; calls become the value that is forwarded.

    The model's text is empty in a file of a kernel alone.
    """
    texts = [*definitions, model] if model else list(definitions)
    while found := _find_forward(texts):
        name, forward = found
        texts = [_replace_calls(text, name, forward) for text in texts if _read_definition(text).name != name]
    return (texts[:-1], texts[-1]) if model else (texts, model)


def _find_forward(texts: Sequence[str]) -> tuple[str, Forward] | None:
    """The first forwarding function, if every use of its name is a call that can be replaced."""
    known = [_read_definition(text) for text in texts]
    for definition in known:
        if (forward := definition.forward) is None:
            continue
        users = [
            text
            for text, other in zip(texts, known, strict=True)
            if definition.name in other.mentioned and other is not definition
        ]
        if all(_can_replace(call, forward) for text in users for call in _uses(_parse(text), definition.name)):
            return definition.name, forward
    return None


def _read_forward(function: ast.FunctionDef) -> Forward | None:
    """The forward that a function is, else None."""
    arguments = function.args
    body = [line for line in function.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
    decorators = [ast.unparse(item) for item in function.decorator_list]
    if decorators not in ([], ["cute.jit"]) or arguments.vararg or arguments.kwonlyargs or arguments.defaults:
        return None
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    if any(item.annotation and ast.unparse(item.annotation) not in OPAQUE for item in arguments.args):
        return None
    names, value = tuple(item.arg for item in arguments.args), body[0].value
    is_plain = isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in names)
    return Forward(parameters=names, value=value) if is_plain or _is_forwarded_call(value, names) else None


def _is_forwarded_call(value: ast.expr, names: Sequence[str]) -> bool:
    """Whether it calls a function of the file with parameters, each at most once."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.keywords:
        return False
    if value.func.id in names or not all(isinstance(item, ast.Name) and item.id in names for item in value.args):
        return False
    passed = [item.id for item in value.args if isinstance(item, ast.Name)]
    return bool(passed) and len(passed) == len(set(passed))


def _uses(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Calls of a name; the name itself where it is used otherwise."""
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            called.add(node.func)
            yield node
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and node not in called:
            yield node


def _can_replace(use: ast.AST, forward: Forward) -> bool:
    """Whether the call passes every parameter by position, and nothing with an effect is lost."""
    if not isinstance(use, ast.Call) or use.keywords or len(use.args) != len(forward.parameters):
        return False
    kept = {node.id for node in ast.walk(forward.value) if isinstance(node, ast.Name)}
    lost = [item for name, item in zip(forward.parameters, use.args, strict=True) if name not in kept]
    return not any(isinstance(item, ast.Starred) for item in use.args) and not any(
        isinstance(node, ast.Call) for item in lost for node in ast.walk(item)
    )


def _replace_calls(text: str, name: str, forward: Forward) -> str:
    """The text with each call of the name replaced by the forward's value; inner calls first."""
    while name in _read_definition(text).mentioned:
        calls = [node for node in _uses(_parse(text), name) if isinstance(node, ast.Call)]
        if not calls:
            break
        call = calls[-1]  # the walk goes from outer nodes to inner ones
        given = {
            role: ast.get_source_segment(text, item) or ""
            for role, item in zip(forward.parameters, call.args, strict=True)
        }
        text = _splice(text, call, _render(forward.value, given))
    return text


def _render(value: ast.expr, given: Mapping[str, str]) -> str:
    """The forward's value with the texts of the arguments."""
    if isinstance(value, ast.Constant):
        return repr(value.value)
    if isinstance(value, ast.Name):
        text = given[value.id]
        return text if isinstance(ast.parse(text, mode="eval").body, ATOMS) else f"({text})"
    assert isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
    passed = (given[item.id] for item in value.args if isinstance(item, ast.Name))
    return f"{value.func.id}({', '.join(passed)})"


def _splice(text: str, node: ast.expr, new: str) -> str:
    """The text with a node's source replaced."""
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    head = lines[node.lineno - 1].encode()[: node.col_offset].decode()
    tail = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    return "".join([*lines[: node.lineno - 1], head, new, tail, *lines[node.end_lineno :]])
