"""Configuration of a view. Pure data."""

from __future__ import annotations

from workbench.records import record


@record
class ViewConfig:
    """One change of a tensor's extents, or one tensor that is made from them."""

    # flatten, unflatten, extents, squeeze, unsqueeze, order; a part: chunk, share, slice, every, layer, item;
    # index, draw, repeat
    how: str
    value: object  # an axis, axes, an axis with the numbers of a part, or a probability
    first: int = 0  # axes of the other tensor from `first` up to `end`, of unflatten and repeat
    end: int = 0
