"""Stages of conv and convtranspose -> configurations of the kernel library, defaults filled in."""

from __future__ import annotations

import dataclasses
from typing import TypedDict

from workbench.kernels.conv.config import BYTES, DirectConfig, Extents, HaloConfig, PatchConfig, Sm80Config, Sm90Config
from workbench.kernels.operands import Read
from workbench.language.ir import Call, Stage, number, setting
from workbench.language.operation import SHARED_BYTES
from workbench.language.operations.conv.epilogue import transpose_epilogues
from workbench.language.operations.epilogue import chain_of

DEFAULTS: dict[str, object] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}
HALO_STAGES = 8  # of a kernel with halos at most, where the program does not say
STAGES = 3  # of a kernel by mma.sync, where the program does not say


class Common(TypedDict):
    """What all configurations of convolutions say."""

    stride: Extents
    padding: Extents
    dilation: Extents
    output_padding: Extents
    groups: int
    transposed: bool
    reads: tuple[Read, ...]
    result: str | None
    reduction: str


def arguments_of(stage: Stage) -> dict[str, object]:
    """The convolution's own arguments: stride, padding, dilation, groups, and a transposed one's output_padding."""
    return DEFAULTS | dict(stage.operation.named)


def as_gemm(stage: Stage) -> Stage:
    """The gemm that a convolution by filters of one tap is: a are the filters, b is an image.

    What goes along the filters goes along its rows.
    """
    return Stage(
        operation=Call(name="gemm", positional=("a", "b")),
        settings=tuple(call for call in stage.settings if call.name != "product"),
        epilogues=transpose_epilogues(stage.epilogues),
    )


def direct_config(stage: Stage) -> DirectConfig:
    """The configuration of a checked stage without mma."""
    rows = setting(stage, "rows")
    return DirectConfig(
        **_common(stage),
        threads=number(stage, "threads", 128),
        rows=rows if isinstance(rows, int) else None,
        filters=number(stage, "filters", 1),
        depthwise=arguments_of(stage)["groups"] == "channels",
    )


def sm80_config(stage: Stage) -> Sm80Config:
    """The configuration of a stage by mma.sync."""
    mma = str(setting(stage, "mma"))
    tile_m, tile_n, tile_k = _tile(stage, (128, 64, 64 // BYTES[mma]))
    stages = number(stage, "stages", STAGES)
    return Sm80Config(**_common(stage), mma=mma, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, stages=stages)


def patch_config(stage: Stage) -> PatchConfig:
    """The configuration of a stage with schedule(patch)."""
    tile_m, tile_n, tile_k = _tile(stage, (128, 64, 8))
    return PatchConfig(
        **_common(stage),
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        stages=number(stage, "stages", STAGES),
        threads=number(stage, "threads", 128),
        smem_bytes=SHARED_BYTES[str(setting(stage, "arch", "sm_80"))],
    )


def halo_config(stage: Stage) -> HaloConfig:
    """The configuration of a stage with schedule(halo)."""
    mma = str(setting(stage, "mma", "tf32"))
    tile_m, tile_n, tile_k = _tile(stage, (256, 64, 32 // BYTES[mma]))
    return HaloConfig(
        **_common(stage),
        mma=mma,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        stages=number(stage, "stages", HALO_STAGES),
        smem_bytes=SHARED_BYTES["sm_90a"],
    )


def sm90_config(stage: Stage) -> Sm90Config:
    """The configuration of a stage with a schedule; as many stages as fit, up to 8, where the program does not say."""
    mma = str(setting(stage, "mma", "tf32"))
    tile_m, tile_n, tile_k = _tile(stage, (128, 128, 128 // BYTES[mma]))
    config = Sm90Config(
        **_common(stage),
        mma=mma,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        stages=0,
        unfold=setting(stage, "unfold") is not None,
        cluster=number(stage, "cluster", 1),
        schedule=str(setting(stage, "schedule", "cooperative")),
    )
    stages = setting(stage, "stages")
    return dataclasses.replace(config, stages=stages if isinstance(stages, int) else min(most_stages(config), 8))


def most_stages(config: Sm90Config) -> int:
    """How many stages fit into the shared memory."""
    return (SHARED_BYTES["sm_90a"] - 1024 - config.epilogue_bytes) // config.stage_bytes


def _tile(stage: Stage, default: tuple[int, int, int]) -> tuple[int, int, int]:
    """Output positions, filters, input channels."""
    tile = setting(stage, "tile")
    return tile if isinstance(tile, tuple) else default


def _common(stage: Stage) -> Common:
    given, chain = arguments_of(stage), chain_of(stage)
    groups = given["groups"]
    return Common(
        stride=_extents(given["stride"]),
        padding=_extents(given["padding"]),
        dilation=_extents(given["dilation"]),
        output_padding=_extents(given["output_padding"]),
        groups=groups if isinstance(groups, int) else 1,
        transposed=stage.operation.name == "convtranspose",
        reads=chain.reads,
        result=chain.cast,
        reduction=chain.how,
    )


def _extents(value: object) -> Extents:
    return value if isinstance(value, tuple) else int(str(value))
