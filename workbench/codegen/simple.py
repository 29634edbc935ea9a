"""Lowers operations with a one-to-one configuration: gather, scatter_add, scatter_max, pool, matvec with rows,
reads at another index, view."""

from __future__ import annotations

import dataclasses

from workbench.codegen.elementwise import expression_hook
from workbench.codegen.gemm.lower import operand_names
from workbench.codegen.guards import called
from workbench.codegen.launch import Launch
from workbench.kernels.concat.config import ConcatConfig
from workbench.kernels.gather.config import GatherConfig
from workbench.kernels.matvec.config import MatvecConfig
from workbench.kernels.pool.config import PoolConfig
from workbench.kernels.remap.config import RemapConfig
from workbench.kernels.store_config import StoreConfig
from workbench.kernels.top_k.config import TopKConfig
from workbench.kernels.view_config import ViewConfig
from workbench.language.ir import Binding, Stage, number, setting
from workbench.language.operations import pool, view
from workbench.language.operations.epilogue import chain_of, write_expression
from workbench.language.operations.remap.operation import values


def lower_gather(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of gather, scatter_add or scatter_max."""
    named, name = dict(stage.operation.named), stage.operation.name
    config = GatherConfig(
        axis=int(str(named.get("axis", 0))),
        layers=bool(named.get("layers", 0)),
        op="max" if name == "scatter_max" else "add",
        threads=number(stage, "threads", 256),
        unroll=number(stage, "unroll", 4),
    )
    roles = ("x", "index") if name == "gather" else ("out", "index", "src")
    return _launch(f"gather.host:{name}", config, roles, binding)


def lower_matvec(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of matvec with several rows per CTA."""
    config = MatvecConfig(
        threads=number(stage, "threads_per_row", 32),
        rows=number(stage, "rows", 1),
        vector=number(stage, "vector", 1),
        unroll=number(stage, "unroll", 1),
        keepdim=bool(dict(stage.operation.named).get("keepdim", 0)),
    )
    return _launch("matvec.kernel:matvec", config, ("x", "vector"), binding)


def lower_pool(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of pool with a window."""
    return _launch("pool.host:pool", pool_config(stage), ("x",), binding)


def pool_config(stage: Stage) -> PoolConfig:
    """Return the configuration of a pool with a window."""
    named, sizes = dict(stage.operation.named), pool.sizes(stage)
    return PoolConfig(
        op=str(named.get("op", "max")),
        window=sizes["window"],
        stride=sizes["stride"],
        padding=sizes["padding"],
        dilation=sizes["dilation"],
        rank=len(pool.numbers(named["window"])),
        ceil=bool(named.get("ceil", 0)),
        count_padding=bool(named.get("count_padding", 1)),
        divisor=int(str(named.get("divisor", 0))),
        threads=number(stage, "threads", 256),
        schedule=str(setting(stage, "schedule", "direct")),
        rows=number(stage, "rows", 8),
    )


def lower_remap(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of pad, flip, roll or interpolate."""
    chain, bound = chain_of(stage), dict(binding.operands)
    roles = tuple(read.role for read in chain.reads)
    hook = expression_hook(write_expression(chain.calls, "total"), ("total", *roles)) if chain.calls else None
    cfg = dataclasses.replace(
        remap_config(stage),
        expression=hook,
        out=chain.cast or "",
    )
    names = {"x": called("x", bound), "others": tuple(called(role, bound) for role in roles)}
    return Launch(
        entry="workbench.kernels.remap.host:remap",
        static=(("cfg", cfg), ("names", names)),
        operands=("x", *roles),
        many=(("others", roles),),
    )


def remap_config(stage: Stage) -> RemapConfig:
    """Return the configuration of pad, flip, roll or interpolate without its epilogues."""
    named, name = dict(stage.operation.named), stage.operation.name
    axes = tuple(map(int, values(named["axes"])))
    none = (0,) * len(axes)
    usual = {"pad": "constant", "flip": "flip", "roll": "circular", "interpolate": "nearest"}[name]
    before, behind = (tuple(map(int, values(named.get(key, none)))) for key in ("before", "after"))
    shifts = tuple(map(int, values(named.get("shifts", none))))
    return RemapConfig(
        axes=axes,
        mode=str(named.get("mode", usual)),
        before={"pad": before, "roll": shifts}.get(name, ()),
        behind=behind if name == "pad" else (),
        scales=values(named.get("scale", ())),
        extents=tuple(map(int, values(named.get("size", ())))),
        value=float(str(named.get("value", 0))),
        align_corners=bool(named.get("align_corners", 0)),
        threads=number(stage, "threads", 256),
        vector=number(stage, "vector", 1),
        unroll=number(stage, "unroll", 4),
    )


def lower_view(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a view: one line of torch, no kernel."""
    named = dict(stage.operation.named)
    how = next(name for name in view.LEGAL if name in named)
    axes = named.get("axes")
    first, last = axes if isinstance(axes, tuple) else (0, -1)
    like = ("like",) if "like" in named else ()
    if how == "unflatten" and not like:
        how, named = "extents", {"extents": named["unflatten"]}
    config = ViewConfig(how=how, value=named[how], first=first, end=last + 1)
    return Launch(
        entry="workbench.kernels.view:view",
        static=(("cfg", config),),
        operands=("x", *like),
        many=(("like", like),),
    )


def lower_store(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a store: one line of torch, no kernel."""
    named = dict(stage.operation.named)
    x = ("x",) if "x" in named else ()
    config = StoreConfig(add=int(str(named.get("add", 0))))
    return Launch(
        entry="workbench.kernels.store:store",
        static=(("cfg", config),),
        operands=("into", *x),
        many=(("x", x),),
    )


def lower_concat(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of concat."""
    given = tuple(map(str, stage.operation.positional))
    axis, bound = int(str(dict(stage.operation.named).get("axis", 0))), dict(binding.operands)
    return Launch(
        entry="workbench.kernels.concat.host:concat",
        static=(
            ("cfg", ConcatConfig(axis=axis, threads=number(stage, "threads", 256))),
            ("names", tuple(called(name, bound) for name in given)),
        ),
        operands=given,
        many=(("inputs", given),),
    )


def lower_top_k(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of topk."""
    config = TopKConfig(unroll=number(stage, "unroll", 4), k=int(str(dict(stage.operation.named).get("k", 1))))
    return _launch("top_k.host:top_k_of_rows", config, ("x",), binding)


def lower_outputs(stage: Stage, binding: Binding) -> Launch:
    """Return what stands for the results: it has no host function, forward returns its operands."""
    return Launch(entry="", static=(), operands=tuple(map(str, stage.operation.positional)))


def _launch(entry: str, config: object, roles: tuple[str, ...], binding: Binding) -> Launch:
    names = operand_names(roles, dict(binding.operands))
    return Launch(entry=f"workbench.kernels.{entry}", static=(("cfg", config), ("names", names)), operands=roles)
