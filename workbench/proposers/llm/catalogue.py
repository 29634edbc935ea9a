"""Selects guides for a failure from the catalogue of known mistakes (catalogue.toml, which a session may override)."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

from workbench.errors import UserError
from workbench.records import Failure, record

SHIPPED = Path(__file__).with_name("catalogue.toml")


@record
class Guide:
    """One mistake: its cause, its cure, and a correct line. It applies if all of its conditions that are set hold."""

    name: str
    cause: str
    cure: str
    fix: str = ""
    stage: str = ""
    kind: str = ""
    message: str = ""
    source: str = ""
    arch: str = ""

    def match_score(self, failure: Failure, source: str, arch: str = "") -> int:
        """How specifically the guide fits; 0 if it does not. Without an architecture every guide's fits."""
        if self.arch and arch and not arch.startswith(self.arch):
            return 0
        conditions = (
            (self.stage, self.stage == failure.stage, 1),
            (self.kind, self.kind == failure.kind, 2),
            (self.message, bool(self.message and re.search(self.message, failure.message)), 4),
            (self.source, bool(self.source and re.search(self.source, source)), 3),
        )
        return (
            sum(weight for wanted, met, weight in conditions if wanted)
            if all(met for wanted, met, _ in conditions if wanted)
            else 0
        )


@functools.cache
def load_guides(path: Path = SHIPPED) -> tuple[Guide, ...]:
    """All guides of a catalogue. Raises `UserError`, which names the entry that cannot be used."""
    try:
        table = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    found = []
    for name, entry in table.items():
        try:
            guide = Guide(name=name, **entry)
            re.compile(guide.message)
            re.compile(guide.source)
        except (TypeError, re.error) as error:
            raise UserError(f"{path}: [{name}] cannot be used: {error}") from None
        found.append(guide)
    return tuple(found)


def select(
    failure: Failure, source: str = "", *, arch: str = "", folder: Path | None = None, limit: int = 3
) -> tuple[Guide, ...]:
    """The guides for a failure of `source`, most specific first, equal ones in the catalogue's order.

    `folder`/catalogue.toml replaces the shipped catalogue.
    """
    own = folder / "catalogue.toml" if folder is not None else None
    scored = [
        (guide.match_score(failure, source, arch), guide)
        for guide in load_guides(own if own is not None and own.is_file() else SHIPPED)
    ]
    return tuple(guide for score, guide in sorted(scored, key=lambda item: -item[0]) if score)[:limit]
