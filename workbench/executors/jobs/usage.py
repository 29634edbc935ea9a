"""What the processes of a job hold: memory by proportional share, files in memory, bytes on disk.

Read from /proc by the server, often: the exact figures only where the cheap ones are over a limit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

IN_MEMORY = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")  # names of files that exist in memory only
FILES = 20_000  # in a job's folder; more of them count as too many bytes
KIB = 1024
PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
USER, RESIDENT = 11, 21  # of what follows a process's name in /proc/PID/stat
FULL, FULL_FROM = 8, 500  # looks at a job, and new processes, from which on all processes are looked at
KILL_LIMIT_S = 5.0  # for processes that start others faster than they are killed
Held = dict[tuple[int, int], int]  # bytes of files without a name, by device and inode


def list_tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants; empty if it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class Tree:
    """The processes of a job: its warden and all below it.

    Who was outside stays outside, since an orphan is adopted inside. So only processes younger than the last look are
    looked at, which the kernel's last number names; every FULL looks all processes of the machine are.
    """

    def __init__(self, pid: int) -> None:
        self.root = pid
        self.members: set[int] = set()
        self._looks = 0
        self._seen = [0, 0]  # the last number two looks ago and at the last one: a process may appear a little later

    def look(self) -> list[int]:
        """Those that are there now."""
        last = _last_number()
        younger = range(self._seen[0] + 1, last + 1)
        if self._looks % FULL == 0 or not 0 <= len(younger) <= FULL_FROM or last < self._seen[1]:
            found = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdecimal()}
            self.members = {self.root}
        else:
            found = {number: _parent(number) for number in younger}
        self._looks, self._seen = self._looks + 1, [self._seen[1], last]
        waiting = {number: parent for number, parent in found.items() if parent}
        while new := {number for number, parent in waiting.items() if parent in self.members} - self.members:
            self.members |= new
        return sorted(self.members)

    def resident_and_seconds(self) -> tuple[int, int, float]:
        """The number of processes, their bytes of resident memory and their seconds of CPU time together."""
        resident, spent = 0, 0
        for number in self.look():
            words = _stat_words(number)
            if words is None:
                self.members.discard(number)
                continue
            spent += int(words[USER]) + int(words[USER + 1])
            resident += int(words[RESIDENT])
        return len(self.members), resident * PAGE, spent / TICKS


def _last_number() -> int:
    """The number of the process or thread that was started last."""
    return int(_read("/proc/loadavg").split()[-1])


def _read(path: str) -> bytes:
    """A small file of /proc. Raises `OSError`."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)


def _stat_words(number: int) -> list[bytes] | None:
    """The fields of a process from its state on; None if it is gone."""
    try:
        return _read(f"/proc/{number}/stat").rpartition(b")")[2].split()
    except OSError:
        return None


def _parent(number: int) -> int:
    """The parent of a process; 0 if there is none, or if the number is that of a thread."""
    try:
        lines = _read(f"/proc/{number}/status").split(b"\n", 8)
    except OSError:
        return 0
    found = {line.partition(b":")[0]: line.partition(b":")[2] for line in lines[:8]}
    return int(found[b"PPid"]) if int(found[b"Tgid"]) == number else 0


def kill_tree(pid: int) -> None:
    """Kill a job's processes, and last its warden `pid`, which adopts those whose parents are gone.

    With a process namespace, the death of its init takes every process along.
    """
    with contextlib.suppress(OSError):  # before the tree is looked for, which takes long among processes that fork
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    deadline = time.monotonic() + KILL_LIMIT_S
    while time.monotonic() < deadline:
        below = [process for process in list_tree(pid)[1:] if _is_alive(process)]
        if not below:
            break
        for process in below:  # those that stop start no others meanwhile
            with contextlib.suppress(psutil.Error):
                process.suspend()
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.001)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


def end_orphans() -> None:
    """Kill the processes that a worker left. Without a process namespace (CUDA) its warden, this one, adopted them."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:  # none is left, as nearly always; a look at all processes takes longer
        return
    me = psutil.Process()
    while left := me.children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False


def shared_bytes(tree: Iterable[int]) -> tuple[int, int]:
    """Memory of the processes by proportional share: all of it, and that of files in memory and shared mappings.

    A process that cannot be read counts with its resident memory.
    """
    total = in_memory = 0
    for number in tree:
        try:
            rows = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
            found = {row.split()[0]: int(row.split()[1]) * KIB for row in rows if row.endswith(" kB")}
            total += found["Pss:"]
            in_memory += found.get("Pss_Shmem:", 0)
        except (OSError, KeyError):
            words = _stat_words(number)
            total += int(words[RESIDENT]) * PAGE if words else 0
    return total, in_memory


def _open_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    """The files without a name that a process holds open, with their names before."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                found = os.stat(f"{folder}/{number}")
                if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                    yield os.readlink(f"{folder}/{number}"), found


def _shared_mappings(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Shared mappings of memory, with their sizes: pages that were given back or another process wrote are no
    resident memory of this process.
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, _, device, inode, *name = line.split(maxsplit=5)
            if rights.endswith("s") and name and name[0].startswith(IN_MEMORY):
                first, last = (int(end, 16) for end in place.split("-"))
                major, minor = (int(part, 16) for part in device.split(":"))
                yield (os.makedev(major, minor), int(inode)), last - first


def held_files(tree: Iterable[int], *, mappings: bool) -> tuple[int, int]:
    """Bytes of memory and of disk in files without a name that the processes hold; with `mappings` also the sizes of
    shared mappings, which CUDA makes larger than what it uses.
    """
    memory: Held = {}
    disk: Held = {}
    for number in tree:
        for name, found in _open_files(number):
            place = memory if name.startswith(IN_MEMORY) else disk
            place[found.st_dev, found.st_ino] = found.st_blocks * 512
        for key, size in _shared_mappings(number) if mappings else ():
            memory[key] = max(memory.get(key, 0), size)
    return sum(memory.values()), sum(disk.values())


def folder_bytes(folder: str, most: int) -> int:
    """Bytes of disk below a folder. `most` + 1 if it holds too many files or too deep folders to count."""
    total, seen, waiting = 0, 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if seen > FILES:
                        return most + 1
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.filename is not None and len(error.filename) > 4000:  # a path has 4096 bytes at most
                return most + 1
    return total
