"""Configuration of a scan: operator, axis, and the kernel that computes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from workbench.records.base import record


@record
class ScanConfig:
    """One scan.

    `value` maps the operands' elements, converted to `accumulator`, to the scanned value; None: the operand itself.
    """

    op: str = "sum"  # sum, prod, max, min or logsumexp
    value: Callable[..., object] | None = None  # or a Hook, when a file is written
    accumulator: str = "f32"  # element type of the running value
    exclusive: bool = False  # exclusive scan: without the element itself
    append_total: bool = False  # exclusive, with the total after the last element
    reverse: bool = False
    axis: int | None = None  # None: the last one
    lookback: bool = False  # one CTA per tile (decoupled look-back); otherwise one per row
    threads: int = 256
    per_thread: int = 16

    CONSTANTS: ClassVar[dict[str, str]] = {
        "identity": "identity of the operator",
        "threads": "threads of a CTA",
        "per_thread": "elements per thread",
        "warps": "warps of a CTA",
        "tile": "elements of a tile",
    }

    @property
    def identity(self) -> float | int:
        """Identity of the operator."""
        value = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "logsumexp": -math.inf}[self.op]
        return int(value) if self.accumulator == "i32" else value

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // 32

    @property
    def tile(self) -> int:
        """Elements of a tile, which one CTA scans."""
        return self.threads * self.per_thread
