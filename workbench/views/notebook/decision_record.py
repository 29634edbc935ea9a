"""The static record of a session's decisions: two display outputs of a notebook.

One holds the decisions with their diffs (HTML and text), the other the roofline (plotly, SVG and text). Each decision
updates them. A saved notebook shows them without a kernel or a widget.
"""

from __future__ import annotations

import html
import itertools

from workbench.analysis.hunks import name_hunks
from workbench.records import Decision, Version
from workbench.session import Session
from workbench.views.notebook import view_model
from workbench.views.notebook.view_model import Cell, DiffBlock
from workbench.views.text.mime_bundle import MimeBundle

CELL = (
    "padding:0 6px;white-space:pre-wrap;overflow-wrap:anywhere;max-width:none;"
    "vertical-align:top;font-family:monospace;font-size:12px"
)
ADDED, REMOVED = "background:rgba(46,160,67,.18)", "background:rgba(218,54,51,.16)"


class DecisionRecord:
    """Two outputs of the current cell: the decisions with their diffs, and the roofline."""

    def __init__(self, session: Session) -> None:
        from IPython.display import display

        self._entries: list[tuple[str, str]] = []
        self._decisions = display(self._bundle(session.name), raw=True, display_id=True)
        self._roofline = display(roofline(session), display_id=True)

    def _bundle(self, name: str) -> dict[str, str]:
        if not self._entries:
            text = f"session {name}: decisions made in the panel are recorded here"
            return {"text/html": f'<p class="cutegen-record">{html.escape(text)}</p>', "text/plain": text}
        body = "".join(page for page, _ in self._entries)
        return {
            "text/html": f'<div class="cutegen-record">{body}</div>',
            "text/plain": "\n\n".join(text for _, text in self._entries),
        }

    def add_decision(
        self, session: Session, version: Version, against: Version | None, undone: Decision | None = None
    ) -> None:
        """Append a decision, or that one was taken back, and update the roofline."""
        if undone is not None:
            said = f"{undone.taken_back}; v{version.number} is {version.standing}"
            self._entries.append((f"<p><strong>{html.escape(said)}</strong></p>", said))
        else:
            self._entries.append((decision_html(version, against), decision_text(version, against)))
        self._decisions.update(self._bundle(session.name), raw=True)
        roofline(session).replace(self._roofline)


def roofline(session: Session) -> MimeBundle:
    """The roofline, which the panel's style sheet hides below a panel: it is the output after that of the decisions."""
    from workbench.views.plots import roofline as plots

    return plots.roofline(session)


def _headline(version: Version, against: Version | None) -> str:
    decision = version.decision
    line = f"v{version.number} {version.standing}"
    if decision and decision.hunks is not None:
        line += f" ({name_hunks(decision.hunks)})"
    if decision and decision.reason:
        line += f": {decision.reason}"
    return line + (f" — compared with v{against.number}" if against else " — the first version")


def decision_text(version: Version, against: Version | None) -> str:
    """The decision and a unified diff as plain text."""
    import difflib

    old = against.proposal.candidate.source.splitlines() if against else []
    new = version.proposal.candidate.source.splitlines()
    lines = difflib.unified_diff(
        old, new, f"v{against.number}" if against else "(nothing)", f"v{version.number}", lineterm=""
    )
    return "\n".join(
        [_headline(version, against), f"{version.proposal.title}; {view_model.verdict_text(version)}", *lines]
    )


def decision_html(version: Version, against: Version | None) -> str:
    """The decision and a side-by-side diff as HTML that JupyterLab's sanitiser keeps: inline styles, no script."""
    source = version.proposal.candidate.source
    head = html.escape(_headline(version, against))
    about = f"<p>{html.escape(f'{version.proposal.title}; {view_model.verdict_text(version)}')}</p>"
    if against is None:  # a first version has no diff, so show its source
        text = f'<pre style="font-size:12px">{html.escape(source)}</pre>'
        listing = f"<details><summary>source of v{version.number}</summary>{text}</details>"
        return f"<details open><summary><strong>{head}</strong></summary>{about}{listing}</details>"
    blocks = view_model.diff_blocks(against.proposal.candidate.source, source)
    table = side_by_side(blocks, f"diff of v{version.number} against v{against.number}")
    return f"<details open><summary><strong>{head}</strong></summary>{about}{table}</details>"


def side_by_side(blocks: list[DiffBlock], caption: str, *, numbered: bool = False) -> str:
    """A two-sided HTML table of diff blocks. JupyterLab uses a fixed table layout, so columns need widths."""
    rows = []
    for block in blocks:
        if numbered and block["kind"] == "hunk":
            rows.append(f'<tr><th colspan="6" style="text-align:left">hunk {block["index"]}</th></tr>')
        rows.append(_html_rows(block))
    body = "".join(rows) or f'<tr><td style="{CELL}" colspan="6">no difference</td></tr>'
    columns = "".join(f'<col style="width:{width}">' for width in ("5%", "2%", "43%", "5%", "2%", "43%"))
    style = "border-collapse:collapse;width:100%;table-layout:fixed;text-align:left"
    top = f'<caption style="text-align:left">{html.escape(caption)}</caption><colgroup>{columns}</colgroup>'
    return f'<table style="{style}">{top}<tbody>{body}</tbody></table>'


def _html_row(old: list[Cell] | None, new: list[Cell] | None, changed: bool) -> str:
    cells = []
    for side, sign, tint in ((old, "−", REMOVED), (new, "+", ADDED)):
        mark = sign if changed and side else ""
        style = f"{CELL};text-align:left" + (f";{tint}" if changed and side else "")
        number, text = side or ("", "")
        cells.append(f'<td style="{CELL};text-align:right">{number}</td><td style="{style}">{mark}</td>')
        cells.append(f'<td style="{style}">{html.escape(str(text))}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _html_rows(block: DiffBlock) -> str:
    if block["kind"] == "skip":
        return f'<tr><td style="{CELL};text-align:center" colspan="6">… {block["count"]} equal lines …</td></tr>'
    if block["kind"] == "same":
        return "".join(_html_row([old, text], [new, text], False) for old, new, text in block["lines"])
    return "".join(_html_row(old, new, True) for old, new in itertools.zip_longest(block["old"], block["new"]))
