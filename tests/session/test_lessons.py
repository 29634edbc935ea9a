"""What a step teaches is kept for later sessions, and only the user decides about it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from workbench import Session, lessons, problems
from workbench.cli import main
from workbench.errors import UserError
from workbench.proposers.llm import prompts
from workbench.records import Lesson

WRONG = """import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
"""


def make(number: int, **values: object) -> Lesson:
    return replace(
        Lesson(
            id=f"{number:012x}",
            at="2026-01-01T00:00:00",
            session="secret-project",
            version=number,
            kind="softmax",
            device="H200",
            by="planner",
            outcome="helped",
            gain=1.5,
            provenance="modelled",
        ),
        **values,
    )


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Path]]:
    """A session of two versions by the planner and a wrong one, and the lessons that it left."""
    root = tmp_path_factory.mktemp("stepped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTEGEN_LESSONS", str(root / "lessons.jsonl"))
        patch.setenv("CUTEGEN_TRUST", str(root / "trusted"))
        with Session.create("softmax", root=root) as session:
            session.run(1)
            session.edit(WRONG)
            yield session, root / "lessons.jsonl"


def test_each_step_of_a_session_leaves_a_lesson(stepped: tuple[Session, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_LESSONS", str(stepped[1]))
    found = lessons.read()
    assert [lesson.version for lesson in found] == [2, 3]
    assert found[0].changes == (("threads_per_row", "1", "32"),) and found[0].outcome == "helped"
    assert found[0].kind == "softmax" and found[0].probe and found[0].bottleneck == "memory"
    assert found[1].outcome == "failed" and found[1].failure
    assert stat.S_IMODE(stepped[1].stat().st_mode) == 0o600
    assert "zeros_like" not in stepped[1].read_text()


def test_a_repair_is_noted_at_the_lesson_of_what_failed() -> None:
    failed = make(4, outcome="failed", failure="check/wrong_result", gain=None)
    lessons.add(failed)
    lessons.add_repair(failed, (("vector", "4", "2"),), 1)
    assert lessons.read()[-1].repaired_by == (("vector", "4", "2"),)
    assert "repaired by vector 4 -> 2" in lessons.describe(lessons.read()[-1])


def test_experience_changes_the_order_of_advice_and_no_number_of_a_verdict(stepped: tuple[Session, Path]) -> None:
    before = stepped[0].diagnose("v1")
    first = before.advice[0].probe
    for number in range(60):
        lessons.add(make(number, probe=first, outcome="no gain", gain=1.0))
    after = stepped[0].diagnose("v1")
    assert after.advice[0].probe != first
    kept = next(advice for advice in after.advice if advice.probe == first)
    assert (kept.tried, kept.helped) == (60, 0) and kept.gain == before.advice[0].gain
    assert after.seconds == before.seconds and after.room == before.room


def test_a_model_is_told_what_other_sessions_taught(stepped: tuple[Session, Path]) -> None:
    proposing, base = stepped[0]._proposing, stepped[0].version(1)
    lessons.add(make(1, session=stepped[0].name))
    asked = proposing._add_feedback(proposing.make_ask(base), base)
    assert asked.lessons == ()  # its own are in the history
    lessons.add(make(9, changes=(("vector", "1", "4"),), repaired_by=(("vector", "4", "2"),)))
    asked = proposing._add_feedback(proposing.make_ask(base), base)
    said = prompts.messages("optimise", asked, kind="softmax", menu="", numbered="", time="")[1]["content"]
    assert "- softmax: vector 1 -> 4: 1.50x faster (modelled); repaired by vector 4 -> 2" in said
    assert "secret-project" not in said


def test_the_command_shows_forgets_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        lessons.add(make(number, probe="coalescing"))
    assert main(["lessons"]) == 0
    said = capsys.readouterr().out
    assert "secret-project v1" in said and "helped, by the advice that they followed: coalescing 2 of 2" in said
    assert main(["lessons", "--note", make(1).id, "--text", "mind the tail"]) == 0
    assert main(["lessons", "--forget", make(0).id]) == 0 and "forgot 1 lesson\n" in capsys.readouterr().out
    assert main(["lessons", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["note"] for one in document["lessons"]] == ["mind the tail"]
    assert main(["lessons", "--forget", "nonsense"]) == 2
    assert "no lesson has the id 'nonsense'" in capsys.readouterr().err


def test_lessons_are_forgotten_noted_and_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        lessons.add(make(number))
    assert lessons.annotate(make(1).id, "only for  long rows").note == "only for long rows"
    assert "[only for long rows]" in lessons.describe(lessons.read()[1])
    assert lessons.forget([make(0).id]) == 1 and len(lessons.read()) == 2
    with pytest.raises(UserError, match="no lesson has the id 'xyz'"):
        lessons.forget(["xyz"])
    assert lessons.forget(["all"]) == 2 and not lessons.read()
    monkeypatch.setenv("CUTEGEN_LESSONS", "off")
    lessons.add(make(5))
    assert lessons.path() is None and not lessons.read()


def test_lessons_are_the_users_unless_the_sessions_are_kept_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUTEGEN_LESSONS", raising=False)
    monkeypatch.delenv("CUTEGEN_ROOT", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    lessons.add(make(1))
    assert lessons.path() == tmp_path / "data" / "cutegen" / "lessons.jsonl" and len(lessons.read()) == 1
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path / "apart"))
    assert lessons.path() == tmp_path / "apart" / "lessons.jsonl" and not lessons.read()
    lessons.add(make(2))
    assert [lesson.version for lesson in lessons.read()] == [2]
    monkeypatch.setenv("CUTEGEN_LESSONS", str(tmp_path / "named.jsonl"))
    assert lessons.path() == tmp_path / "named.jsonl"


def test_a_damaged_line_costs_only_itself() -> None:
    lessons.add(make(1))
    where = lessons.path()
    assert where is not None
    with where.open("a") as file:
        file.write(json.dumps({"id": "x"}) + "\n{\n")
    lessons.add(make(2))
    assert [lesson.version for lesson in lessons.read()] == [1, 2]


def test_a_sentence_for_a_prompt_names_no_session() -> None:
    said = lessons.describe(make(1, changes=(("vector", "1", "4"),), probe="access_width", bottleneck="memory"))
    assert said == "softmax, memory: vector 1 -> 4 on the advice of access_width: 1.50x faster (modelled)"
    assert "secret" not in said


def test_plateaus_and_similar_lessons() -> None:
    found = [make(1), *(make(number, outcome="no gain") for number in range(2, 6)), make(7, kind="matmul")]
    assert lessons.find_plateaus(found) == (("secret-project", "softmax", 4),)
    similar = lessons.find_similar([*found, make(8, bottleneck="memory")], "softmax", "memory")
    assert similar[0].version == 8 and len(similar) == lessons.SIMILAR and all(one.kind == "softmax" for one in similar)


@pytest.mark.slow
def test_a_lesson_names_the_advice_that_its_change_followed_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_LESSONS", str(tmp_path / "lessons.jsonl"))
    problem = problems.load("softmax", settings={"batch_size": 4096, "dim": 512})
    with Session.create(problem, root=tmp_path, executor="emulator", arch="sm_80") as session:
        session.program("softmax(x) .threads_per_row(1)")
        names = [advice.probe for advice in session.diagnose("v1").advice]
        assert names[0] == "coalescing" and {"access_width", "underfilled", "memory_latency"} <= {*names}
        asked = session.apply_advice("v1", "access_width")  # its setting, vector, is one of coalescing's too
        session.program("softmax(x) .threads_per_row(32)", parent="v1")
        session.program("softmax(x) .threads_per_row(1) .threads(64)", parent="v1")  # coalescing names no threads
        session.program("softmax(x) .threads_per_row(32) .threads(64)", parent="v1")  # no advice names both
        session.program("softmax(x) .threads_per_row(1)", parent="v3")  # no advice names fewer of them
        session.edit(session.version(1).proposal.candidate.source + "# by hand\n", parent="v1")
        assert asked is not None and asked.proposal.advice == "access_width"
        found = {lesson.version: lesson.probe for lesson in lessons.read()}
        assert found[2] == "access_width" and found[3] == "coalescing" and found[4] == "memory_latency"
        told = session.diagnose("v1")
    rest = {number: probe for number, probe in found.items() if number > 4}
    assert len(rest) == 3 and set(rest.values()) == {""}
    counts = {advice.probe: advice.tried for advice in told.advice}
    assert counts["coalescing"] == counts["access_width"] == 1 and counts["underfilled"] == 0
