"""Draws what a problem initialises to a constant, so that a kernel that leaves it out is wrong: weights of ones, biases
of zeros, running statistics, and caches, of which a call writes a part and must keep the rest.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch

SPREAD = 0.5  # of drawn values, relative to the constant, or absolute where it is 0
SMALL = 1 / 16  # a smaller constant counts as 1: a branch that is scaled by 1e-5 hides in the rounding of the other


def draw_constants(model: torch.nn.Module, seed: int) -> None:
    """Draw parameters whose elements are all equal, and running statistics of torch's modules.

    A constant keeps its sign. Other buffers, integers and numbers of 8 bits stay: they may be constants of the text.
    """
    _draw([value for value in (*model.parameters(), *_running_statistics(model)) if _may_be_drawn(value)], seed)


def draw_caches(model: torch.nn.Module, inputs: Sequence[object], seed: int) -> None:
    """Draw buffers whose elements are all equal and of which a call with these inputs writes a part."""
    before = [value for _, value in model.named_buffers()]
    if not any(map(_may_be_drawn, before)):
        return
    called = copy.deepcopy(model)
    with torch.no_grad():
        try:
            called(*copy.deepcopy(list(inputs)))
        except RuntimeError:  # an operation that the CPU does not have in 16 bits
            return
    after = [value for _, value in called.named_buffers()]
    pairs = [pair for pair in zip(before, after, strict=True) if _may_be_drawn(pair[0])]
    _draw([value for value, then in pairs if value.shape == then.shape and _is_written_in_part(value, then)], seed)


def _is_written_in_part(before: torch.Tensor, after: torch.Tensor) -> bool:
    same = before == after
    return bool(same.any()) and not bool(same.all())


def _may_be_drawn(value: torch.Tensor) -> bool:
    return value.is_floating_point() and value.element_size() > 1 and value.numel() > 0 and _is_constant(value)


def _draw(values: Sequence[torch.Tensor], seed: int) -> None:
    """Draw other elements around the constant that each of the values is."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in values:
            drawn = torch.rand(value.shape, generator=generator) * (2 * SPREAD) - SPREAD
            first = float(value.reshape(-1)[0])
            first = math.copysign(1.0, first) if 0 < abs(first) < SMALL else first
            value.copy_(first * (1 + drawn) if first else drawn)


def _running_statistics(model: torch.nn.Module) -> list[torch.Tensor]:
    return [value for name, value in model.named_buffers() if name.split(".")[-1].startswith("running_")]


def _is_constant(value: torch.Tensor) -> bool:
    first = value.reshape(-1)[0]
    return bool((value == first).all()) and bool(first.isfinite())
