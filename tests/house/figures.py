"""Measures the shape of the package: sizes, complexity, folders, import circles, `Any`, kernel text in strings.

python tests/house/figures.py [FOLDER]      prints the figures and what is over a limit; FOLDER: workbench/emulator, say
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "workbench"
LIMITS = {
    "module median": 120,
    "module max": 400,
    "function p90": 25,
    "function max": 80,
    "complexity max": 20,
    "modules in a folder": 15,
    "Any": 300,
    "line length": 120,
    "kernel text in strings": 300,
}
BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.With, ast.Assert, ast.comprehension),
    *(ast.match_case, ast.AsyncFor, ast.AsyncWith),
)
KERNEL_TEXT = re.compile(
    r"\b(cute|cutlass|cpasync|warpgroup|torch)\.[a-zA-Z_]|^\s*(def|for|if|while) .*:\s*(#.*)?$", re.M
)
DATA = ("problems/shipped",)  # programs that the package ships as data
TEST_DATA = (  # programs that tests read as data: written by an older version, or with mistakes on purpose
    *("tests/compatibility/session", "tests/corpus", "tests/llm/mistakes", "tests/session/before"),
)


@dataclass
class Figures:
    """What was measured, and the offenders by figure."""

    values: dict[str, float] = field(default_factory=dict)
    over: dict[str, list[str]] = field(default_factory=dict)

    def note(self, name: str, value: float, where: str) -> None:
        """Keep the largest value of a figure, and where it is over the limit."""
        self.values[name] = max(self.values.get(name, 0), value)
        if value > LIMITS[name]:
            self.over.setdefault(name, []).append(f"{where}: {value}")


def complexity(function: ast.AST) -> int:
    """Cyclomatic complexity: branches, loops, handlers, comprehensions and further operands of and/or, plus one."""
    found = 1
    for node in walk_own(function):
        found += isinstance(node, BRANCHES)
        found += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
    return found


def walk_own(function: ast.AST) -> Iterator[ast.AST]:
    """The function's nodes without those of functions inside it."""
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))


def walk_statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements below a node, without the expressions that they consist of."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(tree, name, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from walk_statements(inner)


def kernel_text_lines(tree: ast.AST) -> int:
    """Lines of string literals, docstrings aside, that hold CuTe DSL or host code of a candidate."""
    nodes = list(ast.walk(tree))
    documented = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    found = 0
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented | inside:
            text = node.value
        else:
            continue
        found += (
            sum(bool(KERNEL_TEXT.search(line)) for line in text.splitlines())
            if "\n" not in text
            else (
                len([line for line in text.splitlines() if line.strip()]) if len(KERNEL_TEXT.findall(text)) > 1 else 0
            )
        )
    return found


def count_any(source: str) -> int:
    """How often the name Any is used, import lines aside."""
    if not re.search(r"\bAny\b", source):
        return 0
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {token.start: token for token in tokens if token.type == tokenize.NAME and token.string == "Any"}
    return sum("import" not in token.line for token in lines.values())


def import_graph(folder: Path) -> dict[str, set[str]]:
    """Module -> modules of the package that it imports anywhere, also for type checking and inside functions."""
    names = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in folder.rglob("*.py")
    }
    modules = set(names.values())
    graph: dict[str, set[str]] = {}
    for path, name in names.items():
        found: set[str] = set()
        for node in walk_statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {item if item in modules else node.module for item in full}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        graph[name] = {item for item in found & modules if item != name}
    return graph


def import_circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected groups of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                circles.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return circles


def long_lines(folder: Path) -> list[str]:
    """Lines of tests over the limit, as "file:line: length", data aside."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        where = str(path.relative_to(ROOT))
        if not where.startswith(TEST_DATA):
            lengths = map(len, path.read_text().splitlines())
            over = [(n, length) for n, length in enumerate(lengths, 1) if length > LIMITS["line length"]]
            found += [f"{where}:{n}: {length}" for n, length in over]
    return found


def measure(folder: Path = PACKAGE) -> Figures:
    """All figures of the modules below a folder."""
    found = Figures()
    sizes, lengths, anys, texts = [], [], 0, 0
    for path in sorted(folder.rglob("*.py")):
        where, source = str(path.relative_to(ROOT)), path.read_text()
        tree = ast.parse(source)
        sizes.append(source.count("\n"))
        found.note("module max", sizes[-1], where)
        for number, line in enumerate(source.splitlines(), 1):
            found.note("line length", len(line), f"{where}:{number}")
        for node in walk_statements(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append((node.end_lineno or 0) - node.lineno + 1)
                found.note("function max", lengths[-1], f"{where}:{node.lineno} {node.name}")
                found.note("complexity max", complexity(node), f"{where}:{node.lineno} {node.name}")
        anys += (used := count_any(source))
        texts += (lines := 0 if any(part in where for part in DATA) else kernel_text_lines(tree))
        if used > 5:
            found.over.setdefault("Any (modules with more than 5)", []).append(f"{where}: {used}")
        if lines > 3:
            found.over.setdefault("kernel text (modules with more than 3)", []).append(f"{where}: {lines}")
    for inner in {path.parent for path in folder.rglob("*.py")}:
        modules = [path for path in inner.glob("*.py") if path.name != "__init__.py"]
        found.note("modules in a folder", len(modules), str(inner.relative_to(ROOT)))
    found.values["module median"] = statistics.median(sizes)
    found.values["function p90"] = statistics.quantiles(lengths, n=10)[-1] if len(lengths) > 1 else 0
    found.values["Any"], found.values["kernel text in strings"] = anys, texts
    circles = import_circles(import_graph(folder))
    found.values["import circles"] = len(circles)
    found.over["import circles"] = [", ".join(circle) for circle in circles]
    return found


def main() -> None:
    """Print everything."""
    folder = ROOT / sys.argv[1] if len(sys.argv) > 1 else PACKAGE
    if not any(folder.rglob("*.py")):
        sys.exit(f"figures: {folder} has no modules; name a folder below {ROOT}")
    found = measure(folder)
    for name, places in found.over.items():
        print(f"\n{name}" + (f", limit {LIMITS[name]}" if name in LIMITS else ""))
        for place in sorted(places, key=lambda text: -float(text.rpartition(": ")[2]) if ": " in text else 0)[:60]:
            print("   ", place)
    print("\nline length of tests")
    print(*(f"    {place}" for place in long_lines(ROOT / "tests")), sep="\n")
    print()
    for name, value in sorted(found.values.items()):
        print(f"{name:28} {value:8.1f}   limit {LIMITS.get(name, 0)}")


if __name__ == "__main__":
    main()
