"""Configuration of a store. Pure data."""

from __future__ import annotations

from workbench.records import record


@record
class StoreConfig:
    """What is added to a buffer of integers, if no tensor is copied into it."""

    add: int = 0
