"""Seeds reach a GPU candidate one call at a time, and it learns only afterwards whether the call's output is checked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from workbench import problems
from workbench.executors.handing import WARM_UP, Handing, ask, done, draw, timed_places, trial_places
from workbench.executors.inspector import WorkerInspector
from workbench.records import Candidate, Job


@pytest.fixture(scope="module")
def job() -> Job:
    problem = problems.load("row_sum")
    return Job(problem=problem, facts=WorkerInspector().inspect(problem), candidate=Candidate(source=""), cases=("shrunk",), trials=2, timed_calls=5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    (tmp_path / "scratch").mkdir()
    return tmp_path


def test_every_call_has_its_own_seed_and_two_timed_calls_are_checked(job: Job) -> None:
    places = [*trial_places(job), *timed_places(job, "shrunk")]
    chosen = set()
    for _ in range(40):
        seeds, kept = draw(job)
        assert list(seeds) == places and len(set(seeds.values())) == len(places)
        timed = sorted(kept - set(trial_places(job)))
        assert len(timed) == 2 and all(int(place.rpartition("-")[2]) >= WARM_UP for place in timed)
        chosen |= set(timed)
    assert len(chosen) == job.timed_calls  # chosen anew each time: in 40 draws every timed call is chosen at least once


def test_a_seed_appears_only_when_it_is_due(job: Job, folder: Path) -> None:
    seeds, kept = draw(job)
    handing = Handing(folder, job, seeds, kept)
    handing.start()
    try:
        for place in seeds:
            time.sleep(0.005)
            assert not (folder / "given" / f"seed-{place}").exists()
            assert ask(folder, place) == seeds[place]
            assert not (folder / "given" / f"keep-{place}").exists()
            assert done(folder, place) == (place in kept)
    finally:
        handing.finish()


def test_asking_out_of_turn_gets_no_seed(job: Job, folder: Path) -> None:
    seeds, kept = draw(job)
    handing = Handing(folder, job, seeds, kept)
    handing.start()
    later = list(seeds)[3]
    (folder / "scratch" / f"ask-{later}").write_text("")
    time.sleep(0.05)
    handing.finish()
    assert not list((folder / "given").iterdir())
