"""Configuration of a transpose. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class TransposeConfig:
    """How a tile goes through shared memory: by the threads' own accesses, or by TMA (sm_90a)."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "warps": "warps of a CTA",
        "boxes": "tiles of 128-byte rows per CTA, side by side: what one CTA keeps in flight",
    }
    by_tma: bool = False
    threads: int = 256

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // 32

    @property
    def boxes(self) -> int:
        """Tiles of 128-byte rows per CTA: 64 threads turn one, in 8 x 8 blocks."""
        return self.threads // 64
