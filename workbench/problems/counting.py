"""Counts the FLOPs of a PyTorch computation by operation, and the terms that it sums. Used in workers: imports torch.

Input: the code inside `with FlopCount() as count` (fake tensors will do, so it costs no memory). Output: `count.flops`,
FLOPs by ATen operation. Likewise `with TermCount() as count`: `count.terms` is the number of terms of the longest sum.

An addition, multiplication, division, comparison or one call of a special function (exp, tanh, erf, rsqrt) is one FLOP,
a fused multiply-add is two. torch's own formulas (`torch.utils.flop_counter`) count matrix products and convolutions.
A matrix-vector product counts 2mk. An element-wise operation counts one FLOP per output element, a reduction one per
input element. The composites in `PER_ELEMENT` count as in their usual definition. Copies, views, creation, random
numbers and integer operations are free. Complex numbers count the operations with their real parts: 2 for an addition,
6 for a multiplication.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# FLOPs per element of the largest tensor that the operation touches
PER_ELEMENT = {
    "_softmax": 5,  # max, subtract, exp, sum, divide
    "_log_softmax": 5,  # max, subtract, exp, sum, subtract
    "native_layer_norm": 7,  # mean, subtract, square, sum, scale, weight, bias
    "native_group_norm": 7,
    "native_batch_norm": 7,
    "_native_batch_norm_legit": 7,
    "gelu": 5,  # scale, erf, add, multiply, halve; the tanh form is counted in _gelu
    "silu": 4,  # negate, exp, add, divide
    "sigmoid": 4,
    "mish": 5,
    "softplus": 4,
    "elu": 3,
    "selu": 4,
    "var": 4,  # mean, subtract, square, sum
    "var_mean": 4,
    "std": 4,
    "linalg_vector_norm": 2,
    "mse_loss": 3,
    "smooth_l1_loss": 4,
    "huber_loss": 4,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
}
# real FLOPs of an operation with complex numbers, per element: 4 multiplications and 2 additions, ...
PER_COMPLEX_ELEMENT = {"mul": 6, "square": 6, "div": 11, "reciprocal": 6, "abs": 4, "addcmul": 8, "lerp": 10}
COMPLEX_PART, COMPLEX_PRODUCT = 2, 4  # of each other operation; of a product's multiply-add, times those of a real one
GELU_TANH = 9  # cube 2, scale, add, scale, tanh, add, multiply, halve
DIFFERENCES, PER_DIFFERENCE = "_cdist_forward", 3  # torch.cdist: subtract, multiply-add; or subtract, abs, add
DISTANCES = "_euclidean_dist"  # torch.cdist of more than 25 rows: a product of matrices
MATRIX_VECTOR = ("mv", "addmv", "dot", "vdot")
# operations whose results sum the elements of their first argument
SUMS = (
    "sum",
    "nansum",
    "mean",
    "var",
    "std",
    "prod",
    "logsumexp",
    "linalg_vector_norm",
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "cudnn_batch_norm",
    "_fused_rms_norm",
    "avg_pool",
    "adaptive_avg_pool",
    "_adaptive_avg_pool",
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
)
SUMS_ALONG_AN_AXIS = ("_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp")  # by their second argument
INDEXED_WRITES = ("index_put", "index_put_", "_unsafe_index_put", "_index_put_impl_")
# operations that allocate, fill, copy or lay out tensors
COPIES = (
    "new_",
    "empty",
    "zeros",
    "ones",
    "full",
    "rand",
    "arange",
    "eye",
    "normal",
    "uniform",
    "bernoulli",
    "exponential",
    "_to_copy",
    "copy",
    "clone",
    "fill",
    "zero",
    "detach",
    "cat",
    "stack",
    "pad",
    "constant_pad",
    "reflection_pad",
    "replication_pad",
    "upsample_nearest",
    "_upsample_nearest",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "native_channel_shuffle",
    "im2col",
    "repeat",
    "_local_scalar_dense",
    "scalar_tensor",
    "lift",
    "_unsafe_view",
    "_reshape_alias",
    "resize",
    "set",
    "_assert",
)
COMPUTES = "copysign"  # begins like a copy
ALLOCATIONS = (
    *COPIES[: COPIES.index("_to_copy")],
    *("fill", "zero", "detach", "_unsafe_view", "_reshape_alias", "resize", "set", "_assert"),
)
FREE_PREFIXES = (
    *COPIES,
    "slice",
    "select",
    "index",
    "gather",
    "take",
    "masked_select",
    "scatter",
    "embedding",
    "tril",
    "triu",
    "roll",
    "flip",
    "sort",
    "topk",
    "argmax",
    "argmin",
    "native_dropout",
    "where",
    "masked_fill",
)


def _largest_numel(values: Iterable[object]) -> int:
    return max((value.numel() for value in tree_leaves(list(values)) if isinstance(value, torch.Tensor)), default=0)


def _is_complex(values: object) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_complex() for value in tree_leaves(values))


def operation_name(func: OpOverload) -> str:
    """`aten.add_.Tensor` -> "add"."""
    return str(func.overloadpacket).split(".")[-1].rstrip("_")


def _product_flops(func: OpOverload, args: tuple[object, ...], kwargs: dict[str, object], out: object) -> int | None:
    """FLOPs of a matrix product, convolution or attention, bias included; None for anything else."""
    name, times = operation_name(func), COMPLEX_PRODUCT if _is_complex(args) else 1
    if name in MATRIX_VECTOR:
        return times * (2 * _largest_numel(args) + (_largest_numel([out]) if name == "addmv" else 0))
    if name == DISTANCES:
        return 2 * _count_pairs(args, out)
    packet = func.overloadpacket
    if name == "_scaled_dot_product_flash_attention_for_cpu":  # counts as the flash form does
        packet = torch.ops.aten._scaled_dot_product_flash_attention
    if packet not in flop_registry:
        return None
    formula: Callable[..., int] = flop_registry[packet]
    bias = (
        _largest_numel([out]) if name in ("addmm", "baddbmm") or (name == "convolution" and args[2] is not None) else 0
    )
    return times * int(formula(*args, **kwargs, out_val=out)) + (COMPLEX_PART if times > 1 else 1) * bias


def _count_pairs(args: tuple[object, ...], out: object) -> int:
    """Pairs of elements that distances between rows are made of."""
    return _largest_numel([out]) * int(args[0].shape[-1])  # type: ignore[attr-defined]


def _pointwise_flops(func: OpOverload, args: tuple[object, ...], kwargs: dict[str, object], out: object) -> int:
    """FLOPs of an element-wise operation or a reduction."""
    name = operation_name(func)
    is_complex = _is_complex([out, args])
    floats = is_complex or any(
        isinstance(value, torch.Tensor) and value.is_floating_point() for value in tree_leaves([out, args])
    )
    if func.is_view or not floats or (name.startswith(FREE_PREFIXES) and name != COMPUTES):
        return 0
    if name.startswith("nll_loss"):
        return _largest_numel(args[1:2])  # one addition per target
    if name == DIFFERENCES:
        return PER_DIFFERENCE * _count_pairs(args, out)
    if is_complex:
        return PER_COMPLEX_ELEMENT.get(name, COMPLEX_PART) * _largest_numel([out, args])
    rate = GELU_TANH if name == "gelu" and kwargs.get("approximate") == "tanh" else PER_ELEMENT.get(name, 1)
    return rate * _largest_numel([out, args])


def _check_indexed_write(args: tuple[object, ...]) -> None:
    """Raise `IndexError` if `x[indices] = values` has values of another shape, which fake tensors do not check."""
    target, indices, values = args[:3]
    given = [index for index in indices if index is not None]  # type: ignore[attr-defined]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return  # how many places a mask names is not known
    wanted, found = torch.ops.aten.index.Tensor(target, indices).shape, values.shape  # type: ignore[attr-defined]
    if torch.broadcast_shapes(wanted, found) != wanted:
        raise IndexError(f"values of shape {list(found)} for places of shape {list(wanted)}")


def _broadcasts_one(args: tuple[object, ...]) -> bool:
    """Whether tensors of a call differ in an extent that one of them has as 1."""
    shapes = [value.shape for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
    extents = [{shape[-axis] for shape in shapes if len(shape) >= axis} for axis in range(1, max(map(len, shapes)) + 1)]
    return any(1 in found and len(found) > 1 for found in extents)


class FlopCount(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
    """Counts what runs inside: `flops` by operation name, and `products`, the part that matrix units can do."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()
        self.products = 0
        self.calls = 0  # ATen calls
        self.broadcasts = 0  # element-wise calls in which an extent of 1 is broadcast
        self._factors: Counter[torch.dtype] = Counter()  # FLOPs of products by the dtype of their results' factors
        self._computed: set[torch.dtype] = set()

    @property
    def dtype(self) -> str:
        """The dtype of the factors of most of the products; without products the widest that is computed with."""
        ((most, _),) = self._factors.most_common(1) or [(None, 0)]
        widest = max(self._computed, key=lambda dtype: dtype.itemsize, default=torch.float32)
        return str(most or widest).removeprefix("torch.")

    def _note_dtype(self, products: int | None, count: int, args: tuple[object, ...]) -> None:
        kinds = [value.dtype for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        if products and kinds:
            self._factors[min(map(torch.dtype.to_real, kinds), key=lambda dtype: dtype.itemsize)] += products
        elif count:
            wide = {dtype.to_real() for dtype in kinds if dtype.is_floating_point or dtype.is_complex}
            self._computed.update(dtype for dtype in wide if dtype.itemsize > 1)

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        given = kwargs or {}
        if operation_name(func) in INDEXED_WRITES:
            _check_indexed_write(args)
        out = func(*args, **given)
        if func.namespace == "aten":
            self.calls += 1
            self.broadcasts += torch.Tag.pointwise in func.tags and _broadcasts_one(args)
            products = _product_flops(func, args, given, out)
            self.products += products or 0
            count = _pointwise_flops(func, args, given, out) if products is None else products
            self.flops.update({operation_name(func): count} if count else {})
            self._note_dtype(products, count, args)
        return out

    @property
    def total(self) -> int:
        """All FLOPs."""
        return sum(self.flops.values())


class UncompiledMode(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
    """A dispatch mode for which torch need not load its compiler (two seconds in each worker)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing here is compiled."""
        return False


class ComputeCount(UncompiledMode):
    """Tells `note` what torch computes inside with real tensors: name, FLOPs, bytes read and written by computing, and
    by copying (casts, `cat`, padding), after each operation.

    Allocations and views are free. Work of other threads and on the memory of tensors (numpy) is not seen.
    """

    def __init__(self, note: Callable[[str, int, int, int], None]) -> None:
        super().__init__()
        self.note = note

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        given = kwargs or {}
        out = func(*args, **given)
        name = operation_name(func)
        if func.namespace != "aten" or func.is_view or name.startswith(ALLOCATIONS):
            return out
        moved = sum(
            value.numel() * value.element_size()
            for value in tree_leaves([args, given, out])
            if isinstance(value, torch.Tensor)
        )
        if name.startswith(COPIES) and name != COMPUTES:
            self.note(name, 0, 0, moved)
            return out
        products = _product_flops(func, args, given, out)
        self.note(name, _pointwise_flops(func, args, given, out) if products is None else products, moved, 0)
        return out


class TermCount(UncompiledMode):
    """Finds the longest sum that runs inside: `terms`, at least 1."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = 1

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if func.namespace == "aten":
            self.terms = max(self.terms, summed_terms(func, args, kwargs or {}, out))
        return out


def summed_terms(func: OpOverload, args: tuple[object, ...], kwargs: dict[str, object], out: object) -> int:
    """Terms that one element of a result sums: k of a matrix product, elements of a convolution's filter, the reduced
    extents of a sum or a norm; 1 for anything else.
    """
    products = _product_flops(func, args, kwargs, out)
    if products is not None:
        return products // max(2 * _largest_numel([out]), 1)
    name = operation_name(func)
    if name == DIFFERENCES:
        return _count_pairs(args, out) // max(_largest_numel([out]), 1)
    if name in SUMS_ALONG_AN_AXIS and isinstance(args[0], torch.Tensor):
        return args[0].shape[args[1]] if args[0].dim() else 1
    if name.startswith("nll_loss"):
        return _largest_numel(args[1:2])  # one addition per target
    if not name.startswith(SUMS):
        return 1
    results = [value.numel() for value in tree_leaves(out) if isinstance(value, torch.Tensor) and value.numel()]
    sums = results[min(1, len(results) - 1)] if results else 1  # a norm returns its statistics second
    kernel = math.prod(args[1]) if name.startswith("avg_pool") and isinstance(args[1], (list, tuple)) else 1
    return max(kernel, _largest_numel(args[:1]) // sums)
