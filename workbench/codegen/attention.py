"""attention -> a launch of one of the kernels in `workbench.kernels.attention`."""

from __future__ import annotations

from workbench.codegen.gemm.lower import config_of
from workbench.codegen.gemm_sm90 import lower_gemm_sm90
from workbench.codegen.guards import called
from workbench.codegen.launch import Launch
from workbench.kernels.attention.config import SimtConfig, Sm80Config, Sm90Config, UnfusedConfig
from workbench.kernels.gemm.config import Epilogue
from workbench.kernels.gemm.sm90.config import GemmSm90Config
from workbench.language.ir import Binding, Stage, number, setting
from workbench.language.operation import SHARED_BYTES
from workbench.language.operations.attention import mask_of, product

NOWHERE = Binding(init_source="", forward_arguments=())
ENTRIES = {
    SimtConfig: "workbench.kernels.attention.simt:attention_simt",
    Sm80Config: "workbench.kernels.attention.sm80:attention_sm80",
    Sm90Config: "workbench.kernels.attention.sm90.host:attention_sm90",
    UnfusedConfig: "workbench.kernels.attention.unfused:attention_unfused",
}


def lower_attention(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of an attention stage: its configuration and the operands q, k, v, and a mask."""
    bound, config = dict(binding.operands), configure(stage)
    masks = ("mask",) if mask_of(stage) is not None else ()
    roles = ("q", "k", "v", *masks)
    return Launch(
        entry=ENTRIES[type(config)],
        static=(("cfg", config), ("names", {role: called(role, bound) for role in roles})),
        operands=roles,
        many=() if isinstance(config, UnfusedConfig) else (("masks", masks),),
    )


def configure(stage: Stage) -> SimtConfig | Sm80Config | Sm90Config | UnfusedConfig:
    """Return the configuration of the kernel that the stage's settings select."""
    named = dict(stage.operation.named)
    causal = bool(named.get("causal", 0))
    scale = float(str(named["scale"])) if "scale" in named else None
    mask = mask_of(stage)
    mma, schedule, tile = setting(stage, "mma"), setting(stage, "schedule"), setting(stage, "tile")
    arch = str(setting(stage, "arch", "sm_80"))
    if schedule == "stages":
        return UnfusedConfig(causal=causal, scale=scale, product=configure_product(product(stage)))
    if mma is None:
        tile_m, tile_n = tile if isinstance(tile, tuple) else (64, 64)
        return SimtConfig(causal=causal, scale=scale, mask=mask, tile_m=tile_m, tile_n=tile_n)
    if schedule == "flash":
        tile_m, keys = tile if isinstance(tile, tuple) else (128, None)
        return Sm90Config(
            element=str(mma),
            causal=causal,
            scale=scale,
            mask=mask,
            mma_warpgroups=tile_m // 64,
            tile_n=keys,
            stages=number(stage, "stages", 2),
            smem_bytes=SHARED_BYTES["sm_90a"],
        )
    tile_m, tile_n = tile if isinstance(tile, tuple) else (128 if arch == "sm_90a" else 64, 64)
    return Sm80Config(
        element=str(mma),
        causal=causal,
        scale=scale,
        mask=mask,
        warps=tile_m // 16,
        most_keys=tile_n,
        smem_bytes=SHARED_BYTES[arch] - 1024,
    )


def configure_product(stage: Stage) -> Epilogue | GemmSm90Config:
    """Return the configuration of both products; with a schedule they use the Hopper GEMM."""
    if setting(stage, "schedule") is None:
        return config_of(stage)
    config = dict(lower_gemm_sm90(stage, NOWHERE).static)["cfg"]
    assert isinstance(config, GemmSm90Config)
    return config
