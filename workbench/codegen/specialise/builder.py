"""Collects what a file needs, once and in the order of use: imports, named constants, specialised functions, hooks."""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping

import libcst as cst

from workbench.codegen.launch import Hook, Launch
from workbench.codegen.specialise.functions import function_scope, specialise_function
from workbench.codegen.specialise.library import Import, Module, SpecialiseError, load_module, parse_module
from workbench.codegen.specialise.names import CODE
from workbench.codegen.specialise.scope import Read, Scope
from workbench.codegen.specialise.values import Symbol, is_constant, render_literal
from workbench.records import record

ALWAYS_TAKEN = frozenset(("ModelNew", "cuda", "cute", "cutlass", "math", "nn", "self", "torch"))


@record
class Variant:
    """A function of the library as it is written: its name, its parameters, those left out, and what it returns."""

    name: str
    parameters: tuple[str, ...]
    unused: frozenset[str]
    returns: tuple[str, ...] | None


# adds something to a file, for the static arguments of a scope, and says whether it has the same name as before
Need = Callable[["Builder", Scope], bool]


@record
class Written:
    """A function that was written before, in this file or another.

    It is the same for all static arguments that give its `reads` the same values, in a file that meets its `needs`.
    """

    body: str
    parameters: tuple[str, ...]
    unused: frozenset[str]
    returns: tuple[str, ...] | None
    reads: tuple[Read, ...]
    needs: tuple[Need, ...]


WRITTEN: dict[object, list[Written]] = {}  # by function, name, and kinds of the static arguments; latest last
MOST_WRITTEN, MOST_VARIANTS = 4096, 16


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
        self._needs: list[list[Need]] = []

    def add_launch(self, launch: Launch) -> str:
        """The name of the host function of a stage, which takes the launch's operands."""
        module, _, function = launch.entry.partition(":")
        many = {name: tuple(Symbol(name=item, base=item) for item in items) for name, items in launch.many}
        self.taken |= {*launch.operands, *(item for _, items in launch.many for item in items)}
        static = dict(launch.static)
        return self.function(load_module(module), function, static=static, many=many, nodes={}, whole=True).name

    def fresh(self, name: str) -> str:
        """The name, or with a number where it is taken."""
        found, number = name, 2
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found

    def constant(self, name: str, scope: Scope, node: cst.BaseExpression, comment: str) -> str:
        """The name of a constant of the module with the expression's value; equal values share it."""
        is_initial = scope.is_initial(node)
        value = scope.peek(node) if is_initial else scope.evaluate(node)
        found = self._constant(name, value, comment)

        def need(other: Builder, scope: Scope) -> bool:
            again = scope.peek(node) if is_initial else value
            return is_constant(again) and other._constant(name, again, comment) == found

        self._note(need)
        return found

    def _constant(self, name: str, value: object, comment: str) -> str:
        wanted, number = name, 2
        while wanted in self.constants and self.constants[wanted][0] != value:
            wanted, number = f"{name}_{number}", number + 1
        if wanted not in self.constants and wanted in self.taken:
            wanted = self.fresh(name)
        self.taken.add(wanted)
        self.constants[wanted] = (value, comment)
        return wanted

    def _note(self, need: Need) -> None:
        if self._needs:
            self._needs[-1].append(need)

    def function(
        self,
        module: Module,
        name: str,
        *,
        static: Mapping[str, object],
        many: Mapping[str, tuple[Symbol, ...]],
        nodes: Mapping[str, cst.BaseExpression],
        whole: bool = False,
    ) -> Variant:
        """The variant of a library function for these static arguments and as many run-time ones.

        `nodes`: expressions of static arguments that read static arguments of the caller alone. `whole`: with all its
        parameters, because not only written calls call it.
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

        def need(other: Builder, scope: Scope) -> bool:
            again = dict(static) | {role: scope.peek(node) for role, node in nodes.items()}
            return other.function(module, name, static=again, many=many, nodes={}, whole=whole) == variant

        self._note(need)
        return variant

    def _define(self, written: str, found: Written) -> Variant:
        """The variant of a function; its definition is added unless the file has an equal one under another name.

        Functions with an equal text may differ in the parameters that they do not use.
        """
        text = _text_without_name(found.body, written)
        if text in self._texts:
            self.taken.discard(written)
            return dataclasses.replace(self._texts[text], parameters=found.parameters, unused=found.unused)
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
        node = module.functions[name]
        kinds = tuple((role, type(value), value == ()) for role, value in static.items())
        known = WRITTEN.setdefault((node, written, kinds, repr(sorted(many.items())), whole), [])
        scope = function_scope(module, node, static, many)
        for candidate in reversed(known):
            if scope.reads_equal(candidate.reads) and self._meet(candidate.needs, scope):
                return candidate
        self._needs.append([])
        made = specialise_function(self, scope, node, written=written, whole=whole)
        found = Written(
            body=made.text,
            parameters=made.parameters,
            unused=made.unused,
            returns=made.returns,
            reads=tuple(scope.reads),
            needs=tuple(self._needs.pop()),
        )
        del known[: len(known) - MOST_VARIANTS + 1]
        known.append(found)
        if len(WRITTEN) > MOST_WRITTEN:
            WRITTEN.clear()
        return found

    def _meet(self, needs: tuple[Need, ...], scope: Scope) -> bool:
        """Add what a function needs of the file; if something has another name here, the file stays as it was."""
        before = {name: copy.copy(value) for name, value in vars(self).items()}
        self._needs = [[]]  # what is needed here is noted already
        is_met = all(need(self, scope) for need in needs)
        noted = before.pop("_needs")
        if not is_met:
            vars(self).update(before)
        self._needs = noted
        return is_met

    def hook(self, hook: Hook, *, whole: bool = False) -> Variant:
        """The function that a hook's source defines."""
        if (hook, whole) not in self._hooks:
            module = hook_module(hook)
            found = self.function(module, hook.name, static={}, many={}, nodes={}, whole=whole)
            self._hooks[hook, whole] = dataclasses.replace(found, returns=hook.returns)
        variant = self._hooks[hook, whole]
        self._note(lambda other, _: other.hook(hook, whole=whole) == variant)
        return variant

    def require(self, module: Module, name: str) -> str:
        """What a name of the module's top level is called in the file, where its definition is added."""
        found = self._require(module, name)
        self._note(lambda other, _: other.require(module, name) == found)
        return found

    def _require(self, module: Module, name: str) -> str:
        if name in module.functions:
            return self.function(module, name, static={}, many={}, nodes={}, whole=True).name
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
