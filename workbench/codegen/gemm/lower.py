"""Lowers gemm stages: naive without a tile, tiled, tensor cores with mma, multistage with stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from workbench.codegen.epilogue import epilogue_hook
from workbench.codegen.gemm_sm90 import lower_gemm_sm90
from workbench.codegen.guards import called
from workbench.codegen.launch import Launch
from workbench.kernels.gemm.config import Epilogue, MmaConfig, NaiveConfig, Sm80Config, TiledConfig
from workbench.kernels.operands import Read
from workbench.language.ir import Binding, Stage, number, setting
from workbench.language.operations.epilogue import chain_of


class _Epilogue(TypedDict):
    epilogue: object
    reads: tuple[Read, ...]
    result: str


def lower_gemm(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a checked stage; with a schedule that of the Hopper GEMM."""
    if setting(stage, "schedule") is not None:
        return lower_gemm_sm90(stage, binding)
    config, bound = config_of(stage), dict(binding.operands)
    roles = tuple(read.role for read in config.reads)
    return Launch(
        entry="workbench.kernels.gemm.host:gemm",
        static=(("cfg", config), ("names", operand_names(("a", "b", *roles), bound))),
        operands=("a", "b", *roles),
        many=(("operands", roles),),
    )


def operand_names(roles: tuple[str, ...], bound: dict[str, str]) -> Mapping[str, str]:
    """Return the names of the operands in error messages."""
    return {role: called(role, bound) for role in roles}


def config_of(stage: Stage) -> Epilogue:
    """Return the configuration of a checked stage without a schedule."""
    chain = chain_of(stage)
    common = _Epilogue(epilogue=epilogue_hook(chain.calls), reads=chain.reads, result=chain.cast or "")
    tile, mma = setting(stage, "tile"), setting(stage, "mma")
    metric = str(dict(stage.operation.named).get("metric", "inner"))
    if mma is None and not isinstance(tile, tuple):
        return NaiveConfig(metric=metric, **common)
    m, n, k = tile if isinstance(tile, tuple) else (64, 64, 32)
    if mma is not None and number(stage, "stages", 1) > 1:
        stages = number(stage, "stages", 1)
        return Sm80Config(element=str(mma), tile_m=m, tile_n=n, tile_k=k, stages=stages, **common)
    layout = dict(next((call.named for call in stage.settings if call.name == "layout"), ()))
    a_by_rows, b_by_rows = layout.get("a", "row") == "row", layout.get("b", "row") == "row"
    if mma is not None:
        return MmaConfig(
            element=str(mma), tile_m=m, tile_n=n, tile_k=k, a_by_rows=a_by_rows, b_by_rows=b_by_rows, **common
        )
    thread = setting(stage, "thread_tile", (1, 1))
    per_m, per_n = thread if isinstance(thread, tuple) else (1, 1)
    return TiledConfig(
        metric=metric,
        tile_m=m,
        tile_n=n,
        tile_k=k,
        per_m=per_m,
        per_n=per_n,
        a_by_rows=a_by_rows,
        b_by_rows=b_by_rows,
        **common,
    )
