"""Joins the text of a kernel and that of its reference in one module: names that both define are told apart."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Mapping

import libcst as cst
from libcst.metadata import GlobalScope, MetadataWrapper, ScopeProvider

from workbench.errors import UserError

Statements = list[ast.stmt]


def rename(source: str, names: Mapping[str, str]) -> str:
    """The source with other names for what its top level defines. Locals of the same name stay."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    scopes = wrapper.resolve(ScopeProvider).values()
    found = next(scope for scope in scopes if isinstance(scope, GlobalScope))
    nodes: dict[cst.CSTNode, str] = {}
    for old, new in names.items():
        for assignment in found[old]:
            if (node := getattr(assignment, "node", None)) is not None:
                nodes[node.name if isinstance(node, cst.FunctionDef | cst.ClassDef) else node] = new
            nodes |= {access.node: new for access in assignment.references if isinstance(access.node, cst.Name)}
            nodes |= {
                leftmost(access.node): new for access in assignment.references if isinstance(access.node, cst.Attribute)
            }
    return wrapper.module.visit(_Renaming(nodes)).code


def leftmost(node: cst.BaseExpression) -> cst.BaseExpression:
    """`a` of `a.b.c`."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


class _Renaming(cst.CSTTransformer):
    def __init__(self, nodes: Mapping[cst.CSTNode, str]) -> None:
        super().__init__()
        self.nodes = nodes

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self.nodes.get(original_node)
        return updated_node if new is None else updated_node.with_changes(value=new)


def keep_needed(source: str, wanted: Collection[str]) -> str:
    """The statements of a module that `wanted` needs, as they are written. Settings such as `a.b = c` stay."""
    tree = ast.parse(source)
    needed, kept = set(wanted), dict[int, ast.stmt]()
    while True:
        more = {
            place: node
            for place, node in enumerate(tree.body)
            if place not in kept and (needed & defined_names([node]) or _is_setting(node))
        }
        if not more:
            break
        kept |= more
        needed |= {item.id for node in more.values() for item in ast.walk(node) if isinstance(item, ast.Name)}
    parts = [_text_of(source, tree.body[place]) for place in sorted(kept)]
    return "\n\n\n".join(parts) + "\n"


def _is_setting(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and all(isinstance(target, ast.Attribute) for target in node.targets)


def _text_of(source: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def split_imports(source: str) -> tuple[list[str], str]:
    """The import statements of a module's top level, and its other statements without the docstring."""
    tree = ast.parse(source)
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = [ast.unparse(node) for node in imports if getattr(node, "module", "") != "__future__"]
    skipped = {line for node in imports for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    start = body[0].lineno if body else 1
    first = min([start, *(item.lineno for item in getattr(body[0], "decorator_list", []))]) if body else 1
    rest = [text for number, text in enumerate(source.splitlines(), 1) if number >= first and number not in skipped]
    return lines, "\n".join(rest).strip("\n") + "\n"


def imported_names(lines: Collection[str]) -> dict[str, str]:
    """What import statements bind: `{"nn": "torch.nn"}`, however it is written."""
    found: dict[str, str] = {}
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                for alias in node.names
            }
    return found


def defined_names(nodes: Collection[ast.stmt]) -> set[str]:
    """Names that statements of a top level bind."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        else:
            found |= {
                item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
            }
    return found


def tell_apart(source: str, taken: Collection[str], suffix: str) -> str:
    """The source with `suffix` behind each name of its top level, imports apart, that is in `taken`."""
    body = ast.parse(source).body
    own = defined_names([node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)])
    clashes = sorted(own & set(taken))
    free = {name: f"{name}{suffix}" for name in clashes}
    used = {item.id for node in body for item in ast.walk(node) if isinstance(item, ast.Name)} | set(taken)
    for name in clashes:
        while free[name] in used or hasattr(builtins, free[name]):
            free[name] += "_"
    return rename(source, free) if free else source


def join_modules(label: str, first: str, second: str, suffix: str, reserved: Collection[str] = ()) -> str:
    """One text of two modules. Names of the second that the first has too, or that are reserved, get the suffix.

    Raises `UserError` if an import of the second hides a name of the first; `label` says in which problem.
    """
    first_imports, first_text = split_imports(first)
    taken, known = defined_names(ast.parse(first_text).body) | set(reserved), imported_names(first_imports)
    second_imports, second_text = split_imports(tell_apart(second, taken | known.keys(), suffix))
    for name, what in imported_names(second_imports).items():
        if name in taken or known.get(name, what) != what:
            raise UserError(f"{label} cannot be exported in this form: two things are called {name!r}; rename one")
    imports = "\n".join(dict.fromkeys([*first_imports, *second_imports]))
    return f"{imports}\n\n\n{first_text}\n\n{second_text}\n\n"
