"""Direct convolution with register blocking: each thread computes several rows of outputs for several filters.

x (n, c, d, h, w), w (k, c / groups, t, r, s) -> y (n, k, z, p, q). A thread reads each input row once for all outputs
and filters that need it. That suits depthwise convolutions, which are bound by memory.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Many, Static


def find_output_row(cfg: Static, row, tap, stride, dilation):
    """Return which of the thread's outputs reads this input row by this tap, or None."""
    distance = row - tap * dilation[1]
    if distance % stride[1] == 0 and 0 <= distance < cfg.rows * stride[1]:
        return distance // stride[1]
    return None


@cute.jit
def load_factors(
    cfg: Static, mW: cute.Tensor, rW: cute.Tensor, coord: cute.Coord, last: cutlass.Int32, taps: cutlass.Constexpr
):
    """Load the taps (r, s) of one channel and one t, of this thread's filters, as float32."""
    first_filter, c, t = coord
    for f in cutlass.range_constexpr(cfg.filters):
        for r in cutlass.range_constexpr(taps[1]):
            for s in cutlass.range_constexpr(taps[2]):
                k = cutlass.min(first_filter + f, last - 1)
                rW[f, r, s] = mW[k, c, t, r, s].to(cutlass.Float32)


@cute.jit
def load_rows(
    cfg: Static,
    mX: cute.Tensor,
    rX: cute.Tensor,
    offset: cutlass.Int64,
    h0: cutlass.Int32,
    w0: cutlass.Int32,
    stride: cutlass.Constexpr,
    padding: cutlass.Constexpr,
    dilation: cutlass.Constexpr,
    taps: cutlass.Constexpr,
):
    """Load the input rows of the thread's outputs; elements outside x become zeros. `offset` is that of (h0, w0)."""
    for row in cutlass.range_constexpr(cute.size(rX, mode=[0])):
        if cutlass.const_expr(any(find_output_row(cfg, row, r, stride, dilation) is not None for r in range(taps[1]))):
            h = h0 + row
            line = cute.make_tensor(mX.iterator + offset, cute.make_layout(taps[2], stride=dilation[2] * mX.stride[4]))
            for s in cutlass.range_constexpr(taps[2]):
                w = w0 + s * dilation[2]
                value = mX.element_type(0.0)
                if cutlass.const_expr(padding[2] > 0):
                    if (h >= 0) & (h < mX.shape[3]) & (w >= 0) & (w < mX.shape[4]):
                        value = line[s]
                else:
                    if (h >= 0) & (h < mX.shape[3]):
                        value = line[s]
                rX[row, s] = value
        offset += mX.stride[3]


@cute.jit
def accumulate_rows(
    cfg: Static,
    rX: cute.Tensor,
    rW: cute.Tensor,
    acc: cute.Tensor,
    stride: cutlass.Constexpr,
    dilation: cutlass.Constexpr,
    taps: cutlass.Constexpr,
):
    """Accumulate the products of the loaded rows into the outputs of each filter."""
    for row in cutlass.range_constexpr(cute.size(rX, mode=[0])):
        for s in cutlass.range_constexpr(taps[2]):
            value = rX[row, s].to(cutlass.Float32)
            for r in cutlass.range_constexpr(taps[1]):
                out = find_output_row(cfg, row, r, stride, dilation)
                if cutlass.const_expr(out is not None):
                    for f in cutlass.range_constexpr(cfg.filters):
                        acc[f, out] += value * rW[f, r, s]


@cute.jit
def store_outputs(
    cfg: Static, acc: cute.Tensor, operands: Many, mY: cute.Tensor, coord: cute.Coord, last: cutlass.Int32
):
    """Apply the epilogue to the thread's accumulators and store them, predicated on the shape of y."""
    n, first_filter, z, p, q = coord
    for f in cutlass.range_constexpr(cfg.filters):
        k = first_filter + f
        if k < last:
            offset = cutlass.Int64(n) * mY.stride[0] + cutlass.Int64(k) * mY.stride[1]
            offset = offset + (z * mY.shape[3] + p) * mY.shape[4] + q
            for row in cutlass.range_constexpr(cfg.rows):
                total = acc[f, row]
                if cutlass.const_expr(cfg.epilogue is not None):
                    elements = tuple(
                        x[k] if read.along == "n" else load_element(x, offset, p + row < mY.shape[3])
                        for x, read in zip(operands, cfg.reads, strict=True)
                    )
                    total = cfg.epilogue(total, elements)
                if p + row < mY.shape[3]:
                    target = cute.make_tensor(mY.iterator + offset, cute.make_layout(1))
                    target[0] = total.to(mY.element_type)
                offset += mY.shape[4]


@cute.jit
def load_element(x: cute.Tensor, offset: cutlass.Int64, inside: cutlass.Boolean):
    """Return the element at an offset, or zero if not `inside`."""
    value = x.element_type(0.0)
    if inside:
        value = cute.make_tensor(x.iterator + offset, cute.make_layout(1))[0]
    return value


@cute.kernel
def sliding_conv_kernel(
    cfg: Static,
    mX: cute.Tensor,
    mW: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    groups: cutlass.Int32,
    stride: cutlass.Constexpr,
    padding: cutlass.Constexpr,
    dilation: cutlass.Constexpr,
    taps: cutlass.Constexpr,
):
    """Compute a run of output rows per thread and filter block; each input row is read once."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, first_slab = cute.arch.block_idx()
    _, _, grid_z = cute.arch.grid_dim()
    runs = (mY.shape[3] + cfg.rows - 1) // cfg.rows * mY.shape[4]
    # filters and positions share grid x: y and z are limited to 65535
    filter_block, block = divide(bidx, (runs + cfg.threads - 1) // cfg.threads)
    run, q = divide(block * cfg.threads + tidx, mY.shape[4])
    p = run * cfg.rows
    filters_per_group = mY.shape[1] // groups
    group, own = divide(filter_block, (filters_per_group + cfg.filters - 1) // cfg.filters)
    first_filter, last = group * filters_per_group + own * cfg.filters, (group + 1) * filters_per_group
    first_channel = group * mW.shape[1]
    acc = cute.make_rmem_tensor(cute.make_layout((cfg.filters, cfg.rows)), cutlass.Float32)
    rW = cute.make_rmem_tensor(cute.make_layout((cfg.filters, taps[1], taps[2])), cutlass.Float32)
    input_rows = (cfg.rows - 1) * stride[1] + (taps[1] - 1) * dilation[1] + 1
    rX = cute.make_rmem_tensor(cute.make_layout((input_rows, taps[2])), mX.element_type)
    if p < mY.shape[3]:
        for slab in cutlass.range(first_slab, mY.shape[0] * mY.shape[2], grid_z, unroll=1):
            n, z = divide(slab, mY.shape[2])
            acc.fill(0.0)
            for c in cutlass.range(mW.shape[1], unroll=1):
                for t in cutlass.range(taps[0], unroll=1):
                    d = z * stride[0] - padding[0] + t * dilation[0]
                    if (d >= 0) & (d < mX.shape[2]):
                        load_factors(cfg, mW, rW, (first_filter, c, t), last, taps)
                        offset = cutlass.Int64(n) * mX.stride[0] + cutlass.Int64(first_channel + c) * mX.stride[1]
                        offset += cutlass.Int64(d) * mX.stride[2]
                        h0, w0 = p * stride[1] - padding[1], q * stride[2] - padding[2]
                        offset += h0 * mX.stride[3] + w0 * mX.stride[4]
                        load_rows(cfg, mX, rX, offset, h0, w0, stride, padding, dilation, taps)
                        accumulate_rows(cfg, rX, rW, acc, stride, dilation, taps)
            store_outputs(cfg, acc, operands, mY, (n, first_filter, z, p, q), last)


@cute.jit
def sliding_conv(
    cfg: Static,
    mX: cute.Tensor,
    mW: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    groups: cutlass.Int32,
    stream: cuda.CUstream,
    stride: cutlass.Constexpr,
    padding: cutlass.Constexpr,
    dilation: cutlass.Constexpr,
    taps: cutlass.Constexpr,
):
    """x (n, c, d, h, w), w (k, c / groups, t, r, s), y (n, k, z, p, q); settings have three extents."""
    runs = (mY.shape[3] + cfg.rows - 1) // cfg.rows * mY.shape[4]
    blocks = (runs + cfg.threads - 1) // cfg.threads
    filter_blocks = (mY.shape[1] // groups + cfg.filters - 1) // cfg.filters * groups
    sliding_conv_kernel(cfg, mX, mW, operands, mY, groups, stride, padding, dilation, taps).launch(
        grid=[blocks * filter_blocks, 1, cutlass.min(mY.shape[0] * mY.shape[2], 65535)],
        block=[cfg.threads, 1, 1],
        stream=stream,
    )
