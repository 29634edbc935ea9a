"""view(x, ...): a tensor seen with other extents, between the stages of a pipeline; torch does it, no kernel runs."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.language.ir import Rejection, Stage
from workbench.language.operation import ARCH, Operation, checked_argument

LEGAL = {
    "flatten": "(i, j): axes i to j become one",
    "unflatten": "(i, n, m, ...): axis i gets these extents, of which one may be -1; "
    "or i, with like=y and axes=(j, k): it gets y's extents j to k",
    "repeat": "i, with like=y and axes=(j, j): each layer along axis i several times, up to y's extent j",
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
    """Whether nothing else is named, and like and axes both are where extents of another tensor are wanted."""
    wanted = {"like", "axes"} if change in LIKE and not isinstance(named[change], tuple) else set()
    return named.keys() - {change} == wanted


def _is_axis(value: object) -> bool:
    """Whether a value is the number of an axis."""
    return isinstance(value, int) and value >= 0


def _is_range(value: object) -> bool:
    """Whether a value is (i, j), the axes from i to j."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_axis, value)) and value[0] <= value[1]


LIKE = ("unflatten", "repeat")  # changes that take extents of another tensor
COUNTS = {"chunk": (3,), "share": (3,), "slice": (2, 3), "every": (3,), "layer": (2,)}  # how many numbers a part takes


def _is_axes_of(change: str, value: object) -> bool:
    """Whether a value is what a change takes: several axes, for order all of them, one axis, or one with numbers."""
    if change == "draw":
        return isinstance(value, int | float) and 0 <= value <= 1
    numbers = value if isinstance(value, tuple) and all(isinstance(part, int) for part in value) else ()
    if change in COUNTS:
        return len(numbers) in COUNTS[change] and _is_part(change, numbers)
    if change == "unflatten" and isinstance(value, tuple):
        return len(numbers) > 2 and _is_axis(numbers[0]) and _are_extents(numbers[1:])
    if change not in ("flatten", "order"):
        return _is_axis(value)
    return (
        isinstance(value, tuple)
        and all(map(_is_axis, value))
        and (change == "flatten" or sorted(value) == [*range(len(value))])
    )


def _is_part(change: str, numbers: tuple[int, ...]) -> bool:
    """Whether numbers are an axis, and what names a part of it."""
    return (
        _is_axis(numbers[0])
        and (change not in ("chunk", "share") or 0 <= numbers[1] < numbers[2])
        and (change != "every" or (numbers[1] >= 0 and numbers[2] >= 1))
    )


def _are_extents(numbers: tuple[int, ...]) -> bool:
    """Whether numbers are extents, of which one may be -1."""
    return all(number > 0 or number == -1 for number in numbers) and numbers.count(-1) < 2


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
        about="view(x, flatten=(i, j) | unflatten=(i, n, m) | unflatten=i, like=y, axes=(j, k) | "
        "repeat=i, like=y, axes=(j, j) | squeeze=i | unsqueeze=i | order=(1, 0) | "
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
