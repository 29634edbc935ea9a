"""Direct convolution, one output per thread: x (n, c, d, h, w), w (k, c / groups, t, r, s) -> y (n, k, z, p, q)."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Many, Static


@cute.jit
def sum_taps(
    mX: cute.Tensor,
    mW: cute.Tensor,
    coord: cute.Coord,
    stride: cute.IntTuple,
    padding: cute.IntTuple,
    dilation: cute.IntTuple,
    filters_per_group: cutlass.Int32,
):
    """Return one output: the sum over all taps and the channels of the filter's group."""
    n, k, z, p, q = coord
    total = cutlass.Float32(0.0)
    first = k // filters_per_group * mW.shape[1]
    for c in range(mW.shape[1]):
        for t in range(mW.shape[2]):
            for r in range(mW.shape[3]):
                for s in range(mW.shape[4]):
                    d = z * stride[0] - padding[0] + t * dilation[0]
                    h = p * stride[1] - padding[1] + r * dilation[1]
                    w = q * stride[2] - padding[2] + s * dilation[2]
                    inside = (d >= 0) & (d < mX.shape[2]) & (h >= 0) & (h < mX.shape[3])
                    if inside & (w >= 0) & (w < mX.shape[4]):
                        total += mX[n, first + c, d, h, w].to(cutlass.Float32) * mW[k, c, t, r, s].to(cutlass.Float32)
    return total


@cute.jit
def sum_transposed_taps(
    mX: cute.Tensor,
    mW: cute.Tensor,
    coord: cute.Coord,
    stride: cute.IntTuple,
    padding: cute.IntTuple,
    dilation: cute.IntTuple,
    channels: cutlass.Int32,
):
    """Return one output of a transposed convolution, whose filters are (c, k / groups, t, r, s)."""
    n, k, z, p, q = coord
    total = cutlass.Float32(0.0)
    own = k % mW.shape[1]
    first = k // mW.shape[1] * channels
    for t in range(mW.shape[2]):
        for r in range(mW.shape[3]):
            for s in range(mW.shape[4]):
                # a tap contributes if its distance is a multiple of the stride
                away0 = z + padding[0] - t * dilation[0]
                away1 = p + padding[1] - r * dilation[1]
                away2 = q + padding[2] - s * dilation[2]
                if (away0 >= 0) & (away1 >= 0) & (away2 >= 0):
                    d, h, w = away0 // stride[0], away1 // stride[1], away2 // stride[2]
                    whole = (d * stride[0] == away0) & (h * stride[1] == away1) & (w * stride[2] == away2)
                    if whole & (d < mX.shape[2]) & (h < mX.shape[3]) & (w < mX.shape[4]):
                        for c in range(channels):
                            value = mX[n, first + c, d, h, w].to(cutlass.Float32)
                            total += value * mW[first + c, own, t, r, s].to(cutlass.Float32)
    return total


@cute.kernel
def direct_conv_kernel(
    cfg: Static,
    mX: cute.Tensor,
    mW: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    stride: cute.IntTuple,
    padding: cute.IntTuple,
    dilation: cute.IntTuple,
    groups: cutlass.Int32,
):
    """Compute one output per thread; neighbouring threads compute neighbouring positions."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, first_image = cute.arch.block_idx()
    _, _, grid_z = cute.arch.grid_dim()
    positions = mY.shape[2] * mY.shape[3] * mY.shape[4]
    # filters and positions share grid x: y and z are limited to 65535
    k, block = divide(bidx, (positions + cfg.threads - 1) // cfg.threads)
    line, q = divide(block * cfg.threads + tidx, mY.shape[4])
    z, p = divide(line, mY.shape[3])
    if z < mY.shape[2]:
        for n in cutlass.range(first_image, mY.shape[0], grid_z, unroll=1):
            coord = (n, k, z, p, q)
            if cutlass.const_expr(cfg.transposed):
                total = sum_transposed_taps(mX, mW, coord, stride, padding, dilation, mX.shape[1] // groups)
            else:
                total = sum_taps(mX, mW, coord, stride, padding, dilation, mY.shape[1] // groups)
            if cutlass.const_expr(cfg.epilogue is not None):
                total = cfg.epilogue(total, operands, n, k, z, p, q)
            mY[n, k, z, p, q] = total.to(mY.element_type)


@cute.jit
def direct_conv(
    cfg: Static,
    mX: cute.Tensor,
    mW: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    stride: cute.IntTuple,
    padding: cute.IntTuple,
    dilation: cute.IntTuple,
    groups: cutlass.Int32,
    stream: cuda.CUstream,
):
    """x (n, c, d, h, w), w in torch's layout, y (n, k, z, p, q); settings have three extents."""
    positions = mY.shape[2] * mY.shape[3] * mY.shape[4]
    blocks = (positions + cfg.threads - 1) // cfg.threads
    direct_conv_kernel(cfg, mX, mW, operands, mY, stride, padding, dilation, groups).launch(
        grid=[blocks * mY.shape[1], 1, cutlass.min(mY.shape[0], 65535)], block=[cfg.threads, 1, 1], stream=stream
    )
