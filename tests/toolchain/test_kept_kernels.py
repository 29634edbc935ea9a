"""A second run of the same source compiles nothing, and no source gets the entries of another one."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from workbench import problems
from workbench.executors import choose
from workbench.executors.full_size import FullSizeRun
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.client import server
from workbench.proposers.planner import Planner
from workbench.protocols import PLAIN
from workbench.records import Ask, Candidate, Job, Outcome, Proposal
from workbench.toolchain import compiled
from workbench.toolchain.compiled import CompiledCache


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE", str(tmp_path / "cache"))


def test_a_second_run_compiles_nothing_and_comes_out_the_same() -> None:
    problem = problems.load("row_sum")
    facts = WorkerInspector().inspect(problem)
    source = next(
        item for item in Planner().propose(Ask(problem=problem, facts=facts)) if isinstance(item, Proposal)
    ).candidate.source
    job = Job(problem=problem, facts=facts, candidate=Candidate(source=source), trials=1, full_sample=False)
    outcomes = [
        choose("emulator").run(dataclasses.replace(job, candidate=Candidate(source=text)), PLAIN)
        for text in (source, source, source + "\n# another\n")
    ]

    def compiling(outcome: Outcome) -> float:
        return dict(outcome.phases)["compiling"]

    assert all(outcome.failure is None and outcome.checks for outcome in outcomes)
    assert compiling(outcomes[0]) > 0 and compiling(outcomes[1]) == 0 and compiling(outcomes[2]) > 0
    first, second = outcomes[:2]
    ptx = [re.sub(r"cutegen-job-\w+", "", build.ptx) for outcome in (first, second) for build in outcome.builds]
    assert ptx[0] == ptx[1] and "candidate.py" in ptx[0] and second.builds[0].registers == first.builds[0].registers
    assert second.launches[0].lines == first.launches[0].lines != ()


def test_what_the_run_at_full_size_compiled_is_not_compiled_for_the_small_cases() -> None:
    problem = problems.load("relu")
    facts = WorkerInspector().inspect(problem)
    source = next(
        item for item in Planner().propose(Ask(problem=problem, facts=facts)) if isinstance(item, Proposal)
    ).candidate.source
    job = Job(problem=problem, facts=facts, candidate=Candidate(source=source), trials=1, full_sample=False)
    with FullSizeRun(dataclasses.replace(job, full_sample=True), server()) as full:
        outcome = full.add_to(Outcome(executor="emulator", arch=job.arch, device=job.device), None)
    assert outcome.full_launches and outcome.full_builds
    outcome = choose("emulator").run(job, PLAIN)
    assert outcome.failure is None and dict(outcome.phases)["compiling"] == 0


def files(folder: Path, **named: bytes) -> Path:
    folder.mkdir(parents=True)
    for name, data in named.items():
        (folder / f"{'0' * 63}{name[-1]}.{name[:-1]}").write_bytes(data)
    return folder


def test_a_cache_is_for_one_source_and_one_architecture(tmp_path: Path) -> None:
    CompiledCache("a", "sm_80").add_from(files(tmp_path / "left", mlir1=b"x", ptx1=b"y"))
    for n, (source, arch) in enumerate((("b", "sm_80"), ("a", "sm_90a"))):
        CompiledCache(source, arch).copy_to(tmp_path / str(n))
        assert not (tmp_path / str(n)).exists()
    CompiledCache("a", "sm_80").copy_to(tmp_path / "given")
    assert sorted(path.suffix for path in (tmp_path / "given").iterdir()) == [".mlir", ".ptx"]


def test_an_entry_is_not_overwritten(tmp_path: Path) -> None:
    CompiledCache("a", "sm_80").add_from(files(tmp_path / "left", mlir1=b"first"))
    CompiledCache("a", "sm_80").add_from(files(tmp_path / "later", mlir1=b"second"))
    assert [path.read_bytes() for path in CompiledCache("a", "sm_80").folder.iterdir()] == [b"first"]


@pytest.mark.parametrize("what", ["link", "name", "pipe", "size", "folder"])
def test_only_regular_files_with_entry_names_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    left = files(tmp_path / "left", mlir1=b"fine")
    bad = left / f"{'1' * 64}.mlir"
    if what == "link":
        bad.symlink_to(tmp_path / "secret")
    elif what == "name":
        (left / "evil.py").write_text("")
    elif what == "pipe":
        os.mkfifo(bad)
    elif what == "size":
        monkeypatch.setattr(compiled, "ENTRY_BYTES", 10)
        bad.write_bytes(b"x" * 11)
    else:
        bad.mkdir()
    CompiledCache("a", "sm_80").add_from(left)
    assert [path.read_bytes() for path in CompiledCache("a", "sm_80").folder.iterdir()] == [b"fine"]


def test_the_sources_unused_for_longest_are_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "CACHE_BYTES", 250)
    for n, source in enumerate("abc"):
        CompiledCache(source, "sm_80").add_from(files(tmp_path / source, mlir1=b"x" * 100))
        os.utime(CompiledCache(source, "sm_80").folder, (n, n)) if source != "c" else None
    assert [CompiledCache(source, "sm_80").folder.exists() for source in "abc"] == [False, True, True]
