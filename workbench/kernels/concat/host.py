"""Concatenation of torch tensors: check, allocate the result, one launch for each tensor."""

import math

import torch

from workbench.kernels.concat.kernel import launch_copy
from workbench.kernels.host import call, check_element_count, check_rank
from workbench.kernels.static import Many, Static, bind
from workbench.kernels.tensors import view_last

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes -> a dtype of that size


def concat(cfg: Static, names: Static, inputs: Many):
    """Return tensors of one dtype side by side along an axis; their other extents are equal."""
    first = inputs[0]
    check_rank(names[0], first, cfg.next_axis)
    for name, x in zip(names, inputs, strict=True):
        check_beside(cfg, name, x, first)
    tensors = [x.detach() for x in inputs]
    extent = sum(x.shape[cfg.axis] for x in tensors)
    out = torch.empty(
        *first.shape[: cfg.axis], extent, *first.shape[cfg.next_axis :], dtype=first.dtype, device=first.device
    )
    if out.numel() == 0:
        return out
    check_element_count("the result", out)
    rows, end = math.prod(out.shape[: cfg.axis]), 0
    columns = out.view(rows, -1)
    for x in tensors:
        source = x.reshape(rows, x.numel() // rows)
        begin, end = end, end + source.shape[1]
        if begin < end:
            copy_columns(cfg, source, columns[:, begin:end])
    return out


def check_beside(cfg: Static, name, x, first):
    """Check that a tensor has the dtype of the first, and its extents on all axes but one."""
    is_same = (
        x.shape[: cfg.axis] == first.shape[: cfg.axis] and x.shape[cfg.next_axis :] == first.shape[cfg.next_axis :]
    )
    if not is_same or x.dim() != first.dim():
        shapes = f"{tuple(x.shape)} beside {tuple(first.shape)}"
        raise ValueError(f"{name} has the shape {shapes}; this kernel wants one shape on all axes but {cfg.axis}")
    if x.dtype != first.dtype:
        raise TypeError(f"{name} is {x.dtype}; this kernel wants {first.dtype}, the dtype of the first tensor")


def copy_columns(cfg: Static, source, target):
    """Copy a matrix into another of the same shape, in words of up to 8 bytes that both allow."""
    if source.stride(1) != 1:
        source = source.contiguous()
    size = source.element_size()
    places = (source.data_ptr(), target.data_ptr(), source.stride(0) * size, target.stride(0) * size)
    word = math.gcd(8, source.shape[1] * size, *places)
    source, target = source.view(WORDS[word]), target.view(WORDS[word])
    call(
        bind(launch_copy, cfg),
        word,
        (view_last(source, word), view_last(target, word), source.numel()),
    )
