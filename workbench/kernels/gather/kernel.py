"""Kernels of gather, scatter_add and scatter_max; each thread accesses UNROLL vectors or elements.

Tensors are viewed as (outer, extent, inner): the axes before the gathered axis, that axis, the axes after it. An index
out of range becomes an unmapped address, so a GPU and the emulator report an error instead of a wrong result.
Maxima are taken of integers that compare as the numbers do, so that they have an atomic, and NaN stays.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static
from workbench.kernels.top_k.kernel import order_bits

UNTOUCHED = -(2**31)  # below the bits of every number
UNMAPPED_OFFSET = 1 << 44  # an element offset that is never mapped


@cute.jit
def checked_offset(place, number, extent):
    """Return the offset, or an unmapped one if the index is out of range."""
    return place if number >= 0 and number < extent else cutlass.Int64(UNMAPPED_OFFSET)


@cute.kernel
def layers_kernel(
    cfg: Static,
    x: cute.Tensor,
    index: cute.Tensor,
    y: cute.Tensor,
    extent: cutlass.Int32,
    layers: cutlass.Int32,
    inner: cutlass.Int32,
    width: cutlass.Constexpr,
    count_type: cutlass.Constexpr,
):
    """y (outer, layers, inner) = x (outer, extent, inner)[:, index (layers)]; inner counts vectors."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    gX, gY = cute.zipped_divide(x, (width,)), cute.zipped_divide(y, (width,))
    total = count_type(cute.size(y) // width)
    fragment = cute.make_rmem_tensor(cute.make_layout((width, cfg.unroll)), x.element_type)
    for u in cutlass.range_constexpr(cfg.unroll):
        at = (count_type(bidx) * cfg.unroll + u) * cfg.threads + tidx
        if at < total:
            row = at // inner
            layer = cutlass.Int64(index[row % layers])
            place = (cutlass.Int64(row // layers) * extent + layer) * inner + at % inner
            cute.autovec_copy(gX[None, checked_offset(place, layer, extent)], fragment[None, u])
    for u in cutlass.range_constexpr(cfg.unroll):
        at = (count_type(bidx) * cfg.unroll + u) * cfg.threads + tidx
        if at < total:
            cute.autovec_copy(fragment[None, u], gY[None, at])


@cute.jit
def launch_layers(
    cfg: Static,
    x: cute.Tensor,
    index: cute.Tensor,
    y: cute.Tensor,
    extent: cutlass.Int32,
    layers: cutlass.Int32,
    inner: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    count_type: cutlass.Constexpr,
):
    ctas = (cute.size(y) // width + cfg.threads * cfg.unroll - 1) // (cfg.threads * cfg.unroll)
    layers_kernel(cfg, x, index, y, extent, layers, inner, width, count_type).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


@cute.kernel
def elements_kernel(
    cfg: Static,
    x: cute.Tensor,
    index: cute.Tensor,
    y: cute.Tensor,
    extent: cutlass.Int32,
    layers: cutlass.Int32,
    inner: cutlass.Int32,
    count_type: cutlass.Constexpr,
):
    """y[o, j, i] = x[o, index[o, j, i], i]; y and index are (outer, layers, inner), x is (outer, extent, inner)."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    total = count_type(cute.size(y))
    fragment = cute.make_rmem_tensor(cfg.unroll, x.element_type)
    for u in cutlass.range_constexpr(cfg.unroll):
        at = (count_type(bidx) * cfg.unroll + u) * cfg.threads + tidx
        if at < total:
            row = cutlass.Int64(index[at])
            place = (cutlass.Int64(at // inner // layers) * extent + row) * inner + at % inner
            fragment[u] = x[checked_offset(place, row, extent)]
    for u in cutlass.range_constexpr(cfg.unroll):
        at = (count_type(bidx) * cfg.unroll + u) * cfg.threads + tidx
        if at < total:
            y[at] = fragment[u]


@cute.jit
def launch_elements(
    cfg: Static,
    x: cute.Tensor,
    index: cute.Tensor,
    y: cute.Tensor,
    extent: cutlass.Int32,
    layers: cutlass.Int32,
    inner: cutlass.Int32,
    stream: cuda.CUstream,
    count_type: cutlass.Constexpr,
):
    ctas = (cute.size(y) + cfg.threads * cfg.unroll - 1) // (cfg.threads * cfg.unroll)
    elements_kernel(cfg, x, index, y, extent, layers, inner, count_type).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


@cute.kernel
def scatter_kernel(
    cfg: Static,
    y: cute.Tensor,
    index: cute.Tensor,
    src: cute.Tensor,
    extent: cutlass.Int32,
    layers: cutlass.Int32,
    inner: cutlass.Int32,
    count_type: cutlass.Constexpr,
):
    """Take each element of src (outer, layers, inner) into y (outer, extent, inner) at its index.

    y is float32 for sums, and for maxima int32: the bits of numbers in their order.
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    total = count_type(cute.size(src))
    for u in cutlass.range_constexpr(cfg.unroll):
        at = (count_type(bidx) * cfg.unroll + u) * cfg.threads + tidx
        if at < total:
            row = cutlass.Int64(index[at // inner % layers] if cfg.layers else index[at])
            place = (cutlass.Int64(at // inner // layers) * extent + row) * inner + at % inner
            place = checked_offset(place, row, extent)
            if cutlass.const_expr(cfg.op == "max"):
                cute.arch.atomic_max(y.iterator + place, order_bits(src[at]), sem="relaxed", scope="gpu")
            else:
                cute.arch.atomic_add(y.iterator + place, src[at].to(cutlass.Float32), sem="relaxed", scope="gpu")


@cute.jit
def launch_scatter(
    cfg: Static,
    y: cute.Tensor,
    index: cute.Tensor,
    src: cute.Tensor,
    extent: cutlass.Int32,
    layers: cutlass.Int32,
    inner: cutlass.Int32,
    stream: cuda.CUstream,
    count_type: cutlass.Constexpr,
):
    ctas = (cute.size(src) + cfg.threads * cfg.unroll - 1) // (cfg.threads * cfg.unroll)
    scatter_kernel(cfg, y, index, src, extent, layers, inner, count_type).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


@cute.kernel
def copy_kernel(cfg: Static, source: cute.Tensor, target: cute.Tensor):
    """Copy and convert one element per thread."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = cutlass.Int64(bidx) * cfg.threads + tidx
    if at < cute.size(source):
        target[at] = source[at].to(cutlass.Float32).to(target.element_type)


@cute.jit
def launch_copy(cfg: Static, source: cute.Tensor, target: cute.Tensor, stream: cuda.CUstream):
    ctas = (cute.size(source) + cfg.threads - 1) // cfg.threads
    copy_kernel(cfg, source, target).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)


@cute.kernel
def mark_kernel(cfg: Static, target: cute.Tensor):
    """Mark one element per thread as untouched."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = cutlass.Int64(bidx) * cfg.threads + tidx
    if at < cute.size(target):
        target[at] = cutlass.Int32(UNTOUCHED)


@cute.jit
def launch_mark(cfg: Static, target: cute.Tensor, stream: cuda.CUstream):
    ctas = (cute.size(target) + cfg.threads - 1) // cfg.threads
    mark_kernel(cfg, target).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)


@cute.kernel
def choose_kernel(cfg: Static, bits: cute.Tensor, out: cute.Tensor, target: cute.Tensor):
    """Write one element per thread: the number of the bits, or out's where they are untouched."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = cutlass.Int64(bidx) * cfg.threads + tidx
    if at < cute.size(target):
        found = bits[at]
        value = (found ^ ((found >> 31) & 0x7FFFFFFF)).bitcast(cutlass.Float32)
        if found == UNTOUCHED:
            value = out[at].to(cutlass.Float32)
        target[at] = value.to(target.element_type)


@cute.jit
def launch_choose(cfg: Static, bits: cute.Tensor, out: cute.Tensor, target: cute.Tensor, stream: cuda.CUstream):
    ctas = (cute.size(target) + cfg.threads - 1) // cfg.threads
    choose_kernel(cfg, bits, out, target).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
