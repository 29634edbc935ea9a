"""Configuration of matrix times vector. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class MatvecConfig:
    """A CTA has `rows` rows at once, so that what it loads of the vector serves all of them."""

    CONSTANTS: ClassVar[dict[str, str]] = {"threads": "threads of a CTA, which share its rows", "rows": "rows of a CTA"}
    threads: int = 64
    rows: int = 1
    vector: int = 1  # neighbouring elements in one access, where rows and addresses allow it
    unroll: int = 1
    keepdim: bool = False  # whether the axis that is summed over stays, as 1
