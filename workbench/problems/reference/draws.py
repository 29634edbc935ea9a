"""Random numbers that a reference draws: those of the run at its own precision are used again in float64.

torch draws other numbers in float64 for many operations (`randn_like`, `bernoulli` of a tensor), so a second run with
the same seed would be another problem. A candidate that draws with the same calls in the same order gets the same ones.
Runs in a worker (imports torch).
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from workbench.problems.counting import UncompiledMode, operation_name

# ATen operations whose results are drawn numbers only, in place or not; those that have no name here (dropout inside of
# an attention, rrelu) mix them with their inputs
DRAWS = frozenset(
    (
        *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "random", "bernoulli"),
        *("normal", "normal_functional", "uniform", "exponential", "log_normal", "cauchy", "geometric"),
        *("multinomial", "poisson", "binomial"),
    )
)
DROPOUT = "native_dropout"


class RecordedDraws(UncompiledMode):
    """Keeps copies of the numbers that are drawn inside, in order; of a dropout its mask."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        name = operation_name(func)
        if name in DRAWS and isinstance(result, torch.Tensor):
            self.drawn.append(result.clone())
        elif name == DROPOUT:
            self.drawn.append(result[1].clone())
        return result


class ReplayedDraws(UncompiledMode):
    """Gives the recorded numbers, in the dtype `wide`, where others would be drawn. It draws what was not recorded."""

    def __init__(self, drawn: list[torch.Tensor], wide: torch.dtype) -> None:
        super().__init__()
        self.left, self.wide = list(reversed(drawn)), wide

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        name, given = operation_name(func), kwargs or {}
        if (name not in DRAWS and name != DROPOUT) or not self.left:
            return func(*args, **given)
        drawn = self.left.pop()
        if name == DROPOUT:
            return _apply_mask(args, given, drawn)
        if func._schema.is_mutable:
            target = args[0]
            assert isinstance(target, torch.Tensor), "ATen operations in place write to their first argument"
            return target.copy_(drawn)
        return drawn.to(self.wide) if drawn.is_floating_point() else drawn.clone()


def _apply_mask(
    args: tuple[object, ...], given: dict[str, object], mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `native_dropout(input, p, train)` returns for a mask."""
    value = args[0] if args else given["input"]
    assert isinstance(value, torch.Tensor), "a dropout has an input"
    share = float(str(args[1] if len(args) > 1 else given["p"]))
    return value * mask * (1 / (1 - share) if share < 1 else 0.0), mask
