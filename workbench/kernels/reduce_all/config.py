"""Configuration of a reduction of all elements in one launch. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record

OPS = ("sum", "max", "min")


@record
class ReduceAllConfig:
    """What is reduced, and by how many threads."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "warps": "warps of a CTA",
        "unroll": "16-byte loads in flight per thread",
        "ctas_per_sm": "CTAs of the grid for each SM",
    }
    op: str = "sum"  # sum, max or min
    threads: int = 256
    unroll: int = 4
    ctas_per_sm: int = 8  # 2048 threads: a full SM

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // 32

    @property
    def warp_steps(self) -> int:
        """Shuffles that combine the warps' values."""
        return self.warps.bit_length() - 1
