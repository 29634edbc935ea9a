"""Renders the difference of two sources: side by side as HTML, unified with numbered hunks as text.

JupyterLab's sanitiser keeps the HTML: it has inline styles and no script. `<ins>` and `<del>` mark changes within a
line, a sign marks each changed line, and long equal stretches are folded in `<details>`.
"""

from __future__ import annotations

import difflib
import html
import itertools
import re
from collections.abc import Sequence

from workbench.analysis.hunks import Hunk, count_pairs, hunks
from workbench.printing import make_printable
from workbench.views.notebook.decision_record import ADDED, CELL, REMOVED
from workbench.views.text.mime_bundle import MimeBundle

CONTEXT = 3
WIDTHS = ("4%", "2%", "44%", "4%", "2%", "44%")  # JupyterLab uses a fixed table layout
MOST_PAIRS = 100_000  # of equal words, up to which two lines are compared word by word: about a tenth of a second
ALIKE = 0.4  # two lines with a smaller similarity ratio are marked as a whole
STRONG = {
    "ins": "background:rgba(46,160,67,.38);text-decoration:none;font-weight:600",
    "del": "background:rgba(218,54,51,.34);text-decoration:none;font-weight:600",
}


def render(old: str, new: str, *, old_name: str = "old", new_name: str = "new", note: str = "") -> MimeBundle:
    """The diff as HTML and text. `accept --hunks` takes the same hunk numbers."""
    found = hunks(old, new)
    if not found:
        return MimeBundle(f"{old_name} and {new_name} do not differ")
    lines = old.splitlines()
    prefix = f"hunk-{old_name}-{new_name}"
    body = []
    i = k = 0
    for hunk in found:
        body.append(_equal_rows(lines, i, k, hunk.old_start - i, before=i > 0, after=True))
        body.append(_hunk_heading(hunk, prefix))
        body += [_row(*pair) for pair in _line_pairs(hunk)]
        i, k = hunk.old_start + len(hunk.old), hunk.new_start + len(hunk.new)
    body.append(_equal_rows(lines, i, k, len(lines) - i, before=True, after=False))
    added, removed = sum(len(hunk.new) for hunk in found), sum(len(hunk.old) for hunk in found)
    caption = (
        f"{old_name} → {new_name}"
        + (f": {note}" if note else "")
        + f" ({len(found)} hunk{'s' * (len(found) > 1)}, +{added} −{removed} lines)"
    )
    columns = "".join(f'<col style="width:{width}">' for width in WIDTHS)
    heads = (
        f'<thead><tr><th colspan="3" style="text-align:left">{html.escape(old_name)}</th><th '
        f'colspan="3" style="text-align:left">{html.escape(new_name)}</th></tr></thead>'
    )
    style = "border-collapse:collapse;width:100%;table-layout:fixed;text-align:left"
    page = (
        f'<table style="{style}"><caption style="text-align:left">{html.escape(caption)}</caption>'
        f"<colgroup>{columns}</colgroup>{heads}<tbody>{''.join(body)}</tbody></table>"
    )
    return MimeBundle(unified_diff(old, new, old_name, new_name), html=page)


def _hunk_heading(hunk: Hunk, prefix: str) -> str:
    style = "text-align:left;padding:4px 6px;border-top:1px solid rgba(128,128,128,.4)"
    cell = f'<th colspan="6" scope="rowgroup" style="{style}">hunk {hunk.index}</th>'
    return f'<tr id="{html.escape(prefix)}-{hunk.index}">{cell}</tr>'


def _line_pairs(hunk: Hunk) -> list[tuple[tuple[int, str] | None, tuple[int, str] | None]]:
    """Pairs of the hunk's old and new lines with 1-based numbers. The shorter side is filled with None."""
    old = [(hunk.old_start + n, line.rstrip("\r\n")) for n, line in enumerate(hunk.old, 1)]
    new = [(hunk.new_start + n, line.rstrip("\r\n")) for n, line in enumerate(hunk.new, 1)]
    return list(itertools.zip_longest(old, new))


def _row(old: tuple[int, str] | None, new: tuple[int, str] | None) -> str:
    before, after = _mark_changes(old[1] if old else "", new[1] if new else "")
    return f"<tr>{_side_cells(old, before, '−', REMOVED)}{_side_cells(new, after, '+', ADDED)}</tr>"


def _side_cells(line: tuple[int, str] | None, marked: str, sign: str, tint: str) -> str:
    if line is None:
        return f'<td style="{CELL}"></td><td style="{CELL}"></td><td style="{CELL}"></td>'
    style = f"{CELL};text-align:left;{tint}"
    return (
        f'<td style="{CELL};text-align:right">{line[0]}</td><td style="{style}">{sign}</td><td '
        f'style="{style}">{marked}</td>'
    )


def _mark_changes(old: str, new: str) -> tuple[str, str]:
    """Both lines as HTML with changed words marked. Dissimilar lines are marked as a whole."""
    a, b = _split_words(old), _split_words(new)
    if count_pairs(a, b) > MOST_PAIRS:
        return _mark_whole("del", old), _mark_whole("ins", new)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    if not old.strip() or not new.strip() or matcher.ratio() < ALIKE:
        return _mark_whole("del", old), _mark_whole("ins", new)
    before, after = "", ""
    for kind, i, j, k, m in matcher.get_opcodes():
        gone, come = _escape("".join(a[i:j])), _escape("".join(b[k:m]))
        before += gone if kind == "equal" or not gone else f'<del style="{STRONG["del"]}">{gone}</del>'
        after += come if kind == "equal" or not come else f'<ins style="{STRONG["ins"]}">{come}</ins>'
    return before, after


def _mark_whole(tag: str, text: str) -> str:
    return f'<{tag} style="text-decoration:none">{_escape(text)}</{tag}>' if text else ""


def _escape(text: str) -> str:
    """The text for HTML. A character that reorders a line is shown: the line could be read as another one."""
    return html.escape(make_printable(text))


def _split_words(text: str) -> list[str]:
    """Split into identifiers, numbers and single other characters."""
    return re.findall(r"\w+|\W", text)


def _equal_rows(lines: Sequence[str], i: int, k: int, count: int, *, before: bool, after: bool) -> str:
    """Rows of `count` equal lines from old line i and new line k. The middle of a long stretch is folded."""
    head, tail = CONTEXT if before else 0, CONTEXT if after else 0
    if count <= head + tail + 1:
        head, tail = count, 0
    rows = [_equal_row(i + n, k + n, lines[i + n]) for n in range(head)]
    if count > head + tail:
        rows.append(_folded_row(lines, i + head, k + head, count - head - tail))
    rows += [_equal_row(i + n, k + n, lines[i + n]) for n in range(count - tail, count)]
    return "".join(rows)


def _equal_row(i: int, k: int, text: str) -> str:
    cell = f'<td style="{CELL}"></td><td style="{CELL};text-align:left">{_escape(text)}</td>'
    number = f'<td style="{CELL};text-align:right">'
    return f"<tr>{number}{i + 1}</td>{cell}{number}{k + 1}</td>{cell}</tr>"


def _folded_row(lines: Sequence[str], i: int, k: int, count: int) -> str:
    text = "\n".join(f"{i + n + 1:5} {k + n + 1:5}  {lines[i + n]}" for n in range(count))
    summary = f"{count} equal line{'s' * (count > 1)}"
    inside = (
        f"<details><summary>{summary}</summary><pre "
        f'style="font-size:12px;margin:0;text-align:left">{_escape(text)}</pre></details>'
    )
    return f'<tr><td style="padding:2px 6px;text-align:left" colspan="6">{inside}</td></tr>'


def unified_diff(old: str, new: str, old_name: str = "old", new_name: str = "new") -> str:
    """A unified diff with `@@ hunk N @@` headings and CONTEXT lines of context."""
    a, b = old.splitlines(), new.splitlines()
    lines = [f"--- {old_name}", f"+++ {new_name}"]
    found = hunks(old, new)
    end = 0
    for hunk, following in itertools.zip_longest(found, found[1:]):
        start = max(hunk.old_start - CONTEXT, end)
        lines.append(f"@@ hunk {hunk.index}: line {hunk.old_start + 1} @@")
        lines += [f"  {line}" for line in a[start : hunk.old_start]]
        lines += [f"- {line.rstrip()}" for line in hunk.old]
        lines += [f"+ {line}" for line in b[hunk.new_start : hunk.new_start + len(hunk.new)]]
        end = hunk.old_start + len(hunk.old)
        stop = min(end + CONTEXT, following.old_start if following else len(a))
        lines += [f"  {line}" for line in a[end:stop]]
        end = stop
    return "\n".join(lines)
