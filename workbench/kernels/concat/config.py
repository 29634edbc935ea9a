"""Configuration of concat. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class ConcatConfig:
    """Along which axis the tensors lie side by side."""

    CONSTANTS: ClassVar[dict[str, str]] = {"threads": "threads of a CTA"}
    axis: int = 0
    threads: int = 256

    @property
    def next_axis(self) -> int:
        """The axis after `axis`, which is also the smallest legal number of axes."""
        return self.axis + 1
