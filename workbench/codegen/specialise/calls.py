"""Arguments of a call meet the parameters of a library function: static ones leave the call, tuples are spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import libcst as cst

from workbench.codegen.specialise.library import Module, SpecialiseError, dotted_name
from workbench.codegen.specialise.protocols import WrittenFunction
from workbench.codegen.specialise.scope import NotStatic, Scope
from workbench.codegen.specialise.values import Symbol, singular
from workbench.records import record


@record
class Parameters:
    """Parameters of a library function by kind, in order."""

    module: Module
    function: str
    nodes: tuple[cst.Param, ...]
    has_star: bool = False  # whether it takes any number of further arguments

    @staticmethod
    def of(module: Module, name: str) -> Parameters:
        """Those of the function of that name."""
        found = module.functions[name].params
        nodes = (*found.params, *found.kwonly_params)
        has_star = isinstance(found.star_arg, cst.Param)
        return Parameters(module=module, function=name, nodes=nodes, has_star=has_star)

    def without(self, name: str) -> Parameters:
        """Without one that the callee gets otherwise: the stream."""
        kept = tuple(node for node in self.nodes if node.name.value != name)
        return Parameters(module=self.module, function=self.function, nodes=kept)


def kind_of(param: cst.Param) -> str:
    """ "Static", "Many" or ""."""
    note = param.annotation.annotation if param.annotation else None
    if isinstance(note, cst.Subscript):
        note = note.value
    return note.value if isinstance(note, cst.Name) and note.value in ("Static", "Many") else ""


@record
class Bound:
    """A call's arguments: static values, symbols of Many parameters, and what is still passed."""

    static: dict[str, object]
    many: dict[str, tuple[Symbol, ...]]
    arguments: list[cst.Arg]
    nodes: dict[str, cst.BaseExpression]  # of static ones, what reads the caller's static arguments alone


class Rewriter(Protocol):
    """What rewrites the arguments."""

    scope: Scope

    def rewrite(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The expression for this case."""

    def elements(self, node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
        """The elements of a tuple of known length."""


def bind_arguments(rewriter: Rewriter, parameters: Parameters, args: Sequence[cst.Arg], where: object) -> Bound:
    """Match arguments with parameters."""
    given, further = _match(parameters, _without_stars(rewriter, args, parameters.has_star, where), where)
    bound = Bound(static={}, many={}, arguments=[], nodes={})
    by_keyword = False
    for param in parameters.nodes:
        name, kind = param.name.value, kind_of(param)
        arg = given.get(name)
        if kind == "Static":
            bound.static[name] = _static(rewriter, parameters, param, arg, where)
            if arg is not None and rewriter.scope.is_initial(arg.value):
                bound.nodes[name] = arg.value
        elif arg is None:
            by_keyword = True  # its default stands; what follows is passed by name
        elif kind == "Many":
            spread = _spread(rewriter, name, arg.value, where)
            bound.many[name] = tuple(symbol for symbol, _ in spread)
            bound.arguments.extend(cst.Arg(element) for _, element in spread)
        elif is_nothing(rewriter, arg.value):
            bound.static[name] = ()  # as if the parameter were Static
        else:
            by_keyword = by_keyword or arg.keyword is not None
            word = cst.Name(name) if by_keyword else None
            equal = (
                cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
                if word
                else cst.MaybeSentinel.DEFAULT
            )
            bound.arguments.append(cst.Arg(rewriter.rewrite(arg.value), keyword=word, equal=equal))
    bound.arguments.extend(arg.with_changes(value=rewriter.rewrite(arg.value)) for arg in further)
    return bound


def passed_arguments(function: WrittenFunction, arguments: Sequence[cst.Arg]) -> list[cst.Arg]:
    """The arguments without those of parameters that are left out."""
    found = []
    for number, arg in enumerate(arguments):
        by_position = function.parameters[number] if number < len(function.parameters) else None
        name = arg.keyword.value if arg.keyword else by_position
        if name not in function.unused:
            found.append(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT))
    return found


def is_nothing(rewriter: Rewriter, node: cst.BaseExpression) -> bool:
    """Whether an argument is an empty tuple, of which nothing needs to be passed."""
    if isinstance(node, cst.Name):
        return rewriter.scope.static.get(node.value) == ()
    return isinstance(node, cst.Tuple) and not node.elements


def _without_stars(rewriter: Rewriter, args: Sequence[cst.Arg], may_be_open: bool, where: object) -> list[cst.Arg]:
    found: list[cst.Arg] = []
    for arg in args:
        elements = rewriter.elements(arg.value) if arg.star == "*" else None
        if arg.star and elements is None and not may_be_open:
            raise SpecialiseError(f"{where}: the length of what is starred is open")
        found += [arg] if elements is None else [cst.Arg(element) for element in elements]
    return found


def _match(parameters: Parameters, args: list[cst.Arg], where: object) -> tuple[dict[str, cst.Arg], list[cst.Arg]]:
    """(parameter -> argument, those of `*parameter`)."""
    names = [param.name.value for param in parameters.nodes]
    given: dict[str, cst.Arg] = {}
    further: list[cst.Arg] = []
    for at, arg in enumerate(args):
        if parameters.has_star and (arg.star or at >= len(names)):
            further.append(arg)
            continue
        name = arg.keyword.value if arg.keyword else names[at] if at < len(names) else None
        if name is None or name not in names:
            raise SpecialiseError(f"{where}: {parameters.function} takes {', '.join(names)}")
        given[name] = arg
    return given, further


def _static(rewriter: Rewriter, parameters: Parameters, param: cst.Param, arg: cst.Arg | None, where: object) -> object:
    node = arg.value if arg is not None else param.default
    if node is None:
        raise SpecialiseError(f"{where}: {param.name.value} of {parameters.function} is missing")
    if is_nothing(rewriter, node):
        return ()
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString):
        return node.evaluated_value
    if isinstance(node, cst.Name) and node.value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[node.value]
    scope = rewriter.scope if arg is not None else Scope(parameters.module, static={}, local=set(), taken=set())
    try:
        return scope.peek(node) if scope.is_initial(node) else scope.evaluate(node)
    except NotStatic:
        raise SpecialiseError(
            f"{where}: {param.name.value} of {parameters.function} is Static, its value is not"
        ) from None


def _spread(
    rewriter: Rewriter, name: str, node: cst.BaseExpression, where: object
) -> list[tuple[Symbol, cst.BaseExpression]]:
    elements = rewriter.elements(node)
    if elements is None:
        raise SpecialiseError(f"{where}: the number of {name} is open")
    found = []
    symbols = {
        item.name: item
        for value in rewriter.scope.static.values()
        if isinstance(value, tuple)
        for item in value
        if isinstance(item, Symbol)
    }
    for number, element in enumerate(elements, 1):
        text = element.value if isinstance(element, cst.Name) else _base(element) or f"{singular(name)}{number}"
        found.append((symbols.get(text) or Symbol(name=text, base=text), element))
    taken: set[str] = set()
    for symbol, _ in found:
        if symbol.name in taken:
            raise SpecialiseError(f"{where}: {symbol.name} is passed twice among {name}")
        taken.add(symbol.name)
    return found


def _base(element: cst.BaseExpression) -> str | None:
    """x of from_dlpack(x, ...), cutlass.Int32(x) and x.view(-1): the first name that an argument is."""
    while isinstance(element, cst.Call | cst.Attribute):
        if isinstance(element, cst.Attribute):
            element = element.value
        elif element.args and (isinstance(element.func, cst.Name) or dotted_name(element.func).startswith("cutlass.")):
            element = element.args[0].value
        else:
            element = element.func
    return element.value if isinstance(element, cst.Name) else None
