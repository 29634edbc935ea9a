"""The list of the stored sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench import stored_sessions
from workbench.errors import UserError
from workbench.session import Session
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table


def list_sessions(root: Path) -> MimeBundle:
    """The stored sessions, the last one used first: problem, versions, the best accepted time. One that cannot be read
    says why.
    """
    found: list[stored_sessions.Outline] = []
    unread: list[Sequence[object]] = []
    for name in Session.names(root):
        try:
            found.append(stored_sessions.outline(root / name))
        except UserError as error:
            unread.append([name, str(error), "", "", ""])
    rows: list[Sequence[object]] = [
        [
            one.name,
            one.problem,
            one.versions,
            f"{format_seconds(one.best_s)} {one.provenance}".strip(),
            f"{one.used:%Y-%m-%d %H:%M} UTC",
        ]
        for one in sorted(found, key=lambda one: one.used, reverse=True)
    ]
    if not rows and not unread:
        return MimeBundle("no sessions yet")
    text, page = render_table(["session", "problem", "versions", "best accepted", "last used"], [*rows, *unread])
    return MimeBundle(text, html=page)
