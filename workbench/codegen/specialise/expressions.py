"""Rewrites expressions: folds what is static, expands tuples of symbols, resolves library functions and hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import libcst as cst

from workbench.codegen.launch import Hook
from workbench.codegen.specialise.calls import Parameters, bind_arguments, is_nothing, passed_arguments
from workbench.codegen.specialise.library import Module, SpecialiseError, load_module
from workbench.codegen.specialise.nodes import (
    as_plain_string,
    called_name,
    make_display,
    parenthesized,
    without_defaults,
)
from workbench.codegen.specialise.protocols import FileBuilder
from workbench.codegen.specialise.scope import STATIC, NotStatic, Scope, location
from workbench.codegen.specialise.values import is_constant, parse_literal, render_literal

Expression = cst.BaseExpression
Node = TypeVar("Node", bound=cst.CSTNode)
COMPOUND = (cst.BinaryOperation, cst.BooleanOperation, cst.Comparison, cst.IfExp, cst.Lambda, cst.UnaryOperation)


class Expressions(cst.CSTTransformer):
    """Rewrites the expressions of one function; `visit` an expression with it, or call `rewrite`."""

    def __init__(self, builder: FileBuilder, scope: Scope) -> None:
        super().__init__()
        self.builder, self.scope = builder, scope
        self.finished: dict[int, Expression] = {}  # elements of tuples, which are rewritten once
        self.handlers: dict[type, Callable[..., cst.CSTNode]] = {
            cst.Name: self._name,
            cst.Attribute: self._attribute,
            cst.Subscript: self._subscript,
            cst.Call: self._call,
            cst.IfExp: self._if_expression,
            cst.BooleanOperation: self._boolean,
            cst.UnaryOperation: self._unary,
            cst.Comparison: self._comparison,
            cst.GeneratorExp: self._comprehension,
            cst.ListComp: self._comprehension,
            cst.Tuple: self._display,
            cst.List: self._display,
            cst.FormattedStringExpression: self._formatted,
            cst.Lambda: self._lambda,
        }

    def on_visit(self, node: cst.CSTNode) -> bool:
        return type(node) not in self.handlers

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> cst.CSTNodeT:
        handler = self.handlers.get(type(original_node))
        if handler is not None:
            return cast(cst.CSTNodeT, handler(original_node))
        if isinstance(updated_node, cst.FormattedString):
            return cast(cst.CSTNodeT, as_plain_string(updated_node))
        return updated_node

    def rewrite(self, node: Expression) -> Expression:
        """The expression for this case."""
        if id(node) in self.finished:
            return node
        found = node.visit(self)
        assert isinstance(found, cst.BaseExpression)
        return found

    def _children(self, node: Node) -> Node:
        return cast(Node, node._visit_and_replace_children(self))

    # ---- tests --------------------------------------------------------------------------------------------------

    def simplify(self, node: Expression) -> bool | Expression:
        """A test's truth value where it is static, else the test without its static parts."""
        if isinstance(node, cst.Call) and called_name(node.func) == "const_expr":
            inner = self.simplify(node.args[0].value)
            if isinstance(inner, bool):
                return inner
            return node.with_changes(func=self.rewrite(node.func), args=[cst.Arg(inner)])
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            inner = self.simplify(node.expression)
            return (not inner) if isinstance(inner, bool) else node.with_changes(expression=inner)
        if isinstance(node, cst.BooleanOperation):
            return self._simplify_both(node)
        try:
            return bool(self.scope.evaluate(node))
        except NotStatic:
            return self.rewrite(node)

    def _simplify_both(self, node: cst.BooleanOperation) -> bool | Expression:
        decides = isinstance(node.operator, cst.Or)  # the truth value of one side that decides
        left = self.simplify(node.left)
        if left is decides:
            return decides
        right = self.simplify(node.right)
        if isinstance(left, bool):
            return right
        if isinstance(right, bool):
            return decides if right is decides else left
        return node.with_changes(left=left, right=right)

    def _if_expression(self, node: cst.IfExp) -> Expression:
        test = self.simplify(node.test)
        if isinstance(test, bool):
            chosen = self.rewrite(node.body if test else node.orelse)
            return parenthesized(chosen) if node.lpar and isinstance(chosen, COMPOUND) else chosen
        return node.with_changes(test=test, body=self.rewrite(node.body), orelse=self.rewrite(node.orelse))

    def _boolean(self, node: cst.BooleanOperation | cst.UnaryOperation) -> Expression:
        try:
            return self._literal(node, self.scope.evaluate(node))
        except NotStatic:
            found = self.simplify(node)
            return cst.Name(str(found)) if isinstance(found, bool) else found

    def _unary(self, node: cst.UnaryOperation) -> Expression:
        if isinstance(node.operator, cst.Not):
            return self._boolean(node)
        return self._children(node)

    def _comparison(self, node: cst.Comparison) -> Expression:
        try:
            return self._literal(node, self.scope.evaluate(node))
        except NotStatic:
            return self._children(node)

    # ---- leaves -------------------------------------------------------------------------------------------------

    def _literal(self, node: Expression, value: object) -> Expression:
        if isinstance(value, Hook):
            return cst.Name(self.builder.hook(value, whole=True).name)
        return parse_literal(value, location(self.scope.module, node))

    def _name(self, node: cst.Name) -> Expression:
        name = node.value
        if name in self.scope.static:
            return self._literal(node, self.scope.evaluate(node))
        if name in self.scope.local:
            return node
        return node.with_changes(value=self.builder.require(self.scope.module, name))

    def _attribute(self, node: cst.Attribute) -> Expression:
        if (comment := self._constant_comment(node)) and is_constant(self.scope.peek(node)):
            return cst.Name(self.builder.constant(node.attr.value.upper(), self.scope, node, comment))
        try:
            value = self.scope.evaluate(node)
        except NotStatic:
            return node.with_changes(value=self.rewrite(node.value))
        return self._literal(node, value)

    def _subscript(self, node: cst.Subscript) -> Expression:
        if isinstance(node.value, cst.Attribute) and self._constant_comment(node.value):
            return self._children(node)
        try:
            value = self.scope.evaluate(node)
            if render_literal(value) is not None:
                return self._literal(node, value)
        except NotStatic:
            pass
        return self._children(node)

    def _constant_comment(self, node: cst.Attribute) -> str:
        """The comment of the module constant that is written for the attribute; "" if none is."""
        try:
            owner = self.scope.evaluate_type(node.value)
        except NotStatic:
            return ""
        comments: dict[str, str] = getattr(owner, "CONSTANTS", {})
        return comments.get(node.attr.value, "")

    def _lambda(self, node: cst.Lambda) -> Expression:
        return node.with_changes(body=self.rewrite(node.body))

    def _formatted(self, node: cst.FormattedStringExpression) -> cst.BaseFormattedStringContent:
        try:
            value = self.scope.evaluate(node.expression)
        except NotStatic:
            value = None
        if isinstance(value, str | int) and node.conversion is None and node.format_spec is None:
            text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("{", "{{").replace("}", "}}")
            return cst.FormattedStringText(text)
        return self._children(node)

    # ---- tuples -------------------------------------------------------------------------------------------------

    def elements(self, node: Expression) -> list[Expression] | None:
        """The rewritten elements of an expression that is a tuple of known length, else None."""
        found = self._elements(node)
        self.finished |= {id(element): element for element in found or ()}
        return found

    def _elements(self, node: Expression) -> list[Expression] | None:
        if isinstance(node, cst.Call) and called_name(node.func) in ("tuple", "list") and len(node.args) == 1:
            return self.elements(node.args[0].value)
        if isinstance(node, cst.GeneratorExp | cst.ListComp):
            rows = self.unroll(node)
            return None if rows is None else [element for element, _ in rows]
        if isinstance(node, cst.Tuple | cst.List):
            return self._display_elements(node)
        try:
            value = self.scope.evaluate(node)
        except NotStatic:
            if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
                left, right = self.elements(node.left), self.elements(node.right)
                return None if left is None or right is None else left + right
            if isinstance(node, cst.IfExp) and isinstance(test := self.simplify(node.test), bool):
                return self.elements(node.body if test else node.orelse)
            return None
        if isinstance(value, tuple | list):
            return [self._literal(node, item) for item in value]
        return None

    def unroll(self, node: cst.GeneratorExp | cst.ListComp) -> list[tuple[Expression, object]] | None:
        """(element, what it was made from) of a comprehension over static items, else None."""
        comp = node.for_in
        items = self.items(comp.iter)
        if items is None or comp.inner_for_in is not None:
            return None
        found: list[tuple[Expression, object]] = []
        kept = dict(self.scope.static)
        for item in items:
            self.bind(comp.target, item)
            if all(self._holds(condition.test) for condition in comp.ifs):
                found.append((self.rewrite(node.elt), item))
        self.scope.static = kept
        return found

    def _holds(self, test: Expression) -> bool:
        found = self.simplify(test)
        if not isinstance(found, bool):
            raise SpecialiseError(f"{location(self.scope.module, test)}: this test is not static")
        return found

    def items(self, node: Expression) -> list[object] | None:
        """What a loop over the expression meets where that is static; None for loops of run time."""
        if isinstance(node, cst.Call) and called_name(node.func) in ("range", "range_constexpr", "range_dynamic"):
            return None
        try:
            value = self.scope.evaluate(node)
            return list(value)  # type: ignore[call-overload, no-any-return]
        except (NotStatic, TypeError):
            return None

    def bind(self, target: cst.BaseExpression, value: object) -> None:
        """Make the names of a loop's target static."""
        if isinstance(target, cst.Name):
            self.scope.static[target.value] = value
        elif isinstance(target, cst.Tuple | cst.List):
            parts = list(value)  # type: ignore[call-overload]
            for element, part in zip(target.elements, parts, strict=True):
                self.bind(element.value, part)

    def _display_elements(self, node: cst.Tuple | cst.List) -> list[Expression]:
        found: list[Expression] = []
        for element in node.elements:
            if isinstance(element, cst.StarredElement):
                inner = self.elements(element.value)
                found += [cst.parse_expression("0")] if inner is None else inner
                if inner is None:
                    raise SpecialiseError(f"{location(self.scope.module, node)}: the length of a starred part is open")
            else:
                found.append(self.rewrite(element.value))
        return found

    def _display(self, node: cst.Tuple | cst.List) -> Expression:
        if not any(isinstance(element, cst.StarredElement) for element in node.elements):
            return self._children(node)
        try:
            made = self._display_elements(node)
        except SpecialiseError:
            return self._children(node)
        return make_display(node, made)

    def _comprehension(self, node: cst.GeneratorExp | cst.ListComp) -> Expression:
        rows = self.unroll(node)
        if rows is None:
            return self._children(node)
        made = [element for element, _ in rows]
        return make_display(cst.List([]) if isinstance(node, cst.ListComp) else cst.Tuple([]), made)

    # ---- calls --------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Expression:
        return self.call(node)[0]

    def call(self, node: cst.Call) -> tuple[Expression, tuple[str, ...] | None]:
        """(the rewritten call, names of what it returns where that is a Many)."""
        name = called_name(node.func)
        if name == "const_expr":
            found = self.simplify(node)
            return (cst.Name(str(found)) if isinstance(found, bool) else found), None
        if name == "call" and node.args and self._binds(node.args[0].value):
            return self._launch(node), None
        try:
            value = self.scope.evaluate(node)
            if render_literal(value) is not None:
                return self._literal(node, value), None
        except NotStatic:
            pass
        if (hook := self._hook(node.func)) is not None:
            written = self.builder.hook(hook)
            return node.with_changes(
                func=cst.Name(written.name), args=passed_arguments(written, self.arguments(node.args, spread=True))
            ), written.returns
        if isinstance(node.func, cst.Name) and (library := self._library(node.func.value)) is not None:
            return self._library_call(node, *library)
        if name in ("tuple", "list") and (made := self.elements(node)) is not None:
            return make_display(cst.Tuple([]), made), None
        changed = node.with_changes(func=self.rewrite(node.func), args=self.arguments(node.args))
        return (without_defaults(changed) if name == "launch" else changed), None

    def _hook(self, func: Expression) -> Hook | None:
        try:
            value = self.scope.evaluate(func)
        except NotStatic:
            return None
        return value if isinstance(value, Hook) else None

    def _binds(self, node: Expression) -> bool:
        found = self.scope.module.imports.get("bind")
        is_bind = isinstance(node, cst.Call) and called_name(node.func) == "bind"
        return is_bind and found is not None and found.module == STATIC

    def _library(self, name: str) -> tuple[Module, str] | None:
        """The library function that a name calls, or None."""
        if name in self.scope.static or name in self.scope.local:
            return None
        module = self.scope.module
        while name not in module.functions:
            found = module.imports.get(name)
            if found is None or not found.in_library or found.module == STATIC or found.name is None:
                return None
            module, name = load_module(found.module), found.name
        return module, name

    def _library_call(self, node: cst.Call, module: Module, name: str) -> tuple[Expression, tuple[str, ...] | None]:
        bound = bind_arguments(self, Parameters.of(module, name), node.args, location(self.scope.module, node))
        written = self.builder.function(module, name, static=bound.static, many=bound.many, nodes=bound.nodes)
        arguments = passed_arguments(written, bound.arguments)
        return node.with_changes(func=cst.Name(written.name), args=arguments), written.returns

    def _launch(self, node: cst.Call) -> Expression:
        """`call(bind(launch, cfg), key, (a, parts), (width,))`: the arguments are those of `launch`."""
        binding, key, *groups = node.args
        assert isinstance(binding.value, cst.Call)
        function, *static = binding.value.args
        library = self._library(called_name(function.value))
        if library is None:
            raise SpecialiseError(f"{location(self.scope.module, node)}: bind takes a function of the library")
        module, name = library
        parameters = Parameters.of(module, name)
        given = [cst.Arg(element) for group in groups for element in self._group(group.value)]
        before = len(self._group(groups[0].value))
        bound = bind_arguments(self, parameters.without("stream"), [*static, *given], location(self.scope.module, node))
        written = self.builder.function(
            module, name, static=bound.static, many=bound.many, nodes=bound.nodes, whole=True
        )
        made = [argument.value for argument in bound.arguments]
        constants = [arg for arg in given[before:] if not is_nothing(self, arg.value)]  # never Many
        first = len(made) - len(constants)
        parts = [cst.Arg(make_display(cst.Tuple([]), made[:first]))]
        if constants:
            parts.append(cst.Arg(make_display(cst.Tuple([]), made[first:])))
        own = self.rewrite(node.func)
        return node.with_changes(func=own, args=[cst.Arg(cst.Name(written.name)), *self.arguments([key]), *parts])

    def _group(self, node: Expression) -> list[Expression]:
        """Elements of a tuple as they stand, so that each meets its parameter."""
        if not isinstance(node, cst.Tuple):
            raise SpecialiseError(f"{location(self.scope.module, node)}: call takes tuples of arguments, written out")
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            raise SpecialiseError(f"{location(self.scope.module, node)}: a Many is passed to call as one element")
        return [element.value for element in node.elements]

    def arguments(self, args: Sequence[cst.Arg], *, spread: bool = False) -> list[cst.Arg]:
        """Arguments of a call of something that is not in the library; with `spread`, tuples become several."""
        found: list[cst.Arg] = []
        for arg in args:
            several = self.elements(arg.value) if arg.star == "*" or (spread and self._is_many(arg.value)) else None
            if several is not None and arg.keyword is None:
                found += [cst.Arg(element) for element in several]
            else:
                found.append(arg.with_changes(value=self.rewrite(arg.value)))
        return found

    def _is_many(self, node: Expression) -> bool:
        if isinstance(node, cst.Name):
            return isinstance(self.scope.static.get(node.value), tuple)
        made = isinstance(node, cst.Call) and called_name(node.func) == "tuple"
        return made or isinstance(node, cst.Tuple | cst.GeneratorExp | cst.Subscript)
