"""Compares an output with its reference; the tolerance follows the magnitude of the reference.

An element passes when |got - expected| <= relative * (|expected| + scale). The scale is the root mean square of the
finite reference values. So zeros do not pass a task whose outputs are tiny (softmax of a long row), as they would with
an absolute tolerance. NaN matches only NaN, an infinity only the same infinity; integers and bools must be equal.

    relative = 4 eps(dtype) + 8 eps(float32) sqrt(length) [+ 4 eps(tf32) products]

The first term covers the rounding of the output and of a few intermediates in its dtype. The second covers accumulation
in float32, whose rounding errors grow like a random walk with the number of terms. The third applies only with the TF32
policy: operands are truncated to 10 bits. That error is relative to the operands, so it does not grow with the number
of terms, but it adds up over consecutive products. The factors are inferred: they are a few times the typical error, so
that an honest kernel passes with another order of summation, and a lower precision than the policy allows fails. (Run
on the CPU: truncated TF32 operands reach half a tolerance over a million outputs of normal data, bfloat16 operands
2.4.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from workbench.records import Case, Facts, Operation
from workbench.wire import Json

EPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "tfloat32": 2.0**-10,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
PRODUCTS = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
    "_grouped_mm",
    "convolution",
)  # ATen calls that may run on tensor cores


def longest_product_chain(graph: Iterable[Operation]) -> int:
    """The longest chain of matrix products in a traced reference, at least 1: each takes a result of the one before."""
    reached: dict[str, int] = {}
    for op in graph:
        names = [name for operand in op.operands for name in operand.strip("[]").split(", ")]
        before = max((reached.get(name, 0) for name in names), default=0)
        reached[op.name] = before + (op.target.removeprefix("aten.").split(".")[0] in PRODUCTS)
    return max([1, *reached.values()])


def summed_terms(case: Case, facts: Facts) -> int:
    """About how many terms one output sums: the largest extent of an input, or the elements of a convolution's filter
    at full size if they are more.
    """
    sizes = {spec.name: spec.shape for spec in facts.full}
    found = [max(spec.shape, default=1) for spec in case.inputs]
    for op in facts.graph:
        if op.target.removeprefix("aten.").split(".")[0] == "convolution" and (shape := sizes.get(op.operands[1])):
            filters = shape[op.operands[6] == "True"]  # a transposed convolution has its filters along the second axis
            found.append(math.prod(shape) // max(filters, 1))
    return max(found, default=1)


def tolerance(dtype: str, precision: str, length: int = 1, products: int = 1) -> float:
    """Relative tolerance of an output of `dtype` that sums about `length` terms after a chain of `products`; 0 for
    integers and bools.
    """
    own = EPS.get(dtype, 0.0)
    if not own:
        return 0.0
    accumulated = 8 * (own if dtype == "float64" else EPS["float32"]) * math.sqrt(max(length, 1))
    truncated = 4 * EPS["tfloat32"] * products if precision == "tf32" and dtype == "float32" else 0.0
    return 4 * own + accumulated + truncated


def compare(
    got: np.ndarray, expected: np.ndarray, *, dtype: str, precision: str, length: int = 1, products: int = 1
) -> Json:
    """Returns the fields of `records.Check` for one output. `expected` is float64; for integers and bools, equality is
    required.
    """
    if got.shape != expected.shape:
        message = f"the output has shape {list(got.shape)}, expected {list(expected.shape)}"
        return {
            "passed": False,
            "elements": int(expected.size),
            "bad_elements": int(expected.size),
            "max_error": math.inf,
            "message": message,
        }
    if expected.dtype.kind in "iub":
        bad = got != expected
        return _check_fields(bad, bad.astype(np.float64) * 2, got, expected)
    relative = tolerance(dtype, precision, length, products)
    value = got.astype(np.float64)
    finite = np.isfinite(expected)
    scale = float(np.sqrt(np.mean(expected[finite] ** 2))) if finite.any() else 0.0
    allowed = relative * (np.abs(np.where(finite, expected, 0.0)) + scale) + np.finfo(np.float64).tiny
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(value - expected) / allowed
    same = (value == expected) | (np.isnan(value) & np.isnan(expected))
    error = np.where(same, 0.0, np.where(np.isfinite(value) & finite, error, np.inf))
    return {**_check_fields(error > 1, error, value, expected), "trivial": _trivial_kind(value, expected)}


def _trivial_kind(got: np.ndarray, expected: np.ndarray) -> str:
    """ "zero" or "constant" if all elements of the output are equal, as a no-op kernel leaves them, and the reference's
    are not; else "".
    """
    if got.size < 2 or bool((expected == expected.flat[0]).all()) or not bool((got == got.flat[0]).all()):
        return ""
    return "zero" if float(got.flat[0]) == 0 else "constant"


def _check_fields(bad: np.ndarray, error: np.ndarray, got: np.ndarray, expected: np.ndarray) -> Json:
    if not error.size:
        return {"passed": True, "elements": 0}
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    finite = error[np.isfinite(error)]
    with np.errstate(invalid="ignore"):
        absolute = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    known = np.isfinite(absolute)
    wanted = np.abs(expected.astype(np.float64))
    ratio = absolute[known & (wanted > 0)] / wanted[known & (wanted > 0)]
    count = int(bad.sum())
    message = ""
    if count:
        where = ", ".join(str(int(i)) for i in worst)
        message = (
            f"{count} of {error.size} elements are wrong; the worst is [{where}]: got {float(got[worst]):.6g}, "
            f"expected {float(expected[worst]):.6g}"
        )
    return {
        "passed": not count,
        "elements": int(error.size),
        "bad_elements": count,
        "max_error": float(np.max(error)),
        "p50_error": float(np.quantile(finite, 0.5)) if finite.size else float("inf"),
        "p99_error": float(np.quantile(finite, 0.99)) if finite.size else float("inf"),
        "max_absolute": float(absolute[known].max()) if known.any() else float("inf"),
        "max_relative": float(ratio.max()) if ratio.size else 0.0,
        "worst_index": tuple(int(i) for i in worst),
        "worst_got": float(got[worst]),
        "worst_expected": float(expected[worst]),
        "message": message,
    }
