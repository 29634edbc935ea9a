"""Epilogues of products: views of the tensors that they read, and row or column reductions."""

import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.static import Static


def broadcast_view(tensor, shape):
    """Broadcast an epilogue tensor to the product's shape and view it as (batch, m, n), contiguous along n."""
    view = torch.broadcast_to(tensor.detach(), shape)
    view = view if view.stride(-1) == 1 else view.contiguous()
    return view if view.dim() == 3 else view.unsqueeze(0)


def identity(how: Static):
    """Return the identity of a reduction; `how` is sum, mean, max or min."""
    if cutlass.const_expr(how == "max"):
        return cutlass.Float32(-cutlass.Float32.inf)
    if cutlass.const_expr(how == "min"):
        return cutlass.Float32(cutlass.Float32.inf)
    return cutlass.Float32(0.0)


def combine(how: Static, a, b):
    """Combine two values of a reduction; `how` is sum, mean, max or min."""
    if cutlass.const_expr(how == "max"):
        return cute.arch.fmax(a, b, nan=True)
    if cutlass.const_expr(how == "min"):
        return cute.arch.fmin(a, b, nan=True)
    return a + b
