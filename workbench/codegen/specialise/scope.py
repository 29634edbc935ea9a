"""The scope of one function while it is written out: static values, local names, evaluation of static expressions."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Mapping

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


class Scope:
    """Static values and local names of one function, or of a module's top level."""

    def __init__(self, module: Module, *, static: Mapping[str, object], local: set[str], taken: set[str]) -> None:
        self.module, self.static, self.local, self.taken = module, dict(static), local, taken
        self.returns: tuple[str, ...] | None = None

    def evaluate(self, node: cst.BaseExpression) -> object:
        """The value of a static expression; raises `NotStatic`. Expressions of literals alone are not static."""
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
