"""Directed rounding (.rz, .rm, .rp) of sums and products: the exact result as a float64 and its error, then one step
from the nearest float if needed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Value


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """The float64 sum and its exact rounding error (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def directed_function(op: str, kind: str, mode: str) -> Callable[..., Value] | None:
    """The function of the operands for one operation; None if its exact result does not fit two float64 numbers."""
    if kind == "f64" and op not in ("add", "sub"):
        return None
    if kind not in ("f32", "f64") or op not in ("add", "sub", "mul", "fma"):
        return None
    target = np.float32 if kind == "f32" else np.float64

    def exact(*values: Value) -> tuple[Value, Value]:
        wide = [value.astype(np.float64) for value in values]
        if op == "mul":
            return wide[0] * wide[1], np.float64(0)
        if op == "fma":
            return two_sum(wide[0] * wide[1], wide[2])
        return two_sum(wide[0], wide[1] if op == "add" else -wide[1])

    def run(*values: Value) -> Value:
        total, lost = exact(*values)
        nearest = total.astype(target)
        beyond = nearest.astype(np.float64) - total  # exact: `nearest` is within one of its units of `total`
        over = (beyond > 0) | ((beyond == 0) & (lost < 0))
        under = (beyond < 0) | ((beyond == 0) & (lost > 0))
        down = over & ((mode == "rm") | ((mode == "rz") & (total > 0)))
        up = under & ((mode == "rp") | ((mode == "rz") & (total < 0)))
        infinity = target(np.inf)
        return np.where(down, np.nextafter(nearest, -infinity), np.where(up, np.nextafter(nearest, infinity), nearest))

    return run
