"""Shipped recordings: complete, labelled, and played back with every version really built and checked."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from workbench.errors import UserError
from workbench.session import Session, recording

NAMES = recording.names()
# What a GPU found at full size and the emulator, at its sizes, cannot; a driver that was missing then, and what it hid.
DIFFER = {"attention_backward": ["v2"], "linear_bf16": ["v2"]}


def test_the_promised_ones_are_there() -> None:
    assert {"softmax", "matmul_bias_gelu", "layer_norm"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_version_has_its_exchanges_and_the_label_says_recorded(name: str) -> None:
    found = recording.load(name)
    assert found.label.startswith("Recorded") and len(found.steps) >= 2
    for step in found.steps:
        assert step.exchanges and step.exchanges[-1].reply and step.exchanges[0].messages[0][0] == "system"
        assert step.verdict is not None and step.decision is not None


def play(name: str, root: Path) -> tuple[tuple[str, ...], Session]:
    found = recording.load(name)
    with Session.create(found.problem, root=root, executor="emulator", arch=found.arch, device=found.device) as session:
        return session.play(name), session


@pytest.mark.slow
def test_softmax_plays_as_recorded(tmp_path: Path) -> None:
    start = time.monotonic()
    differences, session = play("softmax", tmp_path)
    assert differences == () and time.monotonic() - start < 120
    steps = recording.load("softmax").steps
    assert [v.proposal.candidate.source for v in session.versions] == [step.proposal.candidate.source for step in steps]
    assert all(version.decision is not None and "(recorded)" in version.decision.reason for version in session.versions)


@pytest.mark.slow
@pytest.mark.timeout(130)
@pytest.mark.parametrize("name", NAMES)
def test_plays_as_recorded_within_two_minutes(name: str, tmp_path: Path) -> None:
    assert [said.split()[0] for said in play(name, tmp_path)[0]] == DIFFER.get(name, [])


def test_the_set_holds_a_compile_repair_a_repaired_wrong_result_and_a_rejected_step() -> None:
    """As they happened: of each repaired version the failure that was recorded, and whether its repair was right."""
    repaired, rejected = set(), 0
    for name in NAMES:
        steps = recording.load(name).steps
        for step in steps:
            assert step.verdict is not None and step.decision is not None
            before = steps[step.proposal.repairs - 1].verdict if step.proposal.repairs else None
            if before is not None and before.failure is not None and step.verdict.correct:
                assert [exchange.purpose for exchange in step.exchanges] == ["diagnosis", "patch"]
                repaired.add(before.failure.stage)
            rejected += step.verdict.correct and step.decision.kind == "reject"
    assert {"compile", "check"} <= repaired and rejected


def test_a_difference_is_said(tmp_path: Path) -> None:
    document = json.loads((recording.FOLDER / "softmax.json").read_text())
    step = document["recording"]["steps"][0]
    step["proposal"]["candidate"]["source"] = step["proposal"]["candidate"]["source"].replace(
        "fmax(largest", "no_such(largest"
    )
    document["recording"]["steps"] = [step]
    (tmp_path / "changed.json").write_text(json.dumps(document))
    found = recording.load(tmp_path / "changed.json")
    with Session.create(found.problem, root=tmp_path / "s", executor="emulator") as session:
        recording.check_trust(tmp_path / "changed.json", given=True)
        said = session.play(tmp_path / "changed.json")
        assert len(said) == 1 and said[0].startswith("v1 was correct when recorded, today it is not (compile:")
        assert session.baseline is None


def test_what_is_no_recording_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    for name, said in (("nothing", "no recording is called"), (str(tmp_path / "x.json"), "is not a recording")):
        with pytest.raises(UserError, match=said):
            recording.load(name)


def test_a_recording_is_not_overwritten(tmp_path: Path) -> None:
    with Session.create(recording.load("softmax").problem, root=tmp_path, executor="emulator") as session:
        session.save_recording(tmp_path / "r.json", "Recorded now")
        with pytest.raises(UserError, match="not changed afterwards"):
            session.save_recording(tmp_path / "r.json", "Recorded again")
        assert recording.load(tmp_path / "r.json").label == "Recorded now"
