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
    return x.unflatten(cfg.value, like[0].shape[cfg.first : cfg.end])
