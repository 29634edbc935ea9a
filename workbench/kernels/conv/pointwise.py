"""1 x 1 convolutions as a batched GEMM without copies: filters (k, c) times each image (c, positions)."""

import torch

from workbench.kernels.gemm.host import gemm
from workbench.kernels.gemm.sm90.host import gemm as gemm_sm90
from workbench.kernels.gemm.sm90.host import gemm_split_k
from workbench.kernels.static import Many, Static


def view_as_matrices(x, w):
    """Return the filters as (n, k, c) and the images as (n, c, positions). Raises ValueError for larger filters."""
    if w.numel() != w.shape[0] * x.shape[1]:
        shape = tuple(w.shape)
        raise ValueError(f"filters of shape {shape} are not of one tap, for an input of shape {tuple(x.shape)}")
    return w.flatten(1).expand(x.shape[0], -1, -1), x.flatten(2)


def view_as_result(operand, x, w):
    """Return an operand, broadcast to the output's shape, as (n, k, positions)."""
    return torch.broadcast_to(operand, (x.shape[0], w.shape[0], *x.shape[2:])).flatten(2)


def pointwise_convolution(cfg: Static, names: Static, x, w, operands: Many):
    """x (n, c, 1 to 3 extents), w (k, c, 1, ...) -> (n, k, 1 to 3 extents), by a GEMM for sm_80 and below."""
    a, b = view_as_matrices(x, w)
    views = tuple(
        view_as_result(operand, x, w) if read.along == "both" else operand.detach()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    return gemm(cfg, names, a, b, views).unflatten(-1, x.shape[2:])


def pointwise_convolution_sm90(cfg: Static, names: Static, x, w, operands: Many):
    """x (n, c, 1 to 3 extents), w (k, c, 1, ...) -> (n, k, 1 to 3 extents), by the Hopper GEMM."""
    a, b = view_as_matrices(x, w)
    views = tuple(
        view_as_result(operand, x, w) if read.along == "both" else operand.detach()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    return gemm_sm90(cfg, names, a, b, views).unflatten(-1, x.shape[2:])


def pointwise_convolution_split_k(cfg: Static, names: Static, x, w, operands: Many):
    """x (n, c, 1 to 3 extents), w (k, c, 1, ...) -> (n, k, 1 to 3 extents), by the split-K Hopper GEMM."""
    a, b = view_as_matrices(x, w)
    views = tuple(
        view_as_result(operand, x, w) if read.along == "both" else operand.detach()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    return gemm_split_k(cfg, names, a, b, views).unflatten(-1, x.shape[2:])
