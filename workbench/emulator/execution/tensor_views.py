"""The tensors of a launch as parts of their storages: they limit the access to a storage of which a kernel got a slice.

A launch's tensors are known from the call of the compiled host function. If every argument is known (tensors, numbers,
pointers), bytes of a storage that its tensors do not reach are out of bounds, including gaps between the rows of a
slice. A storage is unrestricted if a bare pointer into it was passed, or none of its tensors. Layouts that overlap
themselves (a stride of 0, rows closer than they are long) are bounded only by their ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from workbench.emulator.arrays import Array

PLAIN = (int, float, bool, str, bytes, type(None))
MARK = "_cutegen_view"  # attribute of a CuTe tensor with the view that it was made from


@runtime_checkable
class Tensor(Protocol):
    """The part of torch.Tensor's interface that is used."""

    @property
    def shape(self) -> Iterable[int]: ...
    def stride(self) -> Iterable[int]: ...
    def element_size(self) -> int: ...
    def data_ptr(self) -> int: ...
    def untyped_storage(self) -> object: ...


@dataclass(frozen=True, slots=True)
class View:
    """A tensor argument: address of its first element, shape in elements, strides in bytes, bytes per element."""

    name: str
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int

    @property
    def low(self) -> int:
        """Address of the first byte."""
        return self.start + sum(min((n - 1) * stride, 0) for n, stride in zip(self.shape, self.strides, strict=True))

    @property
    def high(self) -> int:
        """One past the last byte."""
        return (
            self.start
            + self.size
            + sum(max((n - 1) * stride, 0) for n, stride in zip(self.shape, self.strides, strict=True))
        )

    @property
    def is_dense(self) -> bool:
        """Whether it reaches every byte from its first to its last."""
        distinct = (
            int(np.prod([n for n, stride in zip(self.shape, self.strides, strict=True) if stride], dtype=np.int64))
            * self.size
        )
        return not self._levels() or distinct >= self.high - self.low

    def _levels(self) -> list[tuple[int, int, int]]:
        """(dimension, extent, stride) by falling stride; empty for a layout that overlaps itself or runs backwards."""
        levels = sorted(
            ((d, n, stride) for d, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)) if n > 1),
            key=lambda level: -level[2],
        )
        span = self.size
        for _, n, stride in reversed(levels):
            if stride < span:
                return []
            span = stride * (n - 1) + span
        return levels

    def contains(self, where: Array, size: int) -> Array:
        """Whether each access of `size` bytes at addresses `where` begins and ends in elements of the tensor."""
        inside = (where >= self.low) & (where + size <= self.high)
        if not self.is_dense:
            inside &= self._reaches(where) & self._reaches(where + (size - 1))
        return inside

    def _reaches(self, where: Array) -> Array:
        left = where - self.start
        inside = left >= 0
        for _, n, stride in self._levels():
            index = np.clip(left // stride, 0, n - 1)
            left = left - index * stride
        return inside & (left < self.size)

    def index(self, address: int) -> tuple[int, ...]:
        """The index of an address: in bounds in all dimensions except the one in which the address leaves the
        tensor.
        """
        where = [0] * len(self.shape)
        left = address - self.start
        levels = self._levels() or [
            (d, n, stride) for d, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)) if stride > 0
        ]
        for at, (d, n, stride) in enumerate(levels):
            last = at == len(levels) - 1
            index = left // stride
            if not last and not self.low <= address < self.high and at == 0:
                where[d], left = index, left - index * stride
                continue
            where[d] = index if last else max(0, min(index, n - 1))
            left -= where[d] * stride
        return tuple(where)

    def describe(self) -> str:
        """`x (shape [4, 8], strides [16, 1])`, strides in elements."""
        return f"{self.name} (shape {list(self.shape)}, strides {[stride // self.size for stride in self.strides]})"

    def describe_place(self, address: int) -> str:
        """`index [4, 0] of x (shape [4, 8], strides [8, 1])`"""
        if not self.shape or not self.size:
            return self.describe()
        return f"index {list(self.index(address))} of {self.describe()}"


def make_view(tensor: Tensor, name: str = "a tensor argument") -> View:
    """The view of a torch tensor."""
    size = tensor.element_size()
    return View(name, tensor.data_ptr(), tuple(tensor.shape), tuple(stride * size for stride in tensor.stride()), size)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call of a host function: tensors, bare addresses, and whether all of them are known."""

    views: tuple[View, ...] = ()
    addresses: tuple[int, ...] = ()
    complete: bool = False

    def may_reach(self, address: int) -> bool:
        """Whether an address belongs to one of the arguments, or may belong to one."""
        return (
            not self.complete
            or not self.views
            or bool(self.addresses)
            or any(view.low <= address < view.high for view in self.views)
        )

    def views_in_range(self, start: int, size: int) -> tuple[tuple[View, ...], bool]:
        """(the tensors in a storage, whether only their bytes may be accessed)."""
        mine = tuple(view for view in self.views if start <= view.start < start + size)
        if not mine or not self.complete or any(start <= address < start + size for address in self.addresses):
            return mine, False
        return mine, not any(view.is_dense and view.low <= start and view.high >= start + size for view in mine)


def gather_arguments(named: Iterable[tuple[str, object]], pointer: type, tensor: type) -> Arguments:
    """Collects the arguments of a call from its values by name; `pointer` and `tensor` are the DSL's run-time
    classes.
    """
    views: list[View] = []
    addresses: list[int] = []
    complete = True
    left = list(named)
    while left:
        name, value = left.pop()
        kind = type(value)
        if kind is tensor and getattr(value, MARK, None) is not None:
            view = getattr(value, MARK)
            views.append(View(name, view.start, view.shape, view.strides, view.size))
        elif kind is pointer:
            addresses.append(int(getattr(value, "_pointer")))  # noqa: B009 (of a class that is only known when it runs)
        elif isinstance(value, Tensor):
            views.append(make_view(value, name))
        elif isinstance(value, (list, tuple)):
            left += [(f"{name}[{n}]", item) for n, item in enumerate(value)]
        elif isinstance(value, dict):
            left += [(f"{name}[{key!r}]", item) for key, item in value.items()]
        elif isinstance(getattr(value, "value", value), PLAIN):
            number = getattr(value, "value", value)
            addresses += [number] if isinstance(number, int) else []
        elif not kind.__module__.startswith("cuda"):  # a stream
            complete = False
    return Arguments(tuple(reversed(views)), tuple(addresses), complete)


def merge_ranges(views: Iterable[View]) -> list[tuple[int, int]]:
    """The ranges [low, high) of all views, joined where they touch."""
    ranges: list[tuple[int, int]] = []
    for low, high in sorted((view.low, view.high) for view in views):
        if ranges and low <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], high)
        else:
            ranges.append((low, high))
    return ranges


def find_misses(views: Iterable[View], where: Array, size: int) -> Array:
    """Whether each access of `size` bytes at `where` is outside every view."""
    held: Array = np.logical_or.reduce([view.contains(where, size) for view in views])
    return ~held
