"""Windows of a pooling: output extents, combination of values, divisors of averages."""

import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


def extent(cfg: Static, size, axis):
    """Return the outputs along an axis of `size` inputs; as in torch, no window starts in the trailing padding."""
    reach = cfg.dilation[axis] * (cfg.window[axis] - 1) + 1
    count = (size + 2 * cfg.padding[axis] - reach + (cfg.stride[axis] - 1 if cfg.ceil else 0)) // cfg.stride[axis] + 1
    return count - 1 if cfg.ceil and (count - 1) * cfg.stride[axis] >= size + cfg.padding[axis] else count


def combine(cfg: Static, total, value):
    """Combine two values of a window."""
    return cute.arch.fmax(total, value, nan=True) if cfg.op == "max" else total + value


@cute.jit
def count_elements(cfg: Static, at, size, axis: cutlass.Constexpr):
    """Return the divisor of an average along one axis; `at` is the output's index on that axis."""
    first = at * cfg.stride[axis] - cfg.padding[axis]
    last = cutlass.min(first + cfg.window[axis], size + cfg.padding[axis])
    if cutlass.const_expr(not cfg.count_padding):
        first = cutlass.max(first, 0)
        last = cutlass.min(last, size)
    return last - first


def window_size(cfg: Static, x, layer, row, column):
    """Return the divisor of the average of one output."""
    depth, height = count_elements(cfg, layer, x.shape[1], 0), count_elements(cfg, row, x.shape[2], 1)
    return depth * height * count_elements(cfg, column, x.shape[3], 2)
