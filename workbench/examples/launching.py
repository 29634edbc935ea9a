"""What every example needs around its kernel.

It compiles once per configuration, views torch tensors for CuTe, launches on torch's stream, and checks arguments.
"""

import functools
import math
from typing import Any

import cutlass.cute as cute
import cutlass.torch
import torch
from cutlass.cute.runtime import from_dlpack

_COMPILED: dict[Any, Any] = {}


def launch(
    function: Any,
    tensors: tuple[Any, ...],
    sizes: tuple[Any, ...] = (),
    constants: tuple[Any, ...] = (),
    *,
    key: tuple[Any, ...] = (),
) -> None:
    """Call the jitted `function(*tensors, *sizes, stream, *constants)`.

    It is compiled at the first call with these `constants`, `key` and architecture.

    `constants` are baked into the kernel (`cutlass.Constexpr`), `sizes` are dynamic. `key` names whatever else of the
    tensors the code depends on: element types and alignments.
    """
    stream = cutlass.torch.current_stream()
    name = (function, torch.cuda.get_device_capability(), constants, key)
    if name not in _COMPILED:
        _COMPILED[name] = cute.compile(function, *tensors, *sizes, stream, *constants)
    _COMPILED[name](*tensors, *sizes, stream)


def view(tensor: torch.Tensor, align: int = 16) -> Any:
    """A CuTe tensor with dynamic shape and strides.

    Its data starts at a multiple of `align` bytes, its last dimension is contiguous.
    """
    return from_dlpack(tensor.detach(), assumed_align=align).mark_layout_dynamic(leading_dim=tensor.dim() - 1)


def flat(tensor: torch.Tensor, align: int = 16) -> Any:
    """A contiguous tensor as a one-dimensional CuTe tensor of dynamic length."""
    return view(tensor.detach().reshape(-1), align)


def vector_width(columns: int, *tensors: torch.Tensor, widest: int = 16) -> int:
    """How many elements one access may span, so that every row of `columns` elements and every tensor stay aligned.

    An access has at most `widest` bytes of the largest element type.
    """
    size = max(t.element_size() for t in tensors)
    width = math.gcd(columns, widest // size) if columns else 1
    while any(t.data_ptr() % (width * t.element_size()) for t in tensors):
        width //= 2
    return width


_COUNTERS: dict[tuple[torch.device, int], torch.Tensor] = {}


def counters(device: torch.device, count: int) -> torch.Tensor:
    """At least `count` int32 zeros for kernels that leave them zero, so that no memset is needed.

    There is one buffer per stream, since calls on different streams may overlap.
    """
    key = (device, torch.cuda.current_stream(device).cuda_stream)
    known = _COUNTERS.get(key)
    if (
        known is None or known.device != device or len(known) < count
    ):  # what an emulator made that has ended is no longer on the device
        _COUNTERS[key] = torch.zeros(max(count, 1024), dtype=torch.int32, device=device)
    return _COUNTERS[key]


def require(condition: bool, message: str) -> None:
    """Raise ValueError(message) unless the condition holds."""
    if not condition:
        raise ValueError(message)


def same_place(*tensors: torch.Tensor) -> None:
    """Every tensor is contiguous and on one CUDA device, or ValueError."""
    for t in tensors:
        require(t.is_cuda, f"the kernel needs tensors on a CUDA device, not on {t.device}")
        require(
            t.device == tensors[0].device,
            f"all tensors must be on one device, not on {tensors[0].device} and {t.device}",
        )
        require(
            t.is_contiguous(),
            f"the kernel needs contiguous tensors; one of shape {tuple(t.shape)} has strides {t.stride()}",
        )


@functools.cache
def processors(device: torch.device) -> int:
    """Streaming multiprocessors (SMs) of the device."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
