"""Hunks between two texts. They are numbered from 1, and each can be accepted on its own; line endings are kept
exactly.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Sequence

from workbench.errors import UserError
from workbench.records import record

MOST_PAIRS = 1_000_000  # of equal lines, up to which two texts are compared line by line: about a second


@record
class Hunk:
    """Lines [old_start, old_start + len(old)) of the old text become `new`; starts are 0-based line indices."""

    index: int
    old_start: int
    old: tuple[str, ...]
    new_start: int
    new: tuple[str, ...]


def name_hunks(numbers: Collection[int]) -> str:
    """Hunks by their numbers in words: "hunk 2", "hunks 1, 2, 4 to 17"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"hunk{'s' if len(numbers) != 1 else ''} {', '.join(said) or 'none'}"


def hunks(old: str, new: str) -> tuple[Hunk, ...]:
    """The differences in order. At least one equal line separates neighbours.

    Texts of thousands of like lines, which no kernel has, would take hours: they differ in one hunk.
    """
    a, b = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if a != b and count_pairs(a, b) > MOST_PAIRS:
        changed = [_find_middle(a, b)]
    else:
        codes = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
        changed = [(i, j, k, m) for kind, i, j, k, m in codes if kind != "equal"]
    return tuple(
        Hunk(index=n, old_start=i, old=tuple(a[i:j]), new_start=k, new=tuple(b[k:m]))
        for n, (i, j, k, m) in enumerate(changed, 1)
    )


def count_pairs(a: Sequence[str], b: Sequence[str]) -> int:
    """The number of pairs of equal items, on which the time of a comparison depends."""
    counts = Counter(a)
    return sum(counts[item] * count for item, count in Counter(b).items())


def _find_middle(a: Sequence[str], b: Sequence[str]) -> tuple[int, int, int, int]:
    """(first, end) in both texts of what lies between their equal beginnings and ends."""
    shorter = min(len(a), len(b))
    first = next((n for n in range(shorter) if a[n] != b[n]), shorter)
    last = next((n for n in range(shorter - first) if a[-1 - n] != b[-1 - n]), shorter - first)
    return first, len(a) - last, first, len(b) - last


IN_PARTS = "In parts, so no program of muCUTLASS says it all: "


def replace_docstring(source: str, programs: Collection[str | None], parts: str) -> str:
    """Replaces the docstring of a source that is no longer the program which its docstring names.

    A first line is replaced by the note `parts` if it names one of `programs`, or is such a note itself; any other
    docstring stays.
    """
    first, end, rest = source.partition("\n")
    claims = {f'"""{program}"""' for program in programs if program}
    return f'"""{IN_PARTS}{parts}"""{end}{rest}' if first in claims or first.startswith(f'"""{IN_PARTS}') else source


def apply(old: str, new: str, accepted: Collection[int]) -> str:
    """The old text with only the accepted hunks; all of them give `new`, none give `old`. Raises `UserError` for an
    unknown hunk.
    """
    found = hunks(old, new)
    unknown = sorted(set(accepted) - {hunk.index for hunk in found})
    if unknown:
        raise UserError(
            f"no hunk {unknown[0]}: this diff has {len(found)} (1 to {len(found)})"
            if found
            else "the two versions do not differ"
        )
    lines = old.splitlines(keepends=True)
    out: list[str] = []
    at = 0
    for hunk in found:
        out += lines[at : hunk.old_start]
        out += hunk.new if hunk.index in accepted else hunk.old
        at = hunk.old_start + len(hunk.old)
    return "".join(out + lines[at:])
