"""The loop with the real emulator: decisions, hunks, stale decisions, undo, reopening, stopping."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from workbench import problems
from workbench.errors import ProgramError, StaleDecision, Stopped, UserError, WorkbenchError
from workbench.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    problem = problems.load("softmax", settings=(("batch_size", 16), ("dim", 64)))
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        yield made


def test_generate_accept_refine_reject_undo(session: Session) -> None:
    first = session.generate()
    assert (
        first is not None and first.trials[-1].verdict.correct and session.baseline is None and session.pending == first
    )
    session.accept()
    assert session.baseline is not None and session.baseline.number == 1
    second = session.refine()
    assert second is not None and second.parent == 1
    assert session.baseline.number == 1, "an undecided proposal is not the baseline"
    session.reject(2, "reads its input three times")
    third = session.refine()
    assert third is not None and third.proposal.candidate.program != second.proposal.candidate.program, (
        "what was rejected is not proposed again"
    )
    assert session.undo().version == 2 and session.version(2).decision is None


def test_hunks_make_a_new_tested_version(session: Session) -> None:
    session.generate()
    session.accept()
    source = session.version(1).proposal.candidate.source
    edited = source.replace('"""', '"""edited ', 1).replace(
        "return cutlass.Float32(0.0)", "return cutlass.Float32(1.0)"
    )
    version = session.edit(edited, title="two changes")
    assert not version.trials[-1].verdict.correct and len(session.diff(1, 2)) == 2
    with pytest.raises(UserError, match="not correct"):
        session.accept(2)
    made = session.accept(2, hunks=[1])
    assert (
        made.number == 3
        and made.trials[-1].verdict.correct
        and made.decision is not None
        and made.decision.hunks == (1,)
    )
    whole = session.version(2)
    assert whole.decision is not None and (whole.decision.kind, whole.decision.reason) == ("part", "as v3")
    assert session.pending is None and session.baseline == made
    assert made.proposal.by == whole.proposal.by == "human"
    assert session.undo().version == 3
    said = [event.message for event in session.events() if event.kind == "decided"]
    assert said[-2:] == ["taken back: v3 accepted", "taken back: v2 accepted in part"]
    assert session.version(2).decision is None and session.version(3).decision is None, "both are open again"
    session.accept(3)
    assert "edited" in made.proposal.candidate.source and "Float32(1.0)" not in made.proposal.candidate.source


@pytest.mark.slow
def test_a_version_in_parts_does_not_claim_to_be_a_program(session: Session) -> None:
    first = session.program("softmax(x) .threads_per_row(32)")
    session.accept(first.number)
    second = session.program("softmax(x) .threads_per_row(128)", test=False)
    last = len(session.diff(1, 2))
    assert last > 1 and session.diff(1, 2)[0].old_start == 0  # the docstring is a hunk of its own
    for picked in (1, last):
        made = session.accept(2, hunks=[picked], force=True).proposal.candidate
        assert (
            made.source.splitlines()[0]
            == f'"""In parts, so no program of muCUTLASS says it all: v1 with hunk {picked} of v2"""'
        )
        assert made.program is None and not any(
            str(whole.proposal.candidate.program) in made.source for whole in (first, second)
        )
    assert session.accept(2, hunks=range(1, last + 1)).number == 2  # all of them are v2 itself


def test_stale_and_unknown_decisions_are_refused(session: Session) -> None:
    session.generate()
    with pytest.raises(StaleDecision):
        session.accept(1, source_hash="0" * 64)
    with pytest.raises(UserError, match="no version 'v9'; there are: v1"):
        session.reject("v9")
    assert session.version(1).decision is None


HOLD = """
import sys, time
from workbench import Session
session = Session.open(sys.argv[2])
print("open", flush=True)
time.sleep(99)
"""


@pytest.mark.parametrize("notebook", ["/home/me/loop.ipynb", ""])
def test_who_holds_a_session_is_named(session: Session, tmp_path: Path, notebook: str) -> None:
    session.close()
    script = tmp_path / "tune_all.py"
    script.write_text(HOLD)
    command = [sys.executable, str(script), "nightly", str(session.folder)]
    holder = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "JPY_SESSION_NAME": notebook}
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        said = f"the notebook {notebook}" if notebook else "the program tune_all.py nightly"
        with pytest.raises(UserError, match=rf"open in process {holder.pid}, {said}; close it there"):
            Session.open(session.folder)
    finally:
        holder.kill()
        holder.communicate()


def test_everything_is_there_after_reopening(session: Session) -> None:
    session.generate()
    session.accept()
    folder, before = session.folder, session.versions
    with pytest.raises(UserError, match="is open in process"):
        Session.open(folder)
    session.close()
    with Session.open(folder) as again:
        assert again.versions == before and again.events()
        assert all(
            Path(version.path).read_text() == version.proposal.candidate.source
            and Path(version.path).stat().st_mode & 0o222 == 0
            for version in again.versions
        )


def test_stop_ends_a_step_within_a_second_and_leaves_the_session_whole(session: Session) -> None:
    session.generate()
    source = session.version(1).proposal.candidate.source.replace(
        "    def forward(self, x):\n", "    def forward(self, x):\n        while True:\n            pass\n"
    )
    threading.Timer(2.0, session.stop).start()
    start = time.monotonic()
    with pytest.raises(Stopped):
        session.edit(source, title="never ends")
    assert time.monotonic() - start < 20  # the candidate's own limit is longer
    assert len(session.versions) == 2 and not session.versions[1].trials
    session.accept(1)


def test_step_is_awaitable_and_decisions_are_served(session: Session) -> None:
    async def both() -> int:
        step = asyncio.ensure_future(session.step())
        ticks = 0
        while not step.done():
            await asyncio.sleep(0.05)
            ticks += 1
        return ticks

    assert asyncio.run(both()) > 3
    assert session.versions[0].trials


@pytest.mark.slow
def test_replay_says_what_differs(session: Session) -> None:
    session.generate()
    assert session.replay() == ()


def test_export_loads_with_nothing_of_the_workbench(session: Session, tmp_path: Path) -> None:
    import subprocess
    import sys

    session.generate()
    session.accept()
    path = tmp_path / "best.py"
    session.export("best", path)
    code = (
        "import sys, importlib.util\n"
        "class Block:\n    def find_spec(self, name, path=None, target=None):\n        if name.split('.')[0] "
        "== 'workbench': raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        f"spec = importlib.util.spec_from_file_location('candidate', {str(path)!r}); m = "
        "importlib.util.module_from_spec(spec); spec.loader.exec_module(m)\n"
        "model = m.ModelNew(); print(type(model).__mro__[1].__name__, [n for n in sys.modules if "
        "n.startswith('workbench')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
        ).stdout.strip()
        == "Module []"
    )
    with pytest.raises(UserError, match="exists and differs"):
        path.write_text("mine")
        session.export("best", path)


def test_a_program_by_hand_is_a_version_of_the_persons(session: Session) -> None:
    made = session.program("softmax(x) .threads_per_row(32)", title="a warp for each row")
    candidate = made.proposal.candidate
    assert (
        made.trials[-1].verdict.correct and made.proposal.by == "human" and made.proposal.title == "a warp for each row"
    )
    assert (
        candidate.program is not None
        and f".arch({session.arch})" in candidate.program
        and "class ModelNew" in candidate.source
    )
    with pytest.raises(ProgramError, match="threads_per_row"):
        session.program("softmax(x) .threads_per_row(33)")
    with pytest.raises(WorkbenchError, match="y"):
        session.program("softmax(y)")
    assert len(session.versions) == 1


@pytest.mark.slow
def test_a_program_by_hand_gets_the_layouts_of_the_problems_operands(tmp_path: Path) -> None:
    with Session.create(
        problems.load("matmul_transposed", settings=(("m", 64), ("n", 64), ("k", 32)), precision="fp16"),
        root=tmp_path,
        executor="emulator",
        arch="sm_80",
    ) as session:
        made = session.program("gemm(a, b) .mma(f16) .tile(64, 64, 32)")
        assert made.trials[-1].verdict.correct and ".layout(" in (made.proposal.candidate.program or "")


def test_what_the_language_has_no_operation_for_is_said(tmp_path: Path) -> None:
    source = (
        "import torch\nimport torch.nn as nn\n\nn = 16\n\nclass Model(nn.Module):\n    def forward(self, "
        "x):\n        return torch.linalg.inv(x)\n\ndef get_inputs():\n    return [torch.randn(n, n)]\n\ndef "
        "get_init_inputs():\n    return []\n"
    )
    (tmp_path / "inverse.py").write_text(source)
    with (
        Session.create(problems.load(str(tmp_path / "inverse.py")), root=tmp_path, executor="emulator") as session,
        pytest.raises(WorkbenchError, match=r"no operation for this problem .*%%cutegen edit"),
    ):
        session.program("softmax(x)")


@pytest.mark.slow
def test_the_planner_goes_on_from_a_program_by_hand(session: Session) -> None:
    mine = session.program("softmax(x) .threads_per_row(256) .vector(4)")
    session.accept(mine.number)
    titles = [made.proposal.title for _ in range(3) if (made := session.refine())]
    assert len(titles) == 3 and "one thread per row" not in titles


@pytest.mark.slow
def test_a_loop_first_finishes_what_an_interrupt_left_undecided(session: Session) -> None:
    def stop_at_the_first_version() -> None:
        while not session.versions:
            time.sleep(0.01)
        session.stop()

    stopper = threading.Thread(target=stop_at_the_first_version)
    stopper.start()
    with pytest.raises(Stopped):
        session.run(steps=2)
    stopper.join()
    untested = [version.number for version in session.versions if not version.trials]
    made = session.run(steps=1)
    assert untested and all(version.trials for version in session.versions)
    undecided = [version for version in session.versions if not version.decision]
    assert all(version.trials[-1].verdict.distinguishable is False for version in undecided)
    assert session.versions[0].decision is not None and session.versions[0].decision.reason == "first correct version"
    assert not {version.number for version in made} & set(untested)


@pytest.mark.slow
def test_a_loop_goes_on_from_a_correct_version_that_waits_for_a_decision(session: Session) -> None:
    first = session.generate()
    assert first is not None
    session.run(steps=1)
    assert session.version(1).decision is not None and session.version(1).decision.kind == "accept"
    assert [version.parent for version in session.versions[1:]] == [1]
