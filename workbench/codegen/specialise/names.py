"""Names in the source of the library: which an expression reads, which a function binds, which it mentions."""

from __future__ import annotations

import ast
import functools
from types import CodeType

import libcst as cst

CODE = cst.Module([])
CONSTANT_NAMES = {"True", "False", "None"}
UNROLLED_CALLS = frozenset(("zip", "enumerate", "len", "reversed"))


@functools.lru_cache(maxsize=50_000)
def free_names(node: cst.CSTNode) -> tuple[str, ...]:
    """Names that an expression reads, without attributes, keywords and what comprehensions bind."""
    collector = _FreeNames()
    node.visit(collector)
    return tuple(name for name in dict.fromkeys(collector.found) if name not in collector.bound | CONSTANT_NAMES)


@functools.lru_cache(maxsize=50_000)
def compile_expression(node: cst.CSTNode) -> CodeType:
    """The expression, compiled to be evaluated."""
    return compile(CODE.code_for_node(node).strip(), "<static>", "eval")


class _FreeNames(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.bound: set[str] = set()

    def visit_Name(self, node: cst.Name) -> None:
        self.found.append(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.bound |= set(target_names(node.target))

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self.bound |= {param.name.value for param in node.params.params}


def target_names(node: cst.CSTNode) -> list[str]:
    """Names that an assignment to this target binds."""
    if isinstance(node, cst.Name):
        return [node.value]
    if isinstance(node, cst.Tuple | cst.List):
        return [name for element in node.elements for name in target_names(element.value)]
    return []


@functools.lru_cache(maxsize=2_000)
def _parse_function(function: cst.FunctionDef) -> ast.Module:
    return ast.parse(CODE.code_for_node(function.with_changes(leading_lines=[])).lstrip())


@functools.lru_cache(maxsize=2_000)
def local_names(function: cst.FunctionDef) -> frozenset[str]:
    """Names that the function binds: parameters, assignments, loops, comprehensions."""
    tree = _parse_function(function)
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    inner = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} - {function.name.value}
    return frozenset(stored | inner | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)})


@functools.lru_cache(maxsize=2_000)
def used_names(function: cst.FunctionDef, static: frozenset[str]) -> frozenset[str]:
    """Names that the function mentions, without those of loops and comprehensions over what is static."""
    tree = _parse_function(function)
    vanishing = _unrolled_targets(tree, static)
    kept = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in vanishing]
    unrolled = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) in vanishing}
    stored = {node.id for node in kept if isinstance(node.ctx, ast.Store)}
    mentioned = {node.id for node in kept if node.id not in unrolled or node.id in stored}
    return frozenset(mentioned | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)})


def _unrolled_targets(tree: ast.AST, static: frozenset[str]) -> set[int]:
    """Identities of the names that loops and comprehensions over static items bind."""
    known = set(static | UNROLLED_CALLS)
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and {item.id for item in _names(node.iter)} <= known:
            found |= {id(item) for item in _names(node.target)}
            known |= {item.id for item in _names(node.target)}
        elif isinstance(node, ast.GeneratorExp | ast.ListComp):
            bound = {item.id for part in node.generators for item in _names(part.target)}
            found |= {id(item) for item in _names(node) if item.id in bound}
        elif isinstance(node, ast.Assign) and _is_tuple_call(node.value):
            known |= {item.id for target in node.targets for item in _names(target)}
    return found


def _names(node: ast.AST) -> list[ast.Name]:
    return [item for item in ast.walk(node) if isinstance(item, ast.Name)]


def _is_tuple_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tuple"
