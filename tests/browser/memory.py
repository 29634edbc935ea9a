"""Memory of a process and all below it: proportional set size (shared pages counted once) and resident set size."""

from __future__ import annotations

import contextlib
import threading
import time

import psutil


def tree_bytes(pid: int) -> tuple[int, int, int]:
    """(PSS, RSS, processes) of a process and all its descendants, in bytes."""
    root = psutil.Process(pid)
    pss = rss = count = 0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            info = process.memory_full_info()
            pss += info.pss
            rss += info.rss
            count += 1
    return pss, rss, count


class Peak:
    """Samples a process tree while it is entered; `pss`, `rss` and `processes` are the peaks."""

    def __init__(self, pid: int, every_s: float = 0.25) -> None:
        self.pid, self.every_s = pid, every_s
        self.pss = self.rss = self.processes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._end.is_set():
            with contextlib.suppress(psutil.NoSuchProcess):
                pss, rss, processes = tree_bytes(self.pid)
                self.pss, self.rss, self.processes = (
                    max(self.pss, pss),
                    max(self.rss, rss),
                    max(self.processes, processes),
                )
            time.sleep(self.every_s)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
