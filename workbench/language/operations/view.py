"""view(x, ...): a tensor seen with other extents, between the stages of a pipeline; torch does it, no kernel runs."""

from __future__ import annotations

from workbench.language.ir import Rejection, Stage
from workbench.language.operation import ARCH, Operation, checked

LEGAL = {
    "flatten": "(i, j): axes i to j become one",
    "unflatten": "i, with like=y and axes=(j, k): axis i gets y's extents j to k",
    "squeeze": "i: axis i, which is 1, goes",
    "unsqueeze": "i: a new axis i of 1",
    "order": "(1, 0, 2): the axes in another order",
}


def check(stage: Stage) -> list[Rejection]:
    """Rejections of anything but one change of the extents."""
    named = dict(stage.operation.named)
    said, legal = (
        ", ".join(f"{name}={value}" for name, value in named.items()),
        "; ".join(f"{name}={text}" for name, text in LEGAL.items()),
    )
    hows = [name for name in LEGAL if name in named]
    if (
        len(hows) != 1
        or named.keys() - {*hows, "like", "axes"}
        or ("unflatten" in named) != ({"like", "axes"} <= named.keys())
    ):
        return [Rejection(field="view", value=said, reason="one change of the extents", legal=legal)]
    value = named[hows[0]]
    numbers = value if isinstance(value, tuple) else (value,)
    pairs = [item for item in (value if hows[0] == "flatten" else None, named.get("axes")) if item is not None]
    wrong = (
        any(not isinstance(item, int) or item < 0 for item in numbers)
        or isinstance(value, tuple) != (hows[0] in ("flatten", "order"))
        or (hows[0] == "order" and sorted(numbers) != [*range(len(numbers))])
    )
    if wrong or any(
        not isinstance(pair, tuple)
        or len(pair) != 2
        or any(not isinstance(axis, int) or axis < 0 for axis in pair)
        or pair[0] > pair[1]
        for pair in pairs
    ):
        return [Rejection(field=hows[0], value=said, reason="axes are counted from 0", legal=legal)]
    return []


def _like(stage: Stage) -> tuple[str, ...]:
    return ("like",) if "like" in dict(stage.operation.named) else ()


ARGUMENTS = (
    *(checked(name, legal) for name, legal in LEGAL.items()),
    checked("like", "the name of a tensor"),
    checked("axes", "(j, k): its axes j to k"),
)
OPERATIONS = (
    Operation(
        name="view",
        about="view(x, flatten=(i, j) | unflatten=i, like=y, axes=(j, k) | squeeze=i | unsqueeze=i | order=(1, 0)): "
        "x with other extents for the next stage; no kernel",
        settings=(ARCH,),
        check=check,
        arguments=ARGUMENTS,
        roles=("x",),
        implied=_like,
    ),
)
