"""Float32 numbers with TF32's 10 bits of mantissa. Used in workers only: it imports torch."""

from __future__ import annotations

from typing import Any

import torch

TF32_EPS = 2.0**-10
DROPPED_BITS = ~0x1FFF  # TF32 keeps 10 of float32's 23 bits of mantissa; tensor cores drop the others
HALF_BIT = 0x1000  # half of the last bit that TF32 keeps


def truncate(value: Any) -> Any:
    """A float32 tensor with 10 bits of mantissa; any other value as it is."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    return (value.view(torch.int32) & DROPPED_BITS).view(torch.float32)


def round_to_nearest(value: Any) -> Any:
    """A float32 tensor rounded to 10 bits of mantissa, ties away from zero; any other value as it is."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    rounded = ((value.view(torch.int32) + HALF_BIT) & DROPPED_BITS).view(torch.float32)
    return rounded.where(value.isfinite(), value)
