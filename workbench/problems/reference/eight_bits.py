"""Floats of 8 bits in a reference: what a result was before its last conversion to 8 bits.

A conversion rounds by up to half a step of 1/8 or 1/4 of a value. Of the rounded result alone nobody could tell a
kernel that truncates from one whose value before the conversion differs in its last bit, so a result is compared with
the value before. Runs in a worker (imports torch).
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from workbench.problems.counting import UncompiledMode

# dtype -> (bits of the mantissa, exponent of the smallest normal number)
FORMATS = {"float8_e4m3fn": (3, -6), "float8_e5m2": (2, -14)}


def is_eight_bits(value: object) -> bool:
    """Whether it is a tensor of floats of 8 bits."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize == 1


def half_steps(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Half the distance of neighbouring numbers of an 8-bit format at each of the values, as float32."""
    bits, least = FORMATS[dtype]
    exponent = torch.frexp(values.abs().float().nan_to_num_(0.0)).exponent - 1
    return torch.ldexp(torch.ones_like(exponent, dtype=torch.float32), exponent.clamp_(min=least) - bits - 1)


class BeforeRounding(UncompiledMode):
    """Keeps for each 8-bit result what it was before it was rounded, in the dtype `wide`.

    Copies, views and writes of such results do the same to what is kept.
    """

    def __init__(self, wide: torch.dtype) -> None:
        super().__init__()
        self.wide = wide
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # the first has the id, and lives as long

    def find(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor before rounding; any but an 8-bit one as it is. Where the conversion saturates or has no number,
        so is the value.
        """
        if not is_eight_bits(value):
            return value
        rounded, before = value.to(self.wide), self._before(value)
        largest = torch.finfo(value.dtype).max
        return before.where(rounded.isfinite() & (before.abs() <= largest), rounded)

    def _before(self, value: torch.Tensor) -> torch.Tensor:
        if id(value) not in self.kept:
            self.kept[id(value)] = value, value.to(self.wide)
        return self.kept[id(value)][1]

    def _unrounded(self, value: object) -> object:
        return self._before(value) if isinstance(value, torch.Tensor) and is_eight_bits(value) else value

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        given = dict(kwargs or {})
        result = func(*args, **given)
        narrow = [leaf for leaf in tree_leaves(result) if is_eight_bits(leaf)]
        if not narrow:
            return result
        wide = {key: self.wide if key == "dtype" else self._unrounded(value) for key, value in given.items()}
        other = func(*tree_map(self._unrounded, args), **wide)
        for leaf, before in zip(tree_leaves(result), tree_leaves(other), strict=True):
            if is_eight_bits(leaf) and isinstance(before, torch.Tensor):
                self.kept[id(leaf)] = leaf, before.to(self.wide)
        return result
