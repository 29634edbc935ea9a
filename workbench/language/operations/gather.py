"""gather(x, index), scatter_add and scatter_max(out, index, src): elements or layers by number along an axis."""

from __future__ import annotations

from workbench.language.ir import Rejection, Stage
from workbench.language.operation import ARCH, THREADS, Argument, Operation, Setting, flag


def check(stage: Stage) -> list[Rejection]:
    """Rejections of all three."""
    name = stage.operation.name
    wanted = 2 if name == "gather" else 3
    found: list[Rejection] = []
    if len(stage.operation.positional) != wanted:
        found.append(
            Rejection(
                field=name,
                value=str(len(stage.operation.positional)),
                reason=f"takes {wanted} operands",
                legal="gather(x, index)" if wanted == 2 else f"{name}(out, index, src)",
            )
        )
    return found


SETTINGS = (
    ARCH,
    THREADS,
    Setting(
        name="unroll",
        values=(1, 2, 4, 8),
        reason="pieces that a thread has on the way at once",
        meaning="{values} pieces of each thread are on the way at once",
    ),
)
ARGUMENTS = (
    Argument(
        name="axis",
        legal="0 and more",
        reason="along which axis the index counts",
        holds=lambda value: isinstance(value, int) and value >= 0,
    ),
    flag("layers", "whether an index stands for all that lies at its place of the axis"),
)
OPERATIONS = (
    Operation(
        name="gather",
        about="gather(x, index, axis=0, layers=0|1): torch.gather; "
        "layers=1: index_select along the axis with an index of any shape (embedding: axis 0)",
        settings=SETTINGS,
        check=check,
        arguments=ARGUMENTS,
        roles=("x", "index"),
    ),
    Operation(
        name="scatter_add",
        about="scatter_add(out, index, src, axis=0, layers=0|1): "
        "a copy of out with src added at index; layers=1: index_add",
        settings=SETTINGS,
        check=check,
        arguments=ARGUMENTS,
        roles=("out", "index", "src"),
    ),
    Operation(
        name="scatter_max",
        about="scatter_max(out, index, src, axis=0, layers=0|1): a copy of out where nothing of src goes, elsewhere "
        "the largest of src that goes there: torch.scatter_reduce with amax and include_self=False; layers=1: "
        "index_reduce",
        settings=SETTINGS,
        check=check,
        arguments=ARGUMENTS,
        roles=("out", "index", "src"),
    ),
)
