"""Broadcast operands: the index arithmetic that finds their elements, and the load."""

import math

import cutlass
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.jit
def load_broadcast(tensor, fragment, i, part, extent, width: cutlass.Constexpr, way: cutlass.Constexpr):
    """Load the elements of a broadcast operand for vector `i` of the result, number `part` of its row.

    Element e of the result reads element (e // inner) % size of the operand; `extent` is (inner, size).
    """
    inner, size = extent
    if cutlass.const_expr(way == "row"):  # one element per column
        cute.autovec_copy(cute.zipped_divide(tensor, (width,))[None, part], fragment)
    elif cutlass.const_expr(way == "one"):  # one element for the whole vector
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
    row, one, run or each. `columns`: elements of a row, or 0 if the kernel does not know a vector's position in its
    row.
    """

    def __init__(self, tensor, shape, width, columns=0):
        sizes = [1] * (len(shape) - tensor.dim()) + list(tensor.shape)
        own = [n for n, size in enumerate(sizes) if size != 1] or [len(shape)]
        if any(sizes[n] != shape[n] for n in range(own[0], own[-1] + 1) if n < len(shape)):
            tensor, own = tensor.expand(shape), [len(shape) - 1]
        tensor, inner = tensor.contiguous().view(-1), math.prod(shape[own[-1] + 1 :])
        one = inner % width == 0 or tensor.numel() == 1
        run = inner == 1 and tensor.numel() % width == 0 and (width == 1 or tensor.data_ptr() % 16 == 0)
        row = run and tensor.numel() == columns
        self.way = "row" if row else "one" if one else "run" if run else "each"
        self.extent = cutlass.Int32(inner), cutlass.Int32(tensor.numel())
        is_aligned = self.way in ("row", "run") and width > 1
        self.tensor = from_dlpack(tensor, assumed_align=16 if is_aligned else None).mark_layout_dynamic()
