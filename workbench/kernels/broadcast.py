"""Operands that are repeated over a larger shape: a torch tensor -> what a kernel needs to find its elements, and the load."""

import math

import cutlass
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.jit
def load_broadcast(tensor, fragment, i, part, extent, width: cutlass.Constexpr, way: cutlass.Constexpr):
    """Load what vector i of the result meets, number `part` of its row.

    Element (place // inner) % size of the tensor stands at each place.
    """
    inner, size = extent
    if cutlass.const_expr(way == "row"):  # one element for each of a row's
        cute.autovec_copy(cute.zipped_divide(tensor, (width,))[None, part], fragment)
    elif cutlass.const_expr(way == "one"):  # one element for the whole vector
        value = tensor[i * width // inner % size]
        for e in cutlass.range_constexpr(width):
            fragment[e] = value
    elif cutlass.const_expr(way == "run"):  # as many neighbours
        cute.autovec_copy(cute.zipped_divide(tensor, (width,))[None, i % (size // width)], fragment)
    else:
        for e in cutlass.range_constexpr(width):
            fragment[e] = tensor[(i * width + e) // inner % size]


class Placement:
    """A tensor that is repeated over `shape`: its element (place // inner) % size stands at each place.

    It is copied to its full shape where no such numbers exist. `way` says how a vector of `width` places reads it;
    `columns` are the elements of a row, 0 where a vector's number in its row is not known.
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
