"""A diagnosis leads to a proposal: by a moved setting, by the planner after its ladder, or by words to a person."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench import Session, problems
from workbench.errors import UserError
from workbench.executors.emulator import EmulatorExecutor
from workbench.records import KernelMetrics, Profile, StoredProfile
from workbench.views.notebook.advice_view import advice_view
from workbench.views.text import report
from workbench.views.text.diagnosis import diagnosis_report, notebook_way

SLOW = "softmax(x) .threads_per_row(1)"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    problem = problems.load("softmax", settings={"batch_size": 4096, "dim": 512})
    with Session.create(problem, root=tmp_path_factory.mktemp("sessions"), executor="emulator", arch="sm_80") as made:
        made.program(SLOW)
        yield made


def test_a_judged_version_is_diagnosed_without_a_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be run")

    monkeypatch.setattr(EmulatorExecutor, "run", refuse)
    found = session.diagnose("v1")
    assert found == session.known_diagnosis("v1") and not found.exhausted
    assert {advice.probe for advice in found.advice} >= {"coalescing", "access_width"}


def test_somebody_elses_session_is_diagnosed_and_nothing_of_it_runs(session: Session, tmp_path: Path) -> None:
    shutil.copytree(session.folder, tmp_path / "theirs")
    with Session.open(tmp_path / "theirs") as theirs:
        assert theirs.refusal and theirs.diagnose("v1").advice == session.diagnose("v1").advice
        with pytest.raises(UserError):
            theirs.apply_advice("v1", "access_width")


def test_an_advice_becomes_a_version_and_then_another_one(session: Session) -> None:
    first = session.apply_advice("v1", "access_width")
    second = session.generate("planner", start="v1", test=False, advice="access_width")
    assert first is not None and second is not None and first.trials[-1].verdict.correct
    for made in (first, second):
        assert made.parent == 1 and made.proposal.by == "planner"
        assert made.proposal.reason.startswith("probe access_width: a thread moves 4 bytes")
        assert "expect" in made.proposal.reason and "of an access 4 bytes, limit 8 bytes" in made.proposal.reason
    assert first.proposal.candidate.program != second.proposal.candidate.program
    assert first.proposal.title.startswith("vector 2") and second.proposal.title.startswith("vector 4")
    with pytest.raises(UserError, match=r"no advice 'luck'; it has 1 \w+"):
        session.apply_advice("v1", "luck")


def test_nothing_to_gain_is_not_all_that_is_said_where_another_version_is_faster(session: Session) -> None:
    fast = session.program("softmax(x) .threads_per_row(256) .vector(4)")
    slow = session.version("v1")
    assert fast.trials[-1].verdict.time_s < slow.trials[-1].verdict.time_s
    found = dataclasses.replace(session.diagnose("v1"), room=1.02)
    told = {
        number: diagnosis_report(
            session.version(number),
            found,
            notebook_way(slow, session.versions, has_model=False),
            versions=session.versions,
        ).text
        for number in (1, fast.number)
    }
    assert f"by the bound; v{fast.number} is faster" in told[1]
    assert "Nothing to gain here: the bound leaves no room. Change" in told[fast.number]
    seen = advice_view(slow, found, session.versions, has_model=False)
    assert f"v{fast.number} is faster" in seen["note"]


def test_the_report_shows_the_advice_on_accepted_versions_only(session: Session) -> None:
    session.accept("v1")
    session.reject("v2", "looked at")
    page = report.html_page(session)
    assert page.count("what limits it, and what to change") == len({1, session.best.number if session.best else 1})
    assert "each warp access touches 8.0x" in page.partition('<section id="v1">')[2].partition("</section>")[0]


@pytest.mark.slow
def test_without_a_program_or_a_model_a_line_says_what_to_edit(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    mine = session.edit(session.version("v1").proposal.candidate.source, parent="v1")
    before = len(session.versions)
    assert not session.has_model and session.apply_advice(mine.number, "coalescing") is None
    notes = [event.message for event in session.events() if event.kind == "note"]
    assert "not written in muCUTLASS" in notes[-2] and f"edit v{mine.number} by hand" in notes[-1]
    assert "let consecutive threads take consecutive elements" in notes[-1] and len(session.versions) == before


def test_advice_comes_first_if_asked_for(session: Session) -> None:
    made = session.generate("planner", start="v1", rank="advice", test=False)
    assert made is not None and made.proposal.reason.startswith("probe ") and made.parent == 1
    with pytest.raises(UserError, match="ladder, roi or advice"):
        session.generate("planner", rank="luck")


@pytest.mark.slow
def test_the_planner_follows_advice_after_its_ladder(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator", arch="sm_80") as session:
        first = session.program("elementwise(relu(x)) .threads(32)")
        titles = []
        for _ in range(12):
            made = session.generate("planner", start=first.number, test=False)
            if made is None:
                break
            titles.append(made.proposal.reason.startswith("probe "))
            session.reject(made.number, "looked at")
        found = session.known_diagnosis(first.number)
        assert found is not None and found.advice and not found.exhausted
        assert True in titles and titles == sorted(titles), "the ladder first, then advice"
        assert "has tried" in session.events()[-1].message


def test_a_profile_of_a_gpu_that_the_session_keeps_is_diagnosed_where_there_is_none(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor="replay") as session:
        made = session.generate()
        assert made is not None and made.trials[-1].outcome.timing and session.known_diagnosis(made.number) is None
        waste = KernelMetrics(kernel="k", provenance="measured", duration_s=6e-3, l1_bytes=2e10, l1_ideal_bytes=2e9)
        empty = Profile(launches=(), builds=(), occupancy=(), limits=(), findings=(), summary="", device=session.device)
        for by, kernels in (("ncu", (waste,)), ("sass", ())):
            profile = dataclasses.replace(empty, by=by, kernels=kernels)
            session.log.add_profile(
                StoredProfile(version=made.number, source_hash=made.source_hash, options=(), profile=profile, at="2026")
            )
        found = session.known_diagnosis(made.number)
        assert found is not None and found == session.diagnose(made.number)
        coalescing = next(advice for advice in found.advice if advice.probe == "coalescing")
        assert coalescing.provenance == "measured" and "10.0x the 32-byte sectors" in coalescing.cause
