"""Each layer of the sandbox, tried in a child: it refuses what it must, and what a candidate needs still works."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.executors import protections
from workbench.executors.jobs import sandbox

needs_landlock = pytest.mark.skipif(not sandbox.landlock_abi(), reason="this kernel has no Landlock")


def in_child(work: Callable[[], str]) -> str:
    """What `work` returns, or `Type: errno` of the OSError that it raises, in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = work()
        except OSError as error:
            text = f"{type(error).__name__}: {error.errno}"
        except BaseException as error:
            text = repr(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def locked(scratch: Path, work: Callable[[], str]) -> str:
    """`work` under Landlock with only `scratch` writable."""

    def run() -> str:
        assert sandbox.landlock(sandbox.library_paths(), (str(scratch), "/dev/null"))
        return work()

    return in_child(run)


@needs_landlock
def test_landlock_allows_scratch_and_refuses_the_rest(tmp_path: Path) -> None:
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    scratch.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("key")

    def write(path: Path) -> Callable[[], str]:
        return lambda: str(path.write_text("x"))

    assert locked(scratch, write(scratch / "a")) == "1"
    assert locked(scratch, write(outside / "a")).startswith("PermissionError")
    assert locked(scratch, (outside / "secret").read_text).startswith("PermissionError")
    assert locked(scratch, lambda: str(os.rename(scratch / "a", outside / "a"))).startswith(
        ("PermissionError", "OSError")
    )
    assert locked(scratch, lambda: str(len(Path(os.__file__).read_text()) > 0)) == "True"
    assert not (outside / "a").exists()


@pytest.mark.parametrize(
    "flags", [sandbox.NEW_NET, sandbox.NEW_NET | sandbox.NEW_IPC | sandbox.NEW_PID], ids=["cuda", "emulator"]
)
def test_a_candidate_cannot_read_the_environment_of_another_process(flags: int) -> None:
    parent = os.getpid()

    def read() -> str:
        if not sandbox.unshare(flags):
            return "no namespaces"
        with open(f"/proc/{parent}/environ", "rb") as file:
            return f"read {len(file.read())} bytes"

    said = in_child(read)
    if said == "no namespaces":
        pytest.skip("the kernel does not let this user make namespaces")
    assert said.startswith("PermissionError")


@pytest.mark.skipif(sandbox.landlock_abi() < 6, reason="Landlock scopes signals from ABI 6 on")
def test_landlock_refuses_signals_to_the_outside(tmp_path: Path) -> None:
    parent = os.getpid()
    assert locked(tmp_path, lambda: str(os.kill(parent, 0))).startswith("PermissionError")


def test_network_namespace_reaches_nothing() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()

    def connect() -> str:
        if not sandbox.unshare(sandbox.NEW_NET):
            return "no namespaces"
        socket.create_connection(address, timeout=2)
        return "connected"

    said = in_child(connect)
    listener.close()
    if said == "no namespaces":
        pytest.skip("the kernel does not let this user make namespaces")
    assert said.startswith("OSError")


def test_limits_hold(tmp_path: Path) -> None:
    def write() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sandbox.set_limits(cpu_s=5, file_bytes=1000)
        assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
        (tmp_path / "big").write_bytes(bytes(5000))
        return "written"

    assert in_child(write).startswith("OSError")
    assert (tmp_path / "big").stat().st_size <= 1000


def test_child_dies_with_its_parent() -> None:
    read, write = os.pipe()
    middle = os.fork()
    if middle == 0:
        inner = os.fork()
        if inner == 0:
            sandbox.die_with_parent()
            os.write(write, str(os.getpid()).encode())
            time.sleep(60)
            os._exit(0)
        time.sleep(60)
        os._exit(0)
    inner_pid = int(os.read(read, 32))
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b""  # end of file: the grandchild, which holds the other end, is gone
    deadline = time.monotonic() + 50
    while (
        time.monotonic() < deadline
        and Path(f"/proc/{inner_pid}/stat").exists()
        and " Z " not in Path(f"/proc/{inner_pid}/stat").read_text()
    ):
        time.sleep(0.02)
    assert time.monotonic() < deadline


def test_the_environment_of_workers_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    kept = sandbox.drop_environment()
    assert "OPENAI_API_KEY" not in kept
    assert "PATH" in kept


def test_protections_name_every_layer_and_why_not() -> None:
    rows = protections()
    assert {"network namespace", "process namespace", "resource limits", "clean environment"} <= {
        name for name, _, _ in rows
    }
    assert any(name.startswith("Landlock") for name, _, _ in rows)
    assert all(active or why for _, active, why in rows)
