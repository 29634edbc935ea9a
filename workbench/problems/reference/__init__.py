"""Runs a problem's reference twice: in float64, and as torch eager at the problem's own precision.

Used in workers only: it imports torch. The error of the second against the first is the yardstick of a verdict.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from workbench.problems import loading
from workbench.problems.counting import TermCount, UncompiledMode, operation_name
from workbench.problems.reference import distances
from workbench.problems.reference.disturbed import DisturbedResults
from workbench.problems.reference.draws import RecordedDraws, ReplayedDraws
from workbench.problems.reference.eight_bits import SCALED_PRODUCT, BeforeRounding, is_eight_bits, scale_product
from workbench.problems.reference.roundings import Range, find_ranges
from workbench.problems.reference.tf32 import TF32_EPS, round_to_nearest, truncate
from workbench.problems.results import as_computable, tensors_of
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
DISTURBANCES = 3  # runs with errors of one unit in the last place
FEW = 1 << 22  # elements of results up to which TF32's errors are taken from two ways of rounding

Shorten = Callable[[Any], Any]


@dataclass(frozen=True)
class Reference:
    """Results of one call: `exact` in float64 (integers as they are), `eager` at the problem's precision.

    Of results of 8 bits, `exact` is what they were before they were rounded.

    `eager` is None if torch cannot run it (an operation that the device lacks in 16 bits). Of products in TF32, it is
    the worst one of several results, element by element, up to FEW elements (see `run_reference`). `terms` is the
    number of terms of the longest sum. `eps` is that of the coarsest floating point among the results of `eager`'s
    operations, without those of 8 bits; TF32's where its products are in TF32. If `is_disturbed`, it is the worst one
    of results with other rounding too, integers that depend on rounding included. `ranges` are those of `roundings`, by
    result; empty if nobody looked.
    """

    exact: list[torch.Tensor]
    eager: list[torch.Tensor] | None
    terms: int
    eps: float
    is_disturbed: bool = False
    ranges: Sequence[Range | None] = ()


class Tf32Products(UncompiledMode):
    """Float32 factors of matrix products and convolutions lose 13 bits, as they do for tensor cores under TF32.

    `first` and `second` shorten the two factors: `truncate` as tensor cores do, or `round_to_nearest` as `cvt.rna.tf32`
    does before them.
    """

    def __init__(self, first: Shorten, second: Shorten) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.products = 0  # calls so far

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        at = PRODUCTS.get(operation_name(func))
        if at is not None:
            self.products += 1
            args = (*args[:at], self.first(args[at]), self.second(args[at + 1]), *args[at + 2 :])
        if distances.may_multiply(func, args):
            self.products += 1
            return distances.multiply(args, lambda x, y: self.first(x) @ self.second(y))
        return func(*args, **(kwargs or {}))


class EpsWatch(UncompiledMode):
    """`eps` is the largest eps of the floating-point results so far; 0 without any.

    `has_distances`: whether torch.cdist ran, with arguments by which it multiplies if there are many rows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.eps = 0.0
        self.has_distances = False

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.has_distances |= distances.may_multiply(func, args)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not is_eight_bits(leaf):
                self.eps = max(self.eps, torch.finfo(leaf.dtype).eps)
        return result


class WidenedDtypes(UncompiledMode):
    """Everything in floating point is computed in `wide`, whatever dtype the code names: `.float()`, `.to(x.dtype)`,
    `torch.zeros(n)`, autocast. Conversions to 8 bits and to integers round as they do. Where infinity becomes the
    largest number, it is that of `narrow`, the problem's own dtype.
    """

    def __init__(self, wide: torch.dtype, narrow: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.wide, self.ends = wide, (torch.finfo(narrow).max, torch.finfo(narrow).min)

    def _is_narrow(self, dtype: object) -> bool:
        return isinstance(dtype, torch.dtype) and dtype.is_floating_point and 1 < dtype.itemsize < self.wide.itemsize

    def _widen(self, value: object) -> object:
        return value.to(self.wide) if isinstance(value, torch.Tensor) and self._is_narrow(value.dtype) else value

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        given = dict(kwargs or {})
        if operation_name(func) == SCALED_PRODUCT:
            multiply: Callable[..., torch.Tensor] = scale_product
            return multiply(self.wide, *args, **given)
        if self._is_narrow(given.get("dtype")):
            given["dtype"] = self.wide
        is_new = not func.is_view or operation_name(func) == "lift_fresh"  # what `torch.tensor` returns
        is_functional = func.namespace == "aten" and is_new and not func._schema.is_mutable
        if is_functional:
            args, given = tree_map(self._widen, args), tree_map(self._widen, given)
        if operation_name(func) == "nan_to_num":
            args = (*args, *(None,) * (4 - len(args)))
            kept = (given.pop("posinf", args[2]), given.pop("neginf", args[3]))
            ends = (own if own is not None else default for own, default in zip(kept, self.ends, strict=True))
            args = (*args[:2], *ends)
        result: object = func(*args, **given)
        return tree_map(self._widen, result) if is_functional else result  # of the default dtype: `torch.zeros(n)`


OTHER_WAYS = ((round_to_nearest, round_to_nearest), (truncate, round_to_nearest), (round_to_nearest, truncate))


def run_reference(
    model: torch.nn.Module,
    inputs: Sequence[object],
    precision: Precision,
    *,
    seed: int,
    wide: torch.dtype = torch.float64,
    disturb: bool = False,
) -> Reference:
    """Call copies of the model in its own precision and in `wide`, with the same random numbers: `seed`'s.

    TF32 is emulated on every device: cuBLAS does not use it for all shapes. A kernel may truncate each factor of its
    products or round it, and the errors of a few elements by one way say little of those by another. So all four ways
    are tried, and what is furthest from the exact result is kept. Euclidean distances are also taken from products
    where torch.cdist, of few rows, takes differences: a kernel may do at all sizes what torch does at large ones. With
    `disturb`, so are runs with other rounding.
    """
    with torch.no_grad(), _forbid_tf32():
        loading.seed_generators(seed)
        products = Tf32Products(truncate, truncate)
        with (
            EpsWatch() as watched,
            products if precision == "tf32" else contextlib.nullcontext(),
            RecordedDraws() as record,
        ):
            eager = _run_eager(model, inputs)
        ways: list[UncompiledMode] = list(map(DisturbedResults, range(DISTURBANCES if disturb else 0)))
        if eager is not None and products.products and sum(value.numel() for value in eager) <= FEW:
            ways += [Tf32Products(*one) for one in OTHER_WAYS]
        ways += [distances.MultipliedDistances()] if watched.has_distances and precision == "fp32" else []
        others = [] if eager is None else [_run_eager_in(way, model, inputs, seed) or eager for way in ways]
        drawn = record.drawn if eager is not None else []
        narrow = loading.DTYPES.get(precision, torch.float32)

        def run_wide(mode: contextlib.AbstractContextManager[object]) -> list[torch.Tensor]:
            widened, values = _widened(model, wide), convert(inputs, wide)
            loading.seed_generators(seed)
            with mode, BeforeRounding(wide) as before, WidenedDtypes(wide, narrow), ReplayedDraws(drawn, wide):
                results = tensors_of(widened(*values))
            return [before.find(value) for value in results]

        count = TermCount()
        exact = run_wide(count)
        ranges: list[Range | None] = []
        if eager is not None:
            ranges = find_ranges(lambda mode: _run_eager_in(mode, model, inputs, seed), run_wide, exact)
    for other in others:
        eager = list(map(_worse, eager or other, other, exact))
    floor = TF32_EPS if precision == "tf32" else torch.finfo(torch.float32).eps
    return Reference(
        exact=exact, eager=eager, terms=count.terms, eps=max(watched.eps, floor), is_disturbed=disturb, ranges=ranges
    )


def _worse(one: torch.Tensor, other: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Of two results, element by element, the one that is further from `exact`."""
    if not one.is_floating_point():
        return one.where(one != exact, other)
    return torch.where((other - exact).abs() > (one - exact).abs(), other, one)


def sample_reference(
    model: torch.nn.Module, inputs: Sequence[object], seeds: Iterable[int], *, wide: torch.dtype = torch.float64
) -> Iterator[list[torch.Tensor]]:
    """The results of copies of the model in `wide`, with the random numbers that torch draws in it for each seed."""
    widened, values = _widened(model, wide), convert(inputs, wide)
    for seed in seeds:
        loading.seed_generators(seed)
        with torch.no_grad(), WidenedDtypes(wide):
            yield tensors_of(copy.deepcopy(widened)(*values))


def convert(values: Iterable[object], dtype: torch.dtype) -> list[object]:
    """The values, floating-point tensors among them as copies in `dtype`; those of 8 bits as they are."""
    return [tree_map(lambda leaf: leaf.to(dtype, copy=True) if _is_widened(leaf) else leaf, value) for value in values]


def _is_widened(value: object) -> bool:
    """Whether it is a floating-point tensor of more than 8 bits. Arithmetic in 8 bits begins with a conversion."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1


def _widened(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A copy with its parameters and buffers in `dtype`; those of 8 bits as they are."""
    made: torch.nn.Module = copy.deepcopy(model)._apply(lambda value: value.to(dtype) if _is_widened(value) else value)
    return made


def _run_eager(model: torch.nn.Module, inputs: Sequence[object]) -> list[torch.Tensor] | None:
    try:
        return list(map(as_computable, tensors_of(copy.deepcopy(model)(*inputs))))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # for example "not implemented for 'Half'"
        return None


def _run_eager_in(
    mode: UncompiledMode, model: torch.nn.Module, inputs: Sequence[object], seed: int
) -> list[torch.Tensor] | None:
    loading.seed_generators(seed)
    with mode:
        return _run_eager(model, inputs)


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
