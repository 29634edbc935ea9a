"""Rejects settings that a tensor's size or type at the problem's full size does not allow, before anything is emitted.

The limits come from what compiled within 90 s on 64 busy cores, and from measurements on an H200
(workbench/landscapes/h200.csv.gz).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from workbench.kernels.conv.halo.plan import plan_halo
from workbench.kernels.conv.patch.plan import plan_patches
from workbench.kernels.gemm.sm90.config import STORED
from workbench.language import ranks
from workbench.language.expressions import axes
from workbench.language.expressions.expressions import leaves
from workbench.language.expressions.lowering import needs_rowwise
from workbench.language.expressions.reduction_passes import plan
from workbench.language.ir import Binding, Operand, Program, Rejection, Stage, number, setting
from workbench.language.operation import SHARED_BYTES, WARPS
from workbench.language.operations import bulk_copy, rowwise
from workbench.language.operations.conv.configs import halo_config, patch_config
from workbench.language.operations.epilogue import chain_of
from workbench.language.parser import format_value
from workbench.language.registry import OPERATIONS

# Elements of a row in a thread's registers, of which it has 255. 256 took up to 26 s to compile, 768 spilled 2.8 KB per
# thread or more, 8192 did not compile.
KEPT_MOST = 256
# Multiply-adds that a direct convolution writes out for one channel. All from 2880 on spilled 6.9 KB per thread or more
# and took 9 times as long as the fastest; 7744 did not compile.
WRITTEN_MOST = 2560
HEAD_MOST = 256  # head dimension of attention but by schedule(stages)
OLD = (
    "softmax",
    "layernorm",
    "rmsnorm",
    "reduce",
    "crossentropy",
)  # over the last axis a row has one thread where nothing is said
SAME = (
    "softmax",
    "log_softmax",
    "layernorm",
    "rmsnorm",
    "batchnorm",
    "groupnorm",
    "instancenorm",
    "scan",
)  # the result has its operand's shape
CONVOLUTIONS = ("conv", "convtranspose")
SHARES = (1, 2, 4, 8, 16, 32)  # what split may be
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes


def check_limits(program: Program, binding: Binding) -> tuple[Rejection, ...]:
    """Rejections of settings that the problem's tensors do not allow; of tensors that are not known nothing is said."""
    known = dict(binding.tensors)
    found: list[Rejection] = []
    for stage in program.stages:
        found += [
            *_narrow(stage, known),
            *_head(stage, known),
            *_check_kept(stage, known),
            *_strip(stage, known),
            *_check_written_out(stage, known),
            *_patch(stage, known),
            *_halo(stage, known),
            *_reduced_filters(stage, known),
        ]
        if stage.result is not None:
            shape = _result(stage, known)
            known = {name: operand for name, operand in known.items() if name != stage.result} | (
                {stage.result: Operand(shape=shape)} if shape is not None else {}
            )
    return tuple(found)


def _first(stage: Stage, known: Mapping[str, Operand], place: int = 0) -> Operand | None:
    """The operand in this place, where it is a tensor that is known."""
    given = stage.operation.positional
    name = given[place] if len(given) > place else None
    return known.get(name) if isinstance(name, str) else None


def _narrow(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    """Tensor cores that would read another type than memory holds; only gemm's simplest kernel converts."""
    first, mma = _first(stage, known), str(setting(stage, "mma"))
    converted = (
        (stage.operation.name == "gemm" or setting(stage, "product") is not None)
        and setting(stage, "schedule") is None
        and setting(stage, "stages") is None
    )
    if (
        first is None
        or first.dtype not in SIZES
        or mma not in STORED
        or STORED[mma] not in SIZES
        or STORED[mma] == first.dtype
        or converted
    ):
        return []
    known_kinds = OPERATIONS[stage.operation.name].setting("mma")
    legal = [str(kind) for kind in (known_kinds.values if known_kinds else ()) if STORED[str(kind)] == first.dtype]
    return [
        Rejection(
            field="mma",
            value=mma,
            reason=f"it multiplies {STORED[mma]}, and {format_value(stage.operation.positional[0])} is {first.dtype} "
            "in this problem",
            legal=", ".join(legal),
        )
    ]


def _head(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    q = _first(stage, known)
    if (
        stage.operation.name != "attention"
        or q is None
        or q.shape[-1] <= HEAD_MOST
        or setting(stage, "schedule") == "stages"
    ):
        return []
    return [
        Rejection(
            field="schedule",
            value=str(setting(stage, "schedule") or "none"),
            reason=f"the head dimension is {q.shape[-1]} in this problem, more than {HEAD_MOST}",
            legal="stages",
        )
    ]


def _check_kept(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    """Rows that a thread's registers do not hold."""
    if setting(stage, "kept") is None:
        return []
    names, _ = leaves(stage.operation.positional[0])
    shape = max((known[name].shape for name in names if name in known), key=len, default=None)
    axis = dict(stage.operation.named).get("axis", "last")
    if shape is None or len(shape) < max(axes.view(axis).least, 1):
        return []
    strided = axes.view(axis).strided
    (setter, sharing), (rows, columns) = _sharing_threads(stage, strided), axes.sizes(axis, shape)
    width = number(stage, "vector", 1) if columns % number(stage, "vector", 1) == 0 else 1
    vectors = rows if strided else columns // width
    each = -(-vectors // sharing) * width * len(names)
    if each <= KEPT_MOST:
        return []
    least = -(-each * sharing // (KEPT_MOST * number(stage, "cluster", 1)))
    enough = next((count for count in (SHARES if strided else WARPS) if count >= least), 0)
    return [
        Rejection(
            field="kept",
            value="",
            reason=f"each thread would keep {each} elements of a row in this problem, more than {KEPT_MOST}",
            legal=(f"{setter}(at least {enough}), or " if enough else "") + "without kept",
        )
    ]


def _strip(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    """Rows through shared memory that do not fit into it two stages at a time."""
    if setting(stage, "through") != "shared" or stage.operation.name not in ranks.OVER_ROWS:
        return []
    names, _ = leaves(stage.operation.positional[0])
    operand = next((known[name] for name in names if name in known), None)
    axis = dict(stage.operation.named).get("axis", "last")
    if operand is None or operand.dtype not in SIZES or len(operand.shape) < axes.view(axis).least:
        return []
    unit = 16 // SIZES[operand.dtype]
    asked = number(stage, "threads", bulk_copy.THREADS) * number(stage, "unroll", bulk_copy.UNROLL)
    strip, most = (
        min(asked, axes.sizes(axis, operand.shape)[1]),
        (SHARED_BYTES["sm_90a"] - 1024) // (len(names) * bulk_copy.PIECES * 2 * 16),
    )  # in 16 bytes
    if -(-strip // unit) + 1 <= most:
        return []
    field = "unroll" if setting(stage, "unroll") is not None else "threads"
    value = str(setting(stage, field) or bulk_copy.THREADS)
    return [
        Rejection(
            field=field,
            value=value,
            reason=f"two stages of {strip} columns need "
            f"{len(names) * bulk_copy.PIECES * 2 * 16 * (-(-strip // unit) + 1)} bytes of shared memory",
            legal=f"threads * unroll at most {(most - 1) * unit}",
        )
    ]


def _sharing_threads(stage: Stage, strided: bool) -> tuple[str, int]:
    """The setting that says how many threads share a row, and how many do."""
    if stage.operation.name in OLD and (stage.operation.name == "crossentropy" or not needs_rowwise(stage)):
        return "threads_per_row", number(stage, "threads_per_row", 1)
    chosen = rowwise.how(stage, strided)
    return ("split", chosen.split) if strided else ("threads_per_row", chosen.threads * chosen.cluster)


def _check_written_out(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    """Direct convolutions write out every multiply-add of a thread for one channel."""
    filters = _first(stage, known, 1)
    if stage.operation.name != "conv" or setting(stage, "rows") is None or filters is None:
        return []
    taps, down, across = math.prod(filters.shape[2:][-2:]), number(stage, "rows", 1), number(stage, "filters", 1)
    if taps * down * across <= WRITTEN_MOST:
        return []
    size = "x".join(map(str, filters.shape[2:]))
    return [
        Rejection(
            field="rows",
            value=str(down),
            reason=f"{down} rows of {across} filters of {size} are {taps * down * across} multiply-adds of a thread, "
            f"all written out, more than {WRITTEN_MOST}",
            legal=f"rows * filters at most {WRITTEN_MOST // taps}" if taps <= WRITTEN_MOST else "without rows",
        )
    ]


def _patch(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    """Patches of a convolution's input that do not fit into shared memory with the filters of their channels."""
    x, w = _first(stage, known), _first(stage, known, 1)
    if setting(stage, "schedule") != "patch" or x is None or w is None or len(x.shape) != len(w.shape):
        return []
    cfg = patch_config(stage)
    how = (cfg.stride, cfg.padding, cfg.dilation, cfg.output_padding, cfg.transposed)
    extents, channels = x.shape[2:], x.shape[1] // cfg.groups
    if plan_patches(extents, w.shape[2:], channels, how, cfg.tile, cfg.stages, cfg.smem_bytes) is not None:
        return []
    value = ", ".join(map(str, cfg.tile))
    reason = f"{cfg.stages} stages of its patches do not fit into {cfg.smem_bytes} bytes of shared memory"
    return [Rejection(field="tile", value=value, reason=reason, legal="a smaller tile, or fewer stages")]


def _halo(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    """Two stages of a convolution with halos that do not fit into shared memory."""
    x, w = _first(stage, known), _first(stage, known, 1)
    if setting(stage, "schedule") != "halo" or x is None or w is None or len(x.shape) != len(w.shape):
        return []
    cfg = halo_config(stage)
    how = (cfg.padding, cfg.dilation, cfg.output_padding, cfg.transposed)
    extents, taps = x.shape[2:], w.shape[2:]
    if plan_halo(extents, taps, how, cfg.tile, 16 // cfg.chunk, cfg.stages, cfg.stages_bytes) is not None:
        return []
    value = ", ".join(map(str, cfg.tile))
    reason = f"two stages of its input and of the filters do not fit into {cfg.stages_bytes} bytes of shared memory"
    return [Rejection(field="tile", value=value, reason=reason, legal="a smaller tile")]


def _reduced_filters(stage: Stage, known: Mapping[str, Operand]) -> list[Rejection]:
    """Filters of a convolution that are reduced, and that a tile does not hold."""
    w, tile = _first(stage, known, 1), setting(stage, "tile")
    if stage.operation.name not in CONVOLUTIONS or not chain_of(stage).how or w is None or not isinstance(tile, tuple):
        return []
    filters = w.shape[1 if stage.operation.name == "convtranspose" else 0]
    if filters <= tile[1]:
        return []
    reason = f"{filters} filters are reduced, and one tile holds them"
    return [
        Rejection(
            field="tile",
            value=", ".join(map(str, tile)),
            reason=reason,
            legal=f"{filters} filters or more, where they fit, or {chain_of(stage).how}(...) in a stage of its own",
        )
    ]


def _result(stage: Stage, known: Mapping[str, Operand]) -> tuple[int, ...] | None:
    """The shape of a stage's result, where that is easily known."""
    a, b = _first(stage, known), _first(stage, known, 1)
    if stage.operation.name in SAME:
        return a.shape if a is not None else None
    if (
        stage.operation.name == "gemm"
        and a is not None
        and b is not None
        and not any(call.name.startswith(("row", "col")) for call in stage.epilogues)
    ):  # what reduces rows or columns
        return (*a.shape[:-1], b.shape[-1])
    if stage.operation.name == "rowwise" and not plan(stage.operation.positional[0]).whole:
        return None
    shapes = (
        [known[name].shape for name in leaves(stage.operation.positional[0])[0] if name in known]
        if stage.operation.name in ("elementwise", "rowwise")
        else []
    )
    return max(shapes, key=len, default=None)
