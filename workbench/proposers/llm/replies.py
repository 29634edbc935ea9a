"""What comes back from a model, and from its text to code or to patches, or to one sentence that says why not.

Pure, and linear in the length of the reply. Thinking that a model writes into its reply (`<think> ... </think>`) is not
part of the answer.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from workbench.records import ToolCall, record
from workbench.wire import replace_surrogates

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

Usage = tuple[int | None, int | None]  # tokens in and out; None where the server states none
FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", flags=re.M)


class Unusable(Exception):
    """A reply cannot be used. The message goes to the model and to the person."""


@record
class Block:
    """One fenced block: its language tag and its text; `closed` is False when the reply ended inside it."""

    language: str
    text: str
    closed: bool


class ToolPieces:
    """Joins tool calls, which arrive in pieces. A piece's index says to which call it belongs."""

    def __init__(self) -> None:
        self._calls: list[list[str]] = []
        self._at: dict[int, int] = {}

    def add(self, piece: ChoiceDeltaToolCall) -> None:
        """Add one piece. An id that differs from the one at its index starts another call."""
        at = self._at.get(piece.index)
        if at is None or (piece.id and self._calls[at][0] not in ("", piece.id)):
            at = self._at[piece.index] = len(self._calls)
            self._calls.append(["", "", ""])
        parts = self._calls[at]
        parts[0] = piece.id or parts[0]
        if piece.function is not None:
            parts[1] += piece.function.name or ""
            parts[2] += piece.function.arguments or ""

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls. A call without an id gets one."""
        whole = [[replace_surrogates(part) for part in parts] for parts in self._calls]
        return tuple(
            ToolCall(id=parts[0] or f"call_{number}", name=parts[1], arguments=parts[2])
            for number, parts in enumerate(whole)
        )


class ReplyParts:
    """The parts of one streamed reply so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.tools = ToolPieces()
        self.length = 0  # of the text and of arguments of tools, in characters
        self.finish = ""
        self.usage: Usage = (None, None)

    def add(self, chunk: ChatCompletionChunk) -> str:
        """Add a chunk and return its text. Servers leave out fields that the protocol requires."""
        self.usage = chunk_usage(chunk) or self.usage
        piece = ""
        for choice in getattr(chunk, "choices", None) or []:
            self.finish = choice.finish_reason or self.finish
            for part in getattr(choice.delta, "tool_calls", None) or []:
                self.tools.add(part)
                self.length += len(getattr(part.function, "arguments", None) or "")
            piece += getattr(choice.delta, "content", None) or getattr(choice.delta, "refusal", None) or ""
        self.text.append(piece)
        self.length += len(piece)
        return piece


def chunk_usage(chunk: ChatCompletionChunk) -> Usage | None:
    """The tokens that a chunk states; None if a value is no count.

    Reasoning tokens that are only in the total count as output.
    """
    usage = getattr(chunk, "usage", None)
    if usage is None:
        return None
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    into, out, total = (
        value if type(value) is int and value >= 0 else None for value in (getattr(usage, name, None) for name in names)
    )
    if into is None or out is None or total is None:
        return into, out
    return into, max(out, total - into)


def strip_thinking(text: str) -> str:
    """The answer without the reasoning before it, with plain line ends."""
    text = text.replace("\r\n", "\n")
    if "</think>" in text:
        return text.rpartition("</think>")[2]
    return "" if text.lstrip().startswith("<think>") else text


def blocks(text: str) -> list[Block]:
    """All fenced blocks of the answer in order."""
    text = strip_thinking(text)
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


def extract_code(text: str, finish: str = "stop") -> str:
    """The Python file of a reply. Raises `Unusable` if there is none, or if several could be meant."""
    text = _require_answer(text, finish)
    found = blocks(text)
    if any(not block.closed for block in found) or (finish == "length" and not found):
        raise Unusable(
            "the reply was cut off at its length limit"
            if finish == "length"
            else "the reply ends inside its code block"
        )
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


def _require_answer(text: str, finish: str) -> str:
    """The answer. Raises `Unusable` if it is empty."""
    said = strip_thinking(text)
    if said.strip():
        return said
    if finish == "length":
        raise Unusable("the reply was cut off at its length limit before the answer began")
    raise Unusable("the endpoint's filter held the reply back" if finish == "content_filter" else "the reply is empty")


def extract_json(text: str, finish: str = "stop") -> object:
    """The JSON of a reply: a fenced block, or the first array or object in the text. Raises `Unusable`."""
    text = _require_answer(text, finish)
    for block in blocks(text):
        if block.closed and block.language in ("json", ""):
            try:
                return _require_writable(json.loads(block.text, strict=False))
            except (ValueError, RecursionError):
                continue
    decoder = json.JSONDecoder(strict=False)
    for match in list(re.finditer(r"^[ \t]*(?=[\[{])", text, flags=re.M))[:50]:
        try:
            return _require_writable(decoder.raw_decode(text, match.end())[0])
        except (ValueError, RecursionError):
            continue
    raise Unusable(
        "the reply was cut off at its length limit"
        if finish == "length"
        else "the reply holds no JSON that can be read"
    )


def _require_writable(value: object) -> object:
    """The value. Raises `ValueError` if its text has surrogates, which cannot be written to a file."""
    json.dumps(value, ensure_ascii=False).encode()  # a UnicodeEncodeError is a ValueError
    return value
