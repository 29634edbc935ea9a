"""gemm and ggemm with a schedule -> launch of the Hopper kernels of the library."""

from __future__ import annotations

import dataclasses

from workbench.codegen.epilogue import epilogue_hook, statements
from workbench.codegen.expression_writer import function_text
from workbench.codegen.guards import called
from workbench.codegen.launch import Hook, Launch
from workbench.kernels.gemm.sm90.config import GemmSm90Config
from workbench.language.ir import Binding, Stage
from workbench.language.operations.epilogue import Chain, chain_of
from workbench.language.operations.gemm.sm90 import config_of

HOST = "workbench.kernels.gemm.sm90.host"
TRANSPOSED = ".transpose(-2, -1)"


def lower_gemm_sm90(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a checked gemm with a schedule."""
    config, bound = _with_hooks(config_of(stage), chain_of(stage)), dict(binding.operands)
    config, stored = _as_stored(config, bound)
    roles = tuple(read.role for read in config.reads)
    entry = "gemm_reduce" if config.reduction else "gemm_split_k" if config.split_k > 1 else "gemm"
    return Launch(
        entry=f"{HOST}:{entry}",
        static=(("cfg", config), ("names", {role: _called(role, bound, stored) for role in ("a", "b", *roles)})),
        operands=("a", "b", *roles),
        many=(("operands", roles),),
        bound=stored,
    )


def lower_ggemm(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a checked ggemm."""
    config, bound = _with_hooks(config_of(stage), chain_of(stage)), dict(binding.operands)
    config, stored = _as_stored(config, bound)
    return Launch(
        entry="workbench.kernels.gemm.sm90.grouped:ggemm",
        static=(("cfg", config), ("names", {role: _called(role, bound, stored) for role in ("a", "b", "offsets")})),
        operands=("a", "b", "offsets"),
        bound=stored,
    )


def _as_stored(config: GemmSm90Config, bound: dict[str, str]) -> tuple[GemmSm90Config, tuple[tuple[str, str], ...]]:
    """Return the configuration for operands as they are stored, and the operands that are bound to a transpose.

    The stored tensor is the same object at every call, so its CuTe tensor is cached; a transposed view is a new object.
    """
    transposed = {role: bound.get(role, role).endswith(TRANSPOSED) for role in ("a", "b")}
    stored = tuple((role, bound[role].removesuffix(TRANSPOSED)) for role in ("a", "b") if transposed[role])
    return dataclasses.replace(config, a_transposed=transposed["a"], b_transposed=transposed["b"]), stored


def _called(role: str, bound: dict[str, str], stored: tuple[tuple[str, str], ...]) -> str:
    return called(role, {**bound, **dict(stored)})


def _with_hooks(config: GemmSm90Config, chain: Chain) -> GemmSm90Config:
    """Return the configuration with the hooks of the epilogue."""
    if config.split_k > 1:
        return dataclasses.replace(config, epilogue=epilogue_hook(chain.calls))
    finish = epilogue_hook(chain.after, name="finish", place=())
    return dataclasses.replace(config, epilogue=_tile_hook(chain, swap=config.swap), finish=finish)


def _tile_hook(chain: Chain, *, swap: bool) -> Hook | None:
    """Return the epilogue of an accumulator of a tile, for `cfg.epilogue`.

    Vector indices are clamped to the shape, because accumulators past the edge are not stored.
    """
    if not chain.calls:
        return None
    rows, columns = ("n", "m") if swap else ("m", "n")
    index = {
        rows: "cutlass.min(tile[0] + place[0], shape[0] - 1)",
        columns: "cutlass.min(tile[1] + place[1], shape[1] - 1)",
        "both": "e",
    }
    vectors = [read.role for read in chain.reads if read.along != "both"]
    matrices = [read.role for read in chain.reads if read.along == "both"]
    place = ("e", "tile", "place", "shape") if chain.reads else ()
    body = [*statements(chain.calls, lambda read: f"{read.role}[{index[read.along]}]"), "return total"]
    return Hook(name="epilogue", source=function_text("epilogue", ("total", *vectors, *matrices, *place), body))
