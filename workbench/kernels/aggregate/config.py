"""Configuration of aggregate. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record

WARP = 32


@record
class AggregateConfig:
    """A CTA has `rows` rows of the result; `split` groups of `tile` threads share the neighbours of each.

    With `items` each of `rows` groups has so many neighbours and ends of rows instead, whatever rows they belong to.
    """

    CONSTANTS: ClassVar[dict[str, str]] = {
        "rows": "rows of the result in a CTA",
        "tile": "threads that share the columns of a row, a vector each",
        "split": "groups of threads that share the neighbours of a row",
        "unroll": "neighbours' vectors that a thread loads before it adds the first",
        "step": "neighbours of a row that its threads load at once; on the merge path, CTAs' parts of a row",
        "group": "threads of a row of the result",
        "threads": "threads of a CTA",
        "items": "neighbours and ends of rows, together, that a group of threads takes",
        "span": "neighbours and ends of rows that a CTA takes",
        "bounds": "room for the first row of each group of threads and of the next CTA",
    }
    op: str = "sum"  # sum, mean or max
    empty: str = "zero"  # of a row without neighbours: zero, or identity (-inf of max, nan of mean)
    rows: int = 8
    tile: int = 32
    split: int = 1
    vector: int = 4  # neighbouring elements in one access, at most; rows and addresses may allow fewer
    unroll: int = 4
    items: int = 0  # of the merge path; 0: a group of threads has a row

    @property
    def group(self) -> int:
        """The threads of a row of the result."""
        return self.tile * self.split

    @property
    def threads(self) -> int:
        """The threads of a CTA."""
        return self.rows * self.group

    @property
    def columns(self) -> int:
        """The columns of the result in a CTA, at most."""
        return self.tile * self.vector

    @property
    def step(self) -> int:
        """The neighbours of a row that its threads load at once; on the merge path, CTAs' parts of a row."""
        return self.unroll * (self.rows if self.items else self.split)

    @property
    def span(self) -> int:
        """The neighbours and ends of rows of a CTA."""
        return self.items * self.rows

    @property
    def bounds(self) -> int:
        """Room for the first row of each group and of the next CTA, in whole vectors of four."""
        return self.rows // 4 * 4 + 4

    @property
    def in_warp(self) -> bool:
        """Whether the groups that share a row are lanes of one warp."""
        return self.group <= WARP

    @property
    def shared_bytes(self) -> int:
        """Shared memory for the groups' parts, at most, and on the merge path for places in x and first rows."""
        if self.items:
            return 8 * self.span + 4 * self.bounds + 4 * self.threads * self.vector
        return 0 if self.in_warp else 4 * self.threads * self.vector

    @property
    def halvings(self) -> int:
        """The shuffles that combine the groups of a row in a warp; `split` is a power of two."""
        return self.split.bit_length() - 1

    @property
    def empty_value(self) -> float:
        """The result of a row without neighbours."""
        if self.empty == "zero":
            return 0.0
        return float("nan") if self.op == "mean" else self.identity

    @property
    def identity(self) -> float:
        """The value that changes no reduction."""
        return float("-inf") if self.op == "max" else 0.0
