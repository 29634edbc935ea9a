"""The parent's side of the worker server: start it on first use, send jobs, wait, stop. One server per process."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

from workbench.errors import Stopped, WorkerLost
from workbench.executors.jobs.sandbox import drop_environment
from workbench.wire import Json

START_LIMIT_S = 180.0
OUTPUT_BYTES = 1 << 20
PROCESSES = 32
DISK_BYTES = 4 << 30
GONE_LIMIT_S = 5.0


class Server:
    """A running worker server. `start_job` and `wait` may be called from any thread."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self.channel = mine
        self.owner = os.getpid()
        self.numbers = itertools.count(1)
        self.replies: dict[int, queue.Queue[Json]] = {}
        self.lock = threading.Lock()
        self.reader = mine.makefile("rb")
        self.ready = threading.Event()
        self.problem = ""
        born: Future[subprocess.Popen[bytes]] = Future()
        threading.Thread(target=self._follow, args=(theirs, born), name="cutegen-workers", daemon=True).start()
        self.process = born.result()
        theirs.close()

    def _follow(self, theirs: socket.socket, born: Future[subprocess.Popen[bytes]]) -> None:
        """Start the process and stay to its end, because the process dies with the thread that started it."""
        try:
            command = [sys.executable, "-P", "-m", "workbench.executors.workers.server", str(theirs.fileno())]
            born.set_result(
                subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    env=drop_environment(),
                    stdin=subprocess.DEVNULL,
                    cwd="/",
                    process_group=0,  # Ctrl-C in a terminal is for this process only
                )
            )
        except BaseException as error:
            born.set_exception(error)
            return
        self._read()
        born.result().wait()  # it ends its own processes first

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self.reader:
                message = json.loads(line)
                if "ready" in message:
                    self.problem = message.get("error", "")
                    self.ready.set()
                    continue
                with self.lock:
                    waiting = self.replies.get(message["id"])
                if waiting is not None:
                    waiting.put(message)
        self.problem = self.problem or "the worker server ended"
        self.ready.set()
        with self.lock:
            for waiting in self.replies.values():
                waiting.put({"end": "lost"})

    @property
    def alive(self) -> bool:
        """Whether the server process still runs and belongs to this process."""
        return self.process.poll() is None and self.owner == os.getpid()

    def start_job(
        self,
        role: str,
        folder: str,
        *,
        wall_s: float,
        cpu_s: float | None = None,
        memory_bytes: int = 4 << 30,
        disk_bytes: int = DISK_BYTES,
        connection: socket.socket | None = None,
        **extra: object,
    ) -> int:
        """Send a job and return its number for `wait`. Its process inherits `connection`, which stays open here.

        It is killed after `wall_s` seconds, or after `cpu_s` seconds of CPU time; without `cpu_s` both are the same.
        """
        if not self.ready.wait(START_LIMIT_S) or self.problem:
            raise WorkerLost(f"the worker server did not start: {self.problem or 'it took too long'}")
        number = next(self.numbers)
        with self.lock:
            self.replies[number] = queue.Queue()
        message = {
            "id": number,
            "role": role,
            "folder": folder,
            "wall_s": wall_s,
            "cpu_s": wall_s if cpu_s is None else cpu_s,
            "memory_bytes": memory_bytes,
            "output_bytes": OUTPUT_BYTES,
            "disk_bytes": disk_bytes,
            "processes": PROCESSES,
            "connected": connection is not None,
            **extra,
        }
        self._send(message, connection)
        return number

    def prepare(self, role: str) -> None:
        """Let the server import what jobs of a role need as soon as it can, not only with the first such job."""
        with contextlib.suppress(WorkerLost):
            self._send({"prepare": role})

    def _send(self, message: Json, connection: socket.socket | None = None) -> None:
        text = json.dumps(message).encode() + b"\n"
        try:
            with self.lock:
                if connection is not None:  # a descriptor travels with the message's first bytes
                    text = text[socket.send_fds(self.channel, [text], [connection.fileno()]) :]
                self.channel.sendall(text)
        except OSError as error:
            raise WorkerLost(f"the worker server is gone: {error}") from error

    def wait(
        self, number: int, stop: threading.Event | None = None, meanwhile: Callable[[], None] | None = None
    ) -> Json:
        """The job's reply; raises `Stopped` within a second of `stop` being set, and the job is killed.

        `meanwhile` is called a few times a second; the job is killed too if it raises.
        """
        with self.lock:
            waiting = self.replies.get(number)
        if waiting is None:
            raise WorkerLost("the worker server ended before the job did")
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    reply = waiting.get(timeout=0.2)
                    if reply["end"] == "lost":
                        raise WorkerLost("the worker server ended in the middle of a job; run it again")
                    return reply
                if stop is not None and stop.is_set():
                    raise Stopped
                if meanwhile is not None:
                    meanwhile()
        except BaseException:
            self._kill(number, waiting)
            raise
        finally:
            with self.lock:
                self.replies.pop(number, None)

    def is_running(self, number: int) -> bool:
        """Whether a job has not ended yet. `wait` can still read its reply."""
        with self.lock:
            waiting = self.replies.get(number)
        return self.alive and waiting is not None and waiting.empty()

    def cancel(self, number: int) -> None:
        """Kill a job for which nobody waits. Returns when it is gone, so that its folder can be removed."""
        with self.lock:
            waiting = self.replies.get(number)
        if waiting is None:
            return
        try:
            if waiting.empty():
                self._kill(number, waiting)
        finally:
            with self.lock:
                self.replies.pop(number, None)  # only now, because the reply is still needed above

    def _kill(self, number: int, waiting: queue.Queue[Json]) -> None:
        with contextlib.suppress(WorkerLost, queue.Empty):
            self._send({"kill": number})
            waiting.get(timeout=GONE_LIMIT_S)

    def close(self) -> None:
        """End the server and every job."""
        if self.owner != os.getpid():
            return
        if not self.ready.is_set():
            self.process.kill()  # it still imports, so it would not listen for seconds; it has no job yet
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)
        self.channel.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_state: dict[str, Server] = {}
_lock = threading.Lock()


def server() -> Server:
    """The process's worker server, started or restarted as needed."""
    with _lock:
        running = _state.get("server")
        if running is None or not running.alive:
            running = _state["server"] = Server()
        return running


def prepare(role: str) -> None:
    """Let the worker server, if one runs, import what jobs of a role need."""
    with _lock:
        running = _state.get("server")
    if running is not None and running.alive:
        running.prepare(role)


def shutdown() -> None:
    """Stop the worker server if there is one."""
    with _lock:
        running = _state.pop("server", None)
    if running is not None:
        running.close()


atexit.register(shutdown)
