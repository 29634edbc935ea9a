"""Host side of kernels that read contiguous tensors: checks, views for CuTe, access widths, counters in global memory.

Kernels for one shape of operands only (`scan`, `gemm`, ...) have views of their own; these serve all others.
"""

import functools
import math

import torch

from workbench.kernels.host import DynamicTensor

counters: dict = {}  # (device, stream) -> int32 zeros


def expect_on_device(*tensors):
    """Refuse tensors that are not on one CUDA device."""
    for tensor in tensors:
        if not tensor.is_cuda:
            raise ValueError(f"the kernel needs tensors on a CUDA device, not on {tensor.device}")
        if tensor.device != tensors[0].device:
            raise ValueError(f"all tensors must be on one device, not on {tensors[0].device} and {tensor.device}")


def expect_contiguous(*tensors):
    """Refuse tensors that are not on one CUDA device, or not contiguous."""
    expect_on_device(*tensors)
    for tensor in tensors:
        if not tensor.is_contiguous():
            given = f"one of shape {tuple(tensor.shape)} has strides {tensor.stride()}"
            raise ValueError(f"the kernel needs contiguous tensors; {given}")


def device_key():
    """What compiled code depends on beside dtypes and widths: the architecture of the current device."""
    return torch.cuda.get_device_capability()


def access_width(columns, *tensors):
    """Elements of one access, at most 16 bytes, that keep every row of `columns` elements and every tensor aligned."""
    sizes = [16 // tensor.element_size() for tensor in tensors]
    starts = [tensor.data_ptr() // tensor.element_size() for tensor in tensors]
    return math.gcd(columns, min(sizes), *starts)


def view_last(tensor, align=16):
    """The tensor for CuTe, of dynamic shape and strides: contiguous along its last axis, aligned to `align` bytes."""
    return DynamicTensor(tensor.detach(), align=align, leading_dim=tensor.dim() - 1)


def view_flat(tensor, align):
    """A contiguous tensor for CuTe, along one axis of dynamic length, aligned to `align` bytes."""
    return view_last(tensor.detach().reshape(-1), align)


def zero_counters(device, count):
    """At least `count` int32 zeros for kernels that leave them zero, so that no memset is needed.

    There is one buffer per stream, since launches on different streams may overlap.
    """
    key = (device, torch.cuda.current_stream(device).cuda_stream)
    known = counters.get(key)
    # memory of an emulated device that has ended is no longer on the device
    if known is None or known.device != device or len(known) < count:
        counters[key] = torch.zeros(max(count, 1024), dtype=torch.int32, device=device)
    return counters[key]


@functools.cache
def count_sms(device):
    """Streaming multiprocessors (SMs) of the device."""
    return torch.cuda.get_device_properties(device).multi_processor_count
