"""The records of conv and convtranspose: settings with their legal values, arguments, epilogues."""

from __future__ import annotations

from workbench.language.operation import ARCH, THREADS, Operation, Setting, checked_argument, epilogue_roles
from workbench.language.operations.conv import epilogue
from workbench.language.operations.conv.checks import check

SETTINGS = (
    ARCH,
    Setting(name="mma", values=("tf32", "bf16", "f16", "tf32x3"), closed=False),
    Setting(
        name="tile",
        values=tuple((m, n, k) for m in (128, 256) for n in (16, 32, 64, 128) for k in (16, 32, 64)),
        closed=False,
        meaning="output positions and filters that a CTA computes, and input channels of a tap at a time: ({values})",
    ),
    Setting(
        name="stages",
        values=(2, 3, 4, 5, 6, 8),
        closed=False,
        meaning="{values} tiles of the input and of the filters in shared memory at once",
    ),
    Setting(
        name="schedule",
        values=("cooperative", "pingpong", "halo", "patch"),
        closed=False,
        meaning="{values}: warpgroups that multiply share a tile (cooperative) or take turns with one each (pingpong), "
        "and a further one loads, a tile of the input for each tap or, once for all taps at stride 1, with its halo "
        "(halo); or each warp gathers from a patch of the input in shared memory (patch)",
    ),
    Setting(
        name="cluster",
        values=(2,),
        closed=False,
        meaning="{values} CTAs along the output positions share the filters by multicast; "
        "with product as a gemm has them",
    ),
    THREADS,
    Setting(
        name="rows",
        values=(1, 2, 4, 8, 16),
        closed=False,
        meaning="each thread computes {values} results below each other",
    ),
    Setting(
        name="filters",
        values=(2, 4, 8),
        closed=False,
        meaning="each thread computes the results of {values} filters from the inputs that it loads once",
    ),
    Setting(
        name="unfold",
        values=((),),
        reason="it takes nothing: each line of the filter becomes channels",
        meaning="each line of the filter becomes channels, for inputs of few channels",
    ),
    Setting(
        name="product",
        closed=False,
        reason="it takes nothing: filters of one tap as a gemm",
        meaning="filters of one tap: a gemm of the filters and each image",
    ),
)
OF_GEMM = tuple(
    Setting(name=name, closed=False) for name in ("raster", "store", "splitk", "streamk", "swap", "through", "launch")
)  # with product(), as gemm has them
ARGUMENTS = tuple(
    checked_argument(name, "a number, or one of each extent") for name in ("stride", "padding", "dilation", "groups")
)
OPERATIONS = (
    Operation(
        name="conv",
        about="conv(x, w, stride=1, padding=0, dilation=1, groups=1): x (images, channels, 1 to 3 extents), "
        "w (filters, channels / groups, extents); each setting a number or one of each extent, (2, 1); "
        "operands bias (filters) with >> bias(), residual (of the result's shape) with >> residual(); "
        ">> rowmin(keepdim=1), rowmax, rowsum, rowmean reduce the filters of each position",
        settings=(*SETTINGS, *OF_GEMM),
        check=check,
        arguments=ARGUMENTS,
        epilogues=epilogue.NAMES,
        roles=("x", "w"),
        implied=epilogue_roles,
    ),
    Operation(
        name="convtranspose",
        about="convtranspose(x, w, stride=1, padding=0, output_padding=0, dilation=1, groups=1): "
        "w (channels, filters / groups, extents); otherwise as conv",
        settings=tuple(item for item in SETTINGS if item.name not in ("unfold", "rows", "filters", "product")),
        check=check,
        arguments=(*ARGUMENTS, checked_argument("output_padding", "less than the stride or the dilation")),
        epilogues=epilogue.NAMES,
        roles=("x", "w"),
        implied=epilogue_roles,
    ),
)
