"""Parsed source of the kernel library: module name -> functions, classes, constants, imports. Nothing is imported."""

from __future__ import annotations

import functools
from pathlib import Path

import libcst as cst

from workbench.errors import WorkbenchError
from workbench.records import record

ROOT = Path(__file__).parents[3]
LIBRARY = "workbench.kernels"


class SpecialiseError(WorkbenchError):
    """The kernel library contains code that cannot be specialised; this is a fault of the library."""


@record
class Import:
    """One imported name: the statement that imports it alone, and where it comes from."""

    statement: str
    module: str
    name: str | None  # None: the module itself

    @property
    def in_library(self) -> bool:
        """Whether it is a function or constant of the kernel library."""
        return self.name is not None and self.module.startswith(LIBRARY)


@record
class Module:
    """A module of the library."""

    name: str
    functions: dict[str, cst.FunctionDef]
    classes: dict[str, cst.ClassDef]
    constants: dict[str, cst.SimpleStatementLine]
    imports: dict[str, Import]

    @property
    def is_pure(self) -> bool:
        """Whether it may be imported when code is written: configurations, names of types."""
        last = self.name.rpartition(".")[2]
        return last.startswith("config") or last == "dtypes"


@functools.cache
def load_module(name: str) -> Module:
    """The parsed module of that name."""
    path = ROOT / (name.replace(".", "/") + ".py")
    if not path.is_file():
        path = ROOT / name.replace(".", "/") / "__init__.py"
    if not path.is_file():
        raise SpecialiseError(f"there is no module {name}")
    return parse_module(name, path.read_text())


def parse_module(name: str, source: str) -> Module:
    """The module's definitions by name."""
    functions: dict[str, cst.FunctionDef] = {}
    classes: dict[str, cst.ClassDef] = {}
    constants: dict[str, cst.SimpleStatementLine] = {}
    imports: dict[str, Import] = {}
    for node in cst.parse_module(source).body:
        if isinstance(node, cst.FunctionDef):
            functions[node.name.value] = node
        elif isinstance(node, cst.ClassDef):
            classes[node.name.value] = node
        elif isinstance(node, cst.SimpleStatementLine):
            for small in node.body:
                if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                    constants[small.target.value] = node
                elif isinstance(small, cst.Assign):
                    constants |= dict.fromkeys(_assigned_names(small), node)
                elif isinstance(small, cst.Import | cst.ImportFrom):
                    imports |= _imported_names(small)
    return Module(name=name, functions=functions, classes=classes, constants=constants, imports=imports)


def _assigned_names(node: cst.Assign) -> list[str]:
    found = []
    for target in node.targets:
        parts = (
            [part.value for part in target.target.elements] if isinstance(target.target, cst.Tuple) else [target.target]
        )
        found += [part.value for part in parts if isinstance(part, cst.Name)]
    return found


def dotted_name(node: cst.BaseExpression | None) -> str:
    """`a.b.c` as text."""
    if isinstance(node, cst.Attribute):
        return f"{dotted_name(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def _imported_names(node: cst.Import | cst.ImportFrom) -> dict[str, Import]:
    found: dict[str, Import] = {}
    if isinstance(node.names, cst.ImportStar):
        raise SpecialiseError("the library imports names one by one, not *")
    for alias in node.names:
        name = dotted_name(alias.name)
        local = alias.asname.name.value if alias.asname and isinstance(alias.asname.name, cst.Name) else None
        suffix = f" as {local}" if local else ""
        if isinstance(node, cst.ImportFrom):
            module = dotted_name(node.module)
            statement = f"from {module} import {name}{suffix}"
            found[local or name] = Import(statement=statement, module=module, name=name)
        else:
            statement = f"import {name}{suffix}"
            found[local or name.partition(".")[0]] = Import(statement=statement, module=name, name=None)
    return found
