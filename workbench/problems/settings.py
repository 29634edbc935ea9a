"""Finds the numbers of a problem's source text, checks settings, writes new values in. Imports no torch.

A setting is a module-level name with a number or a bool as its value: a literal, an arithmetic expression of literals
(`N = 2048 * 2`), one name of a tuple assignment (`M, N = 4, 8`), the first name of a chain (`height = width = 64` is
`height`), or one item of a tuple or list (`shape = (64, 32)` has `shape[0]` and `shape[1]`). A name whose expression
uses other names is derived: it follows them, and a person may still set it. Whole numbers of at least 2 in
`get_inputs` and `get_init_inputs` are settings too: `literals` names them.
New values are spliced into the text, so line numbers stay those of the file.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator

from workbench.errors import ProblemError
from workbench.problems.literals import FUNCTIONS, find_init_literals, find_literals
from workbench.problems.model_class import find_method
from workbench.records import Precision, Problem, Scalar, Settings, record

Number = bool | int | float
Span = tuple[int, int, int, int]  # first line, first column, last line, last column

# a text without one of these words makes floating tensors of float32 alone
DTYPE_WORDS = re.compile(r"half|float(16|64|8|_)|bf16|fp16|fp8|double|dtype|complex|type\(|type_as|load|__import__")
LEAST_IN_INIT = 16  # smaller numbers of an `__init__` are widths of kernels, strides, numbers of heads
GIVEN = "forward."  # before the name of a number given to forward, where a number of the text has that name
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

    Lines of its span count from 1, columns are in UTF-8 bytes.
    """

    name: str
    value: Number
    derived: bool
    span: Span
    bounds_values: bool = False  # a bound of random integers: no extent, but the length of the axis that they index


@functools.lru_cache(maxsize=256)
def find_assignments(source: str) -> tuple[Assigned, ...]:
    """Every setting in the order of the text. A name that is assigned twice appears twice."""
    tree = ast.parse(source)
    known: dict[str, Number] = {}
    found = list(_read_statements(tree.body, known))
    taken = {item.name for item in found}
    locals_: dict[str, Number] = {}  # a local name with one value in both functions is one setting
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name not in FUNCTIONS:
            continue
        inner = dict(known)
        assigned = [*_read_defaults(node, inner), *_read_statements(_statements(node), inner)]
        for item in assigned:
            is_size = type(item.value) is int and item.value >= 2
            if not is_size:
                continue
            name = item.name
            if locals_.get(name) != item.value or item.derived:
                name = _free_name(name, taken)
                locals_[name] = item.value
            taken.add(name)
            found.append(dataclasses.replace(item, name=name))
        for literal in find_literals(node, tree, functools.partial(_fold, known=inner)):
            spans = {item.span for item in found}
            if _span(literal.node) in spans:
                continue
            name = _free_name(literal.name, taken)
            taken.add(name)
            found.append(
                Assigned(
                    name=name,
                    value=literal.value,
                    derived=False,
                    span=_span(literal.node),
                    bounds_values=literal.bounds_values,
                )
            )
    return tuple(sorted(found, key=lambda item: item.span))


def _free_name(name: str, taken: set[str]) -> str:
    """The name, or the name with the first suffix `_2`, `_3`, ... that is not taken."""
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}_{number}"
    return free


def _statements(function: ast.FunctionDef) -> list[ast.stmt]:
    """Every statement of a function, those inside loops and conditions too."""
    return [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]


def _read_defaults(function: ast.FunctionDef, known: dict[str, Number]) -> Iterator[Assigned]:
    """The default values of a function's arguments."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    first = len(arguments) - len(function.args.defaults)
    for argument, value in zip(arguments[first:], function.args.defaults, strict=True):
        yield from _read_value(argument.arg, value, known)


def _read_statements(statements: Iterable[ast.stmt], known: dict[str, Number]) -> Iterator[Assigned]:
    for node in statements:
        for name, expression in _list_pairs(node):
            yield from _read_value(name, expression, known)
        for first, other in _list_chained(node):
            known |= {other + key.removeprefix(first): known[key] for key in [*known] if key.split("[")[0] == first}


def _list_chained(node: ast.stmt) -> list[tuple[str, str]]:
    """(first name, further name) of an assignment to several names, which are one setting."""
    names = (
        [target.id for target in node.targets if isinstance(target, ast.Name)] if isinstance(node, ast.Assign) else []
    )
    return [(names[0], name) for name in names[1:]]


def _read_value(name: str, expression: ast.expr, known: dict[str, Number]) -> Iterator[Assigned]:
    """The number that is assigned to a name, or the numbers of a tuple. `known` is brought up to date."""
    items = expression.elts if isinstance(expression, (ast.Tuple, ast.List)) else None
    parts = [(f"{name}[{n}]", item) for n, item in enumerate(items)] if items is not None else [(name, expression)]
    for label, part in parts:
        value = _fold(part, known)
        if value is None:
            known.pop(label, None)
            continue
        known[label] = value
        derived = any(isinstance(inner, ast.Name) for inner in ast.walk(part))
        yield Assigned(name=label, value=value, derived=derived, span=_span(part))


def list_init_literals(method: ast.FunctionDef, least: int = LEAST_IN_INIT) -> list[tuple[str, int, Span]]:
    """(name, value, span) of each literal of at least `least` that an `__init__` makes its parts with."""
    taken = {node.arg for node in ast.walk(method) if isinstance(node, ast.arg)}
    found = []
    for literal in find_init_literals(method, functools.partial(_fold, known={})):
        if literal.value >= least and not literal.bounds_values:
            name = _free_name(literal.name, taken)
            taken.add(name)
            found.append((name, literal.value, _span(literal.node)))
    return found


def list_read(source: str) -> set[str]:
    """Names that functions and methods of the text read, other than `__init__` and those that make inputs."""
    methods = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", *FUNCTIONS)
    ]
    return {node.id for method in methods for node in ast.walk(method) if isinstance(node, ast.Name)}


def _span(node: ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _list_pairs(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """(name, expression) of an assignment to plain names."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    if not isinstance(node, ast.Assign):
        return []
    target = node.targets[0]
    if len(node.targets) > 1 and not all(isinstance(item, ast.Name) for item in node.targets):
        return []
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


def spread_ties(problem: Problem, settings: Settings) -> Settings:
    """The settings, and for each the same value for the names that are tied to it and have none of their own."""
    given = dict(settings)
    for group in problem.tie:
        values = [given[name] for name in group if name in given]
        if values:
            given |= {name: values[0] for name in group if name not in given}
    return tuple(given.items())


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


def list_arguments(source: str) -> tuple[str, ...]:
    """The names of forward's arguments, without self."""
    method = find_method(ast.parse(source).body, "forward")
    if method is None:
        return ()
    plain = [*method.args.posonlyargs, *method.args.args][1:]
    rest = [one for one in (method.args.vararg, method.args.kwarg) if one is not None]
    return tuple(one.arg for one in (*plain, *method.args.kwonlyargs, *rest))


def check_sizes(
    source: str,
    settings: Settings,
    *,
    tie: tuple[tuple[str, ...], ...],
    vary: tuple[str, ...],
    keep: tuple[str, ...],
) -> None:
    """Raise `ProblemError` if a name to tie, to vary or to keep is no whole number of the source, or tied sizes have
    several values with these settings.
    """
    changed = dict(settings)
    known = {
        item.name: changed.get(item.name, item.value) for item in find_assignments(source) if type(item.value) is int
    }
    given = list_arguments(source)  # a number among them may be kept too
    for option, names in (("tie", [name for group in tie for name in group]), ("vary", vary), ("keep", keep)):
        for name in names:
            if name not in known and not (option == "keep" and re.split(r"\W", name)[0] in given):
                raise ProblemError(f"--{option} {name}: no such size; it has: {', '.join(known) or 'none'}")
    for group in tie:
        if len({known[name] for name in group}) > 1:
            values = ", ".join(f"{name} is {known[name]}" for name in group)
            raise ProblemError(f"--tie {'='.join(group)}: tied sizes have one value, but {values}")
    if both := sorted({*vary} & {*keep}):
        raise ProblemError(f"{both[0]} cannot both vary and be kept")


def declare_precision(precision: Precision, texts: Iterable[str]) -> Precision:
    """fp32 for a problem as its texts declare it if they name no dtype; else the precision as it is."""
    if precision == "declared" and not any(DTYPE_WORDS.search(text) for text in texts):
        return "fp32"
    return precision


def with_settings(source: str, settings: Settings) -> str:
    """The source with new values in place of the old expressions; line numbers do not change."""
    values = dict(settings)
    return splice(
        source,
        [(item.span, repr(values[item.name])) for item in find_assignments(source) if item.name in values],
    )


def given_settings(source: str, settings: Settings) -> dict[str, Scalar]:
    """The settings that are no numbers of the text: numbers given to forward, by their expression there."""
    known = {item.name for item in find_assignments(source)}
    return {name.removeprefix(GIVEN): value for name, value in settings if name not in known}


def splice(source: str, texts: Iterable[tuple[Span, str]]) -> str:
    """The source with other texts at some spans, which do not overlap; line numbers do not change."""
    lines = source.encode().splitlines(keepends=True)  # bytes split where Python's own lines do
    for (first, start, last, end), new in sorted(texts, reverse=True):
        text = new.encode() + b"\n" * (last - first)
        lines[first - 1 : last] = [lines[first - 1][:start] + text + lines[last - 1][end:], *[b""] * (last - first)]
    return b"".join(lines).decode()
