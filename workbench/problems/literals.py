"""Finds and names the whole numbers in `get_inputs` and `get_init_inputs` that may be sizes. Imports no torch.

A name is, in this order: the local variable or the default argument that the number is the value of; forward's argument
and the axis (`x_1`) of a number in a call such as `torch.randn(4096, 1024)`; the argument of `__init__` that gets it.
Any other number is counted through: `x_n0`, `x_n1`. A name that is taken gets a suffix: `x_1_2`.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from workbench.problems.model_class import find_method
from workbench.records import record

Fold = Callable[[ast.expr], "bool | int | float | None"]

FUNCTIONS = {"get_inputs": "forward", "get_init_inputs": "__init__"}
# calls whose numbers are the extents of the tensor that they make
MAKERS = ("randn", "rand", "zeros", "ones", "empty", "full", "arange", "randperm", "normal", "randint")
STEPPED = "arange"  # its third number is a step
BOUNDED = "randint"  # the numbers before its shape bound its values
# calls after which an axis of the tensor made is no longer the axis of the argument
RESHAPING = (
    *("t", "T", "mT", "transpose", "permute", "view", "reshape", "unflatten", "flatten", "expand", "repeat", "chunk"),
    *("split", "stack", "cat", "concat", "unsqueeze", "squeeze", "swapaxes", "movedim", "narrow", "pad"),
)
# calls and keywords whose numbers are axes or seeds
NO_SIZES = (
    *("manual_seed", "seed", "transpose", "permute", "swapaxes", "unsqueeze", "squeeze", "movedim", "flip", "cumsum"),
    *("softmax", "Generator", "round", "clamp", "pow", "div", "mul", "add", "sub"),
)
NO_SIZE_KEYWORDS = ("dim", "dims", "axis", "dim0", "dim1", "seed", "decimals", "start_dim", "end_dim", "dtype")


@record
class Literal:
    """A whole number of at least 2 in the text: its name, its expression, and whether it bounds random integers."""

    name: str
    node: ast.expr
    value: int
    bounds_values: bool = False


@record
class _Place:
    """Where an expression stands: the name of the argument that it makes, and whether its axes are the argument's."""

    label: str
    in_order: bool = True
    is_init: bool = False
    may_be_shape: bool = False  # numbers alone may be extents: in a list of shapes that is assigned to a name
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # the text's own -> their fields


def find_literals(function: ast.FunctionDef, tree: ast.Module, fold: Fold) -> list[Literal]:
    """The literals in the values that a function makes, aside from numbers assigned to names, in the text's order."""
    arguments = _argument_names(tree, FUNCTIONS[function.name])
    is_init = function.name == "get_init_inputs"
    own = {node.name: _fields(node) for node in tree.body if isinstance(node, ast.ClassDef)}
    places = dict(_list_places(function, arguments, is_init, own))
    found: list[Literal] = []
    for root, place in places.items():
        for item, part in _open_containers(root, dataclasses.replace(place, classes=own)):
            finder = _Finder(part, fold)
            finder.visit(item)
            found += finder.found
    return sorted(found, key=lambda one: (one.node.lineno, one.node.col_offset))


def find_init_literals(method: ast.FunctionDef, fold: Fold) -> list[Literal]:
    """The literals in what an `__init__` assigns or registers, each named after that: `fc_n0`, `fc_n1`, `weight_0`."""
    found: list[Literal] = []
    for node in ast.walk(method):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) and node.value is not None:
            finder = _Finder(_Place(label=_assigned_label(node), is_init=True), fold)
            finder.visit(node.value)
            found += finder.found
    return sorted(found, key=lambda one: (one.node.lineno, one.node.col_offset))


def _assigned_label(node: ast.Assign | ast.AnnAssign | ast.Expr) -> str:
    """The name, or the attribute of self, that is assigned; of a call the text that is its first argument."""
    if isinstance(node, ast.Expr):
        first = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else None
        label = first.value if isinstance(first, ast.Constant) else ""
    else:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        label = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return label if isinstance(label, str) and label.isidentifier() else "value"


def _argument_names(tree: ast.Module, method: str) -> list[str]:
    """Names of the arguments of a method of Model, without self."""
    found = find_method(tree.body, method)
    if found is None:
        return []
    plain = [*found.args.posonlyargs, *found.args.args]
    return [one.arg for one in (*plain[1:], *found.args.kwonlyargs)]


def _list_places(
    function: ast.FunctionDef, arguments: list[str], is_init: bool, classes: Mapping[str, Sequence[str]]
) -> Iterator[tuple[ast.expr, _Place]]:
    """(expression, its place) of each value that is returned, or assigned to a name on the way."""
    returned: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            for label, item in _returned_items(node.value, arguments, classes):
                if isinstance(item, ast.Name):
                    returned.setdefault(item.id, label)
                else:
                    yield item, _Place(label=label, is_init=is_init)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            for target, value in _pairs(node.targets[0], node.value):
                name = target.id if isinstance(target, ast.Name) else "value"
                is_list = isinstance(value, (ast.List, ast.Tuple)) and name not in returned
                yield value, _Place(label=returned.get(name, name), is_init=is_init, may_be_shape=is_list)


def _returned_items(
    value: ast.expr, arguments: Sequence[str], classes: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, ast.expr]]:
    """(argument, expression) of a returned list, tuple or dictionary, or of a named tuple of all arguments."""
    if isinstance(value, ast.Dict):
        yield from zip(map(str, _keys(value)), value.values, strict=True)
    elif isinstance(value, ast.Tuple) and _has_keywords(value, arguments):
        for part in value.elts:
            yield from _returned_items(part, arguments, classes)
    elif isinstance(value, (ast.List, ast.Tuple)):
        for number, item in enumerate(value.elts):
            yield (arguments[number] if number < len(arguments) else f"argument{number}"), item
    elif _list_fields(value, classes) and {*_list_fields(value, classes)} <= {*arguments}:
        yield from _class_items(value, _list_fields(value, classes))
    else:
        yield (arguments[0] if arguments else "value"), value


def _has_keywords(value: ast.Tuple, arguments: Sequence[str]) -> bool:
    """Whether it is a list of arguments by position and a dictionary of arguments by name."""
    if len(value.elts) != 2:
        return False
    given, named = value.elts
    return isinstance(given, (ast.List, ast.Tuple)) and isinstance(named, ast.Dict) and {*_keys(named)} <= {*arguments}


def _fields(node: ast.ClassDef) -> list[str]:
    """The fields of a dataclass or a named tuple."""
    return [
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def _list_fields(node: ast.expr, classes: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The fields of the class of which a call makes an instance; () for anything else."""
    return classes.get(node.func.id, ()) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ()


def _class_items(node: ast.expr, fields: Sequence[str]) -> Iterator[tuple[str, ast.expr]]:
    """(field, expression) of each argument of a call that makes an instance."""
    assert isinstance(node, ast.Call), "only a call has fields"
    yield from zip(fields, node.args, strict=False)
    yield from ((one.arg or "", one.value) for one in node.keywords)


def _keys(node: ast.Dict) -> list[str | int]:
    """The keys of a dictionary; numbers for those that are no constants."""
    return [str(key.value) if isinstance(key, ast.Constant) else n for n, key in enumerate(node.keys)]


def _open_containers(node: ast.expr, place: _Place) -> Iterator[tuple[ast.expr, _Place]]:
    """The items of lists, tuples, dictionaries and calls of the text's own classes, each with a label of its own."""
    items: list[tuple[str | int, ast.expr]] = []
    if place.is_init:
        pass
    elif isinstance(node, (ast.List, ast.Tuple)):
        items = list(enumerate(node.elts))
    elif isinstance(node, ast.Dict):
        items = [*zip(_keys(node), node.values, strict=True)]
    elif fields := _list_fields(node, place.classes):
        items = [*_class_items(node, fields)]
    if not items:
        yield node, place
    for key, item in items:
        label = "_".join(filter(None, (place.label, re.sub(r"\W+", "_", str(key)))))
        yield from _open_containers(item, dataclasses.replace(place, label=label))


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


class _Finder:
    """Collects the literals of one expression."""

    def __init__(self, place: _Place, fold: Fold) -> None:
        self.place, self.fold = place, fold
        self.found: list[Literal] = []
        self.count = itertools.count()

    def visit(self, node: ast.expr) -> None:
        """Take the number that a value is, or those inside it."""
        if self.fold(node) is not None:
            if self.place.is_init or self.place.may_be_shape:
                self.add(node, self.place.label)
            return
        self.descend(node, in_order=self.place.in_order)

    def descend(self, node: ast.AST, in_order: bool) -> None:
        """Look at the parts of an expression that is no number."""
        if isinstance(node, ast.Call):
            self.call(node, in_order)
            return
        if isinstance(node, ast.Attribute) and node.attr in RESHAPING:
            in_order = False
        if isinstance(node, ast.Subscript):
            self.descend(node.value, in_order=False)
            for part in ast.walk(node.slice):
                if isinstance(part, ast.Slice):
                    self.each([one for one in (part.lower, part.upper) if one is not None])
            return
        if isinstance(node, (ast.List, ast.Tuple)) and self.place.is_init:
            for number, item in enumerate(node.elts):
                if not self.add(item, f"{self.place.label}_{number}"):
                    self.descend(item, in_order)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and self.fold(child) is None:
                self.descend(child, in_order)

    def call(self, node: ast.Call, in_order: bool) -> None:
        """The numbers among the arguments of a call."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        in_order = in_order and name not in RESHAPING
        self.descend(node.func, in_order)
        if name in NO_SIZES:
            for item in node.args:
                if self.fold(item) is None:
                    self.descend(item, in_order)
            return
        keywords = {one.arg: one.value for one in node.keywords if one.arg not in NO_SIZE_KEYWORDS}
        shape = keywords.pop("size", None)
        if name in MAKERS:
            numbers = list(node.args)
            tuples = [one for one in numbers if isinstance(one, (ast.Tuple, ast.List))]
            shape = shape or (tuples[-1] if tuples else None)
            rest = numbers if shape is None else [one for one in numbers if one is not shape]
            if shape is None:
                self.extents(rest[:2] if name == STEPPED else rest, in_order)
            else:
                self.extents(getattr(shape, "elts", [shape]), in_order)
                self.each([] if name == "full" else rest, bounds_values=name == BOUNDED)
            self.each([value for key, value in keywords.items() if key == "high"], bounds_values=True)
            return
        self.each([*node.args, *keywords.values()])

    def extents(self, nodes: Sequence[ast.expr], in_order: bool) -> None:
        """Numbers of which each is the extent of an axis."""
        counted = in_order and not any(isinstance(one, ast.Starred) for one in nodes)
        for axis, node in enumerate(nodes):
            if not self.add(node, f"{self.place.label}_{axis}" if counted else None):
                self.descend(node, in_order)

    def each(self, nodes: Sequence[ast.expr], *, bounds_values: bool = False) -> None:
        """Numbers of which nothing is known."""
        for node in nodes:
            if not self.add(node, None, bounds_values=bounds_values):
                self.descend(node, in_order=False)

    def add(self, node: ast.expr, name: str | None, *, bounds_values: bool = False) -> bool:
        """Whether it is a number; note it if it may be a size and is made of literals alone."""
        value = self.fold(node)
        if value is None:
            return False
        if type(value) is int and value >= 2 and not any(isinstance(one, ast.Name) for one in ast.walk(node)):
            self.found.append(
                Literal(
                    name=name or f"{self.place.label}_n{next(self.count)}",
                    node=node,
                    value=value,
                    bounds_values=bounds_values,
                )
            )
        return True
