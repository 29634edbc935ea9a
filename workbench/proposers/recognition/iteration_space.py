"""Iteration spaces: the shape over whose elements an expression runs, its reduced axes, and default settings."""

from __future__ import annotations

import dataclasses
import math

from workbench.language import Call
from workbench.language.expressions.lowering import call
from workbench.proposers.recognition.graph import Unrecognised

Shape = tuple[int, ...]


@dataclasses.dataclass
class IterationSpace:
    """The shape over whose elements an expression runs, and the axes of its reductions.

    `shapes` has it at every case, once a tensor of forward tells it: extents that are equal at the sizes of the trace
    may differ at others. `whole` is the name of a tensor of that shape which the expression reads, once there is one.
    """

    shape: Shape
    axes: Shape | None = None
    shapes: tuple[Shape, ...] | None = None
    whole: str | None = None

    def unify_axes(self, axes: tuple[int, ...] | None) -> bool:
        """Take the axes if no reduction has set them yet; whether they are those of this space then."""
        wanted = (
            tuple(range(len(self.shape)))
            if axes is None
            else tuple(sorted(axis % len(self.shape) for axis in axes))
            if self.shape
            else ()
        )
        if self.axes is None:
            self.axes = wanted
        return self.axes == wanted


def default_settings(operation: Call) -> tuple[Call, ...]:
    """Settings of a stage that no ladder sets: 16-byte accesses (for float32), a few in flight."""
    axis = dict(operation.named).get("axis", "last")
    if operation.name == "elementwise":
        return (call("threads", 256), call("vector", 4), call("unroll", 2))
    if isinstance(axis, int) or (isinstance(axis, Call) and axis.name == "over"):
        return (call("split", 4), call("vector", 4), call("unroll", 4))
    more = (call("parts", 64),) if isinstance(axis, Call) and axis.name == "but" else ()
    return (call("threads_per_row", 1024 if axis == "all" else 256), call("vector", 4), call("unroll", 2), *more)


def axis_of(frame: IterationSpace) -> object:
    """The axes of a frame in the language's form."""
    rank, axes = len(frame.shape), frame.axes or ()
    if len(axes) == rank:
        return "all"
    first, last = axes[0], axes[-1]
    if axes == tuple(range(first, last + 1)):
        if last == rank - 1:
            return "last" if first == last else Call(name="last", positional=(rank - first,))
        return first if first == last else Call(name="over", positional=(first, last))
    left = [axis for axis in range(rank) if axis not in axes]
    if len(left) == 1:
        return Call(name="but", positional=(left[0],))
    raise Unrecognised(f"axes {axes} of {rank}")


def is_broadcastable(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a tensor of one shape can be broadcast to the other."""
    return len(shape) <= len(to) and all(
        size in (1, other) for size, other in zip(reversed(shape), reversed(to), strict=False)
    )


def extents_and_size(shape: tuple[int, ...]) -> set[int]:
    """The extents of a shape, and its number of elements."""
    return {*shape, math.prod(shape)}
