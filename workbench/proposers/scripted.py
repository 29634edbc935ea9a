"""Plays given sources, one per call: for tests and tutorials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.records import Ask, Candidate, Event, Proposal


class Scripted:
    """Proposes `sources` (texts or paths) in order; the first that the history does not hold yet."""

    name = "scripted"

    def __init__(self, sources: Sequence[str | Path] = (), titles: Sequence[str] = ()) -> None:
        self.sources = tuple(Path(item).read_text() if isinstance(item, Path) or "\n" not in item else item for item in sources)
        self.titles = tuple(titles)

    def configure(self, *, sources: Sequence[str | Path], titles: Sequence[str] = ()) -> Scripted:
        """The same proposer with sources."""
        return Scripted(sources, titles)

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def propose(self, ask: Ask, /) -> Iterator[Event | Proposal]:
        """The next source that was not proposed before."""
        known = {version.proposal.candidate.source for version in ask.history}
        for number, source in enumerate(self.sources):
            if source not in known:
                title = self.titles[number] if number < len(self.titles) else f"script {number + 1}"
                yield Proposal(candidate=Candidate(source=source), title=title, reason="scripted", by=self.name, parent=ask.baseline.number if ask.baseline else None)
                return
        yield Event(kind="note", message="the script has no further source")
