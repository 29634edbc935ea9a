"""A session and a recording that version 0.1.0 wrote, before plug-ins and records were renamed, open and go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.executors.replay import ReplayExecutor
from workbench.proposers.llm.budget import Budget
from workbench.session import Session, recording

BEFORE = Path(__file__).parent / "before"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "before"
    shutil.copytree(BEFORE, copy)
    return copy


@pytest.fixture
def session(folder: Path) -> Iterator[Session]:
    with Session.open(folder, trusted=True) as opened:
        yield opened


def test_everything_of_a_session_from_before_is_there(session: Session) -> None:
    assert session.executor_name == "emulator" and (session.arch, session.device) == ("sm_80", "H200")
    assert session.constraints == ("no tensor cores",) and session.problem.settings == (("batch_size", 8), ("dim", 64))
    assert [v.decision.kind if v.decision else None for v in session.versions] == ["accept", "reject", None]
    assert session.baseline is not None and session.baseline.number == 1 and session.best == session.baseline
    failure = session.version(3).trials[-1].verdict.failure
    assert failure is not None and failure.kind == "wrong_result"
    first = session.version(1).trials[0].outcome
    assert first.launches[0].total.global_requests > 0 and first.checks[0].passed
    assert all(Path(version.path).read_text() == version.proposal.candidate.source for version in session.versions)


def test_times_and_the_state_of_the_device_are_read(session: Session) -> None:
    timing = session.version(1).trials[-1].outcome.timing
    assert timing is not None and timing.method == "graph" and timing.notes == ("a note",)
    (state,) = timing.surroundings
    assert (state.sm_clock_mhz, state.throttled) == (1980, ("power_cap",))
    assert session.version(1).trials[-1].outcome.ratios[0].against == "eager"


def test_what_was_spent_on_a_model_still_counts(session: Session) -> None:
    assert session.model()["model"] == "a-model" and session.spent() == {
        "tokens_in": 10,
        "tokens_out": 5,
        "usd": None,
        "estimated": False,
    }
    budget: Budget = session.client().budget
    assert budget.limit_tokens == 5000 and budget.tokens_in + budget.tokens_out == 15
    assert session.exchanges()[1].tools == (("search", "{}", "nothing"),)


def test_hashes_of_jobs_hold(session: Session) -> None:
    """A recorded outcome is found by the hash of today's job for the same version."""
    job = session.job(session.version(2))
    assert ReplayExecutor(session.log.store.outcome).run(job) == session.version(2).trials[-1].outcome


@pytest.mark.slow
def test_it_goes_on(session: Session) -> None:
    version = session.edit(session.version(1).proposal.candidate.source + "# one more line\n", title="goes on")
    assert version.number == 4 and version.trials[-1].verdict.correct
    session.accept(4)
    assert session.undo().version == 4 and session.baseline is not None and session.baseline.number == 1
    assert session.unpin("no tensor cores") == ()


def test_a_recording_from_before_is_read() -> None:
    found = recording.load(BEFORE / "recording.json")
    assert found.label == "Recorded by the version before" and found.executor == "emulator"
    assert [step.decision.kind if step.decision else None for step in found.steps] == ["accept", "reject", None]
    assert found.steps[0].verdict is not None and found.steps[0].verdict.time_provenance == "measured"
