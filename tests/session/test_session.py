"""The loop with the real emulator: decisions, hunks, stale decisions, undo, reopening, stopping."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from workbench import problems
from workbench.errors import StaleDecision, Stopped, UserError
from workbench.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    problem = problems.load("softmax", settings=(("batch_size", 16), ("dim", 64)))
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        yield made


def test_generate_accept_refine_reject_undo(session: Session) -> None:
    first = session.generate()
    assert first is not None and first.trials[-1].verdict.correct and session.baseline is None and session.pending == first
    session.accept()
    assert session.baseline is not None and session.baseline.number == 1
    second = session.refine()
    assert second is not None and second.parent == 1
    assert session.baseline.number == 1, "an undecided proposal is not the baseline"
    session.reject(2, "reads its input three times")
    third = session.refine()
    assert third is not None and third.proposal.candidate.program != second.proposal.candidate.program, "what was rejected is not proposed again"
    assert session.undo().version == 2 and session.version(2).decision is None


def test_hunks_make_a_new_tested_version(session: Session) -> None:
    session.generate()
    session.accept()
    source = session.version(1).proposal.candidate.source
    edited = source.replace('"""', '"""edited ', 1).replace("total = cutlass.Float32(0.0)", "total = cutlass.Float32(1.0)")
    version = session.edit(edited, title="two changes")
    assert not version.trials[-1].verdict.correct and len(session.diff(1, 2)) == 2
    with pytest.raises(UserError, match="not correct"):
        session.accept(2)
    made = session.accept(2, hunks=[1])
    assert made.number == 3 and made.trials[-1].verdict.correct and made.decision is not None and made.decision.hunks == (1,)
    assert "edited" in made.proposal.candidate.source and "Float32(1.0)" not in made.proposal.candidate.source


def test_stale_and_unknown_decisions_are_refused(session: Session) -> None:
    session.generate()
    with pytest.raises(StaleDecision):
        session.accept(1, source_hash="0" * 64)
    with pytest.raises(UserError, match="no version 'v9'; there are: v1"):
        session.reject("v9")
    assert session.version(1).decision is None


def test_everything_is_there_after_reopening(session: Session) -> None:
    session.run(steps=1)
    folder, before = session.folder, session.versions
    with pytest.raises(UserError, match="is open in process"):
        Session.open(folder)
    session.close()
    with Session.open(folder) as again:
        assert again.versions == before and again.events()
        assert all(Path(version.path).read_text() == version.proposal.candidate.source and Path(version.path).stat().st_mode & 0o222 == 0 for version in again.versions)


def test_stop_ends_a_step_within_a_second_and_leaves_the_session_whole(session: Session) -> None:
    session.generate()
    source = session.version(1).proposal.candidate.source.replace("    def forward(self, x):\n", "    def forward(self, x):\n        while True:\n            pass\n")
    threading.Timer(2.0, session.stop).start()
    start = time.monotonic()
    with pytest.raises(Stopped):
        session.edit(source, title="never ends")
    assert time.monotonic() - start < 3.5
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


def test_replay_says_what_differs(session: Session) -> None:
    session.generate()
    assert session.replay() == ()


def test_export_loads_with_nothing_of_the_workbench(session: Session, tmp_path: Path) -> None:
    import subprocess
    import sys

    session.run(steps=1)
    path = tmp_path / "best.py"
    session.export("best", path)
    code = (
        "import sys, importlib.util\n"
        "class Block:\n    def find_spec(self, name, path=None, target=None):\n        if name.split('.')[0] == 'workbench': raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        f"spec = importlib.util.spec_from_file_location('candidate', {str(path)!r}); m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)\n"
        "model = m.ModelNew(); print(type(model).__mro__[1].__name__, [n for n in sys.modules if n.startswith('workbench')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout.strip() == "Module []"
    with pytest.raises(UserError, match="exists and differs"):
        path.write_text("mine")
        session.export("best", path)
