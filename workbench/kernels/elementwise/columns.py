"""Elementwise expressions with operands that have one element per column: a thread stays in its columns.

It loads a vector of each such operand once for UNROLL rows, which are read and written in whole lines.
"""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.broadcast import broadcast_tensor
from workbench.kernels.host import DynamicTensor, call
from workbench.kernels.static import Many, Static, bind


@cute.kernel
def columns_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    out: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    width: cutlass.Constexpr,
):
    """Compute one vector of `width` elements in each of UNROLL rows per thread; `columns` are vectors of a row."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    thread = bidx * cfg.threads + tidx
    row = thread // columns * cfg.unroll
    column = thread % columns
    parts = tuple(cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type) for x in inputs)
    others = tuple(cute.make_rmem_tensor(cute.make_layout(width), b.element_type) for b in repeated)
    for turn in cutlass.range_constexpr(cfg.unroll):
        if row + turn < rows:
            for x, part in zip(inputs, parts, strict=True):
                i = (row + turn) * columns + column
                cute.autovec_copy(cute.zipped_divide(x, (width,))[None, i], part[None, turn])
    if row < rows:
        for b, other in zip(repeated, others, strict=True):
            cute.autovec_copy(cute.zipped_divide(b, (width,))[None, column], other)
    for turn in cutlass.range_constexpr(cfg.unroll):
        if row + turn < rows:
            result = cute.make_rmem_tensor(cute.make_layout(width), out.element_type)
            for e in cutlass.range_constexpr(width):
                values = tuple(part[e, turn].to(cutlass.Float32) for part in parts)
                spread = tuple(other[e].to(cutlass.Float32) for other in others)
                result[e] = cfg.expression(*values, *spread).to(out.element_type)
            cute.autovec_copy(result, cute.zipped_divide(out, (width,))[None, (row + turn) * columns + column])


@cute.jit
def launch_columns(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    out: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    threads = (rows + (cfg.unroll - 1)) // cfg.unroll * columns
    columns_kernel(cfg, inputs, repeated, out, rows, columns, width).launch(
        grid=[(threads + (cfg.threads - 1)) // cfg.threads, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


def compute_columns(cfg: Static, inputs: Many, places: Many, out, width):
    """Write an expression of contiguous tensors of the shape of `out` and of operands with one element per column."""
    size = places[0].size
    call(
        bind(launch_columns, cfg),
        (*(x.dtype for x in inputs), *(place.tensor.dtype for place in places), out.dtype, width),
        (
            tuple(flat_tensor(x, width) for x in inputs),
            tuple(broadcast_tensor(place) for place in places),
            flat_tensor(out, width),
            out.numel() // size,
            size // width,
        ),
        (width,),
    )


def flat_tensor(tensor, width):
    """Return the 1-d CuTe tensor of a contiguous tensor, accessed by vectors of `width` elements."""
    return DynamicTensor(tensor.view(-1), align=16 if width > 1 else None)
