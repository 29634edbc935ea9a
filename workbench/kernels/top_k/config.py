"""Configuration of top-k. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class TopKConfig:
    """How a row is read, and how many rows without partners share a CTA."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "unroll": "16-byte loads in flight per lane",
        "rows_per_cta": "rows of a CTA where a warp has a row for itself",
    }
    k: int = 1  # how many of each row, where that is fixed
    unroll: int = 4
    rows_per_cta: int = 4
    warp_columns: int = 2048  # columns of a row that one warp reads
    cta_columns: int = 32768  # columns of a row that 8 warps read; longer ones have 32
