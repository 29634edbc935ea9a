"""Static checks of convolutions on tensor cores: what mma.sync, TMA, wgmma and the shared memory allow."""

from __future__ import annotations

import dataclasses

from workbench.kernels.conv.config import BYTES, Sm90Config
from workbench.language.ir import Rejection, Stage, setting
from workbench.language.operation import SHARED_BYTES
from workbench.language.operations.conv.configs import (
    STAGES,
    arguments_of,
    most_stages,
    patch_config,
    sm80_config,
    sm90_config,
)
from workbench.language.operations.gemm.sm90 import check_schedule

SM80_KINDS = ("f16", "bf16", "tf32")
SM80_TILES = tuple((m, n, k) for m in (64, 128) for n in (32, 64, 128) for k in (16, 32, 64))
SM90_KINDS = ("tf32", "bf16", "f16", "tf32x3")
HALO_KINDS = ("tf32", "bf16", "f16")
HALO_HEIGHTS = (128, 256, 512)
PATCH_HEIGHTS = (32, 64, 128, 256)
HEIGHTS = {"cooperative": (64, 128, 256), "pingpong": (64, 128)}
ACCUMULATORS = 128 * 128  # float32 of one warpgroup that fit beside everything else: 128 a thread
FEW_CHANNELS = "a filter of one channel leaves a tensor core nothing to sum up"


def check_sm80(stage: Stage) -> list[Rejection]:
    """Rejections of a convolution by mma.sync."""
    kind, tile, stages = setting(stage, "mma"), setting(stage, "tile"), setting(stage, "stages", STAGES)
    if kind == "tf32x3":
        reason = "mma.sync has no text for float32 in parts"
        legal = "f16, bf16, tf32, or add .schedule(cooperative) and .arch(sm_90a)"
        return [Rejection(field="mma", value=kind, reason=reason, legal=legal)]
    if kind not in SM80_KINDS:
        legal = ", ".join(SM80_KINDS)
        return [Rejection(field="mma", value=str(kind), reason="what mma.sync multiplies", legal=legal)]
    depths = tuple(size // BYTES[str(kind)] for size in (64, 128))
    if tile is not None and (tile not in SM80_TILES or tile[2] not in depths):
        value = ", ".join(map(str, tile)) if isinstance(tile, tuple) else str(tile)
        reason = "three extents: output positions, filters, input channels, in whole fragments and swizzled rows"
        legal = f"positions 64, 128; filters 32, 64, 128; channels {', '.join(map(str, depths))}"
        return [Rejection(field="tile", value=value, reason=reason, legal=legal)]
    if not isinstance(stages, int) or not 2 <= stages <= 8:
        reason = "tiles that are in shared memory at once"
        return [Rejection(field="stages", value=str(stages), reason=reason, legal="2 to 8")]
    if dict(stage.operation.named).get("groups", 1) == "channels":
        legal = "leave mma out, and add .rows(8)"
        return [Rejection(field="groups", value="channels", reason=FEW_CHANNELS, legal=legal)]
    need, most = sm80_config(stage).shared_bytes, SHARED_BYTES["sm_80"]
    if need > most:
        reason, legal = f"needs {need} bytes of shared memory", f"fewer, or a smaller tile: {most} bytes"
        return [Rejection(field="stages", value=str(stages), reason=reason, legal=legal)]
    return []


def check_patch(stage: Stage) -> list[Rejection]:
    """Rejections of a convolution by patches."""
    kind, tile, stages = setting(stage, "mma"), setting(stage, "tile"), setting(stage, "stages", STAGES)
    if kind != "tf32":
        reason = "fragments are gathered from float32, one element at a time"
        return [Rejection(field="mma", value=str(kind), reason=reason, legal="tf32")]
    if dict(stage.operation.named).get("groups", 1) == "channels":
        legal = "leave schedule and mma out, and add .rows(8)"
        return [Rejection(field="groups", value="channels", reason=FEW_CHANNELS, legal=legal)]
    if tile is not None and not _is_patch_tile(tile):
        value = ", ".join(map(str, tile)) if isinstance(tile, tuple) else str(tile)
        reason = "three extents: output positions, filters, input channels, in whole fragments"
        legal = f"positions {', '.join(map(str, PATCH_HEIGHTS))}; filters a multiple of 16 up to 128; channels 4 to 32"
        return [Rejection(field="tile", value=value, reason=reason, legal=legal)]
    if not isinstance(stages, int) or not 2 <= stages <= 8:
        reason = "groups of channels that are in shared memory at once"
        return [Rejection(field="stages", value=str(stages), reason=reason, legal="2 to 8")]
    threads = setting(stage, "threads", 128)
    if threads not in (64, 128, 256) or patch_config(stage).row_blocks < 1:
        reason = "each warp has 16 positions or more"
        return [Rejection(field="threads", value=str(threads), reason=reason, legal="64, 128, 256, at most twice m")]
    if patch_config(stage).accumulators > 128:
        reason = f"each thread would hold {patch_config(stage).accumulators} accumulators, more than its registers take"
        value = f"{', '.join(map(str, patch_config(stage).tile))}"
        legal = "fewer positions or filters, or more threads: 128 sums of a thread, of all outputs of its positions"
        return [Rejection(field="tile", value=value, reason=reason, legal=legal)]
    return []


def _is_patch_tile(tile: object) -> bool:
    if not isinstance(tile, tuple) or len(tile) != 3:
        return False
    m, n, k = tile
    return m in PATCH_HEIGHTS and n in range(16, 129, 16) and k in range(4, 33)


def check_halo(stage: Stage) -> list[Rejection]:
    """Rejections of a convolution by wgmma with halos."""
    arch, kind, stages = setting(stage, "arch", "sm_80"), setting(stage, "mma"), setting(stage, "stages", 2)
    if arch != "sm_90a":
        reason = "wgmma multiplies the taps, which only Hopper has"
        return [Rejection(field="arch", value=str(arch), reason=reason, legal="sm_90a, or .schedule(patch)")]
    if kind not in HALO_KINDS:
        reason = "operands are 16 bytes of channels"
        return [Rejection(field="mma", value=str(kind), reason=reason, legal=", ".join(HALO_KINDS))]
    for name in ("stride", "groups"):
        value = arguments_of(stage)[name]
        if any(one != 1 for one in (value if isinstance(value, tuple) else (value,))):
            reason = "the inputs of a tap are the neighbours of another tap's"
            return [Rejection(field=name, value=str(value), reason=reason, legal="1, or .schedule(cooperative)")]
    if not isinstance(stages, int) or not 2 <= stages <= 16:
        reason = "stages that are in shared memory at once, at most"
        return [Rejection(field="stages", value=str(stages), reason=reason, legal="2 to 16")]
    tile, depths = setting(stage, "tile"), tuple(size // BYTES[str(kind)] for size in (32, 64, 128))
    if tile is not None and not _is_halo_tile(tile, depths):
        value = ", ".join(map(str, tile)) if isinstance(tile, tuple) else str(tile)
        reason = "three extents: output positions, filters, input channels; each thread holds 128 sums at most"
        legal = (
            f"positions {', '.join(map(str, HALO_HEIGHTS))}; filters a multiple of 16 from 16 to 256, positions times "
            f"filters up to {2 * ACCUMULATORS}; channels {', '.join(map(str, depths))}"
        )
        return [Rejection(field="tile", value=value, reason=reason, legal=legal)]
    return []


def _is_halo_tile(tile: object, depths: tuple[int, ...]) -> bool:
    if not isinstance(tile, tuple) or len(tile) != 3:
        return False
    m, n, k = tile
    return m in HALO_HEIGHTS and n in range(16, 257, 16) and m * n <= 2 * ACCUMULATORS and k in depths


def check_sm90(stage: Stage) -> list[Rejection]:
    """Rejections of a convolution with a schedule."""
    found = check_schedule(stage, SM90_KINDS)
    cluster = setting(stage, "cluster", 1)
    if cluster not in (1, 2, 4):
        reason = "CTAs along the output positions that share the filters by multicast"
        found.append(Rejection(field="cluster", value=str(cluster), reason=reason, legal="1, 2, 4"))
    groups = dict(stage.operation.named).get("groups", 1)
    if groups == "channels":
        legal = "leave schedule out, and add .rows(8)"
        found.append(Rejection(field="groups", value="channels", reason=FEW_CHANNELS, legal=legal))
    if setting(stage, "unfold") is not None and groups != 1:
        reason = "the filter's last extent becomes channels of one group"
        found.append(Rejection(field="unfold", value="", reason=reason, legal="leave it out, or groups=1"))
    return found or _check_tile(stage) or _check_sizes(sm90_config(stage), setting(stage, "stages"))


def _check_tile(stage: Stage) -> list[Rejection]:
    kind, schedule = str(setting(stage, "mma")), str(setting(stage, "schedule"))
    tile = setting(stage, "tile", (128, 128, 128 // BYTES[kind]))
    is_tf32 = kind in ("tf32", "tf32x3")
    depths = tuple(size // BYTES[kind] for size in ((64, 128) if is_tf32 else (32, 64, 128)))
    values = tile if isinstance(tile, tuple) else (tile,)
    reason, legal = (
        "",
        (
            f"positions {', '.join(map(str, HEIGHTS[schedule]))}; filters a multiple of 16 from 16 to 256; "
            f"channels {', '.join(map(str, depths))}"
        ),
    )
    if len(values) != 3 or any(not isinstance(value, int) for value in values):
        reason = "three extents: output positions, filters, input channels"
        return [Rejection(field="tile", value=str(tile), reason=reason, legal=legal)]
    m, n, k = values
    if is_tf32 and n % 32 and n != 16:
        reason = "CuTe DSL has no layout of float32 for it in shared memory"
        legal = f"filters 16, or a multiple of 32, with mma({kind})"
    elif m not in HEIGHTS[schedule] or not 16 <= n <= 256 or n % 16 or k not in depths:
        reason = (
            "a warpgroup multiplies 64 rows at a time (wgmma m64nNkK), "
            "and rows of shared memory are swizzled in 32, 64 or 128 bytes"
        )
    return [Rejection(field="tile", value=f"{m}, {n}, {k}", reason=reason, legal=legal)] if reason else []


def _check_sizes(config: Sm90Config, asked: object) -> list[Rejection]:
    m, n, k = config.tile_m, config.tile_n, config.tile_k
    if config.rows * n > ACCUMULATORS:
        reason = f"each thread would hold {config.rows * n // 128} accumulators, more than its registers take"
        legal = f"n at most {ACCUMULATORS // config.rows} with m {m}"
        return [Rejection(field="tile", value=f"{m}, {n}, {k}", reason=reason, legal=legal)]
    if n // config.cluster % 8:
        reason = "each CTA of a cluster loads a part of the filters' tile, in whole pieces of 8 rows"
        legal = "a smaller cluster, or a larger tile"
        return [Rejection(field="cluster", value=str(config.cluster), reason=reason, legal=legal)]
    if asked is not None and (not isinstance(asked, int) or not 2 <= asked <= 16):
        reason = "tiles that are in shared memory at once"
        return [Rejection(field="stages", value=str(asked), reason=reason, legal="2 to 16")]
    most, stages, shared = most_stages(config), max(config.stages, 2), SHARED_BYTES["sm_90a"]
    if config.stages > most or most < 2:
        need = dataclasses.replace(config, stages=stages).shared_bytes
        legal = (
            f"at most {most} stages of this tile in {shared} bytes" if most >= 2 else f"a smaller tile: {shared} bytes"
        )
        reason = f"needs {need} bytes of shared memory"
        return [Rejection(field="stages", value=str(stages), reason=reason, legal=legal)]
    return []
