"""The documentation: Markdown pages in this folder, shown by `cutegen docs` and `%cutegen docs`."""

from __future__ import annotations

import difflib
from pathlib import Path

from workbench.errors import UserError

FOLDER = Path(__file__).parent
ORDER = (
    *("index", "tutorials", "magics", "command_line", "language", "emulator", "probes"),
    *("search_tree", "timing", "energy", "lessons"),
    *("graphs", "kernels", "gate", "plugins", "api", "architecture", "measurements", "glossary", "contributing"),
)  # as a reader goes through them


def pages() -> tuple[str, ...]:
    """Names of the pages, in reading order."""
    found = {path.stem for path in FOLDER.glob("*.md")}
    return (*(name for name in ORDER if name in found), *sorted(found - set(ORDER)))


def read(name: str) -> str:
    """A page's Markdown; raises `UserError` for a name that there is not."""
    known = pages()
    wanted = name.lower().removesuffix(".md").replace("-", "_")
    if wanted not in known:
        close = difflib.get_close_matches(wanted, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
        raise UserError(f"no page is called {name!r}; {hint}")
    return (FOLDER / f"{wanted}.md").read_text(encoding="utf-8")


def title(name: str) -> str:
    """The first heading of a page."""
    return read(name).partition("\n")[0].lstrip("# ")


def overview(command: str) -> str:
    """All pages, a line each."""
    width = max(map(len, pages()))
    return "\n".join([f"{command} NAME shows a page:", *(f"  {name.ljust(width)}  {title(name)}" for name in pages())])
