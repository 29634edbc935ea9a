"""A snapshot of global memory, to restore it."""

from __future__ import annotations

from workbench.emulator.execution.launch import GlobalMemory


class MemorySnapshot:
    """A copy of all memory that a launch may write."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._copies = [
            (entry, entry.data.copy(), None if entry.written is None else entry.written.copy())
            for entry in memory.allocations
            if entry.writable
        ]

    def restore(self) -> None:
        """Restore the memory."""
        for entry, data, written in self._copies:
            entry.data[:] = data
            if entry.written is not None:
                entry.written[:] = written
