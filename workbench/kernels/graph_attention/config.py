"""Configurations of sddmm and segment_softmax. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record

WARP = 32


@record
class SddmmConfig:
    """A CTA has `rows` rows; `split` groups of `tile` threads share the neighbours of each."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "rows": "rows of a CTA",
        "tile": "threads that share the columns of a neighbour",
        "split": "groups of threads that share the neighbours of a row",
        "unroll": "neighbours' vectors that a thread loads before it uses the first",
        "step": "neighbours of a row that its threads load at once",
        "group": "threads of a row",
        "threads": "threads of a CTA",
    }
    op: str = "dot"  # dot: one score of each head; add: the sum of both in each column
    rows: int = 8
    tile: int = 8
    split: int = 4
    vector: int = 4  # neighbouring elements in one access, at most; columns and addresses may allow fewer
    unroll: int = 4

    @property
    def step(self) -> int:
        """The neighbours of a row that its threads load at once."""
        return self.split * self.unroll

    @property
    def group(self) -> int:
        """The threads of a row."""
        return self.tile * self.split

    @property
    def threads(self) -> int:
        """The threads of a CTA."""
        return self.rows * self.group

    @property
    def halvings(self) -> int:
        """The shuffles that add up a product over the threads of a neighbour; `tile` is a power of two."""
        return self.tile.bit_length() - 1


@record
class SegmentSoftmaxConfig:
    """A CTA has `rows` rows, each shared by `split` groups of `tile` threads."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "rows": "rows of a CTA",
        "tile": "threads of a group",
        "split": "groups of threads that share the neighbours of a row",
        "unroll": "scores that a thread loads before it uses the first",
        "group": "threads of a row",
        "threads": "threads of a CTA",
    }
    rows: int = 8
    tile: int = 32
    split: int = 1
    unroll: int = 2

    @property
    def group(self) -> int:
        """The threads of a row."""
        return self.tile * self.split

    @property
    def threads(self) -> int:
        """The threads of a CTA."""
        return self.rows * self.group
