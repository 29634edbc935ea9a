"""The difference between two sources: side by side as HTML, unified with numbered hunks as text."""

from __future__ import annotations

import html
import itertools

from workbench.analysis.hunks import hunks
from workbench.views import snapshot
from workbench.views.record import _rows
from workbench.views.shown import Shown

CONTEXT = 3


def render(old: str, new: str, *, old_name: str = "old", new_name: str = "new", note: str = "") -> Shown:
    """Both forms; hunk numbers are what `accept --hunks` takes."""
    found = hunks(old, new)
    if not found:
        return Shown(f"{old_name} and {new_name} do not differ")
    blocks = snapshot.diff_blocks(old, new)
    rows = []
    for block in blocks:
        if block["kind"] == "hunk":
            rows.append(f'<tr><th colspan="6" style="text-align:left">hunk {block["index"]}</th></tr>')
        rows.append(_rows(block))
    caption = html.escape(f"{old_name} → {new_name}" + (f": {note}" if note else ""))
    page = f'<table style="border-collapse:collapse;width:100%;text-align:left"><caption style="text-align:left">{caption}</caption><tbody>{"".join(rows)}</tbody></table>'
    return Shown(unified(old, new, old_name, new_name), html=page)


def unified(old: str, new: str, old_name: str = "old", new_name: str = "new") -> str:
    """Unified text with `@@ hunk N @@` headings and three lines of context."""
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
