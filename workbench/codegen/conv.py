"""conv and convtranspose -> a launch of the kernels in `workbench.kernels.conv`: configuration, hook, operands."""

from __future__ import annotations

import dataclasses

from workbench.codegen.epilogue import epilogue_hook
from workbench.codegen.gemm.lower import lower_gemm
from workbench.codegen.guards import called
from workbench.codegen.launch import Hook, Launch
from workbench.kernels.conv.config import ConvConfig
from workbench.kernels.operands import Read
from workbench.language.ir import Binding, Stage, setting
from workbench.language.operations.conv.configs import (
    as_gemm,
    direct_config,
    halo_config,
    patch_config,
    sm80_config,
    sm90_config,
)
from workbench.language.operations.epilogue import chain_of

HOST = "workbench.kernels.conv.host"
POINTWISE = {
    "workbench.kernels.gemm.host:gemm": "pointwise_convolution",
    "workbench.kernels.gemm.sm90.host:gemm": "pointwise_convolution_sm90",
    "workbench.kernels.gemm.sm90.host:gemm_split_k": "pointwise_convolution_split_k",
}  # host function of a gemm -> that of a convolution by it


def lower_conv(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a convolution: direct sums on CUDA cores, or an implicit GEMM by mma.sync or wgmma."""
    if setting(stage, "product") is not None:
        return lower_product(stage, binding)
    if setting(stage, "mma") is None and setting(stage, "schedule") is None:
        config = direct_config(stage)
        hook = elements_hook(stage) if config.rows is not None else coordinates_hook(stage)
        return _launch(f"{HOST}:direct_convolution", config, hook, stage, binding)
    if setting(stage, "schedule") == "patch":
        entry = "workbench.kernels.conv.patch.host:patch_convolution"
        return _launch(entry, patch_config(stage), fragments_hook(stage), stage, binding)
    if setting(stage, "schedule") == "halo":
        entry = "workbench.kernels.conv.halo.host:halo_convolution"
        return _launch(entry, halo_config(stage), fragments_hook(stage), stage, binding)
    gemm_config = sm80_config(stage) if setting(stage, "schedule") is None else sm90_config(stage)
    return _launch(f"{HOST}:implicit_gemm_convolution", gemm_config, fragments_hook(stage), stage, binding)


def lower_product(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a 1 x 1 convolution as a GEMM; the host function makes its operands from x and w."""
    operands = tuple((role, text) for role, text in binding.operands if role not in ("x", "w"))
    own = dataclasses.replace(binding, operands=(*operands, ("a", "w"), ("b", "x")))
    launch = lower_gemm(as_gemm(stage), own)
    roles = dict(launch.many)["operands"]
    entry = f"workbench.kernels.conv.pointwise:{POINTWISE[launch.entry]}"
    return dataclasses.replace(launch, entry=entry, operands=("x", "w", *roles))


def coordinates_hook(stage: Stage) -> Hook | None:
    """Return the epilogue of the direct kernel, whose operands are tensors: epilogue(total, bias, n, k, z, p, q)."""

    def element(read: Read) -> str:
        return f"{read.role}[k]" if read.along == "n" else f"{read.role}[n, k, z, p, q]"

    return epilogue_hook(chain_of(stage).calls, place=("n", "k", "z", "p", "q"), element=element)


def elements_hook(stage: Stage) -> Hook | None:
    """Return the epilogue of the sliding-window kernel, whose operands are elements: epilogue(total, bias)."""
    return epilogue_hook(chain_of(stage).calls, place=(), element=lambda read: read.role)


def fragments_hook(stage: Stage) -> Hook | None:
    """Return the epilogue of the implicit GEMM, whose operands are fragments: epilogue(total, bias, i)."""

    def element(read: Read) -> str:
        return f"{read.role}[0]" if read.along == "n" else f"{read.role}[i]"

    return epilogue_hook(chain_of(stage).calls, place=("i",), element=element)


def _launch(entry: str, config: ConvConfig, hook: Hook | None, stage: Stage, binding: Binding) -> Launch:
    roles = tuple(read.role for read in config.reads)
    bound, after = dict(binding.operands), epilogue_hook(chain_of(stage).after, name="finish", place=())
    names = {role: called(role, bound) for role in ("x", "w", *roles)}
    return Launch(
        entry=entry,
        static=(("cfg", dataclasses.replace(config, epilogue=hook, finish=after)), ("names", names)),
        operands=("x", "w", *roles),
        many=(("operands", roles),),
    )
