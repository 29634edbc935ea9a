"""Indices of equal values are alike: which of them topk, sort or argmax return is not specified.

Used in workers only: it imports torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._ops import OpOverload

from workbench.problems import loading
from workbench.problems.counting import UncompiledMode, operation_name

# ATen call -> position of its argument `dim`; their last result has the indices
CHOOSING = {"topk": 2, "sort": 1, "max": 1, "min": 1, "argmax": 1, "argmin": 1, "kthvalue": 2, "median": 1, "mode": 1}


@dataclass(frozen=True)
class Choice:
    """`indices` of the elements of `values` along `axis`, of which an operation returned them."""

    indices: torch.Tensor
    values: torch.Tensor
    axis: int


class NotedChoices(UncompiledMode):
    """`found` has each choice along one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Choice] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        place = CHOOSING.get(operation_name(func))
        indices = result[-1] if isinstance(result, tuple) else result
        if place is None or not isinstance(indices, torch.Tensor) or indices.dtype != torch.int64:
            return result
        given = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
        axis = {**given, **(kwargs or {})}.get("dim", -1)
        values = args[0]
        if isinstance(values, torch.Tensor) and isinstance(axis, int) and values.dim():
            axis %= values.dim()
            kept = indices if indices.dim() == values.dim() else indices.unsqueeze(axis)
            self.found.append(Choice(kept, values, axis))
        return result


def find_choices(
    model: torch.nn.Module, inputs: Sequence[object], state: Sequence[object] | None = None
) -> list[Choice]:
    """The choices of one call of a copy of the model in its own precision; none where torch cannot run it.

    `state` are its parameters and buffers, if they are not the model's own.
    """
    noted, own = NotedChoices(), copy.deepcopy(model)
    try:
        with torch.no_grad():
            for value, held in zip(loading.state_of(own).values(), state or (), strict=False):
                value.copy_(held)
            with noted:
                own(*copy.deepcopy(list(inputs)))
    except RuntimeError:
        return []
    return noted.found


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (one.isnan() & other.isnan())


def take_equal_values(
    got: torch.Tensor, wanted: torch.Tensor, list_choices: Callable[[], Sequence[Choice]]
) -> torch.Tensor:
    """The indices that are right: `got` if it differs from `wanted` in indices of equal values only, none of which it
    has twice along the axis; else `wanted`.
    """
    if wanted.dtype not in (torch.int64, torch.int32) or got.shape != wanted.shape or torch.equal(got, wanted):
        return wanted
    for one in list_choices():
        if one.indices.numel() != wanted.numel():
            continue
        ours, theirs = (value.reshape(one.indices.shape).long() for value in (got, wanted))
        size = one.values.shape[one.axis]
        inside = (ours >= 0) & (ours < size) & (theirs >= 0) & (theirs < size)
        named = [one.values.gather(one.axis, value.clamp(0, size - 1)) for value in (ours, theirs, one.indices)]
        alike = inside & _is_alike(named[0], named[1]) & _is_alike(named[1], named[2])
        ordered = ours.sort(one.axis).values
        if bool(alike.all()) and not bool((ordered.diff(dim=one.axis) == 0).any()):
            return got.to(wanted.dtype)
    return wanted
