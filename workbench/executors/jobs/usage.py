"""What the processes of a job hold: memory by proportional share, files in memory, bytes on disk.

Read from /proc by the server, often: the exact figures only where the cheap ones are over a limit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

IN_MEMORY = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")  # names of files that exist in memory only
FILES = 20_000  # in a job's folder; more of them count as too many bytes
KIB = 1024
KILL_LIMIT_S = 5.0  # for processes that start others faster than they are killed
Held = dict[tuple[int, int], int]  # bytes of files without a name, by device and inode


def list_tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants; empty if it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def resident_and_seconds(tree: Sequence[psutil.Process]) -> tuple[int, float]:
    """Bytes of resident memory and seconds of CPU time of the processes together."""
    resident, spent_s = 0, 0.0
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            resident += process.memory_info().rss
            times = process.cpu_times()
            spent_s += times.user + times.system
    return resident, spent_s


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


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False


def shared_bytes(tree: Sequence[psutil.Process]) -> tuple[int, int]:
    """Memory of the processes by proportional share: all of it, and that of files in memory and shared mappings.

    A process that cannot be read counts with its resident memory.
    """
    total = in_memory = 0
    for process in tree:
        try:
            rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            found = {row.split()[0]: int(row.split()[1]) * KIB for row in rows if row.endswith(" kB")}
            total += found["Pss:"]
            in_memory += found.get("Pss_Shmem:", 0)
        except (OSError, KeyError):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
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


def held_files(tree: Sequence[psutil.Process], *, mappings: bool) -> tuple[int, int]:
    """Bytes of memory and of disk in files without a name that the processes hold; with `mappings` also the sizes of
    shared mappings, which CUDA makes larger than what it uses.
    """
    memory: Held = {}
    disk: Held = {}
    for process in tree:
        for name, found in _open_files(process.pid):
            place = memory if name.startswith(IN_MEMORY) else disk
            place[found.st_dev, found.st_ino] = found.st_blocks * 512
        for key, size in _shared_mappings(process.pid) if mappings else ():
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
