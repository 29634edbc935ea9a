"""Runs of a module on fake tensors, which have shapes but no values. Used in workers only: it imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from workbench.problems.tracing.sparse import SparseProducts


class StaticOneHot(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed here
    """Computes `one_hot` with a number of classes from comparisons: torch's own reads values, which are not there."""

    def __torch_function__(
        self, func: object, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        given = kwargs or {}
        if func is torch.nn.functional.one_hot:
            index, classes = (*args, *given.values())[:2] if len(args) + len(given) == 2 else (None, -1)
            if isinstance(index, torch.Tensor) and classes > 0:
                return (index.unsqueeze(-1) == torch.arange(classes, device=index.device)).long()
        return func(*args, **given)  # type: ignore[operator]


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Inside, calls that read values, or whose results fake tensors cannot be, are made of others; no gradients."""
    with StaticOneHot(), SparseProducts(), torch.no_grad():
        yield


@contextlib.contextmanager
def on_fake_tensors() -> Iterator[None]:
    """Inside, tensors are made without values, and no gradients."""
    with without_values(), FakeTensorMode(allow_non_fake_inputs=True):
        yield
