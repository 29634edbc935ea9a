"""conv(x, w) and convtranspose(x, w): convolutions of one to three dimensions; implicit products on Hopper's tensor cores (`conv_hopper`) or on others (`conv_mma`), or summed up directly (`conv_direct`)."""

from __future__ import annotations

import dataclasses

from workbench.dsl import conv_direct, conv_epilogue, conv_hopper, conv_mma, epilogue, gemm
from workbench.dsl.conv_checks import as_product, check
from workbench.dsl.ir import Binding, Stage, setting
from workbench.dsl.operation import ARCH, THREADS, Operation, Setting, checked, of_epilogues
from workbench.dsl.pieces import Parts, definitions


def emit(stage: Stage, binding: Binding) -> Parts:
    """A product if asked for, Hopper's kernels with a schedule, mma.sync with mma alone, direct sums otherwise."""
    if setting(stage, "product") is not None:
        return _product(stage, binding)
    functions = definitions(epilogue.functions_of(stage))
    if setting(stage, "schedule") is None:
        return conv_direct.emit(stage, binding, functions) if setting(stage, "mma") is None else conv_mma.emit(stage, binding, functions)
    return conv_hopper.emit(stage, binding, functions)


def _product(stage: Stage, binding: Binding) -> Parts:
    """Filters of one tap: the filters (filters, channels) times each image (channels, places), where both lie."""
    bound = dict(binding.operands)
    x, w = bound.get("x", "x"), bound.get("w", "w")
    parts = gemm.emit(as_product(stage), Binding(init_source="", forward_arguments=(), operands=conv_epilogue.bound_in_product(epilogue.chain_of(stage), bound)))
    lines = [
        f"x, w = {x}, {w}",
        "if w.numel() != w.shape[0] * x.shape[1]:",
        '    raise ValueError(f"filters of shape {tuple(w.shape)} are not of one tap, for an input of shape {tuple(x.shape)}")',
        "a, b = w.flatten(1).expand(x.shape[0], -1, -1), x.flatten(2)",
    ]
    body = parts.forward.rstrip().removesuffix("return d")
    return dataclasses.replace(parts, forward="\n".join([*lines, body + "return d.unflatten(-1, x.shape[2:])"]))


SETTINGS = (
    ARCH,
    Setting(name="mma", values=("tf32", "bf16", "f16", "tf32x3"), closed=False),
    Setting(name="tile", values=tuple((m, n, k) for m in (128, 256) for n in (16, 32, 64, 128) for k in (16, 32, 64)), closed=False, meaning="places and filters that a CTA computes, and input channels of a tap at a time: ({values})"),
    Setting(name="stages", values=(2, 3, 4, 5, 6, 8), closed=False, meaning="{values} tiles of the input and of the filters in shared memory at once"),
    Setting(name="schedule", values=("cooperative", "pingpong"), closed=False),
    Setting(name="cluster", values=(2,), closed=False, meaning="{values} CTAs along the places share the filters by multicast; with product as a gemm has them"),
    THREADS,
    Setting(name="rows", values=(1, 2, 4, 8, 16), closed=False, meaning="each thread computes {values} results below each other"),
    Setting(name="filters", values=(2, 4, 8), closed=False, meaning="each thread computes the results of {values} filters from the inputs that it loads once"),
    Setting(name="unfold", values=((),), reason="it takes nothing: each line of the filter becomes channels", meaning="each line of the filter becomes channels, for inputs of few channels"),
    Setting(name="product", closed=False, reason="it takes nothing: filters of one tap as a gemm", meaning="filters of one tap: a gemm of the filters and each image"),
)
OF_PRODUCTS = tuple(Setting(name=name, closed=False) for name in ("raster", "store", "splitk", "streamk", "swap", "through", "launch"))  # with product(), as gemm has them
ARGUMENTS = tuple(checked(name, "a number, or one of each extent") for name in ("stride", "padding", "dilation", "groups"))
OPERATIONS = (
    Operation(name="conv", about="conv(x, w, stride=1, padding=0, dilation=1, groups=1): x (images, channels, 1 to 3 extents), w (filters, channels / groups, extents); each setting a number or one of each extent, (2, 1); operands bias (filters) with >> bias(), residual (of the result's shape) with >> residual()", settings=(*SETTINGS, *OF_PRODUCTS), emit=emit, check=check, arguments=ARGUMENTS, epilogues=conv_epilogue.NAMES, roles=("x", "w"), implied=of_epilogues),
    Operation(name="convtranspose", about="convtranspose(x, w, stride=1, padding=0, output_padding=0, dilation=1, groups=1): w (channels, filters / groups, extents); otherwise as conv", settings=tuple(item for item in SETTINGS if item.name not in ("unfold", "rows", "filters", "product")), emit=emit, check=check, arguments=(*ARGUMENTS, checked("output_padding", "less than the stride or the dilation")), epilogues=conv_epilogue.NAMES, roles=("x", "w"), implied=of_epilogues),
)
