"""The person's own version, given as text."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.errors import UserError
from workbench.protocols import Proposer, RunContext
from workbench.records import Ask, Candidate, Proposal
from workbench.records.proposal import HUMAN


class Human(Proposer):
    """Proposes the source that is given as the option `source`, under the option `title`."""

    name = HUMAN
    needs_source = True
    option_names = ("source", "title")

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def propose(self, ask: Ask, context: RunContext, /) -> Iterator[Proposal]:
        """The given source, as a child of the baseline."""
        source = str(context.options.get("source", ""))
        if not source:
            raise UserError("there is no source: write the kernel in the cell below %%cutegen edit")
        yield Proposal(
            candidate=Candidate(source=source),
            title=str(context.options.get("title", "edited by hand")),
            reason=ask.instruction,
            by=self.name,
            parent=ask.baseline.number if ask.baseline else None,
        )
