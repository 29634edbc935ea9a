"""The person's own version, given as text."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.errors import UserError
from workbench.records import Ask, Candidate, Event, Proposal


class Human:
    """Proposes one source that was given."""

    name = "human"

    def __init__(self, source: str = "", title: str = "edited by hand") -> None:
        self.source, self.title = source, title

    def configure(self, *, source: str, title: str = "edited by hand") -> Human:
        """The same proposer with a source."""
        return Human(source, title)

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def propose(self, ask: Ask, /) -> Iterator[Event | Proposal]:
        """The given source, as a child of the baseline."""
        if not self.source:
            raise UserError("there is no source: write the kernel in the cell below %%cutegen edit")
        yield Proposal(candidate=Candidate(source=self.source), title=self.title, reason=ask.instruction, by=self.name, parent=ask.baseline.number if ask.baseline else None)
