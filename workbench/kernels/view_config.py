"""Configuration of a view. Pure data."""

from __future__ import annotations

from workbench.records import record


@record
class ViewConfig:
    """One change of a tensor's extents."""

    how: str  # flatten, unflatten, squeeze, unsqueeze or order
    value: object  # an axis, or axes
    first: int = 0  # axes of the other tensor from `first` up to `end`, of unflatten
    end: int = 0
