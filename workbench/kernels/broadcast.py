"""Broadcast operands: the index arithmetic that finds their elements, and the load.

Element e of the result reads element (e // inner) % size of an operand; its `extent` is (inner, size). `way` says how a
vector of elements of the result reads it:

- one: one element; run: neighbouring elements; each: each element by itself;
- single, row: the operand's only element, or the same one for a whole row, loaded once in place of the extent;
- edge, edges: a CTA reads two neighbouring elements, loaded once; vectors may lie across their edge (edges) or not.
"""

import math

import cutlass
from cutlass import cute

from workbench.kernels.host import DynamicTensor
from workbench.kernels.static import Many


@cute.jit
def load_broadcast(tensor, fragment, i, extent, width: cutlass.Constexpr, way: cutlass.Constexpr):
    """Load the elements of a broadcast operand for vector `i` of the result."""
    if cutlass.const_expr(way in ("single", "row")):
        for e in cutlass.range_constexpr(width):
            fragment[e] = extent.to(fragment.element_type)
    elif cutlass.const_expr(way == "edge"):
        edge, before, after = extent
        value = cutlass.select_(i * width < edge, before, after)
        for e in cutlass.range_constexpr(width):
            fragment[e] = value
    elif cutlass.const_expr(way == "edges"):
        edge, before, after = extent
        for e in cutlass.range_constexpr(width):
            fragment[e] = cutlass.select_(i * width + e < edge, before, after)
    elif cutlass.const_expr(way == "one"):
        inner, size = extent
        value = tensor[i * width // inner % size]
        for e in cutlass.range_constexpr(width):
            fragment[e] = value
    elif cutlass.const_expr(way == "run"):
        _, size = extent
        cute.autovec_copy(cute.zipped_divide(tensor, (width,))[None, i % (size // width)], fragment)
    else:
        inner, size = extent
        for e in cutlass.range_constexpr(width):
            fragment[e] = tensor[(i * width + e) // inner % size]


def bool_as_int8(value):
    """Return a value that several regions read; a bool as a number: CuTe DSL extends it where it is stored first."""
    return value.to(cutlass.Int8) if isinstance(value, cutlass.Boolean) else value


def hoist_row_element(tensor, extent, row, way):
    """Return the element of a row in place of the extent, if all of the row reads it; its inner extent is in rows."""
    if cutlass.const_expr(way == "single"):
        return bool_as_int8(tensor[0])
    if cutlass.const_expr(way == "row"):
        inner, size = extent
        return bool_as_int8(tensor[row // inner % size])
    return extent


def hoist_edge_elements(tensor, extent, first, way):
    """Return what `load_broadcast` takes for elements of the result from `first` on, if these read at most two.

    That is the index from which on they read the second, and both.
    """
    if cutlass.const_expr(way == "single"):
        return bool_as_int8(tensor[0])
    if cutlass.const_expr(way in ("edge", "edges")):
        inner, size = extent
        place = first // inner
        return (place + 1) * inner, tensor[place % size], tensor[(place + 1) % size]
    return extent


class BroadcastOperand:
    """An operand that is broadcast to `shape`, for vectors of `width` elements.

    It is expanded and copied if there are no (inner, size). `run`: neighbouring elements of a row of the result;
    `rows`: how many rows there are if each has several such runs. `span`: neighbouring elements that a CTA computes.
    """

    def __init__(self, tensor, shape, width, run=0, rows=0, span=0):
        sizes = [1] * (len(shape) - tensor.dim()) + list(tensor.shape)
        own = [n for n, size in enumerate(sizes) if size != 1] or [len(shape)]
        if any(sizes[n] != shape[n] for n in range(own[0], own[-1] + 1) if n < len(shape)):
            tensor, own = tensor.expand(shape), [len(shape) - 1]
        tensor, inner = tensor.contiguous().view(-1), math.prod(shape[own[-1] + 1 :])
        size = tensor.numel()
        is_whole = inner % width == 0 or size == 1
        if (run or span) and size == 1:
            self.way = "single"
        elif run and ((inner, size) == (run, rows) if rows else inner % run == 0):
            self.way, inner = "row", inner // run
        elif span and inner >= span:
            self.way = "edge" if is_whole else "edges"
        elif inner == 1 and size % width == 0 and tensor.data_ptr() % 16 == 0 and not is_whole:
            self.way = "run"
        else:
            self.way = "one" if is_whole else "each"
        self.tensor, self.inner, self.size = tensor, inner, size


def are_alike(places: Many):
    """Return whether all operands have one extent: kernels then find a place once for all of them."""
    first = places[0]
    return all((place.inner, place.size) == (first.inner, first.size) for place in places)


def are_columns(places: Many, width):
    """Return whether all operands have one element for each column, and enough columns for a warp's vectors."""
    return all(place.way == "run" for place in places) and are_alike(places) and places[0].size >= 32 * width


def broadcast_tensor(place):
    """Return the CuTe tensor of a broadcast operand."""
    return DynamicTensor(place.tensor, align=16 if place.way == "run" else None)
