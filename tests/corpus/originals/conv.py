"""conv(x, w, stride=2, padding=1, groups=channels) .arch(sm_80) >> bias() >> relu()"""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from torch import nn

STRIDE = 2  # one value, or one per extent
PADDING = 1  # one value, or one per extent
DILATION = 1  # one value, or one per extent
THREADS = 128  # threads of a CTA
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of operands; the kernels compute in float32
EXACT_DTYPES = (*FLOAT_DTYPES, torch.bool, torch.uint8, torch.int8, torch.int16)  # float32 represents these exactly
compiled: dict = {}


def check_rank(name, tensor, least, most=None):
    """Check that an operand has `least` to `most` axes; `most` None means no limit."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        if most is None:
            wanted = f"{least} axes or more"
        else:
            wanted = f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")


def is_broadcastable(own, shape):
    """Return whether a tensor of shape `own` broadcasts to `shape`."""
    pairs = zip(reversed(own), reversed(shape), strict=False)
    return len(own) <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def check_operand(name, tensor, shape, dtypes=FLOAT_DTYPES, broadcast=False):
    """Check the shape and dtype of an operand.

    `dtypes`: accepted dtypes. `broadcast`: the operand may also have a shape that broadcasts to `shape`.
    """
    own = tensor.shape
    if own != shape and not (broadcast and is_broadcastable(own, shape)):
        wanted = f"{tuple(shape)}{', or a shape that broadcasts to it' if broadcast else ''}"
        raise ValueError(f"{name} has the shape {tuple(own)}; this kernel wants {wanted}")
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} is {tensor.dtype}; this kernel takes {', '.join(map(str, dtypes))}")


def expand_setting(values, space, fill):
    """Expand a setting of the last `space` extents to three, `fill` in front. Raises TypeError for another length."""
    values = (values,) * space if isinstance(values, int) else values
    if len(values) != space:
        raise TypeError(f"a setting of {len(values)} dimensions, {values}, for an input of {space}")
    return (fill,) * (3 - space) + tuple(values)


def check_filters(x, w, groups):
    """Check that the filters have the channels of the input."""
    channels = w.shape[1] * groups
    if channels != x.shape[1]:
        raise ValueError(f"filters of shape {tuple(w.shape)} for an input of shape {tuple(x.shape)} in {groups} groups")


def expand_extents(tensor):
    """Expand a tensor with one to three extents after two axes to three extents."""
    return tensor.detach().unflatten(2, (1,) * (5 - tensor.dim()) + (tensor.shape[2],))


def check_extents(x, w, outputs):
    """Check that the filters fit into the input and that there are channels."""
    if min(outputs) < 1:
        raise ValueError(f"filters of {tuple(w.shape[2:])} do not fit into an input of {tuple(x.shape[2:])}")
    if x.shape[1] == 0:
        raise ValueError(f"x has the shape {tuple(x.shape)}; this kernel wants at least one channel")


def check_operands(bias, shape):
    """Check the epilogue's operands: one element per filter, or a shape that broadcasts to the output's."""
    check_operand("self.conv.bias", bias, (shape[1],), EXACT_DTYPES)


def find_unit_axis(tensor):
    """Return the last axis whose stride is 1, or None."""
    return next((axis for axis in (4, 3, 2, 1, 0) if tensor.stride(axis) == 1), None)


def view_along(tensor, axis):
    """Return a CuTe tensor with dynamic shape and strides, contiguous along `axis` unless it is None."""
    return from_dlpack(tensor).mark_layout_dynamic(**({} if axis is None else {"leading_dim": axis}))


def view_vector(tensor):
    """Return the CuTe tensor of a vector with one element per filter."""
    return from_dlpack(tensor.detach()).mark_layout_dynamic()


def int32s(*values):
    """Return the values as Int32, so that a compiled kernel can be called with other values later."""
    return tuple(cutlass.Int32(value) for value in values)


@cute.jit
def divide(a: cutlass.Int32, b: cutlass.Int32):
    """Return quotient and remainder of two non-negative integers."""
    quotient = (cutlass.Uint32(a) // cutlass.Uint32(b)).to(cutlass.Int32)
    return quotient, a - quotient * b


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


def relu(v):
    return cute.arch.fmax(v, cutlass.Float32(0.0), nan=True)


def epilogue(total, bias, k):
    total = total + bias[k].to(cutlass.Float32)
    total = relu(total)
    return total


@cute.kernel
def direct_conv_kernel(
    mX: cute.Tensor,
    mW: cute.Tensor,
    bias_view,
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
    k, block = divide(bidx, (positions + THREADS - 1) // THREADS)
    line, q = divide(block * THREADS + tidx, mY.shape[4])
    z, p = divide(line, mY.shape[3])
    if z < mY.shape[2]:
        for n in cutlass.range(first_image, mY.shape[0], grid_z, unroll=1):
            coord = (n, k, z, p, q)
            total = sum_taps(mX, mW, coord, stride, padding, dilation, mY.shape[1] // groups)
            total = epilogue(total, bias_view, k)
            mY[n, k, z, p, q] = total.to(mY.element_type)


@cute.jit
def direct_conv(
    mX: cute.Tensor,
    mW: cute.Tensor,
    bias_view,
    mY: cute.Tensor,
    stride: cute.IntTuple,
    padding: cute.IntTuple,
    dilation: cute.IntTuple,
    groups: cutlass.Int32,
    stream: cuda.CUstream,
):
    """x (n, c, d, h, w), w in torch's layout, y (n, k, z, p, q); settings have three extents."""
    positions = mY.shape[2] * mY.shape[3] * mY.shape[4]
    blocks = (positions + THREADS - 1) // THREADS
    direct_conv_kernel(mX, mW, bias_view, mY, stride, padding, dilation, groups).launch(
        grid=[blocks * mY.shape[1], 1, cutlass.min(mY.shape[0], 65535)], block=[THREADS, 1, 1], stream=stream
    )


def call(function, key, arguments, constants=()):
    """Launch on torch's current stream; compile on the first call of each key (dtypes, layouts, vector width).

    Calling a jit function takes milliseconds each time, calling a compiled one takes microseconds.
    """
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, stream, *constants)
    compiled[function, key](*arguments, stream)


def direct_convolution(x, w, bias):
    """x (n, c, 1 to 3 extents), w in torch's layout -> the convolution, by direct sums on CUDA cores."""
    check_rank("x", x, 3, 5)
    check_rank("self.conv.weight", w, x.dim(), x.dim())
    check_operand("x", x, x.shape)
    if x.dtype != w.dtype:
        raise TypeError(f"this kernel multiplies one type, not {x.dtype} by {w.dtype}")
    space, groups = x.dim() - 2, x.shape[1]
    stride = expand_setting(STRIDE, space, 1)
    padding = expand_setting(PADDING, space, 0)
    dilation = expand_setting(DILATION, space, 1)
    check_filters(x, w, groups)
    x5, w5 = expand_extents(x), expand_extents(w)
    taps = tuple(w5.shape[2:])
    outputs = [(x5.shape[2 + i] + 2 * padding[i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1 for i in range(3)]
    check_extents(x, w, outputs)
    filters = w.shape[0]
    y = torch.empty(x.shape[0], filters, *outputs, dtype=x.dtype, device=x.device)
    result = y.reshape(*y.shape[:2], *outputs[3 - space :])
    check_operands(bias, result.shape)
    if y.numel() == 0:
        return result
    axis_x, axis_w, axis_y = find_unit_axis(x5), find_unit_axis(w5), find_unit_axis(y)
    mX, mW, mY = view_along(x5, axis_x), view_along(w5, axis_w), view_along(y, axis_y)
    bias_view = view_vector(bias)
    key = (x.dtype, bias.dtype, axis_x, axis_w, axis_y)
    call(
        direct_conv,
        key,
        (mX, mW, bias_view, mY, int32s(*stride), int32s(*padding), int32s(*dilation), cutlass.Int32(groups)),
    )
    return result


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, stride):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size, stride=stride, padding=1, groups=channels)

    def forward(self, x):
        return direct_convolution(x, self.conv.weight, self.conv.bias)
