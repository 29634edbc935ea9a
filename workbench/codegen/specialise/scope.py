"""The scope of one function while it is written out: static values, local names, evaluation of static expressions."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterable, Mapping

import libcst as cst

from workbench.codegen.specialise.library import LIBRARY, Import, Module, SpecialiseError, load_module
from workbench.codegen.specialise.names import CODE, compile_expression, free_names
from workbench.codegen.specialise.values import Text
from workbench.kernels.dtypes import CUTE, TORCH
from workbench.records import record

STATIC = f"{LIBRARY}.static"
PURE_BUILTINS = {
    name: getattr(builtins, name)
    for name in (
        *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "isinstance", "len", "list"),
        *("max", "min", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip", "getattr"),
    )
}
INTRINSICS: dict[str, object] = {
    "dtype": lambda name: Text(text=CUTE[name]),
    "torch_dtype": lambda name: Text(text=TORCH[name]),
}


class NotStatic(Exception):
    """The expression needs a value of run time."""


NOTHING = object()  # of an expression that fails


@record
class Read:
    """A static expression and the value, or type, that it had when a function was written."""

    node: cst.BaseExpression
    value: object
    is_type: bool = False


def _bounds(part: cst.BaseSlice) -> list[cst.BaseExpression]:
    """The expressions of an index, or of a slice."""
    if isinstance(part, cst.Slice):
        return [item for item in (part.lower, part.upper, part.step) if item]
    assert isinstance(part, cst.Index)
    return [part.value]


def _operands(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The expressions that an expression consists of."""
    if isinstance(node, cst.Call):
        return [node.func, *(arg.value for arg in node.args)]
    if isinstance(node, cst.Subscript):
        return [node.value, *(item for element in node.slice for item in _bounds(element.slice))]
    if isinstance(node, cst.BinaryOperation):
        return [node.left, node.right]
    if isinstance(node, cst.Comparison):
        return [node.left, *(item.comparator for item in node.comparisons)]
    assert isinstance(node, cst.Tuple)
    return [element.value for element in node.elements]


def _is_same(a: object, b: object) -> bool:
    """Whether two values are written as the same text."""
    if a is b:
        return True
    return type(a) is type(b) and a == b and (not isinstance(a, tuple) or repr(a) == repr(b))


class Scope:
    """Static values and local names of one function, or of a module's top level."""

    def __init__(self, module: Module, *, static: Mapping[str, object], local: set[str], taken: set[str]) -> None:
        self.module, self.static, self.local, self.taken = module, dict(static), local, taken
        self.returns: tuple[str, ...] | None = None
        self.initial = dict(static)  # the function's static arguments
        self.reads: list[Read] = []  # what its text depends on, in terms of these

    def evaluate(self, node: cst.BaseExpression) -> object:
        """The value of a static expression, which the text depends on from now on; raises `NotStatic`.

        Expressions of literals alone are not static.
        """
        try:
            value = self.peek(node)
        except NotStatic as reason:
            if reason.__cause__ is not None:  # another value may have it
                self._note_read(node, NOTHING)
            raise
        self._note_read(node, value)
        return value

    def evaluate_type(self, node: cst.BaseExpression) -> type:
        """The type of a static expression, which the text depends on from now on; raises `NotStatic`."""
        found = type(self.peek(node))
        if self.is_initial(node):
            self.reads.append(Read(node=node, value=found, is_type=True))
        return found

    def is_initial(self, node: cst.BaseExpression) -> bool:
        """Whether an expression reads the function's static arguments, and no other static value."""
        own = [name for name in free_names(node) if name in self.static]
        return bool(own) and all(name in self.initial and self.static[name] is self.initial[name] for name in own)

    def _note_read(self, node: cst.BaseExpression, value: object) -> None:
        """Note the value of an expression, or of those of its parts that read the function's static arguments alone.

        What else it reads follows from what was noted before. Iterators, of zip say, cannot be compared; their parts
        can.
        """
        if self.is_initial(node) and not hasattr(value, "__next__"):
            self.reads.append(Read(node=node, value=value))
            return
        for part in self._initial_parts(node):
            self.reads.append(Read(node=part, value=self.peek(part)))

    def _initial_parts(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        """The largest evaluable parts of an expression that read the function's static arguments alone."""
        if (
            isinstance(node, cst.Name | cst.Attribute | cst.Subscript)
            and self.is_initial(node)
            and self._has_value(node)
        ):
            return [node]
        if isinstance(node, cst.Attribute):
            return self._initial_parts(node.value)
        if isinstance(node, cst.Call | cst.Subscript | cst.BinaryOperation | cst.Comparison | cst.Tuple):
            inner = [child for child in _operands(node) if any(name in self.static for name in free_names(child))]
            return [part for child in inner for part in self._initial_parts(child)]
        names = [cst.Name(name) for name in free_names(node)]
        return [name for name in names if self.is_initial(name)]

    def _has_value(self, node: cst.BaseExpression) -> bool:
        try:
            return not hasattr(self.peek(node), "__next__")
        except NotStatic:
            return False

    def reads_equal(self, reads: Iterable[Read]) -> bool:
        """Whether all expressions have the same values here."""
        for read in reads:
            try:
                value = self.peek(read.node)
            except NotStatic:
                value = NOTHING
            if not (type(value) is read.value if read.is_type else _is_same(value, read.value)):
                return False
        return True

    def peek(self, node: cst.BaseExpression) -> object:
        """The value of a static expression on which the text does not depend; raises `NotStatic`."""
        names = free_names(node)
        if not any(name in self.static for name in names) and not self._names_intrinsic(names):
            raise NotStatic
        values = {name: self.lookup(name) for name in names}
        try:
            return eval(compile_expression(node), {"__builtins__": {}, **values})
        except (AttributeError, TypeError, IndexError, KeyError, ValueError, NameError, SyntaxError) as error:
            raise NotStatic from error

    def _names_intrinsic(self, names: tuple[str, ...]) -> bool:
        return any((found := self.module.imports.get(name)) and self._intrinsic(found) for name in names)

    def _intrinsic(self, found: Import) -> object | None:
        return INTRINSICS.get(found.name or "") if found.module == STATIC else None

    def lookup(self, name: str) -> object:
        """The static value of a name; raises `NotStatic`."""
        if name in self.static:
            return self.static[name]
        if name in self.local:
            raise NotStatic
        if name in self.module.constants:
            return module_constant(self.module, name)
        if name in self.module.imports:
            return self._imported(self.module.imports[name])
        if name in PURE_BUILTINS and name not in self.module.functions:
            return PURE_BUILTINS[name]
        raise NotStatic

    def _imported(self, found: Import) -> object:
        if intrinsic := self._intrinsic(found):
            return intrinsic
        if not found.in_library or found.name is None:
            raise NotStatic
        origin = load_module(found.module)
        if origin.is_pure:
            return getattr(importlib.import_module(found.module), found.name)
        if found.name in origin.constants:
            return module_constant(origin, found.name)
        raise NotStatic


def module_constant(module: Module, name: str) -> object:
    """The value of a constant at the module's top level; raises `NotStatic` where it is not pure."""
    scope = Scope(module, static={}, local=set(), taken=set())
    for small in module.constants[name].body:
        if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
            values = {free: scope.lookup(free) for free in free_names(small.value)}
            try:
                return eval(compile_expression(small.value), {"__builtins__": {}, **values})
            except (AttributeError, TypeError, KeyError, NameError) as error:
                raise NotStatic from error
    raise NotStatic


@record
class Place:
    """Where an expression stands; its text is made when a message needs it."""

    module: Module
    node: cst.CSTNode

    def __str__(self) -> str:
        return f"{self.module.name}: {CODE.code_for_node(self.node).strip()[:80]}"


def location(module: Module, node: cst.CSTNode) -> Place:
    """Where an expression stands, for a message."""
    return Place(module=module, node=node)


def require_module(found: Import) -> Module:
    """The library module that a name is imported from."""
    if not found.in_library:
        raise SpecialiseError(f"{found.module} is not part of the kernel library")
    return load_module(found.module)
