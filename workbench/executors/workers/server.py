"""The warm worker server: imports torch once, then forks one confined child for each job.

`python -m workbench.executors.workers.server FD`. What only some roles need (CuTe DSL, what traces a problem) is
imported once too, before the first job of such a role.

Protocol on the socket: one JSON object per line. In: {"id", "role", "folder", "wall_s", "cpu_s", "memory_bytes",
"output_bytes", "disk_bytes", "processes", "connected"} (with "trusted", none of the limits is enforced), {"kill": id},
or {"prepare": role} to import what a role needs before its first job. If "connected" is true, a file descriptor comes
with the line: a socket that the job's worker inherits (jobs/rpc.py).

Out: {"id", "end", "code", "signal", "output", "notes", "peak_bytes", "protections", "limit_s", "limit_bytes"}:
protections are the layers of the sandbox that were active, end is "exit", "signal", "wall", "cpu", "memory", "disk",
"output", "processes" or "killed". `notes` is what a candidate's process noted while it ran (jobs/journal.py).
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import functools
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest import mock

from workbench.executors.jobs import replaced, rpc, sandbox, seccomp, usage
from workbench.executors.jobs.journal import Notes
from workbench.wire import Json, prepare_conversion

TICK_S, SLOW_TICK_S = 0.03, 0.5
SELDOM, OFTEN = 8, 3  # ticks from one look at files, and at exact memory, to the next
MOVED = 256  # the least number of a worker's end of the status pipe, above all that it inherits otherwise
HANDLES = 16  # the most file descriptors that one read of the socket may bring


@dataclass(slots=True)
class Child:
    """One running job: its warden process, whose death ends the whole namespace, and its output so far."""

    number: int
    pid: int
    output: int
    status: int
    notes: Notes
    deadline: float
    request: Json
    tree: usage.Tree
    text: bytearray = field(default_factory=bytearray)
    reason: str = ""
    peak: int = 0
    ticks: int = 0
    held: int = 0  # bytes of memory in files that have no name


def fork_job(request: Json, connection: int | None = None) -> Child:
    """Fork the warden, which confines itself and forks the worker; the worker's wait status comes back on a pipe.

    The worker alone keeps `connection`, the descriptor of a socket, so that the other end notices its end.
    """
    out_read, out_write = os.pipe()
    status_read, status_write = os.pipe()
    notes_read, notes_write = (end.detach() for end in socket.socketpair())  # not a pipe: see jobs/journal.py
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out_read)
            os.close(status_read)
            os.close(notes_read)
            _warden(request, out_write, status_write, notes_write, connection)
        except BaseException:  # a fault of ours, or of the installation
            traceback.print_exc()
        finally:
            os._exit(sandbox.WORKER_FAILED)
    os.close(out_write)
    os.close(status_write)
    os.close(notes_write)
    if connection is not None:
        os.close(connection)
    os.set_blocking(out_read, False)
    os.set_blocking(notes_read, False)
    deadline = time.monotonic() + request["wall_s"]
    return Child(request["id"], pid, out_read, status_read, Notes(notes_read), deadline, request, usage.Tree(pid))


def _warden(request: Json, out: int, status: int, notes: int, connection: int | None) -> None:
    sandbox.die_with_parent()
    os.setsid()
    sandbox.adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    confined = request["role"] in sandbox.CONFINED
    seccomp.leave_keyring()
    left = sandbox.Left()
    if confined:
        gpu = request.get("device") == "cuda"
        if request.get("user_namespace", True):
            # programs that are started as two users at once are not given TMPDIR, which nvdisasm needs
            user = not request.get("tools") and sandbox.leave_root()
            flags = sandbox.NEW_NET if gpu else sandbox.NEW_NET | sandbox.NEW_IPC | sandbox.NEW_PID
            left = sandbox.Left(sandbox.unshare(flags) or sandbox.unshare(sandbox.NEW_NET), user)
        else:
            left = sandbox.Left(sandbox.unshare(sandbox.NEW_NET, user=False))
    init = os.fork() if confined else 0  # the first process of a namespace; without one the warden does its work
    if init == 0:
        if confined:
            sandbox.die_with_parent()
        worker = os.fork()
        if worker == 0:
            sandbox.die_with_parent()
            report, notes = _keep_only(connection, status, notes)
            _start_torch_threads()
            _work(request, left, report, notes)
            os._exit(0)
        if connection is not None:
            os.close(connection)
        _reap(worker, status)
        if confined:
            os._exit(0)
    else:
        if connection is not None:
            os.close(connection)
        os.close(status)
        os.waitpid(init, 0)
    usage.end_orphans()
    os._exit(0)


def _keep_only(connection: int | None, status: int, notes: int) -> tuple[int, int]:
    """Close every descriptor but standard input, output, error, the connection, `status` and `notes`.

    The latter two have other numbers then, which are returned.
    """
    moved = fcntl.fcntl(status, fcntl.F_DUPFD, MOVED)
    noted = fcntl.fcntl(notes, fcntl.F_DUPFD_CLOEXEC, moved + 1)
    first = rpc.INHERITED_HANDLE
    if connection is not None:
        os.dup2(connection, first)
        first += 1
    os.closerange(first, moved)
    os.closerange(moved + 1, noted)
    os.closerange(noted + 1, os.sysconf("SC_OPEN_MAX"))
    return moved, noted


def _start_torch_threads() -> None:
    """Start torch's pool of threads now. After a fork, torch starts it at the first use.

    That is not safe: when several threads used it first at the same time, one of them found no pool.
    """
    import torch

    torch.set_num_threads(torch.get_num_threads())


def _reap(worker: int, status: int) -> None:
    """Wait for the worker, reap the rest, report. When a namespace's init leaves afterwards, all else in it ends."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, code = os.wait()
            if pid == worker:
                os.write(status, str(code).encode())
                return


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Import without the garbage collector: what is imported stays, a collection only takes time, now and in a fork.

    A torch with CUDA says that there is a GPU. It asks no driver (tvm_ffi wants to know): forks would have no CUDA.
    """
    gc.disable()
    torch = sys.modules.get("torch")
    try:
        with mock.patch("torch.cuda.is_available", lambda: torch.version.cuda) if torch else contextlib.nullcontext():
            yield
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def _prepare_inspection() -> None:
    with _importing():
        import torch

        import workbench.problems.inspection  # noqa: F401

        # not with CUDA: the import might start it, and then forked processes could not use it
        if torch.version.cuda is None:
            import torch._dynamo


@functools.cache
def _prepare_candidates() -> None:
    with _importing():
        import workbench.executors.workers.candidate
        import workbench.executors.workers.profile_worker
        import workbench.executors.workers.referee  # noqa: F401
        from workbench.emulator import hook
        from workbench.emulator.compiled import tiering
        from workbench.records import Check, Job, KernelBuild, Launch

        hook.preload()
        tiering.preload()
        prepare_conversion(Job, Launch, KernelBuild, Check)
        replaced.prepare()


def prepare(role: str) -> None:
    """Import what jobs of a role need, before the first one is forked, so that the later ones have it.

    What cannot be imported here is imported again by the job, which reports the error.
    """
    with contextlib.suppress(ImportError, RuntimeError):
        (_prepare_inspection if role == "inspect" else _prepare_candidates)()


def _work(request: Json, left: sandbox.Left, report: int, notes: int) -> None:
    from workbench.executors.workers import worker

    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable()
    worker.main(request, left, report, notes)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()


def watch(child: Child) -> None:
    """Enforce wall and CPU time, memory, bytes written, number of processes and amount of output."""
    request = child.request
    if child.reason or request.get("trusted"):
        return
    if time.monotonic() > child.deadline:
        child.reason = "wall"
    elif len(child.text) > request["output_bytes"]:
        child.reason = "output"
    else:
        count, resident, spent_s = child.tree.resident_and_seconds()
        if count > request["processes"]:
            child.reason = "processes"
        elif spent_s > request["cpu_s"]:
            child.reason = "cpu"
        else:
            child.reason = _watch_bytes(child, resident)
    if child.reason:
        usage.kill_tree(child.pid)


def _watch_bytes(child: Child, resident: int) -> str:
    """Return "memory" or "disk" if more is used than is allowed, else "".

    Resident memory counts shared pages again in each process. Only if that is too much, the proportional share is read,
    which takes longer.
    """
    request, child.ticks = child.request, child.ticks + 1
    if child.ticks % SELDOM == 0 and request["role"] in sandbox.CONFINED:
        child.held, unlinked = usage.held_files(child.tree.members, mappings=request.get("device") != "cuda")
        written = usage.folder_bytes(f"{request['folder']}/scratch", request["disk_bytes"])
        if written + unlinked > request["disk_bytes"]:
            return "disk"
    used = resident + child.held
    if used > request["memory_bytes"]:
        if child.ticks % OFTEN:
            return ""
        share, in_memory = usage.shared_bytes(child.tree.members)
        used = share - in_memory + max(in_memory, child.held)
    child.peak = max(child.peak, used)
    return "memory" if used > request["memory_bytes"] else ""


def drain(child: Child) -> None:
    """Read what the job noted and printed; what is printed past the limit is dropped, and `watch` ends the job."""
    child.notes.drain()
    with contextlib.suppress(BlockingIOError, OSError):
        while chunk := os.read(child.output, 1 << 16):
            room = child.request["output_bytes"] + 1 - len(child.text)
            child.text += chunk[: max(room, 0)]
            if room <= 0:
                break


def finish(child: Child) -> Json:
    """The reply for a job whose warden has ended."""
    os.waitpid(child.pid, 0)
    drain(child)
    raw = b""
    with contextlib.suppress(OSError):
        raw = os.read(child.status, 1 << 12)
    os.close(child.output)
    os.close(child.status)
    *said, last = raw.split(b"\n")  # the layers of the sandbox if the worker came so far, and its wait status
    code = int(last) if last else None
    died = os.WTERMSIG(code) if code is not None and os.WIFSIGNALED(code) else None
    end = child.reason or ("killed" if code is None else "signal" if died else "exit")
    if died == signal.SIGXCPU:
        end = "cpu"
    return {
        "id": child.number,
        "end": end,
        "code": os.WEXITSTATUS(code) if code is not None and os.WIFEXITED(code) else None,
        "signal": died,
        "output": bytes(child.text).decode(errors="replace"),
        "notes": child.notes.close(),
        "peak_bytes": child.peak,
        "protections": json.loads(said[0]) if said else [],
        "limit_s": child.request["cpu_s" if end == "cpu" else "wall_s"],
        "limit_bytes": child.request["disk_bytes"],
    }


def _tick(children: dict[int, Child]) -> float | None:
    """How long to wait for news: until there is any, seldom when only trusted processes run, else often."""
    if not children:
        return None
    return SLOW_TICK_S if all(child.request.get("trusted") for child in children.values()) else TICK_S


def serve(channel: socket.socket) -> None:
    """Answer requests until the parent goes away."""
    children: dict[int, Child] = {}
    connections: deque[int] = deque()  # descriptors in the order of the jobs that they belong to
    buffer = b""
    while True:
        wanted: list[socket.socket | int] = [
            channel,
            *[one for child in children.values() for one in (child.output, child.notes.handle)],
        ]
        ready, _, _ = select.select(wanted, [], [], _tick(children))
        for child in list(children.values()):
            drain(child)
            watch(child)
            done = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if done is not None:
                del children[child.number]
                channel.sendall(json.dumps(finish(child)).encode() + b"\n")
        if channel in ready:
            data, handles, _, _ = socket.recv_fds(channel, 1 << 16, HANDLES)
            if not data:
                break
            buffer += data
            connections += handles
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                message = json.loads(line)
                if "prepare" in message:
                    prepare(message["prepare"])
                elif "kill" in message:
                    if message["kill"] in children:
                        children[message["kill"]].reason = "killed"
                        usage.kill_tree(children[message["kill"]].pid)
                else:
                    prepare(message["role"])
                    child = fork_job(message, connections.popleft() if message.get("connected") else None)
                    children[child.number] = child
    for child in children.values():
        usage.kill_tree(child.pid)


def main() -> None:
    """Import torch, say that we are ready, serve."""
    sandbox.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        with _importing():
            import torch

            import workbench.executors.workers.worker  # noqa: F401

        torch.set_num_threads(1)
        ready: Json = {"ready": True}
    except Exception as error:
        ready = {"ready": False, "error": f"{type(error).__name__}: {error}"}
    try:
        channel.sendall(json.dumps(ready).encode() + b"\n")
    except BrokenPipeError:  # whoever started us has left in the meantime
        return
    serve(channel)
    os._exit(0)  # Python would unload torch, which takes a third of a second


if __name__ == "__main__":
    main()
