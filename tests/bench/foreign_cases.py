"""What a case of foreign_kernels.py is, and how its arguments are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.emulator.emulation import Emulation
from workbench.problems.loading import lazy_zeros
from workbench.records import TensorSpec, Work

NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}

# difference of a result, of the largest element; a wrong kernel is off by far more
LIMITS = {torch.float16: 1e-2, torch.bfloat16: 3e-2, torch.float32: 1e-4}


class Arguments:
    """Makes the arguments of a case on "cuda".

    In a sample of the emulator, `zeros` is its emulation. Tensors are then zeros whose memory is mapped when it is
    used. Only `real_normal` and `integers` fill them, for kernels whose control flow depends on the data.
    """

    def __init__(self, zeros: Emulation | None = None) -> None:
        self.emulation = zeros

    def zeros(self, spec: TensorSpec) -> torch.Tensor:
        """Zeros on the emulated device."""
        assert self.emulation is not None
        tensor = lazy_zeros(spec)
        self.emulation.tags.tag(tensor, "cuda")
        return tensor

    def normal(self, *shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        """Random normal numbers, contiguous."""
        if self.emulation is None:
            return self.real_normal(*shape, dtype=dtype)
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return self.zeros(TensorSpec(name="", shape=shape, dtype=str(dtype).split(".")[1], strides=tuple(strides)))

    def empty(self, *shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        """Memory for a result."""
        return self.normal(*shape, dtype=dtype) if self.emulation else torch.empty(shape, dtype=dtype, device="cuda")

    def real_normal(self, *shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        """Random normal numbers, in a sample too."""
        return torch.randn(shape, device="cuda").to(dtype)

    def integers(self, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Random integers from 0 to high - 1, in a sample too."""
        return torch.randint(0, high, shape, device="cuda", dtype=dtype)


@dataclass(frozen=True)
class Made:
    """A case whose arguments exist.

    `call` launches the kernel and returns its results, `expected` gives torch's. They may differ by `limit` of the
    largest element of torch's. `read` turns the results of `call` into what is compared.
    """

    call: Callable[[], Any]
    expected: Callable[[], Any]
    limit: float
    read: Callable[[Any], Any] = lambda results: results


@dataclass(frozen=True)
class Case:
    """One kernel at one size. Cases of a `group` do the same work and are compared with each other."""

    name: str
    group: str
    make: Callable[[Arguments], Made]
    work: Callable[[], Work]


def work_of(
    flops: int, moved: int, dtype: torch.dtype | str, *, tensor_cores: bool | None = None
) -> Callable[[], Work]:
    """The work of a case: FLOPs, and bytes with each tensor read or written once.

    Products of 16-bit operands run on tensor cores unless `tensor_cores` says otherwise.
    """
    name = dtype if isinstance(dtype, str) else NAMES[dtype]
    cores = name != "float32" and flops > 0 if tensor_cores is None else tensor_cores
    return lambda: Work(case="full", flops=flops, least_bytes=moved, dtype=name, tensor_cores=cores)


def product_work(m: int, n: int, k: int, dtype: torch.dtype, result: torch.dtype | None = None) -> Callable[[], Work]:
    """The work of a (m, k) times (k, n) product; the result has the operands' type or `result`."""
    moved = (m + n) * k * dtype.itemsize + m * n * (result or dtype).itemsize
    return work_of(2 * m * n * k, moved, dtype)


def as_tensors(results: Any) -> list[torch.Tensor]:
    """The results of a call as a list."""
    return list(results) if isinstance(results, Sequence) else [results]


def difference(got: Any, expected: Any) -> float:
    """The largest difference over the largest element of `expected`, of all results. Infinity for other shapes."""
    pairs = list(zip(as_tensors(got), as_tensors(expected), strict=False))
    if len(as_tensors(got)) != len(as_tensors(expected)) or any(a.shape != b.shape for a, b in pairs):
        return math.inf
    return max(_difference(a, b) for a, b in pairs)


def _difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Of one result, in parts, since double precision of a large tensor would not fit."""
    worst = largest = 0.0
    for a, b in zip(_split(got), _split(expected), strict=True):
        apart = (a.double() - b.double()).abs().max().item()
        worst = math.inf if math.isnan(apart) else max(worst, apart)
        largest = max(largest, b.double().abs().max().item())
    return worst / max(largest, 1e-30)


def _split(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    flat = tensor.detach().contiguous().view(-1)
    return flat.split(1 << 26) if flat.numel() > 1 << 26 else (flat,)
