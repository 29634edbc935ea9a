"""Configuration of convolutions over channels-last images. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class ChannelsLastConfig:
    """An implicit GEMM by mma.sync: rows are output pixels, columns are filters, k is (filter row, column, channel)."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "output pixels of a tile",
        "tile_n": "filters of a tile",
        "tile_k": "positions of k that one stage holds",
        "stages": "tiles of k in shared memory: one is multiplied while the others arrive",
        "threads": "four warps, two along the pixels and two along the filters",
    }
    element: str  # f16 or bf16
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 3
    threads: int = 128

    @property
    def stored(self) -> str:
        """Element type in memory."""
        return self.element
