"""Configuration of reads at another index. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record

SAME = -1  # in `groups`: axes that are read as they are


@record
class RemapConfig:
    """Along some axes, the result's place `at` is read from another place of x, or is a constant.

    `mode`: constant, replicate, reflect and circular are those of torch's pad (a roll is circular), flip, nearest and
    nearest_exact, linear those of torch's interpolate. Axes are counted from the end: -1 is the last.
    """

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "vector": "elements per access, where the last axis is read as it is",
        "unroll": "rows per thread",
    }
    axes: tuple[int, ...]  # those that change, ascending
    mode: str
    before: tuple[int, ...] = ()  # elements that each axis gets in front; negative: how many it loses
    behind: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()  # of nearest and linear; () where `extents` are given
    extents: tuple[int, ...] = ()
    value: float = 0.0  # what a constant pad holds
    align_corners: bool = False  # of linear: whether the first and the last place are kept
    expression: object = None  # of the element that was read, and of those of the other tensors; None: a plain copy
    out: str = ""  # the result's type where it is not that of x
    threads: int = 256
    vector: int = 1
    unroll: int = 4

    @property
    def is_plain(self) -> bool:
        """Whether elements are copied as they are, whatever their type."""
        return self.expression is None and not self.out and self.mode != "linear"

    @property
    def moves_columns(self) -> bool:
        """Whether the last axis changes."""
        return self.axes[-1] == -1

    @property
    def rank(self) -> int:
        """Axes from the first that changes on."""
        return -self.axes[0]

    @property
    def columns(self) -> tuple[int, int | None]:
        """(begin, end) of the axes that make a row: the last if it changes, else all behind the last that does."""
        return (-1, None) if self.moves_columns else (self.axes[-1] + 1, None)

    @property
    def groups(self) -> tuple[tuple[int, int | None, int], ...]:
        """What the rows are made of, innermost first: (number of a changed axis or SAME, begin, end of its axes).

        Axes between two that change are one group, and so are all before the first that changes.
        """
        found: list[tuple[int, int | None, int]] = []
        end = self.columns[0]
        for number in range(len(self.axes) - (2 if self.moves_columns else 1), -1, -1):
            axis = self.axes[number]
            if axis + 1 < end:
                found.append((SAME, axis + 1, end))
            found.append((number, axis, axis + 1))
            end = axis
        return (*found, (SAME, None, end))

    @property
    def lines(self) -> tuple[tuple[int, int], ...]:
        """(number, axis) of the axes that change, from the last on."""
        return tuple((number, self.axes[number]) for number in range(len(self.axes) - 1, -1, -1))
