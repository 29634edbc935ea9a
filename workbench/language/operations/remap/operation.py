"""pad, flip, roll and interpolate: their arguments and checks."""

from __future__ import annotations

from collections.abc import Callable

from workbench.language.expressions.scalars import UNARY
from workbench.language.ir import Rejection, Stage
from workbench.language.operation import (
    ARCH,
    COMBINERS,
    MAP,
    THREADS,
    VECTOR,
    Argument,
    Operation,
    Setting,
    checked_argument,
    choice_argument,
    epilogue_roles,
    flag,
    is_number,
)
from workbench.language.operations import epilogue

REMAPS = ("pad", "flip", "roll", "interpolate")
PADS = ("constant", "replicate", "reflect", "circular")
RESIZES = ("nearest", "nearest_exact", "linear")
EPILOGUES = ("residual", "scale", "clamp", *COMBINERS, MAP, *UNARY, "cast")
AXES_LEGAL = "axes from the end, ascending: -1 is the last, (-2, -1) are the last two"


def values(value: object) -> tuple[float, ...]:
    """The numbers of an argument: one, or one for each axis; () if it is anything else."""
    given = value if isinstance(value, tuple) else (value,)
    return given if all(isinstance(part, int | float) for part in given) else ()


def check(stage: Stage) -> list[Rejection]:
    """Rejections of axes, of numbers that are not one for each axis, and of what does not go together."""
    named = dict(stage.operation.named)
    axes = values(named.get("axes"))
    if not axes or any(not isinstance(axis, int) or axis >= 0 for axis in axes) or [*axes] != sorted({*axes}):
        return [_reject("axes", named.get("axes", ""), "which axes are read elsewhere", AXES_LEGAL)]
    for name, allows in NUMBERS[stage.operation.name].items():
        given = values(named.get(name, ()))
        if name in named and (len(given) != len(axes) or not all(map(allows, given))):
            return [_reject(name, named[name], LEGAL[name], f"{len(axes)} of them, one for each of the axes")]
    return [*_check_resize(stage, axes), *_check_epilogues(stage)]


def _check_resize(stage: Stage, axes: tuple[float, ...]) -> list[Rejection]:
    """Rejections of an interpolation."""
    named = dict(stage.operation.named)
    if stage.operation.name != "interpolate":
        return []
    if ("size" in named) == ("scale" in named):
        given = named.get("scale", "nothing")
        return [
            _reject("scale", given, "one of size and scale says how large it becomes", "scale=(2, 2) or size=(8, 8)")
        ]
    if named.get("mode", "nearest") == "linear" and axes not in ((-1,), (-2, -1), (-3, -2, -1)):
        return [
            _reject("axes", named["axes"], "linear interpolation is along the last axes", "-1, (-2, -1), (-3, -2, -1)")
        ]
    if named.get("align_corners") and named.get("mode", "nearest") != "linear":
        return [_reject("align_corners", 1, "only linear interpolation aligns corners", "mode=linear")]
    return []


def _check_epilogues(stage: Stage) -> list[Rejection]:
    """Rejections of epilogues that read vectors."""
    found = epilogue.check(stage)
    return found or [
        _reject(
            call.name, "", "its tensors have the result's shape", "a tensor, or elementwise(...) as a stage after it"
        )
        for call, reads in epilogue.chain_of(stage).calls
        if any(read.along != "both" for read in reads)
    ]


def _reject(field: str, value: object, reason: str, legal: str) -> Rejection:
    return Rejection(field=field, value=str(value), reason=reason, legal=legal)


def _is_whole(value: object) -> bool:
    return isinstance(value, int)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


NUMBERS: dict[str, dict[str, Callable[[object], bool]]] = {
    "pad": {"before": _is_whole, "after": _is_whole},
    "flip": {},
    "roll": {"shifts": _is_whole},
    "interpolate": {"size": lambda value: _is_whole(value) and _is_positive(value), "scale": _is_positive},
}
LEGAL = {
    "before": "how many elements each axis gets in front; a negative number takes them away",
    "after": "how many elements each axis gets behind; a negative number takes them away",
    "shifts": "how many places each axis is rolled on",
    "size": "the result's extents",
    "scale": "a number greater than 0 by which each extent grows",
}
AXES = checked_argument("axes", AXES_LEGAL)
SETTINGS = (
    ARCH,
    THREADS,
    VECTOR,
    Setting(
        name="unroll",
        values=(1, 2, 4, 8),
        reason="neighbouring rows of a thread",
        meaning="each thread has {values} neighbouring rows",
    ),
)


def _make(name: str, about: str, *arguments: Argument) -> Operation:
    return Operation(
        name=name,
        about=f"{name}{about}",
        settings=SETTINGS,
        check=check,
        arguments=(AXES, *arguments),
        epilogues=EPILOGUES,
        roles=("x",),
        implied=epilogue_roles,
    )


def _numbers(name: str) -> Argument:
    return checked_argument(name, LEGAL[name])


OPERATIONS = (
    _make(
        "pad",
        "(x, axes=(-2, -1), before=(1, 1), after=(1, 1), mode=constant|replicate|reflect|circular, value=0): torch's "
        "pad; numbers below 0 crop; axes count from the end, -1 is the last; one axis: axes=-1, before=1; epilogues "
        "element by element, their tensors have the result's shape",
        _numbers("before"),
        _numbers("after"),
        choice_argument("mode", PADS, "what the further elements hold"),
        Argument(name="value", legal="a number", reason="what a constant pad holds", holds=is_number),
    ),
    _make("flip", "(x, axes=-1): the axes backwards; axes and epilogues as pad"),
    _make("roll", "(x, axes=-1, shifts=1): torch.roll; axes and epilogues as pad", _numbers("shifts")),
    _make(
        "interpolate",
        "(x, axes=(-2, -1), scale=(2, 2) | size=(8, 8), mode=nearest|nearest_exact|linear, align_corners=0|1): torch's "
        "interpolate, linear in each of the last one to three axes; axes and epilogues as pad",
        _numbers("size"),
        checked_argument("scale", f"{LEGAL['scale']}: a number or one for each axis"),
        choice_argument("mode", RESIZES, "how elements between others are found"),
        flag("align_corners", "whether the first and the last element of each axis stay where they are"),
    ),
)
