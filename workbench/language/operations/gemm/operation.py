"""gemm(a, b): matrix products, their settings and epilogues."""

from __future__ import annotations

from workbench.language.operation import ARCH, Operation, Setting, choice_argument, epilogue_roles
from workbench.language.operations import epilogue
from workbench.language.operations.gemm.checks import METRICS, check

TILES = tuple((m, n, k) for m in (64, 128, 256) for n in (16, 32, 64, 96, 128, 192, 256) for k in (32, 64, 128))
SETTINGS = (
    ARCH,
    Setting(name="layout", closed=False),
    Setting(name="tile", values=((32, 32, 16), (64, 64, 16), (128, 128, 8), *TILES), closed=False),
    Setting(name="thread_tile", values=((2, 2), (4, 4), (8, 4), (8, 8)), closed=False),
    Setting(name="mma", values=("f16", "bf16", "tf32", "tf32x3"), closed=False),
    Setting(name="stages", values=(2, 3, 4, 5, 6, 8), closed=False),
    Setting(name="schedule", values=("cooperative", "pingpong"), closed=False),
    Setting(name="cluster", values=((2, 1), (1, 2), (2, 2)), closed=False),
    Setting(name="raster", values=(("along_m", 4), ("along_m", 16), ("along_n", 8)), closed=False),
    Setting(name="store", values=("direct", ("tma", 4), ("tma", 8)), closed=False),
    Setting(name="splitk", values=(2, 4, 8, 16, (2, "cluster"), (4, "cluster"), (8, "cluster")), closed=False),
    Setting(name="streamk", values=("yes",), reason="whether the tiles of the last wave are cut along k"),
    Setting(name="swap", values=((),), reason="it takes nothing: the transposed product is computed"),
    Setting(name="through", values=("registers",), reason="how wgmma's first operand is read"),
    Setting(name="launch", values=("early",), reason="whether the next kernel may start while this one ends"),
)
ABOUT = (
    "gemm(a, b, metric=inner|l2|l1|linf): a (batch, m, k) times b (batch, k, n), batch may be missing; "
    "operands bias (n) with >> bias(), residual (m, n) with >> residual(); "
    "metric l2, l1 or linf: not products but distances of a's rows and b's columns, "
    "l2 without its root, in float32 and without tensor cores"
)
OPERATIONS = (
    Operation(
        name="gemm",
        about=ABOUT,
        settings=SETTINGS,
        check=check,
        arguments=(choice_argument("metric", METRICS, "what is combined along k"),),
        epilogues=epilogue.NAMES,
        roles=("a", "b"),
        implied=epilogue_roles,
    ),
)
