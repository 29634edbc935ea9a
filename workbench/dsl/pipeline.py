"""Several stages in one file: each becomes a function of its operands; forward calls them in order and passes the boundary tensors on.

The emitters write each stage as if it were alone, so two stages may define the same name. Equal definitions are kept once; others get the
stage's number at the end of their name.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import textwrap
import tokenize
from collections.abc import Callable

from workbench.dsl.expecting import called
from workbench.dsl.ir import Binding, Program, Stage
from workbench.dsl.operation import operands
from workbench.dsl.pieces import Parts
from workbench.dsl.registry import OPERATIONS

Emitter = Callable[[Stage, Binding], Parts]


def bound(stage: Stage, binding: Binding, written: set[str]) -> dict[str, str]:
    """What the stage's emitter calls each operand -> the Python expression of it in forward."""
    given = dict(binding.operands)
    return {role: name if name in written else given.get(name, name) for role, name in operands(OPERATIONS[stage.operation.name], stage).items()}


def emit(program: Program, binding: Binding, emit_stage: Emitter) -> tuple[list[Parts], str]:
    """(the parts of every stage, the body of forward)."""
    written: set[str] = set()
    defined: dict[str, str] = {}
    parts, forward = [], []
    for number, stage in enumerate(program.stages, 1):
        own = bound(stage, binding, written)
        alone = emit_stage(stage, Binding(init_source="", forward_arguments=tuple(own)))
        function = f"stage{number}"
        alone = dataclasses.replace(alone, forward=re.sub(r'(?<=expect\(")\w+|(?<=expect_axes\(")\w+', lambda found, own=own: called(found[0], own), alone.forward))  # type: ignore[misc]
        text = f"{alone.kernels.rstrip()}\n\n\ndef {function}({', '.join(own)}):\n{textwrap.indent(alone.forward.rstrip(), '    ')}\n"
        parts.append(dataclasses.replace(alone, kernels=re.sub(r"\n{4,}", "\n\n\n", _apart(text, defined, number)).strip("\n") + "\n"))
        call = f"{function}({', '.join(own.values())})"
        forward.append(f"{stage.result} = {call}" if stage.result else f"return {call}")
        written |= {stage.result} if stage.result else set()
    return parts, "\n".join(forward)


def _definitions(text: str) -> dict[str, str]:
    """Names defined at module level -> the text of their definition."""
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        source = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = "\n".join([*(ast.unparse(item) for item in node.decorator_list), source])
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        found[name.id] = source
    return found


def _apart(text: str, defined: dict[str, str], number: int) -> str:
    """The stage's text without what an earlier stage defined in the same words, and with other names for what it defined otherwise."""
    mine = _definitions(text)
    clashing = {name for name, source in mine.items() if name in defined and defined[name] != source}
    while more := {name for name, source in mine.items() if name in defined and name not in clashing and any(_mentions(source, other) for other in clashing)}:
        clashing |= more
    same = {name for name in mine if name in defined and name not in clashing}
    text = _without(text, same)
    text = _renamed(text, {name: f"{name}_{number}" for name in clashing})
    defined.update(_definitions(text))
    return text


def _mentions(source: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", source) is not None


def _without(text: str, names: set[str]) -> str:
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        mine = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)} if isinstance(node, ast.Assign) else set()
        if mine and mine <= names:
            first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
            del lines[first - 1 : node.end_lineno]
    return "\n".join(lines) + "\n"


def _renamed(text: str, names: dict[str, str]) -> str:
    """Every use of the names as a variable; attributes and keyword arguments of that name stay."""
    if not names:
        return text
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.splitlines(keepends=True)
    depth, edits = 0, []
    for i, token in enumerate(tokens):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.string, 0) if token.type == tokenize.OP else 0
        if token.type == tokenize.NAME and token.string in names and tokens[i - 1].string != "." and not (depth and tokens[i + 1].string == "="):
            edits.append(token)
    for token in reversed(edits):
        row, column = token.start[0] - 1, token.start[1]
        lines[row] = lines[row][:column] + names[token.string] + lines[row][column + len(token.string) :]
    return "".join(lines)
