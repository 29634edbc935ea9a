"""From the text of a reply to code or to patches, or to one sentence that says why not. Pure functions, linear in the length of the reply."""

from __future__ import annotations

import json
import re

from workbench.records import record

FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", flags=re.M)


class Unusable(Exception):
    """A reply that cannot be used; the text is told to the model and to the person."""


@record
class Block:
    """One fenced block: its language tag and its text; `closed` is False when the reply ended inside it."""

    language: str
    text: str
    closed: bool


def blocks(text: str) -> list[Block]:
    """All fenced blocks in order."""
    found: list[Block] = []
    fence, language, start = "", "", 0
    for match in FENCE.finditer(text):
        mark = match[1]
        if not fence:
            fence, language, start = mark, match[2].lower(), match.end() + 1
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not match[2]:
            found.append(Block(language=language, text=text[start : match.start()], closed=True))
            fence = ""
    if fence:
        found.append(Block(language=language, text=text[start:], closed=False))
    return found


def code(text: str, finish: str = "stop") -> str:
    """The one Python file of a reply; raises `Unusable` with the reason when there is none, or more than one could be meant."""
    if not text.strip():
        raise Unusable("the reply is empty")
    found = blocks(text)
    if any(not block.closed for block in found) or (finish == "length" and not found):
        raise Unusable("the reply was cut off at its length limit" if finish == "length" else "the reply ends inside its code block")
    python = [block for block in found if block.language in ("", "python", "py", "python3")]
    models = [block for block in python if re.search(r"^class ModelNew\b", block.text, flags=re.M)]
    if not python:
        if re.search(r"^class ModelNew\b", text, flags=re.M) and not found:
            return text.strip() + "\n"  # a bare file without a fence
        raise Unusable("the reply has no Python code block")
    if len(models) > 1 and len({block.text for block in models}) > 1:
        raise Unusable(f"the reply has {len(models)} different code blocks that define ModelNew; one is needed")
    if not models:
        raise Unusable("no code block of the reply defines class ModelNew")
    return models[-1].text.strip("\n") + "\n"


def json_value(text: str, finish: str = "stop") -> object:
    """The JSON of a reply: a fenced block, or the first array or object in the text; raises `Unusable`."""
    if not text.strip():
        raise Unusable("the reply is empty")
    for block in blocks(text):
        if block.closed and block.language in ("json", ""):
            try:
                return json.loads(block.text, strict=False)
            except ValueError:
                continue
    decoder = json.JSONDecoder(strict=False)
    for match in list(re.finditer(r"^[ \t]*(?=[\[{])", text, flags=re.M))[:50]:
        try:
            return decoder.raw_decode(text, match.end())[0]
        except ValueError:
            continue
    raise Unusable("the reply was cut off at its length limit" if finish == "length" else "the reply holds no JSON that can be read")
