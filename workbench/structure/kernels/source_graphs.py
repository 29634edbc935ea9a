"""The graph of a kernel's Python source: its calls, loops and branches, what is in what, and who uses whose value."""

from __future__ import annotations

import ast

from workbench.errors import UserError
from workbench.structure.graph import Graph

BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.FunctionDef)


def source_graph(text: str) -> Graph:
    """The graph of a Python source, directed. Raises `UserError` where it is no Python.

    Nodes are functions, loops, branches, and calls by the last two names of what is called (`cute.copy`). Edges of the
    `kind` "inside" lead from a block to what it holds, "next" from a call to the next one in its block, "use" from the
    call that made a value to the call that takes it.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"the source is no Python, line {getattr(error, 'lineno', 1)}: {error}") from None
    reader = _Reader()
    reader.read_block(tree.body, -1)
    return Graph.of(
        reader.edges,
        size=len(reader.kinds),
        directed=True,
        node_columns={"kind": reader.kinds},
        edge_columns={"kind": reader.edge_kinds},
    )


class _Reader:
    """Reads statements in order."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.edges: list[tuple[int, int]] = []
        self.edge_kinds: list[str] = []
        self._made_by: dict[str, int] = {}

    def read_block(self, statements: list[ast.stmt], owner: int) -> None:
        """The statements of a block whose node is `owner`."""
        last = -1
        for statement in statements:
            if isinstance(statement, (*BLOCKS, ast.ClassDef)):
                node = self._add(type(statement).__name__.lower(), owner)
                self._read_calls(statement, node)
                self.read_block(statement.body, node)
                self.read_block(getattr(statement, "orelse", []), node)
            else:
                for node in self._read_calls(statement, owner):
                    if last >= 0:
                        self._join(last, node, "next")
                    last = node

    def _read_calls(self, statement: ast.stmt, owner: int) -> list[int]:
        """The calls of a statement, without those of the statements inside it."""
        found = []
        for part in _own_parts(statement):
            for call in ast.walk(part):
                if isinstance(call, ast.Call):
                    node = self._add(_called(call.func), owner)
                    found.append(node)
                    for name in {one.id for one in ast.walk(call) if isinstance(one, ast.Name)}:
                        if name in self._made_by:
                            self._join(self._made_by[name], node, "use")
        if found and isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
            self._made_by.update(dict.fromkeys(names, found[0]))
        return found

    def _add(self, kind: str, owner: int) -> int:
        self.kinds.append(kind)
        if owner >= 0:
            self._join(owner, len(self.kinds) - 1, "inside")
        return len(self.kinds) - 1

    def _join(self, one: int, other: int, kind: str) -> None:
        self.edges.append((one, other))
        self.edge_kinds.append(kind)


def _own_parts(statement: ast.stmt) -> list[ast.AST]:
    """Parts of a statement that are no statements: the iterator of a loop, the test of a branch."""
    parts = [part for part in ast.iter_child_nodes(statement) if not isinstance(part, ast.stmt)]
    return [part for part in parts if not isinstance(part, ast.arguments)]


def _called(function: ast.expr) -> str:
    """The last two names of what is called; "call" for anything else."""
    names: list[str] = []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        names.append(function.id)
    return ".".join(reversed(names[:2])) or "call"
