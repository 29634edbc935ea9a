"""Elementwise expressions of torch tensors of one shape, and of tensors that broadcast to it."""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute

from workbench.kernels.broadcast import (
    BroadcastOperand,
    are_alike,
    are_columns,
    broadcast_tensor,
    hoist_edge_elements,
    load_broadcast,
)
from workbench.kernels.elementwise.columns import compute_columns, flat_tensor
from workbench.kernels.host import (
    EXACT_DTYPES,
    FLOAT_DTYPES,
    READ_DTYPES,
    call,
    check_operand,
    promote_dtypes,
    split_launches,
)
from workbench.kernels.static import Many, Static, bind, torch_dtype


@cute.kernel
def elementwise_kernel(cfg: Static, inputs: Many[cute.Tensor], out: cute.Tensor, count: cutlass.Int32):
    """Compute one element per thread."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * cfg.threads + tidx
    if i < count:
        out[i] = cfg.expression(*(x[i].to(cutlass.Float32) for x in inputs)).to(out.element_type)


@cute.jit
def launch_elementwise(
    cfg: Static, inputs: Many[cute.Tensor], out: cute.Tensor, count: cutlass.Int32, stream: cuda.CUstream
):
    ctas = (count + cfg.threads - 1) // cfg.threads
    elementwise_kernel(cfg, inputs, out, count).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)


@cute.kernel
def vector_kernel(
    cfg: Static, inputs: Many[cute.Tensor], out: cute.Tensor, count: cutlass.Int32, width: cutlass.Constexpr
):
    """Compute `width` neighbouring elements per thread, with one access per tensor."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * cfg.threads + tidx
    if i < count // width:
        parts = tuple(cute.make_rmem_tensor(cute.make_layout(width), x.element_type) for x in inputs)
        for x, part in zip(inputs, parts, strict=True):
            cute.autovec_copy(cute.zipped_divide(x, (width,))[None, i], part)
        result = cute.make_rmem_tensor(cute.make_layout(width), out.element_type)
        for e in cutlass.range_constexpr(width):
            result[e] = cfg.expression(*(part[e].to(cutlass.Float32) for part in parts)).to(out.element_type)
        cute.autovec_copy(result, cute.zipped_divide(out, (width,))[None, i])


@cute.jit
def launch_vectors(
    cfg: Static,
    inputs: Many[cute.Tensor],
    out: cute.Tensor,
    count: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    ctas = (count // width + cfg.threads - 1) // cfg.threads
    vector_kernel(cfg, inputs, out, count, width).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)


@cute.kernel
def unrolled_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    out: cute.Tensor,
    count: cutlass.Int32,
    extents: Many,
    width: cutlass.Constexpr,
    ways: cutlass.Constexpr,
    alike: cutlass.Constexpr,
):
    """Compute UNROLL vectors of `width` elements per thread; all loads are issued before the first use.

    `alike`: whether the broadcast tensors have one extent.
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    begin = bidx * (cfg.threads * cfg.unroll)
    first = begin + tidx
    vectors = count // width
    common = tuple(extents[0] if cutlass.const_expr(alike) else extent for extent in extents)
    held = tuple(
        hoist_edge_elements(b, extent, begin * width, ways[n])
        for n, (b, extent) in enumerate(zip(repeated, common, strict=True))
    )
    parts = tuple(
        cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type) for x in (*inputs, *repeated)
    )
    for turn in cutlass.range_constexpr(cfg.unroll):
        i = first + turn * cfg.threads
        if i < vectors:
            for x, part in zip(inputs, parts[: len(inputs)], strict=True):
                cute.autovec_copy(cute.zipped_divide(x, (width,))[None, i], part[None, turn])
            for n, (b, part, extent) in enumerate(zip(repeated, parts[len(inputs) :], held, strict=True)):
                load_broadcast(b, part[None, turn], i, extent, width, ways[n])
    for turn in cutlass.range_constexpr(cfg.unroll):
        i = first + turn * cfg.threads
        if i < vectors:
            result = cute.make_rmem_tensor(cute.make_layout(width), out.element_type)
            for e in cutlass.range_constexpr(width):
                value = cfg.expression(*(part[e, turn].to(cutlass.Float32) for part in parts))
                result[e] = value.to(out.element_type)
            cute.autovec_copy(result, cute.zipped_divide(out, (width,))[None, i])
    if bidx == 0:  # the elements after the last whole vector
        i = vectors * width + tidx
        if i < count:
            values = tuple(x[i].to(cutlass.Float32) for x in inputs)
            others = tuple(load_element(b, i, extent) for b, extent in zip(repeated, extents, strict=True))
            out[i] = cfg.expression(*values, *others).to(out.element_type)


@cute.jit
def load_element(tensor, i, extent):
    """Return element `i` of a broadcast tensor as float32."""
    inner, size = extent
    return tensor[i // inner % size].to(cutlass.Float32)


@cute.jit
def launch_unrolled(
    cfg: Static,
    inputs: Many[cute.Tensor],
    repeated: Many[cute.Tensor],
    out: cute.Tensor,
    count: cutlass.Int32,
    inners: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    ways: cutlass.Constexpr,
    alike: cutlass.Constexpr,
):
    span = cfg.threads * cfg.unroll  # vectors per CTA
    ctas = (count // width + span - 1) // span
    extents = tuple((inner, size) for inner, size in zip(inners, sizes, strict=True))
    unrolled_kernel(cfg, inputs, repeated, out, count, extents, width, ways, alike).launch(
        grid=[cutlass.max(ctas, 1), 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


def elementwise(cfg: Static, names: Static, inputs: Many):
    """Return an expression of tensors of one shape.

    The first is float32, float16 or bfloat16, unless the result is cast; the others may also have a dtype that float32
    represents exactly.
    """
    shape = inputs[0].shape
    for n, (name, x) in enumerate(zip(names, inputs, strict=True)):
        if cutlass.const_expr(cfg.reads_integers):
            check_operand(name, x, shape, READ_DTYPES if n + len(cfg.out) else FLOAT_DTYPES)
        else:
            check_operand(name, x, shape, EXACT_DTYPES if n + len(cfg.out) else FLOAT_DTYPES)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    out = torch.empty(
        shape, dtype=torch_dtype(cfg.out) if cfg.out else promote_dtypes(*inputs), device=inputs[0].device
    )
    if out.numel() == 0:
        return out
    for pieces in split_launches(*inputs, out):
        *inputs, part = pieces
        count = cutlass.Int32(part.numel())
        if cutlass.const_expr(cfg.vector > 1):
            whole = part.numel() % cfg.vector == 0 and are_aligned(*inputs, part)
            width = cfg.vector if whole else 1
            call(
                bind(launch_vectors, cfg),
                (*(x.dtype for x in inputs), width),
                (tuple(flat_tensor(x, width) for x in inputs), flat_tensor(part, width), count),
                (width,),
            )
        else:
            call(
                bind(launch_elementwise, cfg),
                (*(x.dtype for x in inputs),),
                (tuple(flat_tensor(x, 1) for x in inputs), flat_tensor(part, 1), count),
            )
    return out


def result_dtype(cfg: Static, tensors: Many):
    """Return the dtype of the result: that of a cast, else torch's for these tensors."""
    return torch_dtype(cfg.out) if cfg.out else promote_dtypes(*tensors)


def unrolled_elementwise(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Return an expression of tensors, some of which may broadcast to the others, with several vectors per thread.

    The first is float32, float16 or bfloat16, unless the result is cast; the others may also have a dtype that float32
    represents exactly.
    """
    if cutlass.const_expr(len(inputs) > 0):
        shape = inputs[0].shape
    else:
        shape = torch.broadcast_shapes(*(b.shape for b in repeated))
    for n, (name, x) in enumerate(zip(names, (*inputs, *repeated), strict=True)):
        if cutlass.const_expr(cfg.reads_integers):
            check_operand(name, x, shape, READ_DTYPES if n + len(cfg.out) else FLOAT_DTYPES, broadcast=n >= len(inputs))
        else:
            check_operand(
                name, x, shape, EXACT_DTYPES if n + len(cfg.out) else FLOAT_DTYPES, broadcast=n >= len(inputs)
            )
    inputs = tuple(x.detach().contiguous() for x in inputs)
    repeated = tuple(b.detach() for b in repeated)
    tensors = (*inputs, *repeated)
    out = torch.empty(shape, dtype=result_dtype(cfg, tensors), device=tensors[0].device)
    if out.numel() == 0:
        return out
    for pieces in split_launches(*tensors, out):
        *tensors, part = pieces
        compute_vectors(cfg, tensors[: len(inputs)], tensors[len(inputs) :], part)
    return out


def compute_vectors(cfg: Static, inputs: Many, repeated: Many, out):
    """Write an expression of contiguous tensors of the shape of `out` and of tensors that are broadcast to it."""
    width = cfg.vector if are_aligned(*inputs, out) else 1
    span = width * cfg.threads * cfg.unroll
    places = tuple(BroadcastOperand(b, out.shape, width, span=span) for b in repeated)
    ways = tuple(place.way for place in places)
    if cutlass.const_expr(len(repeated) > 0):
        alike = are_alike(places)
        if are_columns(places, width):
            compute_columns(cfg, inputs, places, out, width)
            return
    else:
        alike = False
    call(
        bind(launch_unrolled, cfg),
        (*(x.dtype for x in inputs), *(b.dtype for b in repeated), out.dtype, width, *ways, alike),
        (
            tuple(flat_tensor(x, width) for x in inputs),
            tuple(broadcast_tensor(place) for place in places),
            flat_tensor(out, width),
            out.numel(),
            tuple(place.inner for place in places),
            tuple(place.size for place in places),
        ),
        (width, ways, alike),
    )


def are_aligned(*tensors):
    """Return whether all tensors start at multiples of 16 bytes."""
    return all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
