"""ggemm(a, b, offsets): products of groups of rows, as a mixture of experts needs them; its settings and checks."""

from __future__ import annotations

from workbench.language.expressions.scalars import UNARY
from workbench.language.ir import Rejection, Stage, setting
from workbench.language.operation import ARCH, Operation, Setting
from workbench.language.operations import epilogue
from workbench.language.operations.gemm.sm90 import check_scheduled


def check(stage: Stage) -> list[Rejection]:
    """Rejections: what a scheduled product allows, cooperative only, epilogues without tensors."""
    found = [*epilogue.check(stage), *check_scheduled(stage)]
    if setting(stage, "schedule") == "pingpong":
        found.append(
            Rejection(
                field="schedule",
                value="pingpong",
                reason="the warpgroups of pingpong skip each other's tiles, which belong to groups of any size",
                legal="cooperative",
            )
        )
    chain = epilogue.chain_of(stage) if not found else None
    if chain is not None and (chain.reads or chain.reduction):
        name = chain.reads[0].role if chain.reads else chain.reduction.name if chain.reduction else ""
        found.append(
            Rejection(
                field="epilogue", value=name, reason="ggemm's epilogues are functions and numbers", legal="leave it out"
            )
        )
    return found


ABOUT = (
    "ggemm(a, b, offsets): groups of rows of a (rows, k), each times its matrix of b (groups, k, n); "
    "offsets (groups): one past each group's last row; sm_90a with a schedule"
)
SETTINGS = (
    ARCH,
    Setting(
        name="tile",
        values=((128, 256, 64), (128, 128, 64), (128, 64, 64), (64, 256, 64), (64, 128, 64), (64, 64, 64)),
        closed=False,
    ),
    Setting(name="mma", values=("f16", "bf16", "tf32", "e4m3", "e5m2"), closed=False),
    Setting(name="stages", values=(2, 3, 4, 5, 6, 8), closed=False),
    Setting(name="schedule", values=("cooperative",), closed=False, required=True),
    Setting(name="cluster", values=((2, 1), (1, 2), (2, 2)), closed=False),
    Setting(name="store", values=("direct",), closed=False),
    Setting(name="launch", values=("early",), reason="whether the next kernel may start while this one ends"),
)
OPERATIONS = (
    Operation(
        name="ggemm",
        about=ABOUT,
        settings=SETTINGS,
        check=check,
        epilogues=("scale", "clamp", "add", "sub", "mul", "div", "max", "min", *UNARY, "cast"),
        roles=("a", "b", "offsets"),
    ),
)
