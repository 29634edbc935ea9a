"""What a candidate noted is summed up as it was written; what cannot be read is a failure, never a success."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from workbench import problems
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.journal import Journal, Notes, find_unlike, sum_torch_work
from workbench.executors.jobs.trials import list_runs
from workbench.records import Candidate, Failure, Job, Launch, LineCounts
from workbench.wire import Json

TOTAL = LineCounts(line=0, flops=3, global_read_bytes=8, global_write_bytes=4)
LAUNCH = Launch(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), total=TOTAL)


@pytest.fixture(scope="module")
def job() -> Job:
    problem = problems.load("relu", settings=(("batch_size", 31), ("dim", 63)))
    facts = WorkerInspector().inspect(problem)
    return Job(problem=problem, facts=facts, candidate=Candidate(source=""), cases=("shrunk", "odd"))


def write(place: str, *raw: bytes) -> Json:
    """The notes of a process that noted a launch and two operations at `place`, and wrote `raw` itself."""
    read, handle = os.pipe()
    os.set_blocking(read, False)
    journal, notes = Journal(handle), Notes(read)
    journal.place = place
    journal.note_torch("add", 10, 24, 0)
    journal.note_torch("add", 10, 24, 0)
    journal.note_torch("clone", 0, 0, 5)
    journal.note_launch(LAUNCH)
    for text in raw:
        for at in range(0, len(text), 1 << 15):
            os.write(handle, text[at : at + (1 << 15)])
            notes.drain()
    os.close(handle)
    return notes.close()


def test_work_is_summed_for_a_call_and_launches_have_to_be_those_that_were_noted(job: Job) -> None:
    run = list_runs(job)[0]
    notes = write(run.place)
    (work,) = sum_torch_work(job, notes)
    calls = len(run.values)
    assert (work.case, work.flops, work.bytes, work.copied) == (run.case, 20 // calls, 48 // calls, 5 // calls)
    assert work.operations == ("add",)
    assert find_unlike(job, notes, [LAUNCH]) is None and find_unlike(job, notes, []) is None
    raised = replace(LAUNCH, total=replace(TOTAL, flops=4))
    for answered in ([raised], [LAUNCH, LAUNCH]):
        failure = find_unlike(job, notes, answered)
        assert failure is not None and failure.kind == "bad_reply"


def test_a_fault_counts_unless_the_inputs_of_the_trial_may_be_refused(job: Job) -> None:
    for run in list_runs(job):
        read, handle = os.pipe()
        journal, notes = Journal(handle), Notes(read)
        journal.place = run.place
        journal.note_fault(Failure(stage="run", kind="out_of_bounds", message="one\nline", line=7))
        os.close(handle)
        failure = find_unlike(job, notes.close(), [])
        assert (failure is None) == bool(run.layout or "NaN" in run.values[0])
        assert failure is None or (failure.kind, failure.message, failure.line) == ("out_of_bounds", "one line", 7)


@pytest.mark.parametrize(
    "raw",
    [
        b"[",
        b"[[[[\n",
        b"[" * 5000,
        b'["torch", "x", "add", -1, 0, 0]\n',
        b'["torch", "x", "add", 1e400, 0, 0]\n',
        b'["torch", "x", "add"]\n',
        b'["launch", "x", "k", Infinity, 1]\n',
        b'["torch", "x", "\\ud800", 1, 0, 0]\n',
        b"".join(b'["torch", "x", "%d%s", 1, 0, 0]\n' % (n, b"a" * 4000) for n in range(5000)),
        b'{"a": 1}\n',
        b"[" * 100_0 + b"\n",
        b'["launch", "x"]\n',
        b"\xff\n",
    ],
)
def test_notes_that_cannot_be_read_are_a_failure(job: Job, raw: bytes) -> None:
    failure = find_unlike(job, write(list_runs(job)[0].place, raw), [LAUNCH])
    assert failure is not None and failure.kind == "bad_reply"


def test_a_process_that_cannot_note_ends() -> None:
    _, handle = os.pipe()
    os.close(handle)
    child = os.fork()
    if child == 0:
        Journal(handle).note_torch("add", 1, 1, 0)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70
