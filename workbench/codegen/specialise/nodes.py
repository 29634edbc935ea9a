"""Syntax nodes of libcst: tests of a node, and new nodes made of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst

Line = cst.SimpleStatementLine
Target = cst.BaseAssignTargetExpression
Part = TypeVar("Part", bound=cst.BaseExpression)


def make_display(node: cst.Tuple | cst.List, made: Sequence[cst.BaseExpression]) -> cst.BaseExpression:
    """A tuple or list of these elements."""
    elements = [cst.Element(element) for element in made]
    if isinstance(node, cst.List):
        return cst.List(elements)
    return cst.Tuple(elements, lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """The expression in parentheses."""
    return node if node.lpar else node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def called_name(node: cst.CSTNode | None) -> str:
    """f of f(...) and of module.f(...)."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def without_defaults(node: cst.Call) -> cst.Call:
    """A launch without what is None or False."""
    kept = [
        arg
        for arg in node.args
        if arg.keyword is None or not (isinstance(arg.value, cst.Name) and arg.value.value in ("None", "False"))
    ]
    return node.with_changes(args=[arg.with_changes(comma=cst.MaybeSentinel.DEFAULT) for arg in kept])


def as_plain_string(node: cst.FormattedString) -> cst.BaseExpression:
    """A formatted string as a plain one where nothing is left to be formatted."""
    if any(not isinstance(part, cst.FormattedStringText) for part in node.parts):
        return node
    text = "".join(part.value for part in node.parts if isinstance(part, cst.FormattedStringText))
    plain = text.replace("{{", "{").replace("}}", "}")
    return cst.SimpleString(f"{node.start.replace('f', '').replace('F', '')}{plain}{node.end}")


def leaves_block(node: cst.BaseStatement) -> bool:
    """Whether nothing after the statement is reached."""
    return isinstance(node, Line) and isinstance(node.body[-1], cst.Return | cst.Raise | cst.Continue | cst.Break)


def is_empty_tuple(node: cst.BaseExpression) -> bool:
    """Whether it is `()`."""
    return isinstance(node, cst.Tuple) and not node.elements


def is_tuple_call(node: cst.Call) -> bool:
    """Whether it calls `tuple`."""
    return isinstance(node.func, cst.Name) and node.func.value == "tuple"


def is_pass(node: cst.BaseStatement) -> bool:
    """Whether the line does nothing."""
    return isinstance(node, Line) and all(isinstance(small, cst.Pass) for small in node.body)


def join(parts: Sequence[Part]) -> Part | cst.Tuple:
    """One as it is, several as a tuple without parentheses."""
    return parts[0] if len(parts) == 1 else cst.Tuple([cst.Element(part) for part in parts], lpar=[], rpar=[])


def as_target(node: cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]) -> Target:
    """The node, which stands left of an assignment."""
    assert isinstance(node, cst.BaseAssignTargetExpression)
    return node


def with_assign(node: Line, target: cst.BaseExpression, value: cst.BaseExpression) -> Line:
    """The line, with comments, as one assignment."""
    return node.with_changes(body=[cst.Assign(targets=[cst.AssignTarget(as_target(target))], value=value)])
