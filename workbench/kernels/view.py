"""Views of a tensor with other extents; torch makes them and no kernel runs."""

import cutlass

from workbench.kernels.static import Many, Static


def view(cfg: Static, x, like: Many):
    """Return x with other extents; unflatten takes them from axes of `like`."""
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
    if cutlass.const_expr(cfg.how == "layer"):
        return x.select(*cfg.value)
    if cutlass.const_expr(cfg.how == "item"):
        return x[cfg.value]
    return x.unflatten(cfg.value, like[0].shape[cfg.first : cfg.end])


def chunk_bounds(x, part):
    """Return where part k of n of an axis begins and ends, as torch.chunk cuts it; part is (axis, k, n)."""
    axis, k, n = part
    step = -(-x.shape[axis] // n)
    return k * step, (k + 1) * step


def share_bounds(x, part):
    """Return where a share from k/n to (k + 1)/n of an axis begins and ends; part is (axis, k, n)."""
    axis, k, n = part
    return x.shape[axis] * k // n, x.shape[axis] * (k + 1) // n


def take(x, axis, bounds):
    """Return a slice of x along an axis."""
    return x[(slice(None),) * axis + (slice(*bounds),)]
