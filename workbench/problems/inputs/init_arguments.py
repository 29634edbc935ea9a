"""Makes the numbers that `Model.__init__` has in its text arguments of it, so that they are sizes like all others.

`nn.Linear(4096, 128256)` of an `__init__` without arguments fits no emulator as it is. With `def __init__(self, *,
fc_n0=4096, fc_n1=128256)` and these numbers in `get_init_inputs` both can be shrunk, and a kernel's own `ModelNew` gets
them. The same holds for numbers of the file that `__init__` reads by name, and for the `__init__` of the text's own
classes that it makes (`FFN(up_n0=up_n0)`). Imports no torch.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from workbench.problems.model_class import find_method
from workbench.problems.settings import (
    LEAST_IN_INIT,
    Span,
    find_assignments,
    list_init_literals,
    splice,
    with_settings,
)
from workbench.records import Problem

CANDIDATE = "ModelNew"

LONGEST_VALUE = 40  # characters of an argument's value in a message


def with_init_arguments(source: str) -> str | None:
    """The text with the numbers of `Model.__init__` as its arguments, lines kept; None where it cannot have them.

    It has to have a `get_init_inputs` that returns a plain list, tuple or dictionary.
    """
    found = _lift_model(source)
    if found is None or not found[1]:
        return None
    lifter, made, items, given = found
    added = [f'"{name}": {name if name in lifter.of_file else value}' for name, value in made.items()]
    texts = [f'"{name}": {text}' for name, text in items.items()]
    return _spliced(source, [*lifter.edits, (_span(given), f"{{{', '.join([*texts, *added])}}}")])


def fit_candidate(source: str, problem: Problem) -> str:
    """A candidate's text, with numbers of `ModelNew.__init__` as its arguments if it lacks arguments that Model has
    by `with_init_arguments` and has the same numbers as literals: by the same names, else each number once.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return source  # importing it says why
    found = next((one for one in body if isinstance(one, ast.ClassDef) and one.name == CANDIDATE), None)
    own = next((one for one in (found.body if found else ()) if _is_init(one)), None)
    given = _numbers_by_name(with_settings(problem.source, problem.settings))
    if not isinstance(own, ast.FunctionDef) or own.args.kwarg:
        return source
    taken = {one.arg for one in (*own.args.args, *own.args.kwonlyargs)}
    missing = {name: value for name, value in given.items() if name not in taken}
    if not missing:
        return source
    of_value = {value: name for name, value in missing.items() if [*missing.values()].count(value) == 1}
    for named in ({}, of_value):
        lifter = _Lifter(source, body, named)
        made = lifter.lift(own, taken)
        text = _spliced(source, lifter.edits) if {**made, **missing} == made else None
        if text is not None:
            return text
    return source


def list_init_numbers(source: str) -> tuple[set[int], set[str]]:
    """(the numbers that `with_init_arguments` makes arguments, the names of those that are read from the file)."""
    found = _lift_model(source)
    return ({*found[1].values()}, {*found[0].of_file}) if found is not None else (set(), set())


def _lift_model(source: str) -> tuple[_Lifter, dict[str, int], dict[str, str], ast.expr] | None:
    """(the edits of `Model.__init__`, its new arguments, the texts that `get_init_inputs` gives by argument, what it
    returns); None where it cannot be told what it gives.
    """
    body = ast.parse(source).body
    method, given = find_method(body, "__init__"), _returned(body)
    items = _items_by_name(given, [one.arg for one in method.args.args[1:]]) if method and given else None
    if method is None or given is None or items is None:
        return None
    lifter = _Lifter(source, body)
    return lifter, lifter.lift(method, {*items}), items, given


def note_arguments(source: str, lifted: str) -> str:
    """What a person has to know of an `__init__` with such arguments. `source` is the text as it was given."""
    before, after = (find_method(ast.parse(text).body, "__init__") for text in (source, lifted))
    assert before is not None and after is not None, "only an __init__ gets arguments"
    known = {one.arg for one in before.args.kwonlyargs}
    names = ", ".join(one.arg for one in after.args.kwonlyargs if one.arg not in known)
    return (
        "numbers that Model.__init__ has in its text, from the file or as defaults are its arguments here"
        f"{f' ({names})' if names else ''}, so that they can vary; a ModelNew has them too, or the same numbers in its "
        "own __init__"
    )


def _numbers_by_name(source: str) -> dict[str, int]:
    """What `get_init_inputs` gives by name, those that are whole numbers."""
    given = _returned(ast.parse(source).body)
    items = _items_by_name(given, []) if isinstance(given, ast.Dict) else None
    numbers = {item.name: item.value for item in find_assignments(source)}
    found = {name: int(text) if text.isdecimal() else numbers.get(text) for name, text in (items or {}).items()}
    return {name: value for name, value in found.items() if type(value) is int}


def list_defaults(arguments: ast.arguments) -> dict[str, ast.expr | None]:
    """The arguments of a function that may be left out, with their defaults."""
    positional = (*arguments.posonlyargs, *arguments.args)
    pairs = (
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    )
    return {argument.arg: default for argument, default in pairs}


def read_whole(values: Mapping[str, ast.expr | None], least: int = 0) -> dict[str, int]:
    """Those that are a whole number of at least `least`."""
    numbers = {name: value.value for name, value in values.items() if isinstance(value, ast.Constant)}
    return {name: number for name, number in numbers.items() if type(number) is int and number >= least}


def _is_init(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


@dataclass
class _Lifter:
    """Collects the edits that make numbers of an `__init__` its arguments, and those of the classes that it makes."""

    source: str
    body: list[ast.stmt]
    named: dict[int, str] = field(default_factory=dict)  # literals that get these names
    edits: list[tuple[Span, str]] = field(default_factory=list)
    of_file: dict[str, int] = field(default_factory=dict)  # names of the file that are read
    done: dict[str, dict[str, int]] = field(default_factory=dict)  # class -> arguments of its `__init__`

    def __post_init__(self) -> None:
        classes = {node.name: node.body for node in self.body if isinstance(node, ast.ClassDef)}
        self.methods = {
            name: item
            for name, items in classes.items()
            for item in items
            if isinstance(item, ast.FunctionDef) and _is_init(item)
        }
        names = {
            node.id
            for statement in self.body
            if isinstance(statement, (ast.Assign, ast.AnnAssign))
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        assigned = [item for item in find_assignments(self.source) if item.name in names]
        self.numbers = {item.name: item.value for item in assigned if type(item.value) is int}
        self.fields = {
            node.name: {ast.unparse(item.target): item.value for item in node.body if _is_field(item)}
            for node in self.body
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list)
        }

    def lift(self, method: ast.FunctionDef, given: set[str]) -> dict[str, int]:
        """The arguments that a method gets, with their values; those that have a number as default and are not given
        are among them.
        """
        if method.args.posonlyargs or method.args.kwarg or not method.args.args:
            return {}
        own = {node.arg for node in ast.walk(method) if isinstance(node, ast.arg)}
        stored = {node.id for node in _names(method) if isinstance(node.ctx, ast.Store)}
        defaults = {
            name: value for name, value in self._read_defaults(list_defaults(method.args)).items() if name not in given
        }
        added: dict[str, int] = {}
        for own_name, value, span in list_init_literals(method, min((LEAST_IN_INIT, *self.named))):
            name = self.named.get(value, own_name)
            self.edits.append((span, name))
            added[name] = value
        read = {node.id for node in _names(method) if isinstance(node.ctx, ast.Load)} - own - stored
        for name in sorted(read & self.numbers.keys()):
            self.of_file[name] = added[name] = self.numbers[name]
        for call in ast.walk(method):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                self._pass_on(call, call.func.id, added, own | stored)
        if added:
            star = "" if method.args.kwonlyargs or method.args.vararg else ", *"
            text = "".join(f", {name}={value}" for name, value in added.items())
            self.edits.append((_end_of_arguments(method.args), star + text))
        return added | defaults

    def _read_defaults(self, values: Mapping[str, ast.expr | None]) -> dict[str, int]:
        """Those that are a whole number of at least LEAST_IN_INIT, or one of the file by name."""
        named = {name: value.id for name, value in values.items() if isinstance(value, ast.Name)}
        of_file = {name: self.numbers[of] for name, of in named.items() if of in self.numbers}
        return read_whole(values, LEAST_IN_INIT) | of_file

    def _pass_on(self, call: ast.Call, name: str, added: dict[str, int], taken: set[str]) -> None:
        """Give a call that makes a part the numbers of that part's `__init__`, or of a dataclass, as arguments of this
        one.
        """
        if name in self.fields and name not in self.methods:
            self._give(call, [*self.fields[name]], self._read_defaults(self.fields[name]), added, taken)
        method = self.methods.get(name)
        if method is None:
            return
        if name not in self.done:
            self.done[name] = {}  # a class that makes itself
            self.done[name] = self.lift(method, set())
        self._give(call, [one.arg for one in method.args.args[1:]], self.done[name], added, taken)

    def _give(
        self, call: ast.Call, order: Sequence[str], numbers: Mapping[str, int], added: dict[str, int], taken: set[str]
    ) -> None:
        """Give a call those of its numbers that it does not have; `order` is that of its arguments."""
        passed = {*order[: len(call.args)], *(one.arg for one in call.keywords)}
        if None in passed or any(isinstance(one, ast.Starred) for one in call.args):
            return
        texts = []
        for inner, value in numbers.items():
            if inner in passed:
                continue
            outer = inner if inner in self.of_file else _free(inner, value, added, taken)
            added[outer] = value
            texts.append(f"{inner}={outer}")
        if texts:
            last = max(((one.end_lineno or 0, one.end_col_offset or 0) for one in _arguments(call)), default=None)
            end = (call.end_lineno or 0, (call.end_col_offset or 1) - 1)
            self.edits.append(((*(last or end), *(last or end)), (", " if last else "") + ", ".join(texts)))


def _is_field(item: ast.stmt) -> TypeGuard[ast.AnnAssign]:
    return isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)


def _free(name: str, value: int, added: dict[str, int], taken: set[str]) -> str:
    """The name, or the name with the first suffix `_2`, `_3`, ... that is free or stands for the same number."""
    number, free = 2, name
    while free in taken or added.get(free, value) != value:
        number, free = number + 1, f"{name}_{number}"
    return free


def _names(method: ast.FunctionDef) -> list[ast.Name]:
    return [node for statement in method.body for node in ast.walk(statement) if isinstance(node, ast.Name)]


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def _spliced(source: str, edits: list[tuple[Span, str]]) -> str | None:
    """The text with the edits, if that is still Python."""
    text = splice(source, edits)
    with contextlib.suppress(SyntaxError):
        ast.parse(text)
        return text
    return None


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


def _returned(body: list[ast.stmt]) -> ast.List | ast.Tuple | ast.Dict | None:
    """What `get_init_inputs` returns, if that is one list, tuple or dictionary."""
    for node in reversed(body):
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            found = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
            value = found[0] if len(found) == 1 else None
            return value if isinstance(value, (ast.List, ast.Tuple, ast.Dict)) else None
    return None


def _items_by_name(given: ast.List | ast.Tuple | ast.Dict, arguments: list[str]) -> dict[str, str] | None:
    """Texts of what is given, by argument; None if it cannot be told."""
    if isinstance(given, ast.Dict):
        keys = [key.value for key in given.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        texts = [ast.unparse(value) for value in given.values]
        return dict(zip(keys, texts, strict=True)) if len(keys) == len(texts) else None
    if len(given.elts) > len(arguments) or any(isinstance(one, ast.Starred) for one in given.elts):
        return None
    return {name: ast.unparse(value) for name, value in zip(arguments, given.elts, strict=False)}


def _end_of_arguments(arguments: ast.arguments) -> Span:
    """Where a further keyword-only argument goes."""
    nodes = [*arguments.args, *arguments.kwonlyargs, *([arguments.vararg] if arguments.vararg else [])]
    nodes += [one for one in (*arguments.defaults, *arguments.kw_defaults) if one is not None]  # type: ignore[misc]
    last = max((node.end_lineno or 0, node.end_col_offset or 0) for node in nodes)
    return (*last, *last)


def _span(node: ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
