"""Collects what a file needs, once and in the order of use: imports, named constants, specialised functions, hooks."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
from collections.abc import Callable, Mapping

import libcst as cst

from workbench.codegen.launch import Hook, Launch
from workbench.codegen.specialise.functions import specialise_function
from workbench.codegen.specialise.library import Import, Module, SpecialiseError, load_module, parse_module
from workbench.codegen.specialise.names import CODE
from workbench.codegen.specialise.scope import Scope
from workbench.codegen.specialise.values import Symbol, render_literal
from workbench.records import record

ALWAYS_TAKEN = frozenset(("ModelNew", "cuda", "cute", "cutlass", "math", "nn", "self", "torch"))


@record
class Variant:
    """A function of the library as it is written: its name, its parameters, those left out, and what it returns."""

    name: str
    parameters: tuple[str, ...]
    unused: frozenset[str]
    returns: tuple[str, ...] | None


@record
class Written:
    """A function that was written before, in this file or another, and what it needed of the file."""

    body: str
    parameters: tuple[str, ...]
    unused: frozenset[str]
    returns: tuple[str, ...] | None
    needs: tuple[Callable[[Builder], bool], ...]  # each adds something to a file and says whether it has the same name


WRITTEN: dict[
    object, Written
] = {}  # by module, function, static arguments, names: host helpers are the same everywhere
MOST_WRITTEN = 4096


class Builder:
    """One file in the making."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self.taken: set[str] = set(ALWAYS_TAKEN | reserved)
        self.imports: dict[str, None] = {}
        self.constants: dict[str, tuple[object, str]] = {}
        self.values: list[str] = []  # module constants of the library
        self.definitions: list[str] = []
        self._variants: dict[object, Variant] = {}
        self._texts: dict[str, Variant] = {}  # definitions without their names
        self._globals: dict[tuple[str, str], str] = {}
        self._hooks: dict[tuple[Hook, bool], Variant] = {}
        self._needs: list[list[Callable[[Builder], bool]]] = []

    def add_launch(self, launch: Launch) -> str:
        """The name of the host function of a stage, which takes the launch's operands."""
        module, _, function = launch.entry.partition(":")
        many = {name: tuple(Symbol(name=item, base=item) for item in items) for name, items in launch.many}
        self.taken |= {*launch.operands, *(item for _, items in launch.many for item in items)}
        return self.function(load_module(module), function, static=dict(launch.static), many=many, whole=True).name

    def fresh(self, name: str) -> str:
        """The name, or with a number where it is taken."""
        found, number = name, 2
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found

    def constant(self, name: str, value: object, comment: str) -> str:
        """The name of a constant of the module; equal values share it."""
        wanted, number = name, 2
        while wanted in self.constants and self.constants[wanted][0] != value:
            wanted, number = f"{name}_{number}", number + 1
        if wanted not in self.constants and wanted in self.taken:
            wanted = self.fresh(name)
        self.taken.add(wanted)
        self.constants[wanted] = (value, comment)
        self._note(lambda other: other.constant(name, value, comment) == wanted)
        return wanted

    def _note(self, need: Callable[[Builder], bool]) -> None:
        if self._needs:
            self._needs[-1].append(need)

    def function(
        self,
        module: Module,
        name: str,
        *,
        static: Mapping[str, object],
        many: Mapping[str, tuple[Symbol, ...]],
        whole: bool = False,
    ) -> Variant:
        """The variant of a library function for these static arguments and as many run-time ones.

        `whole`: with all its parameters, because not only written calls call it.
        """
        key = (
            module.name,
            name,
            repr(sorted(static.items())),
            tuple((role, len(items)) for role, items in many.items()),
            whole,
        )
        if key not in self._variants:
            written = self.fresh(_variant_name(name, static))
            self._variants[key] = Variant(
                name=written, parameters=(), unused=frozenset(), returns=None
            )  # it may call itself
            found = self._write(module, name, written=written, static=static, many=many, whole=whole)
            self._variants[key] = self._define(written, found)
        variant = self._variants[key]
        self._note(
            lambda other: other.function(module, name, static=static, many=many, whole=whole).name == variant.name
        )
        return variant

    def _define(self, written: str, found: Written) -> Variant:
        """The variant of a function; its definition is added unless the file has an equal one under another name."""
        text = _text_without_name(found.body, written)
        if text in self._texts:
            self.taken.discard(written)
            return self._texts[text]
        variant = Variant(name=written, parameters=found.parameters, unused=found.unused, returns=found.returns)
        self._texts[text] = variant
        self.definitions.append(found.body)
        return variant

    def _write(
        self,
        module: Module,
        name: str,
        *,
        written: str,
        static: Mapping[str, object],
        many: Mapping[str, tuple[Symbol, ...]],
        whole: bool,
    ) -> Written:
        key = (module.functions[name], written, repr(sorted(static.items())), repr(sorted(many.items())), whole)
        known = WRITTEN.get(key)
        if known is not None and all(need(self) for need in known.needs):
            return known
        self._needs.append([])
        made = specialise_function(
            self, module, module.functions[name], written=written, static=static, many=many, whole=whole
        )
        found = Written(
            body=made.text,
            parameters=made.parameters,
            unused=made.unused,
            returns=made.returns,
            needs=tuple(self._needs.pop()),
        )
        if len(WRITTEN) >= MOST_WRITTEN:
            WRITTEN.clear()
        WRITTEN[key] = found
        return found

    def hook(self, hook: Hook, *, whole: bool = False) -> Variant:
        """The function that a hook's source defines."""
        if (hook, whole) not in self._hooks:
            module = hook_module(hook)
            found = self.function(module, hook.name, static={}, many={}, whole=whole)
            self._hooks[hook, whole] = dataclasses.replace(found, returns=hook.returns)
        variant = self._hooks[hook, whole]
        self._note(lambda other: other.hook(hook, whole=whole).name == variant.name)
        return variant

    def require(self, module: Module, name: str) -> str:
        """What a name of the module's top level is called in the file, where its definition is added."""
        found = self._require(module, name)
        self._note(lambda other: other.require(module, name) == found)
        return found

    def _require(self, module: Module, name: str) -> str:
        if name in module.functions:
            return self.function(module, name, static={}, many={}, whole=True).name
        if name in module.imports:
            found = module.imports[name]
            if found.in_library and found.name is not None:
                return self.require(load_module(found.module), found.name)
            self.imports[found.statement] = None
            self.taken.add(name)
            return name
        if name in module.classes or name in module.constants:
            return self._definition(module, name)
        if hasattr(builtins, name):
            return name
        raise SpecialiseError(f"{module.name}: {name} is not defined")

    def _definition(self, module: Module, name: str) -> str:
        if (module.name, name) not in self._globals:
            node = module.classes.get(name) or module.constants[name]
            scope = Scope(module, static={}, local=set(), taken=set())
            text = _code_of(node)
            for free in _module_names(node, module):
                if free != name and (needed := self.require(scope.module, free)) != free:
                    raise SpecialiseError(f"{module.name}: {free} is also the name of something else ({needed})")
            if name in self.taken:
                raise SpecialiseError(f"{module.name}: {name} is also the name of an operand")
            self.taken.add(name)
            self._globals[module.name, name] = name
            (self.definitions if name in module.classes else self.values).append(text)
        return self._globals[module.name, name]

    def constant_lines(self) -> list[str]:
        """Assignments of the named constants."""
        return [f"{name} = {render_literal(value)}  # {comment}" for name, (value, comment) in self.constants.items()]


def _variant_name(name: str, static: Mapping[str, object]) -> str:
    named = (getattr(value, "name", None) for value in static.values())
    suffixes = [name for name in named if isinstance(name, str)]
    return "_".join([name, *suffixes])


@functools.lru_cache(maxsize=4096)
def _text_without_name(text: str, name: str) -> str:
    """The text of a function without its own name, docstring and comments; attributes of the same name stay."""
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    function.name = ""
    if ast.get_docstring(function) is not None and len(function.body) > 1:
        del function.body[0]
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = ""
    return ast.dump(function)


def _code_of(node: cst.BaseStatement) -> str:
    return CODE.code_for_node(node).strip("\n") + "\n"


def _module_names(node: cst.BaseStatement, module: Module) -> list[str]:
    """Names of the module's top level that a definition mentions."""
    found: dict[str, None] = {}

    class Names(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:
            known = module.functions, module.classes, module.constants, module.imports
            if any(node.value in names for names in known):
                found[node.value] = None

        def visit_Attribute(self, node: cst.Attribute) -> bool:
            node.value.visit(self)
            return False

    node.visit(Names())
    return list(found)


@functools.lru_cache(maxsize=1024)
def hook_module(hook: Hook) -> Module:
    """The hook's source as a module that has the names of the module whose names it may use."""
    base = load_module(hook.module)
    shared = {
        name: Import(statement="", module=base.name, name=name)
        for name in (*base.functions, *base.classes, *base.constants)
    }
    own = parse_module(f"the hook {hook.name}", hook.source)
    return Module(
        name=f"{hook.name} from {hook.module}: {hook.source}",
        functions=own.functions,
        classes={},
        constants=own.constants,
        imports=shared | base.imports | own.imports,
    )
