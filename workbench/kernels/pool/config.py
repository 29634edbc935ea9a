"""Configuration of pooling. Pure data; sizes are (depth, height, width)."""

from __future__ import annotations

import math
from typing import ClassVar

from workbench.kernels.rows.config import Level, RowConfig
from workbench.records import record

Sizes = tuple[int, int, int]


@record
class PoolConfig:
    """Maxima or averages of windows; axes that are not pooled have a window of one."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "window": "window sizes along depth, height, width",
        "stride": "distance between windows",
        "padding": "padding on both sides",
        "dilation": "distance between the elements of a window",
        "threads": "threads of a CTA",
        "rows": "output rows per group of threads",
        "taps": "input rows under one output row",
        "rounds": "vectors of an input row per thread",
    }
    op: str = "max"  # or avg
    window: Sizes
    stride: Sizes
    padding: Sizes = (0, 0, 0)
    dilation: Sizes = (1, 1, 1)
    rank: int = 2  # number of pooled axes, the last ones
    ceil: bool = False  # whether output extents are rounded up
    count_padding: bool = True
    divisor: int = 0  # divisor of an average; 0: the number of elements of the window
    threads: int = 256
    schedule: str = "direct"  # or strip, cells
    rows: int = 8

    @property
    def ones(self) -> tuple[int, ...]:
        """Extents of the axes that are not pooled."""
        return (1,) * (3 - self.rank)

    @property
    def first_axis(self) -> int:
        """The first pooled axis among depth, height and width."""
        return 3 - self.rank

    @property
    def taps(self) -> int:
        """Input rows under a window."""
        return self.window[0] * self.window[1]

    @property
    def rounds(self) -> int:
        """Vectors of an input row per thread: two with one tap, where registers allow it."""
        return 2 if self.taps == 1 else 1

    @property
    def is_counted(self) -> bool:
        """Whether the divisor of an average differs between windows."""
        same = self.divisor or (self.count_padding and not self.ceil)
        return self.op == "avg" and not same

    @property
    def factor(self) -> float:
        """Factor of a sum if all windows have the same divisor."""
        return 1 / (self.divisor or math.prod(self.window))

    @property
    def leaves_depth(self) -> bool:
        """Whether a window can reach past the input along the depth."""
        return bool(self.padding[0] or (self.ceil and self.window[0] > 1))

    @property
    def leaves_height(self) -> bool:
        """Whether a window can reach past the input along the height."""
        return bool(self.padding[1] or (self.ceil and self.window[1] > 1))


@record
class PlanesConfig:
    """Pooling by windows side by side, whose result is reduced over each plane in one pass."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA, which reduces one plane",
        "turns": "rows of windows that a thread loads before it combines the first",
    }
    pool: PoolConfig
    rows: RowConfig
    threads: int = 256
    turns: int = 1
    keepdim: bool = False

    @property
    def warps(self) -> int:
        """Number of warps of a CTA."""
        return self.threads // 32

    @property
    def level(self) -> Level:
        """The single pass."""
        return self.rows.levels[0]
