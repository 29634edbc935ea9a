"""`.through(shared)`: a strided reduction whose rows come to shared memory by bulk copies. Its sizes and its checks."""

from __future__ import annotations

from workbench.language.expressions.axes import View
from workbench.language.expressions.reduction_passes import Plan
from workbench.language.ir import Rejection, Stage, number, setting
from workbench.language.operation import MOST_THREADS, WARPS

THREADS, UNROLL = 256, 4  # where nothing is said: threads that reduce, columns of each
PIECES = 8  # rows of a strip in one stage
ROOM = 192 << 10  # bytes of shared memory for the stages, of 227 KB


def check(stage: Stage, found: Plan, view: View) -> list[Rejection]:
    """What goes with `.through(shared)`."""
    how = setting(stage, "through")
    if how is None:
        return []
    if how != "shared":
        return [
            Rejection(
                field="through",
                value=str(how),
                reason="where a strided reduction's rows go before they are reduced",
                legal="shared",
            )
        ]
    said = []
    if not view.strided or found.whole or len(found.levels) != 1 or found.spread:
        said.append(
            Rejection(
                field="through",
                value="shared",
                reason="only a reduction along a strided axis, in one walk, without broadcast operands, goes "
                "through shared memory",
                legal="without through",
            )
        )
    if (threads := number(stage, "threads", THREADS)) + 32 > MOST_THREADS:
        said.append(
            Rejection(
                field="threads",
                value=str(threads),
                reason=f"with the warp that copies, a CTA would have {threads + 32} threads, more than {MOST_THREADS}",
                legal=", ".join(str(count) for count in WARPS if count + 32 <= MOST_THREADS),
            )
        )
    if setting(stage, "arch") != "sm_90a":
        said.append(
            Rejection(
                field="arch",
                value=str(setting(stage, "arch", "sm_80")),
                reason="bulk copies into shared memory came with Hopper",
                legal="sm_90a with through(shared)",
            )
        )
    for name in ("split", "kept", "parts", "vector", "cluster"):
        if setting(stage, name) is not None:
            said.append(
                Rejection(
                    field=name,
                    value=str(setting(stage, name)),
                    reason="rows that go through shared memory are shared by threads and unroll alone",
                    legal="without " + name,
                )
            )
    return said
