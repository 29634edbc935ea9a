"""Integers that are made of floats: rounding decides which of two neighbours a value near their boundary becomes.

The value before is not the same in two precisions, or with two orders of summation, so a right kernel may have the
other integer. The range of each integer result is what float64 gives with the values before every rounding a little
lower, and a little higher: by torch eager's largest error among values of alike magnitude, and its eps. A kernel that
truncates where the reference rounds to the nearest leaves the range where the value is far from the boundary.

Used in workers only: it imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch._ops import OpOverload

from workbench.problems.counting import UncompiledMode, operation_name

Range = tuple[torch.Tensor, torch.Tensor]  # the least and the largest integers

ROUNDINGS = ("round", "floor", "ceil", "trunc")
CONVERSION = "_to_copy"
LEAST = 1e-300  # magnitudes below have its binade


class _AtRoundings(UncompiledMode):
    """Calls `_meet` with the value before each rounding, and rounds what it returns."""

    def _meet(self, value: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        given, value = kwargs or {}, args[0] if args else None
        if isinstance(value, torch.Tensor) and value.is_floating_point() and _rounds(func, given, value):
            met = self._meet(value)
            args = (value.copy_(met) if func._schema.is_mutable else met, *args[1:])
        return func(*args, **given)


def _rounds(func: OpOverload, given: dict[str, object], value: torch.Tensor) -> bool:
    """Whether a call rounds a value that was not rounded before."""
    name, dtype = operation_name(func), given.get("dtype")
    to_integers = name == CONVERSION and isinstance(dtype, torch.dtype) and is_integer_dtype(dtype)
    return (name in ROUNDINGS or to_integers) and bool((value.trunc() != value).any())


def is_integer_dtype(dtype: torch.dtype) -> bool:
    """Whether a tensor of this dtype has integers; a bool is none."""
    return not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool


class NotedRoundings(_AtRoundings):
    """`found` has the value before each rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.Tensor] = []

    def _meet(self, value: torch.Tensor) -> torch.Tensor:
        self.found.append(value.clone())
        return value


class MovedRoundings(_AtRoundings):
    """Adds `sign` times the margin of its number to the value before each rounding."""

    def __init__(self, margins: Sequence[torch.Tensor], sign: int) -> None:
        super().__init__()
        self.left, self.sign = list(reversed(margins)), sign

    def _meet(self, value: torch.Tensor) -> torch.Tensor:
        margin = self.left.pop() if self.left else value.new_zeros(())
        return value + self.sign * margin if margin.shape in (value.shape, ()) else value


def find_ranges(
    run_eager: Callable[[UncompiledMode], object],
    run_wide: Callable[[UncompiledMode], list[torch.Tensor]],
    exact: Sequence[torch.Tensor],
) -> list[Range | None]:
    """The range of each result of integers; None for every other, and where nothing tells it.

    The two functions call the reference inside a mode, in its own precision and in float64.
    """
    unknown: list[Range | None] = [None] * len(exact)
    if not any(is_integer_dtype(value.dtype) for value in exact):
        return unknown
    own, wide = NotedRoundings(), NotedRoundings()
    run_eager(own)
    if not own.found:
        return unknown
    run_wide(wide)
    if [value.shape for value in own.found] != [value.shape for value in wide.found]:
        return unknown
    margins = list(map(_find_margin, own.found, wide.found))
    lower, higher = (run_wide(MovedRoundings(margins, sign)) for sign in (-1, 1))
    return [
        _join(*three) if is_integer_dtype(three[0].dtype) else None for three in zip(exact, lower, higher, strict=True)
    ]


def _join(exact: torch.Tensor, lower: torch.Tensor, higher: torch.Tensor) -> Range | None:
    if not exact.shape == lower.shape == higher.shape:
        return None
    least = torch.minimum(exact, torch.minimum(lower, higher))
    return least, torch.maximum(exact, torch.maximum(lower, higher))


def _find_margin(own: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """By how much each value before a rounding may be off: torch eager's largest error among those of its binade and
    the two beside it, and its eps.
    """
    magnitude = wide.abs().nan_to_num(0.0, 0.0, 0.0)
    error = (own.to(wide.dtype) - wide).abs().nan_to_num(0.0, 0.0, 0.0)
    binade = magnitude.clamp(min=LEAST).log2().floor().long()
    first = binade.min() - 1
    index = (binade - first).reshape(-1)
    largest = error.new_zeros(int(index.max()) + 2).scatter_reduce(0, index, error.reshape(-1), "amax")
    alike = torch.stack([largest[index - 1], largest[index], largest[index + 1]]).amax(0).reshape(wide.shape)
    return alike + torch.finfo(own.dtype).eps * magnitude
