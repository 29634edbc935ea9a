"""A session that an older version wrote is opened, says what it said then, and goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.session import Session

OLD = Path(__file__).parent / "session" / "softmax"
PROGRAMS = [
    "softmax(x) .arch(sm_80) .threads_per_row(1)",
    "softmax(x) .arch(sm_80) .threads_per_row(32)",
    "softmax(x) .arch(sm_80) .threads_per_row(32) .vector(4)",
]
TIMES, INSTRUCTIONS = [3.0218453333333333e-06, 3.0027306666666667e-06, 3.0027306666666667e-06], [17280, 66048, 51456]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.open(shutil.copytree(OLD, tmp_path / "softmax"), trusted=True) as opened:
        yield opened


def test_versions_decisions_and_verdicts_are_those_that_were_written(session: Session) -> None:
    versions = session.versions
    assert not session.refusal and not session.log.store.damage
    assert [(version.number, version.parent, version.proposal.candidate.program) for version in versions] == [
        (1, None, PROGRAMS[0]),
        (2, 1, PROGRAMS[1]),
        (3, 1, PROGRAMS[2]),
    ]
    assert [version.decision and (version.decision.kind, version.decision.reason) for version in versions] == [
        ("accept", ""),
        ("reject", "reads its input three times"),
        ("accept", ""),
    ]
    assert session.baseline is not None and session.baseline.number == 3
    for version in versions:
        verdict = version.trials[-1].verdict
        assert (
            verdict.correct
            and verdict.failure is None
            and verdict.time_provenance == "modelled"
            and verdict.bound is not None
            and verdict.bound.device == "H200"
        )
        assert (
            Path(version.path).parent == session.folder
            and Path(version.path).read_text() == version.proposal.candidate.source
        )
    assert [version.trials[-1].verdict.time_s for version in versions] == TIMES
    assert [version.trials[-1].outcome.launches[0].total.instructions for version in versions] == INSTRUCTIONS


def test_an_old_candidate_is_tested_again_with_the_same_counts(session: Session) -> None:
    before = session.version(3).trials[-1]
    session.test(3)
    after = session.version(3).trials[-1]
    assert len(session.version(3).trials) == 2 and after.verdict.correct
    assert after.verdict.time_interval is not None and before.verdict.time_interval is None  # by an older model
    assert [launch.total for launch in after.outcome.launches] == [launch.total for launch in before.outcome.launches]


@pytest.mark.slow
def test_the_next_step_goes_on_from_the_baseline_and_is_kept(session: Session) -> None:
    fourth = session.refine()
    assert fourth is not None and (fourth.number, fourth.parent) == (4, 3) and fourth.trials[-1].verdict.correct
    assert fourth.proposal.candidate.program not in PROGRAMS and session.diff(3, 4)
    session.accept(4, reason="faster")
    folder, kept = session.folder, session.versions
    session.close()
    with Session.open(folder) as again:
        assert again.versions == kept and again.baseline is not None and again.baseline.number == 4
