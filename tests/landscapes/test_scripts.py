"""The scripts of tests/bench, most of which need a GPU: what they import exists."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
MODULES = {path.stem: path for path in sorted(BENCH.glob("*.py"))}


def names_of(path: Path) -> set[str]:
    """What a module defines or imports at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name)}
    return found


@pytest.mark.parametrize("name", MODULES)
def test_what_a_script_imports_exists(name: str) -> None:
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        wanted = {alias.name for alias in node.names}
        if node.module in MODULES:
            assert wanted <= names_of(MODULES[node.module]), node.module
        elif node.module.split(".")[0] == "workbench":
            module = importlib.import_module(node.module)
            missing = {
                one
                for one in wanted
                if not hasattr(module, one) and importlib.util.find_spec(f"{node.module}.{one}") is None
            }
            assert not missing, node.module
