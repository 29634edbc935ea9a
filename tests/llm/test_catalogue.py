"""Every mistake of mistakes.toml is really made: compiled, emulated, checked.

The workbench reports what was recorded, and the catalogue's first guide is the one for it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mistakes.run import FOLDER, PROBLEMS, job_of, mistakes, source_of

from workbench.errors import UserError
from workbench.executors.emulator import EmulatorExecutor
from workbench.proposers.llm.catalogue import load_guides, select
from workbench.records import Candidate, Failure
from workbench.wire import from_plain

ALONE = tuple(name for name, entry in mistakes().items() if entry.get("alone"))
CORRECT = [*PROBLEMS, *[f"{name}.cured" for name, entry in mistakes().items() if "cured" in entry]]


def made(names: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A process that makes these mistakes one after the other, its replies in `folder`."""
    folder.mkdir()
    (folder / "names.json").write_text(json.dumps(names))
    return subprocess.Popen(
        [sys.executable, str(FOLDER / "run.py"), str(folder / "names.json"), str(folder / "replies.jsonl")],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "said").open("wb"),
    )


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Failure | None]:
    """The workbench's report of each that a selected test asks for, from two processes side by side
    if there are many.

    One that takes its process down gets a worker of its own.
    """
    root = tmp_path_factory.mktemp("mistakes")
    asked = [item.callspec.params["name"] for item in request.session.items if "failures" in _fixtures(item)]
    together = [name for name in dict.fromkeys(asked) if name not in ALONE]
    parts = 2 if len(together) > 10 else 1  # the start of a process costs seconds
    started = [made(together[part::parts], root / f"part{part}") for part in range(parts)]
    ended = [process.wait(300) for process in started]
    assert not any(ended), [(root / f"part{part}" / "said").read_text()[-2000:] for part in range(parts)]
    found: dict[str, Failure | None] = {}
    for replies in root.glob("part*/replies.jsonl"):
        for line in replies.read_text().splitlines():
            name, failure = json.loads(line)
            found[name] = from_plain(failure, Failure) if failure else None
    for name in set(asked) & set(ALONE):
        base, (job, _) = name.partition(".")[0], job_of(name.partition(".")[0])
        found[name] = (
            EmulatorExecutor()
            .run(dataclasses.replace(job, candidate=Candidate(source=source_of(base, mistakes()[name]["wrong"]))))
            .failure
        )
    return found


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


def test_there_are_enough_of_each() -> None:
    assert len(CORRECT) > 20
    assert len(mistakes()) >= 40 and len(load_guides()) >= 40
    assert {entry["guide"] for entry in mistakes().values()} == {
        guide.name for guide in load_guides()
    }  # no guide without a mistake that provokes it
    assert all(guide.cause and guide.cure and guide.fix for guide in load_guides())


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CORRECT)
def test_the_bases_and_the_cured_are_correct(name: str, failures: dict[str, Failure | None]) -> None:
    assert failures[name] is None


@pytest.mark.few(2)
@pytest.mark.parametrize("name", mistakes())
def test_the_guide_is_selected(name: str, failures: dict[str, Failure | None]) -> None:
    entry, failure = mistakes()[name], failures[name]
    assert failure is not None, "the mistake went unnoticed"
    said = f"{failure.stage}/{failure.kind}: {failure.message}"
    assert re.fullmatch(".*".join(map(re.escape, entry["said"].split("*"))), said, re.DOTALL), said
    found = select(failure, source_of(name.partition(".")[0], entry["wrong"]), arch="sm_80")
    assert [guide.name for guide in found][:1] == [entry["guide"]], (failure, found)


def test_the_fix_of_a_guide_is_in_a_kernel_that_passes() -> None:
    kernels = [source_of(base, []) for base in PROBLEMS] + [
        source_of(name.partition(".")[0], entry["cured"]) for name, entry in mistakes().items() if "cured" in entry
    ]
    missing = [
        guide.name
        for guide in load_guides()
        if not any(" ".join(guide.fix.split()) in " ".join(kernel.split()) for kernel in kernels)
    ]
    assert missing == []


def test_an_own_catalogue_wins_and_a_broken_one_is_named(tmp_path: Path) -> None:
    failure = Failure(stage="check", kind="wrong_result", message="wrong")
    (tmp_path / "catalogue.toml").write_text('[mine]\nstage = "check"\ncause = "c"\ncure = "d"\n')
    assert [guide.name for guide in select(failure, folder=tmp_path)] == ["mine"]
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "catalogue.toml").write_text('[mine]\nmessage = "("\ncause = "c"\ncure = "d"\n')
    with pytest.raises(UserError, match=r"\[mine\] cannot be used"):
        select(failure, folder=broken)
