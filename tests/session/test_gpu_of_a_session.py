"""A session and its GPU: it is calibrated first, and on another GPU everything is measured again."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_double import FACTS, Double

from tests.executors.fake_gpus import H100, A, plug_in
from workbench.analysis import calibration
from workbench.analysis.calibration import Calibration, Rate
from workbench.errors import Stopped, Unavailable
from workbench.executors.gpu import presence
from workbench.profilers.calibration_process import calibrate_apart
from workbench.protocols import RunContext
from workbench.records import Event, Job, Outcome, Problem, Ratio, Timing
from workbench.session import Session, device
from workbench.views.text import tables
from workbench.wire import to_plain

PROBLEM = Problem(name="p", source="s")


class OnGpu(Double):
    """Measures on the GPU of that name, always the same time, and rivals in the same run."""

    name = "gpu"
    full_size, times_rivals, default_arch = True, True, "sm_90a"

    def __init__(self, gpu: str, seconds: float) -> None:
        self.gpu, self.seconds = gpu, seconds
        self.jobs: list[Job] = []

    def device_name(self) -> str:
        return self.gpu

    def run(self, job: Job, context: RunContext, /) -> Outcome:
        self.jobs.append(job)
        s = self.seconds
        timing = Timing(case="full", device=self.gpu, samples_s=(s,) * 5, median_s=s, low_s=s, high_s=s)
        ratios = (Ratio(against="parent", ratio=1.5, low=1.4, high=1.6),) if job.rival is not None else ()
        return dataclasses.replace(super().run(job, context), timing=timing, ratios=ratios)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "_failed", set())
    yield
    presence.list_gpus.cache_clear()


def made_on(executor: OnGpu, root: Path) -> Path:
    """The folder of a session with two accepted versions that this executor measured."""
    with Session.create(PROBLEM, root=root, executor=executor, facts=FACTS) as session:
        session.accept(session.edit("x = 1\n").number)
        session.accept(session.edit("x = 2\n").number)
        return session.folder


def test_a_session_on_another_gpu_says_so_and_measures_again(tmp_path: Path) -> None:
    folder, there = made_on(OnGpu("H200", 1e-3), tmp_path), OnGpu("H100", 2e-3)
    with Session.open(folder, executor=there) as session:
        said: list[str] = []
        session.subscribe(lambda event: said.append(event.message) if event.kind == "note" else None)
        assert session.device == "H200" and session.best is not None  # to look at it changes nothing
        version = session.edit("x = 3\n")
        assert len(said) == 1 and said[0].startswith("this session was on an H200 and goes on with the H100")
        assert session.device == "H100" and "\n" not in said[0]
        assert [job.rival is not None for job in there.jobs] == [False, True]  # the parent first, then both
        assert [trial.outcome.device for trial in session.version(2).trials] == ["H200", "H100"]
        verdict = version.trials[-1].verdict
        assert verdict.speedup == 1.5  # not 0.5, of the time on the H200
        session.accept(version.number)
        assert session.best is not None and session.best.number != 1  # of 1, which is "faster", nothing is known here
        shown = str(tables.history(session))
        assert "1 ms measured on H200" in shown and shown.count("2 ms measured on H100") == 2
    with Session.open(folder, executor=there) as session:
        assert session.device == "H100"


def test_a_parent_that_was_only_tested_elsewhere_is_no_comparison(tmp_path: Path) -> None:
    """The verdict compares trials of one GPU only, also when a session does not see to it."""
    folder = made_on(OnGpu("H200", 1e-3), tmp_path)
    with Session.open(folder, executor=OnGpu("H100", 2e-3)) as session:
        from workbench import evaluate

        job = dataclasses.replace(session.job(session.version(2)), device="H100")
        parent = session.version(1).trials[-1]
        trial = evaluate.evaluate(job, OnGpu("H100", 2e-3), parent=parent)
        assert trial.verdict.correct and trial.verdict.speedup is None


def test_an_architecture_that_the_new_gpu_does_not_run_is_replaced(tmp_path: Path) -> None:
    folder = made_on(OnGpu("H100", 1e-3), tmp_path)
    with Session.open(folder, executor=OnGpu("A100", 1e-3)) as session:
        session.test(1)
        assert (session.device, session.arch) == ("A100", "sm_80")
        assert any("goes on for sm_80 with the A100" in event.message for event in session.events())


def test_a_reader_follows_in_memory_only(tmp_path: Path) -> None:
    folder = made_on(OnGpu("H100", 1e-3), tmp_path)
    with Session.open(folder, executor=OnGpu("H200", 1e-3), write=False) as session:
        session.replay()
        assert session.device == "H200"
    with Session.open(folder, executor=OnGpu("H100", 1e-3), write=False) as session:
        assert session.device == "H100"


# ---- calibration ------------------------------------------------------------------------------------------------

FOUND = Calibration(device="H100", date="2026-11-26", rates=(Rate(name="copy", value=2.8e12, unit="B/s"),))
SAY = """
import json, os, sys, time
def say(message):
    print(json.dumps(message), flush=True)
print("torch says something")
say({"step": ["copy", 0, 2]})
say({"waiting": "waiting for GPU 0 (used by pid 7)"})
"""


def on_h100(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An H100 is here, and the process that calibrates it runs a script instead."""
    plug_in(monkeypatch, (A, A, "0000:1b:00.0", H100))
    monkeypatch.setattr(device, "calibrate_apart", lambda context: calibrate_apart(context, ("-c", SAY + script)))


def test_the_first_session_on_a_gpu_calibrates_it_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_h100(
        monkeypatch,
        f"assert os.environ['CUDA_VISIBLE_DEVICES'].startswith('GPU-aaaa'); say({{'calibration': "
        f"json.loads({json.dumps(json.dumps(to_plain(FOUND)))})}})",
    )
    said: list[Event] = []
    for number in range(2):
        with Session.create(
            PROBLEM, root=tmp_path / str(number), executor=OnGpu("H100", 1e-3), facts=FACTS, progress=said.append
        ):
            pass
    assert calibration.find("H100") == FOUND
    assert [event.kind for event in said] == ["note", "running", "waiting", "note"]  # once
    assert "the first session on this H100 measures its ceilings" in said[0].message


@pytest.mark.parametrize("how", ["--no-calibrate", "CUTEGEN_CALIBRATE", "another GPU", "fails"])
def test_no_calibration_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    on_h100(monkeypatch, "say({'error': 'no ceiling could be measured'})")
    if how == "CUTEGEN_CALIBRATE":
        monkeypatch.setenv(how, "0")
    executor = OnGpu("A100" if how == "another GPU" else "H100", 1e-3)
    with Session.create(
        PROBLEM, root=tmp_path, executor=executor, facts=FACTS, calibrate=how != "--no-calibrate"
    ) as session:
        assert session.device == executor.gpu and calibration.find("H100") is None
    said = capsys.readouterr().err
    assert ("no ceiling could be measured" in said) == (how == "fails") == ("first session" in said)


def test_a_calibration_that_dies_or_is_stopped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    on_h100(monkeypatch, "")
    with pytest.raises(Unavailable, match="ended with status 3"):
        calibrate_apart(command=("-c", "import sys; sys.exit(3)"))
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Stopped):
        calibrate_apart(RunContext(stop=stop), ("-c", "import time; time.sleep(60)"))


def test_the_process_that_calibrates_tells_why_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one: there is a driver, but torch finds no GPU by it."""
    plug_in(monkeypatch, (A, A, "0000:1b:00.0", H100))
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    with pytest.raises(Unavailable, match="there is nothing to calibrate here: this torch"):
        calibrate_apart()
