"""Configuration of a view. Pure data."""

from __future__ import annotations

from workbench.records import record


@record
class ViewConfig:
    """One change of a tensor's extents."""

    how: str  # flatten, unflatten, squeeze, unsqueeze, order, or a part: chunk, share, slice, layer, item
    value: object  # an axis, axes, or an axis with the numbers of a part
    first: int = 0  # axes of the other tensor from `first` up to `end`, of unflatten
    end: int = 0
