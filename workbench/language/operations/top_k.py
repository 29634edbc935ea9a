"""topk(x, k=8): the largest elements of each row and their indices, a pair of tensors."""

from __future__ import annotations

from workbench.language.operation import ARCH, Argument, Operation, Setting

MOST = 128  # a warp keeps that many in registers

OPERATIONS = (
    Operation(
        name="topk",
        about="topk(x, k=8): the k largest of each row, largest first, as a pair: view(h, item=0) are the values, "
        "view(h, item=1) the int64 indices",
        settings=(
            ARCH,
            Setting(name="unroll", values=(1, 2, 4, 8), reason="16-byte loads that a lane has on the way at once"),
        ),
        arguments=(
            Argument(
                name="k",
                legal=f"1 to {MOST}",
                reason="how many of each row",
                holds=lambda value: isinstance(value, int) and 1 <= value <= MOST,
            ),
        ),
        roles=("x",),
    ),
)
