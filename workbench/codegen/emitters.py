"""Operation name -> function that lowers its stages to launches of the kernel library."""

from __future__ import annotations

from collections.abc import Callable

from workbench.codegen.attention import lower_attention
from workbench.codegen.conv import lower_conv
from workbench.codegen.elementwise import lower_elementwise
from workbench.codegen.gemm.lower import lower_gemm
from workbench.codegen.gemm_sm90 import lower_ggemm
from workbench.codegen.graphs import lower_aggregate, lower_sddmm, lower_segment_softmax
from workbench.codegen.launch import Launch
from workbench.codegen.rows.channel_norms import lower_channel_norm, lower_group_means
from workbench.codegen.rows.lowering import (
    lower_cross_entropy,
    lower_matrix_vector,
    lower_plane_pool,
    lower_reduction,
    lower_rowwise,
)
from workbench.codegen.rows.pool_planes import lower_poolwise
from workbench.codegen.scan import lower_scan
from workbench.codegen.simple import (
    lower_concat,
    lower_gather,
    lower_matvec,
    lower_outputs,
    lower_pool,
    lower_remap,
    lower_store,
    lower_top_k,
    lower_view,
)
from workbench.language.ir import Binding, Stage, setting
from workbench.language.operations.remap.operation import REMAPS


def lower_any_matvec(stage: Stage, binding: Binding) -> Launch:
    """Lower matvec: with `rows` several rows per CTA, otherwise as a reduction of each row."""
    return (lower_matrix_vector if setting(stage, "rows") is None else lower_matvec)(stage, binding)


def lower_any_pool(stage: Stage, binding: Binding) -> Launch:
    """Lower pool: over windows, or as a reduction of each plane."""
    is_whole = dict(stage.operation.named).get("window") == "all"
    return (lower_plane_pool if is_whole else lower_pool)(stage, binding)


LOWERINGS: dict[str, Callable[[Stage, Binding], Launch]] = {
    "conv": lower_conv,
    "convtranspose": lower_conv,
    "concat": lower_concat,
    "aggregate": lower_aggregate,
    "attention": lower_attention,
    "crossentropy": lower_cross_entropy,
    "elementwise": lower_elementwise,
    "gather": lower_gather,
    "gemm": lower_gemm,
    "ggemm": lower_ggemm,
    "matvec": lower_any_matvec,
    "outputs": lower_outputs,
    "pool": lower_any_pool,
    "poolwise": lower_poolwise,
    "rowwise": lower_rowwise,
    "scan": lower_scan,
    "scatter_add": lower_gather,
    "scatter_max": lower_gather,
    "sddmm": lower_sddmm,
    "segment_softmax": lower_segment_softmax,
    "store": lower_store,
    "topk": lower_top_k,
    "view": lower_view,
    **dict.fromkeys(("softmax", "log_softmax", "layernorm", "rmsnorm", "reduce"), lower_reduction),
    **dict.fromkeys(REMAPS, lower_remap),
    "groupnorm_means": lower_group_means,
    **dict.fromkeys(("batchnorm", "batch_norm_stats", "groupnorm", "instancenorm"), lower_channel_norm),
}
