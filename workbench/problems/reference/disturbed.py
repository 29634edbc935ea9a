"""What rounding in another order may do to a result: torch eager with errors of a few units in the last place.

Tiny rows behind a bias leave differences of almost equal numbers. There torch eager's own error says little of that of
a right kernel: all elements of a row may be rounded alike by chance. Used in workers only: it imports torch.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from workbench.problems.counting import UncompiledMode, operation_name

ULPS = 4  # inferred: a mean that a kernel sums one element after the other is off by a few
COPIES = ("clone", "detach", "alias", "lift_fresh")  # ATen calls that round nothing


class DisturbedResults(UncompiledMode):
    """Each floating-point result of an operation gets a random relative error, at most ULPS times its dtype's eps."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def _disturb(self, value: object) -> object:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize == 1:
            return value
        part = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        return (value.double() * (1 + part.to(value.device) * (ULPS * torch.finfo(value.dtype).eps))).to(value.dtype)

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        is_made = func.namespace == "aten" and not func.is_view and not func._schema.is_mutable
        return tree_map(self._disturb, result) if is_made and operation_name(func) not in COPIES else result
