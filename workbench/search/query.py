"""Search by question, name or quoted phrase, and read files by line range; both also as tools for a language model."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from workbench.errors import UserError
from workbench.search import corpus, index
from workbench.wire import Json

READ_LINES, READ_CHARACTERS, SNIPPET_LINES = 200, 16_000, 12
CANDIDATES, MOST_HITS = 150, 50
WEIGHTS = (6.0, 5.0, 4.0, 1.0, 8.0)  # bm25 weight of path, symbols, headings, body, exact names
_COMMON = """
a an and are as at be between by can do does for from get give has have how i in into is it its make me my of
on one or set should so some that the their there this to use used using was what when where which who why
will with you your write work works
"""
STOP_WORDS = frozenset(_COMMON.split())
# Weights by path: the DSL and its examples come first, then C++ headers, then generated bindings and deprecated code.
PRIOR = (
    ("_mlir/", 0.35),
    ("deprecated", 0.4),
    ("/experimental/", 0.7),
    ("CuTeDSL", 1.7),
    ("dsl_packages/cutlass/cute/", 1.8),
    ("dsl_packages/", 1.5),
    ("media/docs", 1.3),
    ("/examples/", 0.9),
    ("/test/", 0.6),
)
# the spelling in the sources for common words of a question
ALSO = {
    "shared": ("smem",),
    "register": ("rmem",),
    "registers": ("rmem",),
    "global": ("gmem",),
    "multicast": ("mcast",),
    "barrier": ("mbarrier", "sync"),
    "barriers": ("mbarrier", "sync"),
    "softmax": ("attention",),
    "warpgroup": ("wgmma",),
    "wgmma": ("warpgroup",),
    "cores": ("mma",),
    "pipelining": ("pipeline",),
    "pipelined": ("pipeline",),
    "stages": ("stage", "pipeline"),
    "printf": ("print",),
    "specialization": ("specialized",),
    "specialised": ("specialized",),
    "print": ("printf",),
    "benchmark": ("testing",),
    "convolution": ("conv",),
    "quantization": ("quant",),
    "predicate": ("pred", "predication"),
    "tile": ("tiled", "tiler"),
}


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result: a file, a range of lines, and those lines with numbers. A larger score is better."""

    distribution: str
    path: str
    first: int
    last: int
    snippet: str
    score: float

    def __str__(self) -> str:
        return f"{self.distribution}:{self.path}:{self.first}-{self.last}\n{self.snippet}"


def search(query: str, *, limit: int = 5, progress: Callable[[float], None] | None = None) -> list[Hit]:
    """The best hits for a question, an exact name, or "a phrase", at most one per file.

    The first search of an installation builds the index. Raises `UserError` for an empty query.
    """
    text = query.strip()
    if not text:
        raise UserError('search for what? words, a name, or "a phrase": %cutegen search TMA multicast')
    expression = _fts_expression(text)
    if not expression:
        return []
    db = index.connect(progress)
    try:
        rows = db.execute(
            "SELECT piece.distribution, piece.path, first, last, -cost FROM "
            f"(SELECT rowid AS id, bm25(words, {', '.join(map(str, WEIGHTS))}) AS cost FROM words"
            f" WHERE words MATCH ? ORDER BY cost LIMIT {CANDIDATES}) JOIN piece USING (id)",
            (expression,),
        ).fetchall()
        return _best_hits(rows, text, min(max(limit, 1), MOST_HITS))
    except sqlite3.Error as error:
        raise UserError(f"cannot search for {query!r}: {error}") from None
    finally:
        db.close()


def _fts_expression(text: str) -> str:
    """The FTS5 query: any of the words or exact names, and every quoted phrase."""
    quoted = [
        " ".join(re.sub(r"[^\w\s]", " ", index.split_words(part)).split()) for part in re.findall(r'"([^"]+)"', text)
    ]
    phrases = [phrase for phrase in quoted if phrase]
    must = [f'"{phrase}" AND ' for phrase in phrases]
    rest = re.sub(r'"[^"]*"?', " ", text)
    names = [name for name in re.findall(r"[A-Za-z_]\w+", rest) if "_" in name or any(c.isupper() for c in name[1:])]
    words = [word for word in re.findall(r"[a-z0-9]+", index.split_words(rest).lower()) if word not in STOP_WORDS]
    words += [other for word in tuple(words) for other in ALSO.get(word, ())]
    if names and len(names) == len(rest.split()):  # only names: match them exactly, or their parts in this order
        phrases, words = [*phrases, *[index.split_words(name) for name in names]], []
    terms = [f'"{" ".join(phrase.split())}"' for phrase in phrases if phrase.strip()]
    terms += [f'"{word}"' for word in dict.fromkeys(words)] + [
        f"names:{index.exact_token(name)}" for name in dict.fromkeys(names)
    ]
    return f"{''.join(must)}({' OR '.join(terms)})" if terms else ""


def _best_hits(rows: list[tuple[str, str, int, int, float]], text: str, limit: int) -> list[Hit]:
    """One hit per file: its best piece. Each further piece that matched adds 4 % of its own score."""
    best: dict[tuple[str, str], tuple[float, int, int]] = {}
    for distribution, path, first, last, points in rows:
        score = points * _prior_weight(distribution, path)
        old = best.get((distribution, path))
        if old is None or score > old[0]:
            best[distribution, path] = (score + (0.04 * old[0] if old else 0.0), first, last)
        else:
            best[distribution, path] = (old[0] + 0.04 * score, old[1], old[2])
    ordered = sorted(best.items(), key=lambda item: -item[1][0])[:limit]
    return [
        _make_hit(distribution, path, first, last, score, text)
        for (distribution, path), (score, first, last) in ordered
    ]


def _prior_weight(distribution: str, path: str) -> float:
    return 1.5 if distribution == corpus.OURS else next((factor for part, factor in PRIOR if part in path), 1.0)


def _make_hit(distribution: str, path: str, first: int, last: int, score: float, text: str) -> Hit:
    lines = read_lines(find_file(distribution, path))
    wanted = {word for word in re.findall(r"[a-z0-9]+", index.split_words(text).lower()) if word not in STOP_WORDS}
    names = [name for name in re.findall(r"[A-Za-z_]\w+", text) if name.lower() not in STOP_WORDS]
    weight = [
        sum(word in line.lower() for word in wanted) + 5 * sum(name in line for name in names)
        for line in lines[first - 1 : last]
    ]
    start = max(
        range(max(len(weight) - SNIPPET_LINES + 1, 1)), key=lambda at: sum(weight[at : at + SNIPPET_LINES]), default=0
    )
    shown = lines[first - 1 + start : min(first - 1 + start + SNIPPET_LINES, last)]
    snippet = "\n".join(f"{first + start + n:5d}| {line[:160]}" for n, line in enumerate(shown))
    return Hit(distribution, path, first, last, snippet, score)


def find_file(distribution: str, path: str) -> corpus.File:
    """The searched file of a hit. Raises `UserError` if there is none."""
    found = next(
        (
            file
            for file in corpus.files()
            if file.path == path and (not distribution or file.distribution == distribution)
        ),
        None,
    )
    if found is None:
        raise UserError(f"{path!r} is not among the files that are searched; take a path from a hit")
    return found


def read(path: str, first: int = 1, last: int | None = None) -> str:
    """Numbered lines of a searched file, at most READ_LINES lines and READ_CHARACTERS characters.

    `path` is spelt as in a hit, with or without the distribution. Raises `UserError` for an unknown path or range.
    """
    distribution, _, rest = (
        path.rpartition(":") if path.split(":")[0] in (*corpus.DISTRIBUTIONS, corpus.OURS) else ("", "", path)
    )
    lines = read_lines(find_file(distribution, rest))
    start, end = max(int(first), 1), len(lines) if last is None else int(last)
    if start > max(len(lines), 1):
        raise UserError(f"{rest} has {len(lines)} lines; line {start} is past its end")
    if end < start:
        raise UserError(f"lines {first} to {last} of {rest} are none; the last is before the first")
    shown: list[str] = []
    space = READ_CHARACTERS
    for number, line in enumerate(lines[start - 1 : min(end, start + READ_LINES - 1)], start):
        text = f"{number:5d}| {line}"
        if shown and len(text) + 1 > space:
            break
        shown.append(text[:space])
        space -= len(shown[-1]) + 1
    stop = start + len(shown) - 1
    more = f"\n({len(lines)} lines in all)" if stop < len(lines) else ""
    return "\n".join(shown) + more


def read_lines(file: corpus.File) -> list[str]:
    """The lines of a searched file. Raises `UserError` if it is gone."""
    try:
        return corpus.read_text(file).splitlines()
    except OSError as error:
        raise UserError(
            f"{file.path} cannot be read any more ({error.strerror}); start the kernel again if packages were changed"
        ) from None


def tool_specs() -> list[Json]:
    """The two tools as a chat completion request names them."""
    string, number = {"type": "string"}, {"type": "integer"}
    return [
        {
            "type": "function",
            "function": {
                "name": "search",
                "description": "Search the installed CuTe DSL package, CUTLASS headers and examples. "
                "Words, an exact name, or a quoted phrase.",
                "parameters": {"type": "object", "properties": {"query": string}, "required": ["query"]},
            },
        },
        {
            "type": "function",
            "function": {
                "name": "read",
                "description": "Read lines of a file that search named, at most 200 at a time.",
                "parameters": {
                    "type": "object",
                    "properties": {"path": string, "first": number, "last": number},
                    "required": ["path"],
                },
            },
        },
    ]


def call_tool(name: str, arguments: str) -> str:
    """The result of a tool call as text. An error is returned as one line, never raised."""
    try:
        values = json.loads(arguments or "{}")
        if name == "search":
            found = "\n\n".join(map(str, search(str(values["query"])))) or "nothing found; try other words"
            return "\n\n".join(filter(None, (found, corpus.missing_packages_note())))
        if name == "read":
            return read(
                str(values["path"]), int(values.get("first") or 1), int(values["last"]) if values.get("last") else None
            )
        return f"there is no tool {name!r}; there are search and read"
    except UserError as error:
        return " ".join(str(error).split())
    except Exception as error:  # whatever a model sends, the conversation goes on
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        return " ".join(f"{name}: arguments {str(arguments)[:200]!r} cannot be used ({reason})".split())
