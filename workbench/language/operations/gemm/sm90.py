"""gemm and ggemm with a schedule: the configuration of a stage, and checks of what sm_90a allows.

Input: a stage; output: its GemmSm90Config, or Rejections for TMA, wgmma, clusters and shared memory.
"""

from __future__ import annotations

import dataclasses

from workbench.kernels.gemm.sm90.config import BYTES, SHARED_BYTES, TF32, GemmSm90Config, default_tile
from workbench.language.ir import Rejection, Stage, setting
from workbench.language.operation import reject_settings
from workbench.language.operations.epilogue import chain_of

SCHEDULES = ("cooperative", "pingpong")
STORES = ("tma", "direct")
RASTERS = ("along_m", "along_n")
CLUSTERS = tuple((m, n) for m in (1, 2, 4) for n in (1, 2))
ONLY_SCHEDULED = ("cluster", "raster", "store", "splitk", "streamk", "swap", "through", "launch")
IN_CLUSTER = (2, 4, 8)  # CTAs of a cluster, in sizes that every device takes
ACCUMULATORS = 64 * 256  # float32 of one warpgroup that fit beside everything else: 128 a thread


def check_scheduled(stage: Stage) -> list[Rejection]:
    """All rejections of a gemm that names a schedule."""
    schedule, kind = setting(stage, "schedule"), setting(stage, "mma")
    found = check_schedule(stage, tuple(BYTES))
    found += reject_settings(stage, ("thread_tile",), "wgmma says which thread holds which output")
    if setting(stage, "through") is not None and (kind != "tf32" or schedule != "cooperative"):
        found.append(
            Rejection(
                field="through",
                value=str(setting(stage, "through")),
                reason="only tf32 needs it, to take an operand that does not lie along k; pingpong has no text for it",
                legal="leave it out, or mma(tf32) and schedule(cooperative)",
            )
        )
    found += _cluster(stage) + _names(stage) + _splits(stage) + _streamk(stage)
    if not found:
        found = _tile(stage) or _sizes(config_of(stage), setting(stage, "stages"))
    return found


def check_schedule(stage: Stage, kinds: tuple[str, ...]) -> list[Rejection]:
    """Rejections of what a schedule does not allow: another architecture, an unknown schedule, or an unknown mma."""
    found: list[Rejection] = []
    arch, schedule, kind = setting(stage, "arch", "sm_80"), setting(stage, "schedule"), setting(stage, "mma")
    if arch != "sm_90a":
        found.append(
            Rejection(
                field="arch",
                value=str(arch),
                reason="a schedule is for TMA and wgmma, which only Hopper has",
                legal="sm_90a (or leave schedule out)",
            )
        )
    if schedule not in SCHEDULES:
        found.append(
            Rejection(
                field="schedule",
                value=str(schedule),
                reason="how the warpgroups that multiply share the tiles",
                legal=", ".join(SCHEDULES),
            )
        )
    if kind not in kinds:
        found.append(Rejection(field="mma", value=str(kind), reason="what wgmma multiplies", legal=", ".join(kinds)))
    return found


def check_unscheduled(stage: Stage) -> list[Rejection]:
    """Settings that mean nothing without a schedule."""
    return reject_settings(
        stage, ONLY_SCHEDULED, "only kernels with a schedule have it", "add .schedule(cooperative) and .arch(sm_90a)"
    )


def _cluster(stage: Stage) -> list[Rejection]:
    value = setting(stage, "cluster", (1, 1))
    if (value if isinstance(value, tuple) else (value, 1)) in CLUSTERS:
        return []
    return [
        Rejection(
            field="cluster",
            value=str(value),
            reason="CTAs along m and along n that share their tiles",
            legal="1, 2 or 4 along m; 1 or 2 along n",
        )
    ]


def _names(stage: Stage) -> list[Rejection]:
    found = []
    raster, store = setting(stage, "raster", "along_m"), setting(stage, "store", "tma")
    way, band = raster if isinstance(raster, tuple) and len(raster) == 2 else (raster, 8)
    if way not in RASTERS or not isinstance(band, int) or not 1 <= band <= 64:
        found.append(
            Rejection(
                field="raster",
                value=str(raster),
                reason="where neighbouring CTAs go first, and how many tiles wide the band is that they walk",
                legal="along_m or along_n, then 1 to 64",
            )
        )
    if store not in STORES and not (
        isinstance(store, tuple)
        and len(store) == 2
        and store[0] == "tma"
        and isinstance(store[1], int)
        and 1 <= store[1] <= 16
    ):
        found.append(
            Rejection(
                field="store",
                value=str(store),
                reason="who stores a tile of the result: TMA, or the threads",
                legal=", ".join(STORES)
                + ", or tma and how many pieces of the result a warpgroup keeps on their way, 1 to 16",
            )
        )
    return found


def _splits(stage: Stage) -> list[Rejection]:
    splits = setting(stage, "splitk")
    if splits is None:
        return []
    said = ", ".join(map(str, splits)) if isinstance(splits, tuple) else str(splits)
    if isinstance(splits, tuple):
        if splits not in tuple((count, "cluster") for count in IN_CLUSTER):
            return [
                Rejection(
                    field="splitk",
                    value=said,
                    reason="CTAs of one cluster that add up their parts of k",
                    legal=", ".join(f"({count}, cluster)" for count in IN_CLUSTER),
                )
            ]
        if setting(stage, "cluster") not in (None, (1, 1)):
            return [
                Rejection(
                    field="splitk",
                    value=said,
                    reason="the CTAs of a cluster share a tile, so none is left to share an operand with",
                    legal="leave cluster out",
                )
            ]
    elif not isinstance(splits, int) or not 2 <= splits <= 64:
        return [
            Rejection(
                field="splitk",
                value=said,
                reason="parts of k that are summed up apart and added by a second kernel",
                legal="2 to 64, or 2, 4, 8 with cluster after it",
            )
        ]
    elif setting(stage, "swap") is not None:
        return [
            Rejection(
                field="splitk",
                value=said,
                reason="the second kernel reads rows, which the transposed product has as columns",
                legal=f"{', '.join(f'({count}, cluster)' for count in IN_CLUSTER)}",
            )
        ]
    if setting(stage, "schedule") == "pingpong":
        return [
            Rejection(
                field="splitk",
                value=said,
                reason="the warpgroups of pingpong skip each other's steps of k, which are not the same number in "
                "every part",
                legal="leave it out, or schedule(cooperative)",
            )
        ]
    return []


def _streamk(stage: Stage) -> list[Rejection]:
    if setting(stage, "streamk") is None:
        return []
    if setting(stage, "splitk") is not None:
        return [
            Rejection(
                field="streamk", value="yes", reason="splitk has cut all tiles along k already", legal="one of the two"
            )
        ]
    if setting(stage, "schedule") == "pingpong":
        return [
            Rejection(
                field="streamk",
                value="yes",
                reason="the warpgroups of pingpong skip each other's steps of k, which are not the same number in "
                "every piece of work",
                legal="leave it out, or schedule(cooperative)",
            )
        ]
    return []


def _tile(stage: Stage) -> list[Rejection]:
    tile = setting(stage, "tile", default_tile(str(setting(stage, "mma"))))
    pingpong = setting(stage, "schedule") == "pingpong"
    values = tile if isinstance(tile, tuple) else (tile,)
    heights = (64, 128) if pingpong else (64, 128, 256)
    depths = tuple(
        size // BYTES[str(setting(stage, "mma"))]
        for size in ((64, 128, 256) if setting(stage, "mma") in TF32 else (32, 64, 128, 256))
    )
    legal = f"m {', '.join(map(str, heights))}; n a multiple of 16 from 16 to 256; k {', '.join(map(str, depths))}"
    if len(values) != 3 or any(not isinstance(value, int) for value in values):
        return [Rejection(field="tile", value=str(tile), reason="three extents m, n, k", legal=legal)]
    m, n, k = values
    if setting(stage, "mma") in TF32 and n % 32 and n != 16:
        return [
            Rejection(
                field="tile",
                value=f"{m}, {n}, {k}",
                reason="CuTe DSL has no layout of float32 for it in shared memory",
                legal="n 16, or a multiple of 32, with mma(tf32)",
            )
        ]
    if m not in heights or not 16 <= n <= 256 or n % 16 or k not in depths:
        return [
            Rejection(
                field="tile",
                value=f"{m}, {n}, {k}",
                reason="a warpgroup multiplies 64 rows at a time (wgmma m64nNkK), and rows of shared memory are "
                "swizzled in 32, 64 or 128 bytes",
                legal=legal,
            )
        ]
    return []


def _sizes(config: GemmSm90Config, asked: object) -> list[Rejection]:
    m, n, _ = config.tile
    size = ", ".join(map(str, config.tile))
    if config.warpgroup_m * n > ACCUMULATORS:
        legal = f"n at most {ACCUMULATORS // config.warpgroup_m} with m {m}"
        return [
            Rejection(
                field="tile",
                value=size,
                reason=f"each thread would hold {config.warpgroup_m * n // 128} accumulators, more than its "
                "registers take",
                legal=legal,
            )
        ]
    if n // config.cluster[0] % 8 or m // config.cluster[1] % 8:
        return [
            Rejection(
                field="cluster",
                value=f"{config.cluster[0]}, {config.cluster[1]}",
                reason="each CTA of a cluster loads a part of the tile that they share, in whole pieces of 8 rows",
                legal="a smaller cluster, or a larger tile",
            )
        ]
    if config.store_buffers and (config.subtiles % config.store_buffers or config.reduction or config.in_cluster):
        legal = (
            "tma"
            if config.reduction or config.in_cluster
            else ", ".join(f"(tma, {count})" for count in range(1, 17) if config.subtiles % count == 0)
        )
        return [
            Rejection(
                field="store",
                value=f"tma, {config.store_buffers}",
                reason=f"a warpgroup stores {config.subtiles} pieces of a tile, through so many buffers in turn"
                if legal != "tma"
                else "the result does not leave in pieces",
                legal=legal,
            )
        ]
    most = config.max_stages
    if asked is not None and (not isinstance(asked, int) or not 2 <= asked <= 16):
        return [
            Rejection(
                field="stages", value=str(asked), reason="tiles of k that are in shared memory at once", legal="2 to 16"
            )
        ]
    if config.stages > most or most < 2:
        need = dataclasses.replace(config, stages=max(config.stages, 2)).shared_bytes
        legal = (
            f"at most {most} stages of this tile in {SHARED_BYTES} bytes"
            if most >= 2
            else f"a smaller tile: {SHARED_BYTES} bytes"
        )
        return [
            Rejection(
                field="stages",
                value=str(max(config.stages, 2)),
                reason=f"needs {need} bytes of shared memory",
                legal=legal,
            )
        ]
    return []


def _pair(value: object, default: tuple[int, int]) -> tuple[int, int]:
    """A setting of two numbers; the second is 1 when only one is given."""
    if isinstance(value, int):
        return value, 1
    return (int(value[0]), int(value[1])) if isinstance(value, tuple) and len(value) == 2 else default


def config_of(stage: Stage) -> GemmSm90Config:
    """The configuration of a checked stage, without the epilogue's functions."""
    kind = str(setting(stage, "mma", "f16"))
    tile, raster, split = setting(stage, "tile"), setting(stage, "raster", ("along_m", 8)), setting(stage, "splitk", 1)
    order, band = raster if isinstance(raster, tuple) else (raster, 8)
    store = setting(stage, "store", "tma")
    chain = chain_of(stage)
    config = GemmSm90Config(
        kind=kind,
        tile=(tile[0], tile[1], tile[2]) if isinstance(tile, tuple) else default_tile(kind),
        cluster=_pair(setting(stage, "cluster"), (1, 1)),
        stages=0,
        schedule=str(setting(stage, "schedule", "cooperative")),
        raster=str(order),
        band=int(str(band)),
        store=str(store[0] if isinstance(store, tuple) else store),
        store_buffers=int(str(store[1])) if isinstance(store, tuple) else 0,
        split_k=int(str(split[0] if isinstance(split, tuple) else split)),
        in_cluster=isinstance(split, tuple),
        stream_k=setting(stage, "streamk") is not None,
        swap=setting(stage, "swap") is not None,
        pdl=setting(stage, "launch") == "early",
        a_in_registers=setting(stage, "through") == "registers",
        cast=chain.cast,
        reduction=chain.how,
        reduces_rows=chain.by_rows,
        keepdim=chain.keepdim,
        reads=chain.reads,
    )
    stages = setting(stage, "stages")
    return dataclasses.replace(config, stages=stages if isinstance(stages, int) else min(config.max_stages, 8))
