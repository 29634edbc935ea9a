"""Names that the host module of an emitted file may define."""

from __future__ import annotations

import ast
from pathlib import Path

HOST = Path(__file__).with_name("host.py")


def host_names() -> tuple[str, ...]:
    """Return the constants and functions of `kernels.host`; reading its source avoids an import of torch."""
    body = ast.parse(HOST.read_text()).body
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return (*(target.id for target in targets if isinstance(target, ast.Name)), *functions)
