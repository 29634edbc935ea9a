"""Asks NVIDIA's nvidia-matmul-heuristics for configurations of a product, if the package is installed.

Input: the problem size. Output: tiles, clusters, parts of k, seconds. The package is an optional extra (pip install
"cutegen-workbench[heuristics]"). It answers on the CPU, from its own model of the device. The language checks its
configurations, and this workbench's model ranks them among the others.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from workbench.records import record

PACKAGE, MODULE = "nvidia-matmul-heuristics", "nvMatmulHeuristics"
# the package's letters for a, accumulator, result: H half, T bfloat16, S float32
PRECISIONS = {"f16": "HSH", "bf16": "TST", "tf32": "SSS"}
GPUS = {"H100": "H100_SXM", "H200": "H200_SXM"}


@record
class Suggestion:
    """A configuration and the seconds that the package predicts for it."""

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    splits: int
    seconds: float


def is_installed() -> bool:
    """Whether the package can be imported."""
    return importlib.util.find_spec(MODULE) is not None


def suggest(
    kind: str, extents: tuple[int, int, int, int], layout: tuple[tuple[str, str], ...], device: str, most: int = 4
) -> tuple[Suggestion, ...]:
    """The package's configurations for `extents` (m, n, k, batches), fastest first.

    () if the package is missing, fails, or does not know the type or the device.
    """
    if not is_installed() or kind not in PRECISIONS or device not in GPUS:
        return ()
    named = dict(layout)
    # BLAS letters for a row-major result: T or N of a, then of b; an operand contiguous along k is T as a and N as b
    letters = ("T" if named.get("a", "row") == "row" else "N") + ("N" if named.get("b", "row") == "column" else "T")
    try:
        interface, module = _interface(device)
        problem = interface.makeNvMatmulHeuristicsProblem(
            *extents[:3], module.NvMatmulHeuristicsMatmulLayout[f"{letters}_ROW_MAJOR"], extents[3]
        )
        found = interface.get(problem, most, PRECISIONS[kind])
    except Exception:  # a native library may raise anything; the planner then uses its own model
        return ()
    made = []
    for item in found:
        config = item["kernel"]
        made.append(
            Suggestion(
                tile=(config.cta_tile_m, config.cta_tile_n, config.cta_tile_k),
                cluster=(config.cluster_m, config.cluster_n),
                splits=config.split_k,
                seconds=float(item["runtime"]),
            )
        )
    return tuple(dict.fromkeys(made))


@functools.cache
def _interface(device: str) -> tuple[Any, Any]:
    module = importlib.import_module(MODULE)
    gpu = module.NvMatmulHeuristicsNvidiaGpu[GPUS[device]]
    return module.NvMatmulHeuristicsInterfaceEx(
        backend=module.NvMatmulHeuristicsTarget.CUTLASS3,
        flags=module.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=gpu,
    ), module
