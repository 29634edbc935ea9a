"""What a module keeps for its next call; torch writes it, after the kernels that read what it was."""

import cutlass

from workbench.kernels.static import Many, Static


def store(cfg: Static, into, x: Many):
    """Copy a tensor into a buffer, or add a whole number to it; return the buffer."""
    if cutlass.const_expr(len(x) > 0):
        return into.copy_(x[0])
    return into.add_(cfg.add)
