"""Host side of transposes: a matrix of elements of 1, 2, 4 or 8 bytes, as bits, into a contiguous matrix."""

import cutlass
import torch

from workbench.kernels.host import DynamicTensor, call, check_operand, check_rank
from workbench.kernels.static import Static, bind
from workbench.kernels.tensors import device_key, expect_contiguous, view_last
from workbench.kernels.transpose.tiled import launch_transpose
from workbench.kernels.transpose.tma import launch_transpose_tma

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes -> a type of as many bits


class PitchedMatrix(DynamicTensor):
    """A contiguous matrix whose rows have a dynamic multiple of some number of elements."""

    def __init__(self, matrix, multiple):
        super().__init__(matrix, align=multiple * matrix.element_size(), leading_dim=1)
        self.multiple = multiple

    def as_cute(self):
        """Return the CuTe tensor."""
        return super().as_cute().mark_compact_shape_dynamic(mode=1, stride_order=(0, 1), divisibility=self.multiple)


def view_pitched(matrix, multiple):
    """A matrix for CuTe whose row pitch is a multiple of `multiple` elements: accesses of that width are aligned."""
    return PitchedMatrix(matrix.detach(), multiple)


def word_length(x, y):
    """Elements of a word of 4 bytes, or 1 where shapes or addresses do not allow words of several."""
    length = max(1, 4 // x.element_size())
    bytes_of_word = length * x.element_size()
    aligned = x.data_ptr() % bytes_of_word == 0 and y.data_ptr() % bytes_of_word == 0
    return length if aligned and x.shape[0] % length == 0 and x.shape[1] % length == 0 else 1


def expect_tma(names: Static, x, y):
    """Refuse matrices that TMA does not take, and devices without it."""
    size = x.element_size()
    if torch.cuda.get_device_capability(x.device) != (9, 0):
        raise ValueError("TMA needs sm_90a (Hopper)")
    if x.shape[0] * size % 16 or x.shape[1] * size % 16:
        shape = f"{names['x']} has the shape {tuple(x.shape)} with elements of {size} bytes"
        raise ValueError(f"TMA needs rows of a multiple of 16 bytes; {shape}")
    if x.data_ptr() % 16 or y.data_ptr() % 16:
        raise ValueError("TMA needs addresses that are multiples of 16 bytes")


def transpose_into(cfg: Static, names: Static, x, y):
    """Write x (rows, columns) to y (columns, rows); both contiguous, of one type of 1, 2, 4 or 8 bytes."""
    check_rank(names["x"], x, 2, 2)
    if x.element_size() not in BITS or x.is_complex():
        raise TypeError(f"elements must have 1, 2, 4 or 8 bytes, not {x.dtype}")
    check_operand("the result", y, x.t().shape, (x.dtype,))
    expect_contiguous(x, y)
    bits, turned = x.view(BITS[x.element_size()]), y.view(BITS[x.element_size()])
    rows, columns = x.shape
    if cutlass.const_expr(cfg.by_tma):
        expect_tma(names, bits, turned)
        width, source, target = 16 // bits.element_size(), view_last(bits), view_last(turned)
        if x.numel():
            call(
                bind(launch_transpose_tma, cfg),
                (device_key(), bits.dtype, width),
                (source, target, rows, columns),
                (width,),
            )
    else:
        width = word_length(bits, turned)
        source, target = view_pitched(bits, width), view_pitched(turned, width)
        if x.numel():
            call(
                bind(launch_transpose, cfg),
                (device_key(), bits.dtype, width),
                (source, target, rows, columns),
                (width,),
            )
    return y


def transpose(cfg: Static, names: Static, x):
    """x (rows, columns), contiguous, of a type of 1, 2, 4 or 8 bytes -> (columns, rows), contiguous."""
    check_rank(names["x"], x, 2, 2)
    y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    return transpose_into(cfg, names, x, y)
