"""Global memory as it was, to go back to."""

from __future__ import annotations

from workbench.emulator.execution.launch import GlobalMemory


class Saved:
    """A copy of all that a launch may write, made when this is made."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._copies = [
            (entry, entry.data.copy(), None if entry.written is None else entry.written.copy())
            for entry in memory.allocations
            if entry.writable
        ]

    def restore(self) -> None:
        """Put everything back."""
        for entry, data, written in self._copies:
            entry.data[:] = data
            if entry.written is not None:
                entry.written[:] = written
