"""view(x, ...): a tensor seen with other extents, between the stages of a pipeline; torch does it, no kernel runs."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.language.ir import Rejection, Stage
from workbench.language.operation import ARCH, Operation, checked_argument

LEGAL = {
    "flatten": "(i, j): axes i to j become one",
    "unflatten": "i, with like=y and axes=(j, k): axis i gets y's extents j to k",
    "squeeze": "i: axis i, which is 1, goes",
    "unsqueeze": "i: a new axis i of 1",
    "order": "(1, 0, 2): the axes in another order",
    "chunk": "(i, k, n): along axis i, part k of n, as torch.chunk cuts it",
    "share": "(i, k, n): along axis i, from k/n to (k + 1)/n of its extent, rounded down",
    "slice": "(i, start, end) or (i, start): along axis i, as in Python",
    "every": "(i, start, n): along axis i, every nth from start on",
    "layer": "(i, k): what lies at k of axis i, which goes",
    "item": "k: tensor k of a pair",
    "index": "i: the numbers of axis i from 0, in float32; the axes after it are 1",
    "draw": "p, a number from 0 to 1: ones with this probability, else zeros, as torch's generator draws them",
}


def check(stage: Stage) -> list[Rejection]:
    """Rejections of anything but one change of the extents."""
    named = dict(stage.operation.named)
    given = ", ".join(f"{name}={value}" for name, value in named.items())
    legal = "; ".join(f"{name}={text}" for name, text in LEGAL.items())
    changes = [name for name in LEGAL if name in named]
    if len(changes) != 1 or not _goes_together(changes[0], named):
        return [Rejection(field="view", value=given, reason="one change of the extents", legal=legal)]
    change = changes[0]
    pairs = [named[name] for name in ("flatten", "axes") if name in named]
    if not _is_axes_of(change, named[change]) or not all(_is_range(pair) for pair in pairs):
        return [Rejection(field=change, value=given, reason="axes are counted from 0", legal=legal)]
    return []


def _goes_together(change: str, named: Mapping[str, object]) -> bool:
    """Whether nothing else is named, and like and axes both are for unflatten, and for it only."""
    return not named.keys() - {change, "like", "axes"} and (change == "unflatten") == ({"like", "axes"} <= named.keys())


def _is_axis(value: object) -> bool:
    """Whether a value is the number of an axis."""
    return isinstance(value, int) and value >= 0


def _is_range(value: object) -> bool:
    """Whether a value is (i, j), the axes from i to j."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_axis, value)) and value[0] <= value[1]


COUNTS = {"chunk": (3,), "share": (3,), "slice": (2, 3), "every": (3,), "layer": (2,)}  # how many numbers a part takes


def _is_axes_of(change: str, value: object) -> bool:
    """Whether a value is what a change takes: several axes, for order all of them, or one axis."""
    if change == "draw":
        return isinstance(value, int | float) and 0 <= value <= 1
    if change in COUNTS:
        return (
            isinstance(value, tuple)
            and len(value) in COUNTS[change]
            and all(isinstance(part, int) for part in value)
            and _is_axis(value[0])
            and (change not in ("chunk", "share") or 0 <= value[1] < value[2])
            and (change != "every" or (value[1] >= 0 and value[2] >= 1))
        )
    if change not in ("flatten", "order"):
        return _is_axis(value)
    return (
        isinstance(value, tuple)
        and all(map(_is_axis, value))
        and (change == "flatten" or sorted(value) == [*range(len(value))])
    )


def _like(stage: Stage) -> tuple[str, ...]:
    return ("like",) if "like" in dict(stage.operation.named) else ()


ARGUMENTS = (
    *(checked_argument(name, legal) for name, legal in LEGAL.items()),
    checked_argument("like", "the name of a tensor"),
    checked_argument("axes", "(j, k): its axes j to k"),
)
OPERATIONS = (
    Operation(
        name="view",
        about="view(x, flatten=(i, j) | unflatten=i, like=y, axes=(j, k) | squeeze=i | unsqueeze=i | order=(1, 0) | "
        "chunk=(i, k, n) | share=(i, k, n) | slice=(i, start, end) | "
        "every=(i, start, n) | layer=(i, k) | item=k | "
        "index=i | draw=p): x with other extents, a part of it, the numbers of an axis, or zeros and ones drawn by "
        "torch, for the next stage; no kernel",
        settings=(ARCH,),
        check=check,
        arguments=ARGUMENTS,
        roles=("x",),
        implied=_like,
    ),
)
