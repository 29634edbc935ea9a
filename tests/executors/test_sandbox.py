"""Each layer of the sandbox, tried in a child: it refuses what it must, and what a candidate needs still works."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workbench.executors import protections
from workbench.executors.jobs import sandbox, seccomp
from workbench.executors.jobs.folder import JobFolder

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


def test_the_kernel_limits_the_processes_of_a_job_also_those_of_root() -> None:
    def start_many() -> str:
        left = sandbox.leave_root()
        if not (sandbox.unshare(sandbox.NEW_NET) and sandbox.counts_by_namespace()) and not left:
            return "cannot be"
        sandbox.drop_capabilities()
        if not sandbox.limit_processes(alone=True):
            return "not enforced"
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        started: list[int] = []
        try:
            while len(started) < 2 * most:
                started.append(os.posix_spawn("/bin/sleep", ["sleep", "30"], {}))  # a fork of all this takes longer
        except BlockingIOError:
            return f"{len(started) < most}"
        finally:
            for child in started:
                os.kill(child, signal.SIGKILL)
        return "no limit"

    said = in_child(start_many)
    if said == "cannot be":
        pytest.skip("no user namespaces, and not root")
    assert said == "True"


def test_refused_calls_end_with_an_error_and_the_rest_works() -> None:
    if seccomp.why_not():
        pytest.skip(seccomp.why_not())

    def use() -> str:
        assert seccomp.refuse_calls()
        said = []
        for call in (
            lambda: socket.socket(socket.AF_UNIX),
            lambda: socket.socket(socket.AF_INET),
            lambda: os.setresuid(0, 0, 0),
            lambda: os.memfd_create("x"),
        ):
            try:
                call()
            except PermissionError:
                said.append("refused")
        mine, theirs = socket.socketpair()
        mine.sendall(b"works")
        done = subprocess.run(["/bin/echo", "here"], capture_output=True, check=True).stdout
        with ThreadPoolExecutor(2) as pool:
            total = sum(pool.map(int, ("1", "2")))
        return f"{len(said)} refused, {theirs.recv(9)!r} {done!r} {total}"

    assert in_child(use) == r"4 refused, b'works' b'here\n' 3"


def test_a_sealed_descriptor_stays_open_and_what_it_was() -> None:
    if seccomp.why_not():
        pytest.skip(seccomp.why_not())

    def use() -> str:
        read, write = os.pipe()
        other = os.open(os.devnull, os.O_WRONLY)
        assert seccomp.refuse_calls(sealed=write)
        said = 0
        for call in (lambda: os.close(write), lambda: os.dup2(other, write), lambda: os.dup2(other, write, False)):
            try:
                call()
            except PermissionError:
                said += 1
        os.closerange(write, write + 1)
        assert os.write(write, b"held") == len(os.read(read, 9))
        os.close(other)  # others are closed as ever
        done = subprocess.run(["/bin/echo", "here"], capture_output=True, check=True).stdout
        return f"{said} {done!r}"

    assert in_child(use) == r"3 b'here\n'"


def carry_out(program: list[seccomp.Instruction], architecture: int, number: int, *arguments: int) -> int:
    """What a filter returns for a system call, by the rules of classic BPF."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    at = value = 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        if code == seccomp.LOAD:
            (value,) = struct.unpack_from("<I", data, constant)
        elif code == seccomp.AND:
            value &= constant
        elif code == seccomp.RETURN:
            return constant
        else:
            found = {
                seccomp.JUMP_EQUAL: value == constant,
                seccomp.JUMP_ABOVE: value >= constant,
                seccomp.JUMP_SET: bool(value & constant),
            }[code]
            at += if_true if found else if_false


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_refuses_what_is_listed_on_each_architecture(machine: str) -> None:
    column, audit, _ = seccomp.MACHINES[machine]
    denied = [one[column] for one in seccomp.ALWAYS.values() if one[column] is not None]
    program = seccomp.make_filter(audit, column, denied, (socket.AF_INET,))
    refused = seccomp.ERRNO | errno.EPERM
    numbers = {name: both[column] for name, both in seccomp.CHECKED.items()}
    assert {carry_out(program, audit, number) for number in denied} == {refused}
    assert carry_out(program, 0x4000_0003, denied[0]) == refused  # 32-bit x86 has other numbers
    for name, arguments, allowed in (
        ("clone", (0x0120_0011,), True),  # a fork
        ("clone", (0x1000_0011,), False),  # with a user namespace
        ("socket", (socket.AF_INET, socket.SOCK_STREAM), True),
        ("socket", (socket.AF_UNIX, socket.SOCK_STREAM), False),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_STREAM), True),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC), False),
    ):
        assert (carry_out(program, audit, numbers[name], *arguments) == seccomp.ALLOW) == allowed, name
    sealed = seccomp.make_filter(audit, column, denied, (), sealed=70_000)
    for name, arguments, allowed in (
        ("close", (70_000,), False),
        ("close", (4,), True),
        ("dup2", (4, 70_000), False),
        ("dup2", (70_000, 4), True),
        ("dup3", (4, 70_000, 0), False),
        ("close_range", (3, 69_999), True),
        ("close_range", (3, 70_000), False),
        ("close_range", (70_001, 0xFFFF_FFFF), True),
    ):
        known = {"close_range": seccomp.CLOSE_RANGE}
        for calls in seccomp.CLOSING.values():
            known |= {call: both[column] for call, both in calls.items()}
        if known[name] is not None:  # aarch64 has no dup2
            assert (carry_out(sealed, audit, known[name], *arguments) == seccomp.ALLOW) == allowed, name
    assert carry_out(program, audit, numbers["clone3"]) == seccomp.ERRNO | errno.ENOSYS
    assert carry_out(program, audit, 63) == seccomp.ALLOW  # uname, read


def test_what_a_machine_lacks_is_named_by_the_parent() -> None:
    assert sandbox.list_missing(["watchdog", sandbox.LANDLOCK, sandbox.NAMESPACES]) == ("limit of processes", "seccomp")
    assert sandbox.list_missing([*sandbox.LAYERS, "watchdog"]) == sandbox.list_missing([]) == ()


@pytest.mark.parametrize("closed", [0o700, 0])
def test_a_jobs_folder_goes_whatever_lies_in_it(tmp_path: Path, closed: int) -> None:
    """Folders that are deeper than Python's recursion, and closed ones."""
    outside = tmp_path / "outside"
    outside.mkdir()
    with JobFolder(place=tmp_path) as name:
        made = [os.open(name, os.O_RDONLY)]
        for _ in range(2000):
            os.mkdir("d", dir_fd=made[-1])
            made.append(os.open("d", os.O_RDONLY, dir_fd=made[-1]))
            os.close(made.pop(0))
        os.symlink(outside, "link", dir_fd=made[-1])
        os.close(made.pop())
        os.chmod(f"{name}/d", closed)
    assert os.listdir(tmp_path) == ["outside"]
