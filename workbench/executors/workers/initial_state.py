"""Draws what a problem initialises to a constant, so that a kernel that leaves it out is wrong: weights of ones, biases
of zeros, running statistics.
"""

from __future__ import annotations

import torch

SPREAD = 0.5  # of drawn values, relative to the constant, or absolute where it is 0


def draw_constants(model: torch.nn.Module, seed: int) -> None:
    """Draw parameters whose elements are all equal, and running statistics of torch's modules.

    A constant keeps its sign. Other buffers, integers and numbers of 8 bits stay: they may be constants of the text.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in (*model.parameters(), *_running_statistics(model)):
            if value.is_floating_point() and value.element_size() > 1 and value.numel() and _is_constant(value):
                drawn = torch.rand(value.shape, generator=generator) * (2 * SPREAD) - SPREAD
                first = float(value.reshape(-1)[0])
                value.copy_(first * (1 + drawn) if first else drawn)


def _running_statistics(model: torch.nn.Module) -> list[torch.Tensor]:
    return [value for name, value in model.named_buffers() if name.split(".")[-1].startswith("running_")]


def _is_constant(value: torch.Tensor) -> bool:
    first = value.reshape(-1)[0]
    return bool((value == first).all()) and bool(first.isfinite())
