"""Euclidean distances of rows (torch.cdist) from a matrix product: |x|^2 - 2 x.y + |y|^2.

torch takes them from a product if one side has more than 25 rows, and from differences otherwise (ATen's Distance.cpp).
A product loses the digits of small distances of large rows. Used in workers only: it imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from workbench.problems.counting import DIFFERENCES, DISTANCES, UncompiledMode, operation_name
from workbench.problems.reference.tf32 import truncate


class MultipliedDistances(UncompiledMode):
    """Euclidean distances come from a product in 3xTF32, whatever the number of rows."""

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        if may_multiply(func, args) and args[0].dtype == torch.float32:
            return multiply(args, multiply_in_parts)
        return func(*args, **(kwargs or {}))


def may_multiply(func: OpOverload, args: tuple[Any, ...]) -> bool:
    """Whether a call computes distances that torch takes from a product, here or with more rows."""
    name = operation_name(func)
    return name == DISTANCES or (name == DIFFERENCES and args[2] == 2 and args[3] in (None, 0))


def multiply(args: tuple[Any, ...], product: Callable[[torch.Tensor, torch.Tensor], Any]) -> torch.Tensor:
    """The distances of the rows of x (..., m, k) and y (..., n, k), the first arguments, by a given product."""
    x, y = args[:2]
    squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2)
    distances: torch.Tensor = (squares - 2 * product(x, y.mT)).clamp_min(0).sqrt()
    return distances


def multiply_in_parts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The product of float32 matrices, each as a sum of two in TF32, without the product of the smaller parts."""
    (large, small), (high, low) = (_split(value.contiguous()) for value in (x, y))
    return large @ high + (large @ low + small @ high)


def _split(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    large = truncate(value)
    return large, truncate(value - large)
