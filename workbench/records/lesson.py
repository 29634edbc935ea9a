"""What a step of a session taught, kept for later sessions (workbench/lessons.py)."""

from __future__ import annotations

from typing import Literal

from workbench.records.base import Provenance, record

LessonOutcome = Literal["helped", "no gain", "open", "failed"]


@record
class Lesson:
    """One change of a version: what was changed, of what kind of kernel, and what came of it. It holds no source, no
    problem and no text of a person or a model.
    """

    id: str  # 12 hex digits
    at: str  # ISO time, UTC
    session: str  # the name of the session's folder
    version: int
    kind: str  # of the problem: softmax, matmul, ...
    device: str
    by: str  # the proposer
    bottleneck: str = ""  # class of the version that was changed, "" unknown
    probe: str = ""  # whose advice about that version the change followed, "" none
    changes: tuple[tuple[str, str, str], ...] = ()  # (setting, value before, value after); () for changes of the source
    outcome: LessonOutcome
    gain: float | None = None  # time before over time after
    provenance: Provenance | None = None  # of the gain
    failure: str = ""  # stage/kind
    repaired_by: tuple[tuple[str, str, str], ...] = ()  # the changes of the first correct version after it
    attempts: int = 0  # versions that the repair took
    note: str = ""  # by the user (`cutegen lessons note`)
