"""Views of a tensor with other extents, and tensors that only depend on its extents; torch makes them."""

import cutlass
import torch

from workbench.kernels.static import Many, Static


def view(cfg: Static, x, like: Many):
    """Return x with other extents; unflatten and repeat take them from `like`, extents has them after the axis."""
    if cutlass.const_expr(cfg.how == "order"):
        return x.permute(cfg.value)
    if cutlass.const_expr(cfg.how == "flatten"):
        return x.flatten(*cfg.value)
    if cutlass.const_expr(cfg.how == "squeeze"):
        return x.squeeze(cfg.value)
    if cutlass.const_expr(cfg.how == "unsqueeze"):
        return x.unsqueeze(cfg.value)
    if cutlass.const_expr(cfg.how == "chunk"):
        return take(x, cfg.value[0], chunk_bounds(x, cfg.value))
    if cutlass.const_expr(cfg.how == "share"):
        return take(x, cfg.value[0], share_bounds(x, cfg.value))
    if cutlass.const_expr(cfg.how == "slice"):
        return take(x, cfg.value[0], (cfg.value[1], cfg.value[2] if len(cfg.value) > 2 else None))
    if cutlass.const_expr(cfg.how == "every"):
        return take(x, cfg.value[0], (cfg.value[1], None, cfg.value[2]))
    if cutlass.const_expr(cfg.how == "layer"):
        return x.select(*cfg.value)
    if cutlass.const_expr(cfg.how == "item"):
        return x[cfg.value]
    if cutlass.const_expr(cfg.how == "index"):
        return count_along(x, cfg.value)
    if cutlass.const_expr(cfg.how == "draw"):
        return torch.empty_like(x).bernoulli_(cfg.value)
    if cutlass.const_expr(cfg.how == "repeat"):
        return repeat_to(x, cfg.value, like[0].shape[cfg.first])
    if cutlass.const_expr(cfg.how == "extents"):
        return x.unflatten(cfg.value[0], cfg.value[1:])
    return x.unflatten(cfg.value, like[0].shape[cfg.first : cfg.end])


def repeat_to(x, axis, extent):
    """Return x with each layer along an axis repeated in place, as often as gives the extent."""
    return x.repeat_interleave(extent // max(x.shape[axis], 1), dim=axis)


def chunk_bounds(x, part):
    """Return where part k of n of an axis begins and ends, as torch.chunk cuts it; part is (axis, k, n)."""
    axis, k, n = part
    step = -(-x.shape[axis] // n)
    return k * step, (k + 1) * step


def share_bounds(x, part):
    """Return where a share from k/n to (k + 1)/n of an axis begins and ends; part is (axis, k, n)."""
    axis, k, n = part
    return x.shape[axis] * k // n, x.shape[axis] * (k + 1) // n


def count_along(x, axis):
    """Return the numbers of an axis from 0 in float32; the axes after it are 1, those before it are left out."""
    numbers = torch.arange(x.shape[axis], dtype=torch.float32, device=x.device)
    return numbers.reshape(-1, *(1 for _ in range(axis + 1, x.dim())))


def take(x, axis, bounds):
    """Return a slice of x along an axis."""
    return x[(slice(None),) * axis + (slice(*bounds),)]
