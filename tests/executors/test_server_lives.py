"""The parent's side of the worker server, and what the server has imported when."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from workbench import evaluate, problems
from workbench.codegen import compile_program
from workbench.errors import ProblemError
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.client import Server
from workbench.executors.jobs.folder import end_failure, read_reply
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Candidate, Failure, Job, Problem
from workbench.session import Session
from workbench.wire import to_plain


def test_the_server_outlives_the_thread_that_asked_for_it() -> None:
    """Sessions have threads of their own, which end with them; the server is all sessions'."""
    made: list[Server] = []

    def ask() -> None:
        made.append(Server())
        made[0].ready.wait(120)  # by now the server has asked the kernel to end with its parent

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    (server,) = made
    try:
        time.sleep(0.3)
        assert server.ready.is_set() and not server.problem and server.alive
    finally:
        server.close()
    assert server.process.returncode is not None


def test_an_inspection_needs_no_cute_dsl(tmp_path: Path) -> None:
    """What only candidates need is imported when the first one is asked for, or announced."""
    server = Server()
    try:
        (tmp_path / "given").mkdir()
        (tmp_path / "given" / "problem.json").write_text(json.dumps(to_plain(problems.load("relu"))))
        end = server.wait(server.start_job("inspect", str(tmp_path), wall_s=120))
        assert "opened" in read_reply(tmp_path, "inspect", end)
        assert not _has_loaded_cute_dsl(server)
        server.prepare("candidate")
        server.wait(server.start_job("inspect", str(tmp_path), wall_s=120))  # after what was announced
        assert _has_loaded_cute_dsl(server)
    finally:
        server.close()


def _has_loaded_cute_dsl(server: Server) -> bool:
    return any("cutlass" in one.path for one in psutil.Process(server.process.pid).memory_maps())


def test_a_fault_of_a_worker_is_in_its_output(tmp_path: Path) -> None:
    server = Server()
    try:
        end = server.wait(server.start_job("inspect", str(tmp_path / "missing"), wall_s=60))
        failure = end_failure(SimpleNamespace(memory_limit_bytes=0), end)
        assert failure.kind == "early_exit" and "FileNotFoundError" in failure.message
    finally:
        server.close()


def test_where_the_reference_ends_its_process_the_case_is_named(tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(
        "import os\n\nimport torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        if x.dtype == torch.float64 and x.shape[1] % 2:\n            os.abort()\n"
        "        return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.rand(4096, 4096)]\n"
    )
    with (
        Session.create(str(tmp_path / "fragile.py"), root=tmp_path, executor="emulator") as session,
        pytest.raises(ProblemError, match="the reference process ended without an answer at case odd"),
    ):
        session.generate()


def test_a_problem_that_never_answers_is_named_with_the_seconds(tmp_path: Path) -> None:
    end = {"limit_s": 90.0, "output": ""}
    with pytest.raises(ProblemError, match=r"no answer within 90 s \(the inspect process\).*--set NAME=VALUE"):
        read_reply(tmp_path, "inspect", {**end, "end": "cpu"})
    with pytest.raises(ProblemError, match=r"the inspect process ended without an answer \(exit\)"):
        read_reply(tmp_path, "inspect", {**end, "end": "exit"})


def test_a_class_that_is_no_module_is_named() -> None:
    failure = judge("import torch\n\nclass ModelNew:\n    pass\n", problems.load("relu"))
    assert (failure.stage, failure.kind, failure.message) == ("import", "no_model", "ModelNew is no torch.nn.Module")


ABORTS = "import os\nimport torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        os.abort()\n"


def test_a_process_that_dies_of_a_signal_names_the_candidates_line() -> None:
    failure = judge(ABORTS, problems.load("relu"))
    assert (failure.stage, failure.kind, failure.line) == ("run", "signal", 6)
    assert failure.message == "the candidate's process died of SIGABRT"


def test_where_the_compiler_ends_its_process_it_is_named_and_the_line() -> None:
    """24 threads along a row of 96 elements leave 5 of 128 for each of 32 columns: CuTe DSL aborts."""
    problem = problems.load("matmul", precision="tf32")
    facts = WorkerInspector().inspect(problem)
    program = "gemm(a, b) .arch(sm_80) .mma(tf32) .stages(2) .tile(64, 96, 32)"
    source = compile_program(program, binding_of(problem, facts, recognise(facts)))
    broken = source.replace("across = math.gcd(", "across = min(")
    assert broken != source
    failure = judge(broken, problem)
    assert (failure.stage, failure.kind) == ("compile", "signal") and failure.line is not None
    assert failure.message == "the compiler of CuTe DSL ended its process (SIGABRT) at this line"
    assert "partition_D(sX)" in broken.splitlines()[failure.line - 1]


def judge(source: str, problem: Problem) -> Failure:
    job = Job(
        problem=problem,
        facts=WorkerInspector().inspect(problem),
        candidate=Candidate(source=source),
        arch="sm_80",
        cases=("shrunk",),
        memory_limit_bytes=3 << 29,
        full_sample=False,
    )
    failure = evaluate.evaluate(job, EmulatorExecutor()).verdict.failure
    assert failure is not None
    return failure
