"""Makes the numbers that `Model.__init__` has as literals arguments of it, so that they are sizes like all others.

`nn.Linear(4096, 128256)` of an `__init__` without arguments fits no emulator as it is. With `def __init__(self, *,
fc_n0=4096, fc_n1=128256)` and these numbers in `get_init_inputs` both can be shrunk, and a kernel's own `ModelNew` gets
them. Imports no torch.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence

from workbench.problems.model_class import find_method
from workbench.problems.settings import Span, list_init_literals, splice

LONGEST_VALUE = 40  # characters of an argument's value in a message


def with_init_arguments(source: str) -> str | None:
    """The text with the numbers of `Model.__init__` as its arguments, lines kept; None where it cannot have them.

    It has to have a `get_init_inputs` that returns a plain list, tuple or dictionary.
    """
    body = ast.parse(source).body
    method = find_method(body, "__init__")
    given = _returned(body)
    if method is None or given is None or method.args.posonlyargs or method.args.kwarg or not method.args.args:
        return None
    literals = list_init_literals(method)
    items = _items_by_name(source, given, [one.arg for one in method.args.args[1:]])
    if not literals or items is None:
        return None
    keywords = "".join(f", {name}={value}" for name, value, _ in literals)
    star = "" if method.args.kwonlyargs or method.args.vararg else ", *"
    made = ", ".join([*items, *(f'"{name}": {value}' for name, value, _ in literals)])
    return splice(
        source,
        [
            (_end_of_arguments(method.args), star + keywords),
            *((span, name) for name, _, span in literals),
            (_span(given), f"{{{made}}}"),
        ],
    )


def check_fit(candidate: type, model: type, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Raise `TypeError` if a candidate's `__init__` does not take what Model's is given."""
    own, wanted = map(_signature_of_init, (candidate, model))
    try:
        own.bind(None, *args, **kwargs)
    except TypeError as error:
        called = ", ".join([*map(_shorten, args), *(f"{name}={_shorten(value)}" for name, value in kwargs.items())])
        raise TypeError(
            f"{candidate.__name__} is made as {candidate.__name__}({called}), with what get_init_inputs() returns, but "
            f"has `def __init__{own}` ({error}): write `def __init__{wanted}` as Model has"
        ) from None


def _shorten(value: object) -> str:
    return textwrap.shorten(repr(value), LONGEST_VALUE, placeholder="...")


def _signature_of_init(model: type) -> inspect.Signature:
    """The arguments of `__init__`, without annotations; torch's own, which refuses all but self, names none."""
    method = inspect.getattr_static(model, "__init__")
    is_own = not str(method.__module__).startswith("torch.")
    found = inspect.signature(method if is_own else lambda self: None)
    plain = [one.replace(annotation=one.empty) for one in found.parameters.values()]
    return found.replace(parameters=plain, return_annotation=found.empty)


def note_arguments(init_source: str) -> str:
    """What a person has to know of an `__init__` with such arguments."""
    method = ast.parse(init_source).body[0]
    assert isinstance(method, ast.FunctionDef), "the text begins with __init__"
    names = ", ".join(one.arg for one in method.args.kwonlyargs)
    return f"numbers in Model.__init__ are its arguments here, so that they can be shrunk: ModelNew has {names} too"


def _returned(body: list[ast.stmt]) -> ast.List | ast.Tuple | ast.Dict | None:
    """What `get_init_inputs` returns, if that is one list, tuple or dictionary."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            found = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
            value = found[0] if len(found) == 1 else None
            return value if isinstance(value, (ast.List, ast.Tuple, ast.Dict)) else None
    return None


def _items_by_name(source: str, given: ast.List | ast.Tuple | ast.Dict, arguments: list[str]) -> list[str] | None:
    """Texts `"argument": value` of what is given by position or by name; None if it cannot be told."""
    if isinstance(given, ast.Dict):
        pairs = [(ast.unparse(key), value) for key, value in zip(given.keys, given.values, strict=True) if key]
        return [f"{key}: {ast.unparse(value)}" for key, value in pairs] if len(pairs) == len(given.keys) else None
    if len(given.elts) > len(arguments) or any(isinstance(one, ast.Starred) for one in given.elts):
        return None
    return [f'"{name}": {ast.unparse(value)}' for name, value in zip(arguments, given.elts, strict=False)]


def _end_of_arguments(arguments: ast.arguments) -> Span:
    """Where a further keyword-only argument goes."""
    nodes = [*arguments.args, *arguments.kwonlyargs, *([arguments.vararg] if arguments.vararg else [])]
    nodes += [one for one in (*arguments.defaults, *arguments.kw_defaults) if one is not None]  # type: ignore[misc]
    last = max((node.end_lineno or 0, node.end_col_offset or 0) for node in nodes)
    return (*last, *last)


def _span(node: ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
