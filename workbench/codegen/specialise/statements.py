"""Rewrites statements: folds static branches, unrolls loops over static items, spreads tuples of symbols."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from workbench.codegen.specialise.expressions import Expressions
from workbench.codegen.specialise.library import SpecialiseError
from workbench.codegen.specialise.names import target_names
from workbench.codegen.specialise.nodes import (
    Line,
    as_target,
    is_empty_tuple,
    is_pass,
    is_tuple_call,
    join,
    leaves_block,
    with_assign,
)
from workbench.codegen.specialise.protocols import FileBuilder
from workbench.codegen.specialise.scope import NotStatic, Scope, location
from workbench.codegen.specialise.values import Symbol, holds_symbols, render_literal, singular

Statement = cst.BaseStatement


class Statements(Expressions):
    """Rewrites the body of one function."""

    def __init__(self, builder: FileBuilder, scope: Scope) -> None:
        super().__init__(builder, scope)
        self.handlers[cst.IndentedBlock] = self._block

    def _block(self, node: cst.IndentedBlock) -> cst.IndentedBlock:
        body = self.statements(node.body)
        return node.with_changes(body=body or [cst.SimpleStatementLine([cst.Pass()])])

    def statements(self, nodes: Sequence[cst.CSTNode]) -> list[Statement]:
        """The statements for this case; none where all are folded away."""
        found: list[Statement] = []
        for node in nodes:
            if isinstance(node, cst.If):
                found += self._if(node)
                if found and not isinstance(found[-1], cst.If) and leaves_block(found[-1]):
                    break  # the branch that is taken returns
            elif isinstance(node, cst.For):
                found += self._for(node)
            elif isinstance(node, cst.SimpleStatementLine):
                found += self._line(node)
            else:
                made = node.visit(self)
                assert isinstance(made, cst.BaseStatement)
                found.append(made)
        return found

    def _if(self, node: cst.If) -> list[Statement]:
        test = self.simplify(node.test)
        if isinstance(test, bool):
            return self._taken(node, self._branch(node.body if test else node.orelse))
        body, orelse = self._kept(node.body), self._orelse(node.orelse)
        if not body and orelse is None:
            return []
        block = node.body.with_changes(body=body or [Line([cst.Pass()])])
        return [node.with_changes(test=test, body=block, orelse=orelse)]

    def _branch(self, node: cst.BaseSuite | cst.If | cst.Else | None) -> list[Statement]:
        if node is None:
            return []
        if isinstance(node, cst.If):
            return self._if(node)
        return self._kept(node.body if isinstance(node, cst.Else) else node)

    def _kept(self, node: cst.BaseSuite) -> list[Statement]:
        """The suite's statements without a lone pass."""
        if not isinstance(node, cst.IndentedBlock):
            raise SpecialiseError(f"{location(self.scope.module, node)}: write the branch on lines of its own")
        made = self.statements(node.body)
        return [] if all(is_pass(line) for line in made) else made

    def _taken(self, node: cst.If, body: list[Statement]) -> list[Statement]:
        """A branch in place of its statement, whose comments it keeps."""
        if body and node.leading_lines and isinstance(body[0], Line | cst.If | cst.For | cst.While | cst.With):
            first = body[0].with_changes(leading_lines=[*node.leading_lines, *body[0].leading_lines])
            return [first, *body[1:]]
        return body

    def _orelse(self, node: cst.If | cst.Else | None) -> cst.If | cst.Else | None:
        if node is None:
            return None
        made = self._branch(node)
        if not made:
            return None
        if isinstance(node, cst.If) and len(made) == 1 and isinstance(made[0], cst.If):
            return made[0].with_changes(leading_lines=[])
        return cst.Else(body=cst.IndentedBlock(made))

    def _for(self, node: cst.For) -> list[Statement]:
        items = self.items(node.iter)
        if items is None:
            target = self._loop_target(node.target)
            return [node.with_changes(target=target, iter=self.rewrite(node.iter), body=self._block_of(node.body))]
        found: list[Statement] = []
        before = set(self.scope.static)
        for item in items:
            # what an earlier turn of the loop assigned first has other names in this one
            own = [name for name, value in self.scope.static.items() if name not in before and holds_symbols(value)]
            for name in own:
                del self.scope.static[name]
            self.bind(node.target, item)
            found += self._kept(node.body)
        return self._comments(node, found)

    def _loop_target(self, node: cst.BaseAssignTargetExpression) -> cst.BaseAssignTargetExpression:
        """A loop's target, in which a starred Many stands for its names."""
        if not isinstance(node, cst.Tuple):
            return node
        found: list[cst.BaseExpression] = []
        for element in node.elements:
            known = self.scope.static.get(element.value.value) if isinstance(element.value, cst.Name) else None
            if isinstance(element, cst.StarredElement) and isinstance(known, tuple):
                found += [cst.Name(symbol.name) for symbol in known if isinstance(symbol, Symbol)]
            else:
                found.append(element.value)
        return as_target(join(found))

    def _block_of(self, node: cst.BaseSuite) -> cst.BaseSuite:
        made = node.visit(self)
        assert isinstance(made, cst.BaseSuite)
        return made

    def _comments(self, node: cst.For, body: list[Statement]) -> list[Statement]:
        if body and isinstance(body[0], Line | cst.If | cst.For) and node.leading_lines:
            return [body[0].with_changes(leading_lines=[*node.leading_lines, *body[0].leading_lines]), *body[1:]]
        return body

    # ---- lines --------------------------------------------------------------------------------------------------

    def _line(self, node: Line) -> list[Statement]:
        if len(node.body) == 1:
            small = node.body[0]
            if isinstance(small, cst.Assign) and len(small.targets) == 1:
                return self._assign(node, small)
            if isinstance(small, cst.Return) and small.value is not None:
                return [self._return(node, small, small.value)]
            if isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString):
                return [node]
        return [self._children(node)]

    def _assign(self, node: Line, small: cst.Assign) -> list[Statement]:
        target, value = small.targets[0].target, small.value
        if isinstance(target, cst.Name):
            if (names := self._alias(target, value)) or (names := self._spread(node, target, value)):
                return list(names[0])
        elif isinstance(target, cst.Tuple) and (made := self._unpack(node, target, value)):
            return [made]
        if isinstance(value, cst.Call):
            called, returns = self.call(value)
            if returns is not None:
                return [self._assign_many(node, target, called, returns)]
            self._make_local(target)
            return [with_assign(node, self._target(target), called)]
        if isinstance(target, cst.Name) and target.value in self.scope.static:
            raise SpecialiseError(f"{location(self.scope.module, node)}: {target.value} is static and set at run time")
        return [with_assign(node, self._target(target), self.rewrite(value))]

    def _make_local(self, target: cst.BaseExpression) -> None:
        """A parameter that nothing is passed for is set in the function: from here on it is a local name."""
        if isinstance(target, cst.Name) and self.scope.static.get(target.value) == ():
            del self.scope.static[target.value]
            self.scope.local.add(target.value)

    def _target(self, node: cst.BaseAssignTargetExpression) -> cst.BaseAssignTargetExpression:
        made = as_target(node if isinstance(node, cst.Name) else node.visit(self))
        return made.with_changes(lpar=[], rpar=[]) if isinstance(made, cst.Tuple) else made

    def _alias(self, target: cst.Name, value: cst.BaseExpression) -> tuple[list[Statement]] | None:
        """A static value that is no text of the file, under a second name: nothing is written."""
        try:
            found = () if is_empty_tuple(value) else self.scope.evaluate(value)
        except NotStatic:
            return None
        if found == () or holds_symbols(found) or render_literal(found) is None:
            self.scope.static[target.value] = found
            return ([],)
        return None

    def _spread(self, node: Line, target: cst.Name, value: cst.BaseExpression) -> tuple[list[Statement]] | None:
        """`parts = tuple(f(x) for x in inputs)`: a line for each; `state = (a, b)` where state is a Many."""
        known = self.scope.static.get(target.value)
        inner = value.args[0].value if isinstance(value, cst.Call) and is_tuple_call(value) else value
        if isinstance(inner, cst.GeneratorExp | cst.ListComp) and (rows := self.unroll(inner)) is not None:
            elements = [element for element, _ in rows]
            names = self._names(target.value, [item for _, item in rows], known)
            self.scope.static[target.value] = names
            made: list[Statement] = [
                with_assign(node if at == 0 else Line([]), cst.Name(symbol.name), element)
                for at, (symbol, element) in enumerate(zip(names, elements, strict=True))
            ]
            return (made,)
        if holds_symbols(known) and (parts := self.elements(value)) is not None:
            assert isinstance(known, tuple)
            if len(parts) != len(known):
                raise SpecialiseError(f"{location(self.scope.module, node)}: {target.value} has {len(known)} values")
            targets = [cst.Name(symbol.name) for symbol in known]
            return ([with_assign(node, join(targets), join(parts))],)
        return None

    def _names(self, target: str, items: list[object], known: object) -> tuple[Symbol, ...]:
        """Names for the values of a comprehension, by the operands that they are made from."""
        if isinstance(known, tuple) and holds_symbols(known) and len(known) == len(items):
            return known
        found = []
        for number, item in enumerate(items, 1):
            parts = item if isinstance(item, tuple) else (item,)
            base = next((part.base for part in parts if isinstance(part, Symbol)), None)
            base = base or next(
                (str(part.name) for part in parts if isinstance(getattr(part, "name", None), str)), None
            )
            name = self._fresh(f"{base}_{singular(target)}" if base else f"{singular(target)}{number}")
            found.append(Symbol(name=name, base=base or str(number)))
        return tuple(found)

    def _fresh(self, name: str) -> str:
        while name in self.scope.taken:
            name += "_"
        self.scope.taken.add(name)
        self.scope.local.add(name)
        return name

    def _unpack(self, node: Line, target: cst.Tuple, value: cst.BaseExpression) -> Statement | None:
        """`a, b = state`."""
        if isinstance(value, cst.Tuple | cst.List | cst.Call):
            return None
        parts = self.elements(value)
        if parts is None:
            return None
        targets = [element.value for element in target.elements]
        if len(parts) != len(targets):
            raise SpecialiseError(f"{location(self.scope.module, node)}: there are {len(parts)} values")
        return with_assign(node, join(targets), join(parts))

    def _assign_many(
        self, node: Line, target: cst.BaseExpression, called: cst.BaseExpression, returns: tuple[str, ...]
    ) -> Statement:
        """The result of a function that returns a Many."""
        if isinstance(target, cst.Tuple):
            return with_assign(node, join([element.value for element in target.elements]), called)
        name = target_names(target)[0]
        known = self.scope.static.get(name)
        if not (isinstance(known, tuple) and holds_symbols(known) and len(known) == len(returns)):
            known = tuple(Symbol(name=self._fresh(item), base=item) for item in returns)
        self.scope.static[name] = known
        return with_assign(node, join([cst.Name(symbol.name) for symbol in known]), called)

    def _return(self, node: Line, small: cst.Return, value: cst.BaseExpression) -> Statement:
        if isinstance(value, cst.Call):
            made, returns = self.call(value)
            if returns is not None:
                self.scope.returns = returns
            elif is_tuple_call(value) and (parts := self.elements(value)) is not None:
                self.scope.returns = tuple(f"value{n}" for n in range(1, len(parts) + 1))
                made = join(parts)
            return node.with_changes(body=[small.with_changes(value=made)])
        found = self.scope.static.get(value.value) if isinstance(value, cst.Name) else None
        if isinstance(found, tuple) and holds_symbols(found):
            self.scope.returns = tuple(symbol.name for symbol in found)
            names = join([cst.Name(symbol.name) for symbol in found])
            return node.with_changes(body=[small.with_changes(value=names)])
        return node.with_changes(body=[small.with_changes(value=self.rewrite(value))])
