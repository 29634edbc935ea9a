"""Configuration of gather, scatter_add and scatter_max. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class GatherConfig:
    """Selects elements, or whole slices, by index along an axis."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "unroll": "accesses in flight per thread",
    }
    axis: int = 0
    layers: bool = False  # whether an index selects the whole slice at its position on the axis
    op: str = "add"  # of a scatter: add or max
    threads: int = 256
    unroll: int = 4

    @property
    def next_axis(self) -> int:
        """The axis after `axis`, which is also the smallest legal number of axes."""
        return self.axis + 1
