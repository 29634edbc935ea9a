"""A session as one self-contained HTML file, and as a notebook with outputs."""

from __future__ import annotations

import html
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import Unavailable
from workbench.printing import make_printable
from workbench.profilers.counters import CounterProfiler
from workbench.records import Job, Version
from workbench.session import Session
from workbench.views.notebook import view_model
from workbench.views.plots import energy, profile, roofline
from workbench.views.text import diff, tables
from workbench.views.text.card_page import show_card
from workbench.views.text.diagnosis import diagnosis_report, notebook_way
from workbench.views.text.mime_bundle import MimeBundle, render_table
from workbench.views.text.problem_card import describe_problem

if TYPE_CHECKING:
    from nbformat import NotebookNode

# what Markdown reads as more than a sign: anywhere, at the beginning of a line, and in an address
MARKDOWN = re.compile(r"[<>&\[\]`*_~|@\\]|^[#+=-]|^\d(?=\d*[.)])|:(?=//)", re.MULTILINE)
STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.4 }
body {
  max-width: 1100px; margin: 2rem auto; padding: 0 1rem;
  background: light-dark(#fff, #161616); color: light-dark(#1c1c1c, #e4e4e4)
}
table { border-collapse: collapse; font-size: .9rem }
td, th { padding: 1px 8px; border-bottom: 1px solid light-dark(#ddd, #333) }
pre { overflow-x: auto; font-size: .85rem }
section { border-top: 2px solid light-dark(#ccc, #444); margin-top: 2rem }
details { margin: .5rem 0 }
"""


def _versions_with_parents(session: Session) -> list[tuple[Version, Version | None]]:
    """Every version with its parent, or None."""
    known = {version.number: version for version in session.versions}
    return [(version, known.get(version.parent or 0)) for version in session.versions]


def render_change(version: Version, parent: Version | None) -> MimeBundle | None:
    """The diff of a version against its parent; None for a first version."""
    if parent is None:
        return None
    return diff.render(
        parent.proposal.candidate.source,
        version.proposal.candidate.source,
        old_name=f"v{parent.number}",
        new_name=f"v{version.number}",
        note=version.proposal.title,
    )


def describe_decision(session: Session, version: Version) -> str:
    """A sentence: what was decided on a version and why, or why nothing was decided."""
    decision = version.decision
    if decision is not None:
        reason = f": {decision.reason}" if decision.reason else ""
        return f"{decision.participle.capitalize()}{reason}."
    notes = [event.message for event in session.events() if event.kind == "note" and event.version == version.number]
    why = f": {notes[-1]}. Accept or reject it yourself, or measure it on a GPU" if notes else ""
    return f"Not decided{why}."


def html_page(session: Session) -> str:
    """The session as an HTML page: status, history, roofline, then verdict, diff and source of each version.

    Control characters, and those that reorder a line, are shown as they are for a terminal.
    """
    parts = [
        f"<h1>{html.escape(session.name)}</h1>",
        show_card(describe_problem(session)).html,
        tables.status(session).html,
        "<h2>History</h2>",
        tables.history(session).html,
    ]
    if head := session.log.store.head():
        parts.append(f"<p>Head of the log: <code>{head}</code> (cutegen verify --head compares it)</p>")
    parts += ["<h2>Roofline</h2>", roofline.roofline(session).html]
    if energy.find_points(session.versions, session.device):
        parts += ["<h2>Energy against time</h2>", energy.plot_energy(session).html]
    for version, parent in _versions_with_parents(session):
        changed = render_change(version, parent)
        heading = f"<h2>v{version.number} {html.escape(version.proposal.title)}</h2>"
        parts.append(f'<section id="v{version.number}">{heading}{tables.verdict(version).html}')
        parts.append(f"<p>{html.escape(describe_decision(session, version))}</p>")
        if changed and parent:
            parts.append(
                f"<details open><summary>what changed against v{parent.number}</summary>{changed.html}</details>"
            )
        parts.append(_advice_html(session, version))
        if version.trials:
            parts.append(_counters_html(version, session.job(version)))
        source = html.escape(version.proposal.candidate.source)
        parts.append(f"<details><summary>source</summary><pre>{source}</pre></details></section>")
    title = html.escape(f"{session.name}: {len(session.versions)} version{'s' if len(session.versions) != 1 else ''}")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return make_printable(f"{head}<body>{''.join(parts)}</body></html>")


def _advice_html(session: Session, version: Version) -> str:
    """What limits an accepted version or the best one, and what to change; "" for others and without counts."""
    accepted = version.decision is not None and version.decision.kind == "accept"
    best = session.best is not None and session.best.number == version.number
    found = session.known_diagnosis(version.number) if accepted or best else None
    if found is None:
        return ""
    way = notebook_way(version, session.versions, has_model=session.has_model, problem=session.problem)
    shown = diagnosis_report(version, found, way, versions=session.versions)
    return (
        f"<details{' open' if best else ''}><summary>what limits it, and what to change</summary>{shown.html}</details>"
    )


def _counters_html(version: Version, job: Job) -> str:
    shown = view_model.profile_table(version)
    if not shown["rows"]:
        return ""
    head = [
        "line",
        "source",
        "instructions",
        "FLOPs",
        "bytes read",
        "bytes written",
        "sectors",
        "ideal sectors",
        "wavefronts",
        "ideal wavefronts",
    ]
    plots = profile.all_plots(CounterProfiler().profile(job, version.trials[-1].outcome)).html
    counted = render_table(head, shown["rows"][:25])[1]
    summary = "<summary>counters by source line (counted), and their plots</summary>"
    return f"<details>{summary}{counted}{plots}</details>"


def write_page(session: Session, path: Path) -> str:
    """Write the report of a session as a page that needs nothing else. Returns what was done."""
    path.write_text(html_page(session), encoding="utf-8")
    return f"written to {path}"


def write_notebook(session: Session, path: Path) -> None:
    """Write a session as a finished notebook. Raises `Unavailable` without nbformat."""
    try:
        import nbformat
    except ModuleNotFoundError:
        raise Unavailable(f"{path.name} is left out: nbformat is not installed (pip install nbformat)") from None
    nbformat.write(make_notebook(session, path.parent), path)


def escape_markdown(text: str) -> str:
    """The text for a markdown cell: shown as it is, never read as Markdown, HTML or formulas.

    nbconvert runs a cell's HTML, and formulas can hold links. So `$` becomes its full-width form, and a word joiner
    parts a backslash from what follows.
    """
    # an indented line is code, where no escape holds
    lines = "\n".join(line.lstrip() for line in make_printable(text).splitlines())
    plain = lines.replace("$", "\uff04").replace("\\", "\\\u2060")
    return MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", plain)


def make_notebook(session: Session, folder: Path) -> NotebookNode:
    """The session as an nbformat notebook for `folder`: its commands as cells, with their outputs."""
    import nbformat.v4 as nb

    cells = [
        nb.new_markdown_cell(
            f"# {escape_markdown(session.name)}\n\nWritten by `cutegen`: the loop as it ran, with its outputs."
        )
    ]
    count = 0

    def add_code(source: str, shown: MimeBundle | None = None) -> None:
        nonlocal count
        count += 1
        outputs = (
            [nb.new_output("execute_result", data=shown._repr_mimebundle_(), execution_count=count)] if shown else []
        )
        cells.append(nb.new_code_cell(source, outputs=outputs, execution_count=count))

    add_code("%load_ext workbench")
    path = " ".join(os.path.relpath(session.folder, folder).split())  # one line: a cell is code
    add_code(f"%cutegen open {shlex.quote(path)}", tables.status(session))
    for version, parent in _versions_with_parents(session):
        title = escape_markdown(" ".join(version.proposal.title.split()))
        cells.append(
            nb.new_markdown_cell(f"## v{version.number}: {title}\n\n{escape_markdown(version.proposal.reason)}")
        )
        add_code(f"%cutegen test v{version.number}", tables.verdict(version))
        changed = render_change(version, parent)
        if changed and parent:
            add_code(f"%cutegen diff v{parent.number} v{version.number}", changed)
        cells.append(nb.new_markdown_cell(escape_markdown(describe_decision(session, version))))
    add_code("%cutegen history", tables.history(session))
    add_code("%cutegen roofline", roofline.roofline(session))
    kernel = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    return nb.new_notebook(cells=cells, metadata=kernel)
