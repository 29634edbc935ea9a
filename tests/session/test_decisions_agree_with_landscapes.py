"""What the loop decides without a GPU, against what was recorded on an H200 for the very same programs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from workbench import landscapes, problems
from workbench.records import Version
from workbench.session import Session
from workbench.views.text import report

CLEAR = math.log(1.05)  # recorded speed-ups beyond it must not be contradicted
RECORDED = [name for name in problems.shipped() if landscapes.find(problems.load(name), "H200") is not None]


def run_loop(name: str, folder: Path, steps: int) -> tuple[Version, ...]:
    with Session.create(problems.load(name), root=folder, executor="emulator") as session:
        session.run(steps)
        return session.versions


def check_decisions(versions: tuple[Version, ...]) -> int:
    """Checks every decision whose programs were recorded; returns their number."""
    checked = 0
    for version in versions:
        verdict = version.trials[-1].verdict
        assert verdict.correct, verdict.failure
        recorded = verdict.recorded_speedup
        if recorded is None or verdict.speedup is None:
            continue
        checked += 1
        if verdict.distinguishable and abs(math.log(recorded)) > CLEAR:
            assert (verdict.speedup > 1) == (recorded > 1), (version.proposal.title, verdict.speedup, recorded)
        if not verdict.distinguishable:
            assert version.decision is None or version.decision.kind != "reject", version.decision
    return checked


def tell_decisions(root: Path) -> list[str]:
    """What the report says of each version of the session below a folder."""
    (folder,) = (path.parent for path in root.rglob("session.sqlite"))
    with Session.open(folder) as session:
        return [report.describe_decision(session, version) for version in session.versions]


@pytest.mark.slow
def test_the_demo_decides_as_the_gpu_does_and_says_so(tmp_path: Path) -> None:
    versions = run_loop("softmax", tmp_path, 2)
    assert check_decisions(versions) >= 2
    assert all(version.trials[-1].verdict.recorded is not None for version in versions)
    wide = versions[2]
    assert wide.proposal.title == "4 elements per access" and wide.decision is not None
    assert wide.decision.kind == "accept"  # measured: 1.22x
    told = tell_decisions(tmp_path)
    assert told[0] == "Accepted: first correct version." and "faster than v2 (modelled)" in told[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_no_clear_decision_contradicts_the_landscape(name: str, tmp_path: Path) -> None:
    check_decisions(run_loop(name, tmp_path, 5))


@pytest.mark.slow
def test_what_the_demo_cannot_decide_is_left_to_a_gpu(tmp_path: Path) -> None:
    fourth = run_loop("softmax", tmp_path, 3)[3]
    assert fourth.decision is None
    told = tell_decisions(tmp_path)[3]
    assert told.startswith("Not decided: v4 or v3: which is faster cannot be told") and "GPU." in told
