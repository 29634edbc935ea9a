"""Finds the person's own modules that a problem's text imports from the folder beside it. Imports no torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import ProblemError

INSTALLED = ("torch", "numpy", "cutlass", "triton", "workbench")  # never the person's own, whatever lies beside
MOST_BYTES = 1 << 20  # of all modules of a problem together


def read_modules(source: str, folder: Path) -> tuple[tuple[str, str], ...]:
    """(name, text) of each module in the folder that the text imports, directly or through another.

    `package` is the name of `package/__init__.py`, `package.module` that of `package/module.py`.
    """
    found: dict[str, str] = {}
    _collect(source, folder, "", found)
    if sum(map(len, found.values())) > MOST_BYTES:
        raise ProblemError(f"the modules that it imports from {folder} have more than {MOST_BYTES >> 20} MiB of text")
    return tuple(found.items())


def _collect(source: str, folder: Path, package: str, found: dict[str, str]) -> None:
    for name in _imported(ast.parse(source), package):
        parts = name.split(".")
        if name in found or parts[0] in sys.stdlib_module_names or parts[0] in INSTALLED:
            continue
        path = folder.joinpath(*parts)
        file = path / "__init__.py" if (path / "__init__.py").is_file() else path.with_suffix(".py")
        if not file.is_file():
            continue
        try:
            found[name] = file.read_text()
            _collect(found[name], folder, name if file.name == "__init__.py" else name.rpartition(".")[0], found)
        except (UnicodeDecodeError, SyntaxError) as error:
            raise ProblemError(f"{file}: not Python: {getattr(error, 'msg', error)}") from None


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Full names of modules that a text may import, packages before what is in them."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*filter(None, above), *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{one.name}" if base else one.name for one in node.names)]
        for name in filter(None, names):
            parts = name.split(".")
            yield from (".".join(parts[: count + 1]) for count in range(len(parts)))
