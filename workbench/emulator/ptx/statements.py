"""Splits PTX text into statements: directives, instructions without semicolon, labels with their colon, and braces."""

from __future__ import annotations

import re

LINE_DIRECTIVES = (".loc ", ".loc\t", ".file", ".version", ".target", ".address_size", ".section")
_MARKS = re.compile(r"([(){}:;])")
_LABEL = re.compile(r"\s*[$\w]+$")


class _Splitter:
    """The complete statements, and the text of the unfinished one."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.current = ""
        self.depth = 0  # nesting of parentheses

    def end(self, closing: str = "") -> None:
        """End the current statement; `closing` is a brace, which is a statement of its own."""
        if self.current.strip() or not closing:
            self.found.append(self.current.strip())
        if closing:
            self.found.append(closing)
        self.current = ""

    def add(self, piece: str) -> None:
        """Add a mark, or text without any."""
        self.depth += (piece == "(") - (piece == ")")
        outside = self.depth == 0
        if outside and piece == "{" and not _inside_instruction(self.current):
            self.end("{")
        elif outside and piece == "}" and "{" not in self.current:
            self.end("}")
        elif piece == ";":
            self.end()
        elif piece == ":" and outside and _LABEL.match(self.current):
            self.current += ":"
            self.end()
        else:
            self.current += piece


def split_statements(text: str) -> list[str]:
    """The statements of a text that has no /* */ comments."""
    splitter = _Splitter()
    for raw in text.split("\n"):
        line = raw.split("//")[0].rstrip() if '"' not in raw else raw
        bare = line.strip()
        if not bare:
            continue
        if bare.startswith(LINE_DIRECTIVES) and not splitter.current.strip():
            splitter.found.append(bare)
            continue
        for piece in _MARKS.split(line + "\n"):
            splitter.add(piece)
    if splitter.current.strip():
        splitter.end()
    return splitter.found


def split_at_commas(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current)
    return parts


def _inside_instruction(current: str) -> bool:
    """Whether a `{` opens a vector operand or an initialiser, not a scope."""
    bare = current.strip()
    return bool(bare) and (not bare.startswith(".") or "=" in bare) and ".entry" not in bare and ".func" not in bare
