"""Configuration of pooling. Pure data; sizes are along depth, height and width."""

from __future__ import annotations

import math
from typing import ClassVar

from workbench.records import record

Sizes = tuple[int, int, int]


@record
class PoolConfig:
    """Maxima or means of windows; axes that the window does not have get a window of one."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "window": "along depth, height, width",
        "stride": "from one window to the next",
        "padding": "on both sides",
        "dilation": "from one element of a window to the next",
        "threads": "threads of a CTA",
        "rows": "rows of outputs that a group of threads computes one after the other",
        "taps": "rows of inputs that make one row of outputs",
        "rounds": "vectors of a row that a thread loads",
    }
    op: str = "max"  # or avg
    window: Sizes
    stride: Sizes
    padding: Sizes = (0, 0, 0)
    dilation: Sizes = (1, 1, 1)
    rank: int = 2  # axes that are pooled, the last ones
    ceil: bool = False  # whether a window may begin inside and end outside
    count_padding: bool = True
    divisor: int = 0  # what a sum is divided by; 0: the elements of its window
    threads: int = 256
    strip: bool = False
    rows: int = 8

    @property
    def ones(self) -> tuple[int, ...]:
        """Extents of the axes that are not pooled."""
        return (1,) * (3 - self.rank)

    @property
    def first_axis(self) -> int:
        """The first of depth, height and width that is pooled."""
        return 3 - self.rank

    @property
    def taps(self) -> int:
        """Rows of inputs under a window."""
        return self.window[0] * self.window[1]

    @property
    def rounds(self) -> int:
        """Vectors of a row that a thread loads: with one tap there are registers for two."""
        return 2 if self.taps == 1 else 1

    @property
    def is_counted(self) -> bool:
        """Whether windows have different numbers of elements."""
        same = self.divisor or (self.count_padding and not self.ceil)
        return self.op == "avg" and not same

    @property
    def factor(self) -> float:
        """What a sum is multiplied by where all windows have as many elements."""
        return 1 / (self.divisor or math.prod(self.window))

    @property
    def leaves_depth(self) -> bool:
        """Whether a window can reach beyond the input along its depth."""
        return bool(self.padding[0] or (self.ceil and self.window[0] > 1))

    @property
    def leaves_height(self) -> bool:
        """Whether a window can reach beyond the input along its height."""
        return bool(self.padding[1] or (self.ceil and self.window[1] > 1))
