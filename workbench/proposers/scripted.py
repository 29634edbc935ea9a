"""Plays given sources, one per call: for tests and tutorials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.errors import UserError
from workbench.protocols import Options, Proposer, RunContext
from workbench.records import Ask, Candidate, Event, Proposal


class Scripted(Proposer):
    """Proposes the option `sources` (texts or paths) in order: the first that the history does not hold yet.

    The option `titles` names them.
    """

    name = "scripted"
    needs_source = True
    option_names = ("sources", "titles")

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def propose(self, ask: Ask, context: RunContext, /) -> Iterator[Event | Proposal]:
        """The next source that was not proposed before."""
        titles = _items(context.options, "titles")
        known = {version.proposal.candidate.source for version in ask.history}
        for number, item in enumerate(_items(context.options, "sources")):
            source = Path(item).read_text() if isinstance(item, Path) or "\n" not in str(item) else str(item)
            if source not in known:
                yield Proposal(
                    candidate=Candidate(source=source),
                    title=str(titles[number]) if number < len(titles) else f"script {number + 1}",
                    reason="scripted",
                    by=self.name,
                    parent=ask.baseline.number if ask.baseline else None,
                )
                return
        yield Event(kind="note", message="the script has no further source")


def _items(options: Options, name: str) -> tuple[str | Path, ...]:
    given = options.get(name, ())
    if not isinstance(given, (list, tuple)):
        raise UserError(f"{name} of the proposer scripted is {given!r}; it must be a list")
    return tuple(given)
