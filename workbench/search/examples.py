"""The best example of a pattern in Python sources: CuTe DSL, its examples, and the workbench's own kernels."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass

from workbench.errors import UserError
from workbench.search import corpus, index, query

LINES = 6  # of an example
HITS = 40  # that are looked at
LONGEST = 2000  # lines of a file that is parsed
# other compile targets, old code, and modules that define the operations instead of using them
NO_EXAMPLES = ("tcgen05", "sm100", "sm120", "blackwell", "deprecated", "_mlir/", "config.py", "/nvgpu/", "cute/core.py")


@dataclass(frozen=True, slots=True)
class Example:
    """Lines of one function or class. `lines` are numbered texts."""

    symbol: str
    path: str  # as the tools `search` and `read` spell it
    first: int
    last: int
    lines: tuple[str, ...]

    @property
    def place(self) -> str:
        """`symbol in path:first-last`."""
        return f"{self.symbol} in {self.path}:{self.first}-{self.last}"


def has_index() -> bool:
    """Whether a search needs no new index, which takes a while to build."""
    return index.index_path().is_file()


def find_example(pattern: str) -> Example | None:
    """The best example of a pattern; None without a hit in Python, and where the index would have to be built first."""
    return _search(pattern) if pattern and has_index() else None


@functools.lru_cache(maxsize=64)
def _search(pattern: str) -> Example | None:
    try:
        hits = [hit for hit in query.search(pattern, limit=HITS) if _is_usable(hit)]
        hits.sort(key=lambda hit: hit.distribution != corpus.OURS)  # stable: our kernels first, each by its score
        return next(filter(None, (_make_example(hit, pattern) for hit in hits)), None)
    except UserError:
        return None


def _is_usable(hit: query.Hit) -> bool:
    return hit.path.endswith(".py") and not any(word in hit.path for word in NO_EXAMPLES)


def _make_example(hit: query.Hit, pattern: str) -> Example | None:
    """The lines of the hit's function or class that have most words of the pattern; None if it has no CuTe code."""
    lines = query.read_lines(query.find_file(hit.distribution, hit.path))
    if len(lines) > LONGEST:
        return None
    found = _innermost("\n".join(lines), int(hit.snippet.lstrip().partition("|")[0]), hit.last)
    if found is None or not any("cute." in line for line in lines[found[1] - 1 : found[2]]):
        return None
    symbol, start, end = found
    words = index.split_words(pattern).lower().split()
    weights = [sum(word in line.lower() for word in words) + ("cute." in line) for line in lines]
    starts = range(start, max(end - LINES + 1, start) + 1)
    first = max(starts, key=lambda number: (sum(weights[number - 1 : number - 1 + LINES]), -number))
    last = min(end, first + LINES - 1)
    numbered = tuple(f"{number:5d}| {lines[number - 1][:110]}".rstrip() for number in range(first, last + 1))
    return Example(symbol=symbol, path=f"{hit.distribution}:{hit.path}", first=first, last=last, lines=numbered)


def _innermost(source: str, first: int, last: int) -> tuple[str, int, int] | None:
    """(name, first line of its code, last line) of the smallest function or class at line `first`, else of the first
    one that begins by line `last`.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    places = [
        (node.name, _first_code_line(node), node.end_lineno or node.lineno, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    around = [place for place in places if place[3] <= first <= place[2]]
    after = [place for place in places if first < place[3] <= last]
    chosen = min(around, key=lambda place: place[2] - place[3], default=None) or min(
        after, key=lambda place: place[3], default=None
    )
    return chosen[:3] if chosen else None


def _first_code_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """The line after a docstring, else that of the definition."""
    after = node.body[1:] if ast.get_docstring(node, clean=False) is not None else []
    return after[0].lineno if after else node.lineno
