"""Broadcast operands: the index arithmetic that finds their elements, and the load."""

import math

import cutlass
from cutlass import cute

from workbench.kernels.host import DynamicTensor


@cute.jit
def load_broadcast(tensor, fragment, i, extent, width: cutlass.Constexpr, way: cutlass.Constexpr):
    """Load the elements of a broadcast operand for vector `i` of the result.

    Element e of the result reads element (e // inner) % size of the operand; `extent` is (inner, size).
    """
    inner, size = extent
    if cutlass.const_expr(way == "one"):  # one element for the whole vector
        value = tensor[i * width // inner % size]
        for e in cutlass.range_constexpr(width):
            fragment[e] = value
    elif cutlass.const_expr(way == "run"):  # consecutive elements
        cute.autovec_copy(cute.zipped_divide(tensor, (width,))[None, i % (size // width)], fragment)
    else:
        for e in cutlass.range_constexpr(width):
            fragment[e] = tensor[(i * width + e) // inner % size]


class BroadcastOperand:
    """An operand that is broadcast to `shape`; its element for flat index `at` is (at // inner) % size.

    It is expanded and copied if no such (inner, size) exists. `way` says how a vector of `width` elements reads it:
    one, run or each.
    """

    def __init__(self, tensor, shape, width):
        sizes = [1] * (len(shape) - tensor.dim()) + list(tensor.shape)
        own = [n for n, size in enumerate(sizes) if size != 1] or [len(shape)]
        if any(sizes[n] != shape[n] for n in range(own[0], own[-1] + 1) if n < len(shape)):
            tensor, own = tensor.expand(shape), [len(shape) - 1]
        tensor, inner = tensor.contiguous().view(-1), math.prod(shape[own[-1] + 1 :])
        one = inner % width == 0 or tensor.numel() == 1
        run = inner == 1 and tensor.numel() % width == 0 and tensor.data_ptr() % 16 == 0
        self.way = "one" if one else "run" if run else "each"
        self.tensor, self.inner, self.size = tensor, inner, tensor.numel()


def broadcast_tensor(place):
    """Return the CuTe tensor of a broadcast operand."""
    return DynamicTensor(place.tensor, align=16 if place.way == "run" else None)
