"""Every bad candidate gives its own clear failure; this process lives; no process and no file is left."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import psutil
import pytest

from workbench import problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.client import server
from workbench.records import Candidate, Facts, Job, Problem

CORPUS = sorted((Path(__file__).parent.parent / "corpus").glob("*.py"))
# ended in the same place as another: by an index, a sign, an exit status or an `except` that differs
ALIKE = {
    *("fault_swallowed_by_torch", "negative_index", "os_exit_7", "wrong_sign"),
    # refused by the same filter of system calls, each by its number
    *("bpf_program", "keyring", "memory_file", "mount_over", "perf_events", "system_v_memory", "userfaultfd"),
    *("datagram_pair", "process_memory"),
    # the emulator's own limit of steps, which its own tests reach sooner
    "device_loop",
    # the same limit, reached in another way
    *("disk_without_a_name", "files_without_end", "fork_bomb", "memory_given_back"),
    # the same check of what was replaced, and of the reply
    *("replaced_code", "replaced_launches", "replaced_output_writer", "reply_is_a_link"),
    # the same check of the outputs, or of a name
    *("wrong_result", "undefined_in_kernel", "returns_none"),
}
CASES = [pytest.param(path, marks=[pytest.mark.slow] * (path.stem in ALIKE), id=path.stem) for path in CORPUS]


@pytest.fixture(scope="module")
def subject() -> tuple[Problem, Facts]:
    problem = problems.load("relu", settings=(("batch_size", 31), ("dim", 63)))
    return problem, WorkerInspector().inspect(problem)


@pytest.mark.parametrize("path", CASES)
def test_candidate(path: Path, subject: tuple[Problem, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    problem, facts = subject
    source = path.read_text()
    expected = dict(re.findall(r"(\w+)=(\S+)", source.splitlines()[0]))
    job = Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=source),
        cases=("shrunk",),
        wall_limit_s=3.0 if path.stem == "host_loop" else 60.0,
        memory_limit_bytes=3 << 29,
        full_sample="correct" in source.splitlines()[0],  # only then does it count
    )
    outcome = EmulatorExecutor().run(job)
    if "correct" in source.splitlines()[0]:
        assert outcome.failure is None, outcome.failure
        return
    failure = outcome.failure
    assert failure is not None
    said = {"stage": failure.stage, "kind": failure.kind, "line": str(failure.line)}
    assert {key: said[key] for key in expected} == expected, failure
    assert failure.message and "\n" not in failure.message and "\x1b" not in failure.message
    workers = psutil.Process(server().process.pid)
    _, alive = psutil.wait_procs(workers.children(recursive=True), timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    assert not list(tmp_path.iterdir()) and not Path("/tmp/cutegen-evil").exists()


def test_there_are_at_least_thirty_kinds() -> None:
    assert len(CORPUS) > 40


def test_the_parent_says_which_layers_of_the_sandbox_were_active(subject: tuple[Problem, Facts]) -> None:
    problem, facts = subject
    forged = '["phases"]["import"] = float("nan")'
    source = next(path for path in CORPUS if path.stem == "forged_phases").read_text()
    source = source.replace(forged, '["protections"] = ["Fort Knox"]')
    assert "Fort Knox" in source
    outcome = EmulatorExecutor().run(
        Job(problem=problem, facts=facts, candidate=Candidate(source=source), cases=("shrunk",), trials=1)
    )
    assert outcome.failure is None
    assert "watchdog" in outcome.protections and "Fort Knox" not in outcome.protections
