"""Finds where NaN and infinity in the results of a reference come from. Used in workers only: it imports torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from workbench.problems import loading
from workbench.problems.counting import UncompiledMode, operation_name

NAN, INFINITY = "NaN", "infinity"
# calls that leave memory as it was
UNFILLED = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")


def find_origin(model: torch.nn.Module, inputs: Sequence[object], names: Sequence[str]) -> str:
    """What has the first NaN of a call that ends with NaN, else its first infinity: an input, a parameter, or the
    result of an operation whose arguments have none. "" if nothing has.
    """
    given = dict(zip(names, inputs, strict=False))
    for kind, values in (("input", given), ("parameter or buffer", loading.state_of(model))):
        for name, value in values.items():
            if said := [kind for kind in (NAN, INFINITY) if _has(value, kind)]:
                cause = "" if kind == "input" else "; torch.empty, for one, leaves memory as it was"
                return f"the {kind} {name} has {said[0]} before the call{cause}"
    with torch.no_grad(), _Watch() as watched:
        result = model(*inputs)
    return next((watched.first[kind] for kind in (NAN, INFINITY) if _has(result, kind) and kind in watched.first), "")


class _Watch(UncompiledMode):
    """`first` has for NaN and for infinity the operation that made the first of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, str] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        missing = [kind for kind in (NAN, INFINITY) if kind not in self.first]
        before = [kind for kind in (NAN, INFINITY) if _has([args, kwargs], kind)]
        span = _describe_span([args, kwargs]) if missing else ""
        out = func(*args, **(kwargs or {}))
        name = operation_name(func)
        for kind in missing:
            if kind in before or not _has(out, kind):
                continue
            if name in UNFILLED:
                self.first[kind] = f"{name} leaves memory as it was, here with {kind}"
            else:
                self.first[kind] = f"{name} gives {kind}, of {span or 'no values'}"
        return out


def _has(values: object, kind: str) -> bool:
    floats = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor) and value.is_floating_point()]
    return any(bool((value.isnan() if kind == NAN else value.isinf()).any()) for value in floats)


def _describe_span(values: object) -> str:
    """The least and the largest number of the first tensor that is not empty."""
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            return f"values from {float(value.min()):.3g} to {float(value.max()):.3g}"
    return ""
