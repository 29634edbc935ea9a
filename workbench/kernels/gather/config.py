"""Configuration of gather and scatter_add. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class GatherConfig:
    """Elements, or whole layers, by number along an axis."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "unroll": "accesses of a thread that are on the way at once",
    }
    axis: int = 0
    layers: bool = False  # whether an index stands for all elements at its place of the axis
    threads: int = 256
    unroll: int = 4

    @property
    def next_axis(self) -> int:
        """The axis after it, and the least number of axes."""
        return self.axis + 1
