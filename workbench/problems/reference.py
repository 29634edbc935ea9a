"""Runs a problem's reference twice: in float64, and as torch eager at the problem's own precision.

Used in workers only: it imports torch. The error of the second against the first is the yardstick of a verdict.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.problems.counting import TermCount, operation_name
from workbench.records import Precision

# ATen call that may run on tensor cores -> position of its first factor; the second factor follows
PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "mv": 0,
    "dot": 0,
    "addmm": 1,
    "baddbmm": 1,
    "addmv": 1,
    "convolution": 0,
    "_grouped_mm": 0,
    "_scaled_dot_product_flash_attention_for_cpu": 0,
    "_scaled_dot_product_efficient_attention": 0,
}
DROPPED_BITS = ~0x1FFF  # TF32 keeps 10 of float32's 23 bits of mantissa; tensor cores drop the others


@dataclass(frozen=True)
class Reference:
    """Results of one call: `exact` in float64 (integers as they are), `eager` at the problem's precision.

    `eager` is None if torch cannot run it (an operation that the device lacks in 16 bits). `terms` is the number of
    terms of the longest sum.
    """

    exact: list[torch.Tensor]
    eager: list[torch.Tensor] | None
    terms: int


class TruncatedProducts(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
    """Float32 factors of matrix products and convolutions lose 13 bits, as they do on tensor cores under TF32."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch need not load its compiler (two seconds in each worker), since nothing here is compiled."""
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        first = PRODUCTS.get(operation_name(func))
        if first is not None:
            args = (*args[:first], *map(truncate, args[first : first + 2]), *args[first + 2 :])
        return func(*args, **(kwargs or {}))


def truncate(value: object) -> object:
    """A float32 tensor with 10 bits of mantissa; any other value as it is."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    return (value.view(torch.int32) & DROPPED_BITS).view(torch.float32)


def run_reference(
    model: torch.nn.Module,
    inputs: Sequence[object],
    precision: Precision,
    *,
    seed: int,
    wide: torch.dtype = torch.float64,
) -> Reference:
    """Call copies of the model in `wide` and in its own precision, both with `seed` for random numbers.

    TF32 is emulated on every device: cuBLAS does not use it for all shapes.
    """
    with torch.no_grad(), _forbid_tf32():
        torch.manual_seed(seed)
        with TermCount() as count:
            exact = as_list(copy.deepcopy(model).to(wide)(*convert(inputs, wide)))
        torch.manual_seed(seed)
        with TruncatedProducts() if precision == "tf32" else contextlib.nullcontext():
            eager = _run_eager(model, inputs)
    return Reference(exact=exact, eager=eager, terms=count.terms)


def convert(values: Iterable[object], dtype: torch.dtype) -> list[object]:
    """The values, floating-point tensors among them as copies in `dtype`."""
    return [
        value.to(dtype, copy=True) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in values
    ]


def _run_eager(model: torch.nn.Module, inputs: Sequence[object]) -> list[torch.Tensor] | None:
    try:
        return as_list(copy.deepcopy(model)(*inputs))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # for example "not implemented for 'Half'"
        return None


def as_list(result: object) -> list[torch.Tensor]:
    """The tensors that forward returned."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


@contextlib.contextmanager
def _forbid_tf32() -> Iterator[None]:
    """Strict float32 products on a GPU."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
