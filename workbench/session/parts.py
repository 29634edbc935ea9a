"""The parts of a session that a loop over many steps uses."""

from __future__ import annotations

from workbench.records import record
from workbench.session.deciding import Deciding
from workbench.session.log import SessionLog
from workbench.session.proposing import Proposing
from workbench.session.testing import Testing


@record
class Parts:
    """The parts of a session that a loop gets."""

    log: SessionLog
    testing: Testing
    proposing: Proposing
    deciding: Deciding
