"""A lock for each GPU, by its UUID, in the user's cache folder: sessions on one GPU take turns.

Timing, profiling and calibration hold it alone. Checks of results share it, so that they do not run during a timing.
Compiling needs no turn. Runs share the GPU's memory; one that found too little of it runs again alone (`share_memory`).
A turn is a lock of the kernel on an open file (flock), which ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from workbench.executors.gpu.presence import Gpu, find_gpu
from workbench.protocols import PLAIN, RunContext
from workbench.records import Event

LOOK_S = 0.1  # between two looks at a stop


class GpuTurns:
    """The turns of this process on one GPU, or on its memory. `waited_s` is what it waited for others, in all."""

    def __init__(self, gpu: Gpu, context: RunContext = PLAIN, of: str = "") -> None:
        self.gpu, self.context, self.of = gpu, context, of
        self.path = lock_folder() / f"{gpu.uuid}{'.' * bool(of)}{of}.lock"
        self.waited_s = 0.0

    @contextlib.contextmanager
    def hold(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the GPU, alone or `shared` with others that share it. Raises `Stopped` if the run is stopped."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(file, how)
            except OSError:  # a network file system without locks: there are no turns
                pass
            yield
        finally:
            os.close(file)

    def _wait(self, file: int, how: int) -> None:
        """Wait for the lock, in a thread so that a stop is heeded."""
        start = time.monotonic()
        turn = _Turn(file, how)
        self.context.progress(Event(kind="waiting", message=self.describe_wait()))
        try:
            while not turn.came.wait(LOOK_S):
                self.context.raise_if_stopped()
        except BaseException:
            turn.give_up()
            raise
        finally:
            self.waited_s += time.monotonic() - start

    def describe_wait(self) -> str:
        """A line that says who uses the GPU."""
        users = find_holders(self.path)
        by = f"pid {', '.join(map(str, users))}" if users else "another session"
        return f"waiting for {'memory of ' * bool(self.of)}GPU {self.gpu.number} (used by {by})"


@contextlib.contextmanager
def share_memory(gpu: Gpu, context: RunContext, *, alone: bool = False) -> Iterator[None]:
    """Hold tensors on a GPU beside other runs, or `alone`: after those at work, before those that come later."""
    with contextlib.ExitStack() as held:
        with GpuTurns(gpu, context, "queue").hold():  # who waits here comes after the one that waits for the memory
            held.enter_context(GpuTurns(gpu, context, "memory").hold(shared=not alone))
        yield


def take_turn(context: RunContext = PLAIN) -> contextlib.AbstractContextManager[None]:
    """Hold the GPU at hand alone, if there is one, during a block."""
    found = find_gpu()
    return contextlib.nullcontext() if isinstance(found, str) else GpuTurns(found, context).hold()


class _Turn(threading.Thread):
    """Waits for a lock as the kernel does, first come first served; a turn that was given up is passed on."""

    def __init__(self, file: int, how: int) -> None:
        super().__init__(name="cutegen-turn", daemon=True)
        self.file, self.how = os.dup(file), how
        self.came = threading.Event()
        self.guard, self.left = threading.Lock(), False
        self.start()

    def run(self) -> None:
        """Wait for the lock. It belongs to the open file, which this duplicate shares with the caller's."""
        with contextlib.suppress(OSError):
            fcntl.flock(self.file, self.how)
        with self.guard:
            if self.left:
                fcntl.flock(self.file, fcntl.LOCK_UN)
            os.close(self.file)
            self.came.set()

    def give_up(self) -> None:
        """Release the lock as soon as it comes."""
        with self.guard:
            self.left = True


def lock_folder() -> Path:
    """cutegen/gpus in the user's cache folder, else in the folder for temporary files if that cannot be written."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = (given if given.is_absolute() else Path.home() / ".cache") / "cutegen" / "gpus"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    folder = Path(tempfile.gettempdir()) / f"cutegen-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def find_holders(path: Path) -> tuple[int, ...]:
    """The ids of the processes that hold the lock of a file, by /proc/locks; () where it cannot be told."""
    found = []
    with contextlib.suppress(OSError):
        status = path.stat()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[5] == place and words[4].isdigit():
                found.append(int(words[4]))
    return tuple(dict.fromkeys(pid for pid in found if pid > 0))
