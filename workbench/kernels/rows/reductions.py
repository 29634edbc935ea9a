"""Host side of operations that reduce rows of a reshaped operand."""

import cutlass

from workbench.kernels.host import check_rank
from workbench.kernels.rows.host import matrix_reduction, row_reduction
from workbench.kernels.rows.two_pass_host import two_pass_reduction
from workbench.kernels.static import Many, Static


def reduce_rows(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce along the last axes, split over several CTAs if the configuration says so."""
    if cutlass.const_expr(cfg.parts > 1):
        return two_pass_reduction(cfg, names, inputs, repeated)
    return row_reduction(cfg, names, inputs, repeated)


def matrix_vector(cfg: Static, names: Static, x, vector):
    """Return x (..., columns) times vector (columns)."""
    if cutlass.const_expr(cfg.is_matrix):
        return matrix_reduction(cfg, names, x, (vector,))
    vector = vector.reshape(-1)
    return reduce_rows(cfg, names, (x,), (vector,))


def plane_pool(cfg: Static, names: Static, x):
    """Reduce each plane of x (batch, channels, ...) to one value; the reduced axes stay with extent 1."""
    check_rank(names[0], x, 3)
    planes = x.flatten(2)
    y = matrix_reduction(cfg, names, planes, ())
    return y.view(*x.shape[:2], *[1] * (x.dim() - 2))
