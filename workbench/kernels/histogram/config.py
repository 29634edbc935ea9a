"""Configuration of a histogram. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class HistogramConfig:
    """How elements are read, and how much shared memory private tables may take."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "unroll": "16-byte loads in flight per thread",
        "table_words": "words of a CTA's table, where bins allow it",
        "max_bins": "bins, at most",
        "sm_bytes": "shared memory that tables may take of an SM",
    }
    threads: int = 512
    unroll: int = 4
    table_words: int = 16384  # 64 KB: three CTAs on an SM with 228 KB
    max_bins: int = 32768
    sm_bytes: int = 196_608
