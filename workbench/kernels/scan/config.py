"""Configuration of a scan: what is combined, along which axis, and which kernel does it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from workbench.records.base import record


@record
class ScanConfig:
    """One scan. `value` maps the operands' elements, as `accumulator`, to what is scanned; None: the operand itself."""

    op: str = "sum"  # sum, prod or max
    value: Callable[..., object] | None = None  # or a Hook, when a file is written
    accumulator: str = "f32"  # the type of sums
    exclusive: bool = False  # without the element itself
    append_total: bool = False  # exclusive, and the total after the last element
    reverse: bool = False
    axis: int | None = None  # None: the last one
    lookback: bool = False  # a CTA for each tile of a row, or one for each row
    threads: int = 256
    per_thread: int = 16

    CONSTANTS: ClassVar[dict[str, str]] = {
        "identity": "what combines with anything to give it back",
        "threads": "of a CTA",
        "per_thread": "elements of a thread",
        "warps": "of a CTA",
        "tile": "elements of a CTA",
    }

    @property
    def identity(self) -> float | int:
        """What combines with anything to give it back."""
        value = {"sum": 0.0, "prod": 1.0, "max": -math.inf}[self.op]
        return int(value) if self.accumulator == "i32" else value

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // 32

    @property
    def tile(self) -> int:
        """Elements of a CTA."""
        return self.threads * self.per_thread
