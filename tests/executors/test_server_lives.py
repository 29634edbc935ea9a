"""The parent's side of the worker server, and what the server has imported when."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from workbench import problems
from workbench.errors import ProblemError
from workbench.executors.jobs.client import Server
from workbench.executors.jobs.folder import end_failure, read_reply
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
