"""What an operation of muCUTLASS is: its settings with their legal values, its epilogues and its checks."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable

from workbench.analysis.devices import ARCHES
from workbench.language.ir import Call, Rejection, Stage, names_in, setting
from workbench.records import record

READERS = ("bias", "residual")  # epilogues that read a tensor: the one that they name, else the one of their own name
COMBINERS = ("add", "sub", "mul", "div", "max", "min")  # epilogues that take a number, or a tensor by its name
MAP = "map"  # the epilogue that takes an expression of its value and of tensors
WARPS = (32, 64, 128, 256, 512, 1024)
MOST_THREADS = 1024  # of a CTA
SHARED_BYTES = {"sm_80": 166_912, "sm_90a": 232_448}  # what a CTA may have


# what a setting means where its operation says nothing else; {values} is what stands in its parentheses
MEANINGS = {
    "arch": "compiled for {values}",
    "threads": "{values} threads in a CTA",
    "threads_per_row": "{values} threads share a row",
    "vector": "{values} neighbouring elements in one access, where rows and addresses allow it",
    "unroll": "{values} vectors of each thread are loaded before the first is used",
    "kept": "each row is kept in registers, so it is read once",
    "passes": "the row is walked over {values} times",
    "split": "{values} warps share the rows of a column",
    "parts": "{values} CTAs have a part of each row; further kernels put together what they find",
    "per_thread": "each thread keeps {values} elements in registers",
    "mma": "tensor cores multiply {values} and add in float32",
    "tile": "rows and columns of the result that a CTA computes, and how much of k at a time: ({values})",
    "thread_tile": "each thread computes {values} outputs",
    "stages": "{values} tiles of k in shared memory at once",
    "schedule": "{values}: warpgroups that multiply share a tile (cooperative) or take turns with one each "
    "(pingpong), a further one loads",
    "cluster": "({values}) CTAs along m and n share tiles by multicast",
    "raster": "neighbouring CTAs walk bands of tiles ({values}), so that what they read stays in L2",
    "store": "the result is stored by {values}",
    "splitk": "k in {values} parts, which a second kernel adds up, or the CTAs of a cluster",
    "streamk": "tiles of the last wave are cut along k into equal shares",
    "swap": "the transposed product: a tile's columns lie along m, for few rows",
    "through": "wgmma's first operand goes through registers, so that it need not lie along k (with swap: b)",
    "launch": "the next kernel's start overlaps with this one's end",
    "layout": "which operand lies by columns",
}


@record
class Setting:
    """A setting of an operation. A value is what stands in its parentheses: one, a tuple of several, or () for none."""

    name: str
    values: tuple[object, ...] = ()  # what is legal, and what an enumeration tries
    reason: str = ""  # why nothing else is legal
    closed: bool = True  # whether only `values` are legal; otherwise the operation's own check decides
    required: bool = False  # whether an enumeration never leaves it out
    meaning: str = ""  # in words, where it is not what MEANINGS says

    def words(self, values: str) -> str:
        """What it means with these values."""
        return (self.meaning or MEANINGS[self.name]).format(values=values)


@record
class Argument:
    """A named argument of an operation: `legal` says what `holds` lets through."""

    name: str
    legal: str
    reason: str
    holds: Callable[[object], bool]


def is_number(value: object) -> bool:
    """1, 0.5."""
    return isinstance(value, int | float)


def allow_any(value: object) -> bool:
    """Any value: the operation's own check says which are legal."""
    return True


def flag(name: str, reason: str) -> Argument:
    """A truth value, written 0 or 1."""
    return choice_argument(name, (0, 1), reason)


def choice_argument(name: str, values: tuple[object, ...], reason: str) -> Argument:
    """One of some words or numbers."""
    return Argument(
        name=name,
        legal=", ".join(map(str, values)),
        reason=reason,
        holds=lambda value: value in values and not isinstance(value, float),
    )


def checked_argument(name: str, legal: str) -> Argument:
    """An argument whose value the operation's own check settles."""
    return Argument(name=name, legal=legal, reason="", holds=allow_any)


def no_check(stage: Stage) -> list[Rejection]:
    """Nothing beyond what the settings' values say."""
    return []


def reject_settings(stage: Stage, names: tuple[str, ...], reason: str, legal: str = "leave it out") -> list[Rejection]:
    """Rejections of those of the named settings that the stage has, where they mean nothing."""
    return [
        Rejection(field=name, value=str(setting(stage, name)), reason=reason, legal=legal)
        for name in names
        if setting(stage, name) is not None
    ]


def no_operands(stage: Stage) -> tuple[str, ...]:
    """No operand beyond the positional ones."""
    return ()


def epilogue_tensors(stage: Stage) -> tuple[tuple[tuple[str, str], ...], ...]:
    """What each epilogue reads: (what the emitter calls the tensor, its name in the program).

    The emitter's names are bias, residual, or other; from the second on with a number.
    """
    counts: Counter[str] = Counter()
    found = []
    for call in stage.epilogues:
        own = []
        for base, name in _tensors_of(call):
            counts[base] += 1
            own.append((f"{base}{counts[base]}" if counts[base] > 1 else base, name))
        found.append(tuple(own))
    return tuple(found)


def _tensors_of(call: Call) -> tuple[tuple[str, str], ...]:
    """(base of the role, name) of each tensor that an epilogue reads."""
    if call.name in READERS:
        return ((call.name, str(call.positional[0]) if call.positional else call.name),)
    return tuple(("other", name) for name in names_in(call)) if call.name in (*COMBINERS, MAP) else ()


def epilogue_operands(stage: Stage) -> dict[str, str]:
    """What the emitter calls the tensors of a stage's epilogues -> their names in the program."""
    return dict(tensor for tensors in epilogue_tensors(stage) for tensor in tensors)


def epilogue_roles(stage: Stage) -> tuple[str, ...]:
    """The operands of a stage's epilogues."""
    return tuple(epilogue_operands(stage))


@record
class Operation:
    """One word of the language."""

    name: str
    about: str  # what it computes, with the shapes of its operands; shown to people and to models
    settings: tuple[Setting, ...]
    check: Callable[[Stage], list[Rejection]] = no_check
    arguments: tuple[Argument, ...] = ()
    epilogues: tuple[str, ...] = ()
    expressions: bool = False  # whether an expression may stand where its first tensor does
    roles: tuple[
        str, ...
    ] = ()  # what the emitter calls its positional operands; () = by the names that the text gives them
    several: bool = False  # whether it takes any number of tensors, all by the names that the text gives them
    implied: Callable[[Stage], tuple[str, ...]] = (
        no_operands  # further operands, named by an argument or an epilogue: weight, bias
    )

    def setting(self, name: str) -> Setting | None:
        """The setting of that name."""
        return next((item for item in self.settings if item.name == name), None)


def operands(operation: Operation, stage: Stage) -> dict[str, str]:
    """Role of each operand -> its name in the program: `gemm(h, w) >> bias(c)` is a: h, b: w, bias: c."""
    names = [value for value in stage.operation.positional if isinstance(value, str)]
    named_by_text = not operation.roles or any(isinstance(value, Call) for value in stage.operation.positional)
    found = (
        {name: name for name in names_in(stage.operation)}
        if named_by_text
        else dict(zip(operation.roles, names, strict=False))
    )
    named = dict(stage.operation.named) | epilogue_operands(stage)
    for role in operation.implied(stage):
        name = named.get(role, role)
        found[role] = name if isinstance(name, str) else role
    return found


ARCH = Setting(name="arch", values=ARCHES, reason="no code is written for it")
THREADS = Setting(name="threads", values=WARPS, reason="a CTA is made of whole warps and has at most 1024 threads")
THREADS_PER_ROW = Setting(
    name="threads_per_row", values=(1, *WARPS), reason="a CTA is made of whole warps and has at most 1024 threads"
)
VECTOR = Setting(name="vector", values=(1, 2, 4, 8), reason="one access moves at most 16 bytes")
UNROLL = Setting(
    name="unroll", values=(1, 2, 4, 8), reason="that many vectors of a thread are loaded before the first is used"
)
KEPT = Setting(name="kept", values=((),), reason="it takes nothing: each row is kept in registers")
KEEPDIM = flag("keepdim", "whether the reduced axis stays, as 1")
AFFINE = flag("affine", "whether there is a weight, and a bias")
EPS = Argument(name="eps", legal="a number", reason="what is added to the variance", holds=is_number)
AXIS = checked_argument("axis", "last, last(n), first, middle, all, a number from 0, over(i, j), but(i)")


def close(name: str, known: tuple[str, ...]) -> str:
    """The known name that `name` was meant to be, or all of them."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"{near[0]} (did you mean that?)" if near else ", ".join(known)


def value_of(call: Call) -> object:
    """What stands in a setting's parentheses, as in `Setting.values`."""
    return call.positional[0] if len(call.positional) == 1 else call.positional


def format_named(named: tuple[tuple[str, object], ...]) -> str:
    """Named arguments as they were written."""
    return ", ".join(
        f"{name}={value.name}({', '.join(map(str, value.positional))})"
        if isinstance(value, Call)
        else f"{name}={value}"
        for name, value in named
    )


def check_arguments(operation: Operation, stage: Stage) -> list[Rejection]:
    """Rejections of named arguments that are unknown, given twice, or given a value that they do not take."""
    found: list[Rejection] = []
    known = {item.name: item for item in operation.arguments}
    # an epilogue names its tensor itself
    tensors = tuple(role for role in operation.implied(stage) if role not in epilogue_operands(stage))
    given = [name for name, _ in stage.operation.named]
    for name, value in stage.operation.named:
        if given.count(name) > 1 and not any(item.field == name for item in found):
            found.append(
                Rejection(
                    field=name,
                    value=format_named(tuple(pair for pair in stage.operation.named if pair[0] == name)),
                    reason="it is given twice",
                    legal="once",
                )
            )
        if name in known and "a number" not in known[name].legal and _fractions(value):
            found.append(
                Rejection(
                    field=name,
                    value=format_named(((name, value),)).partition("=")[2],
                    reason="a whole number, written without a point",
                    legal=known[name].legal,
                )
            )
        elif name in known and not known[name].holds(value):
            found.append(Rejection(field=name, value=str(value), reason=known[name].reason, legal=known[name].legal))
        elif name in tensors and not isinstance(value, str):
            found.append(Rejection(field=name, value=str(value), reason="which tensor it is", legal="a name"))
        elif name not in known and name not in tensors:
            found.append(
                Rejection(
                    field=name,
                    value=str(value),
                    reason=f"{operation.name} has no such argument",
                    legal=", ".join((*known, *tensors)) or "none by name",
                )
            )
    return found


def _fractions(value: object) -> bool:
    """Whether a number with a point is in it: 2.0 is equal to 2, and no count."""
    return isinstance(value, float) or (isinstance(value, Call) and any(map(_fractions, value.positional)))


def check_values(operation: Operation, stage: Stage) -> list[Rejection]:
    """Rejections of settings whose value is not among the legal ones."""
    found = []
    for number, call in enumerate(stage.settings):
        if call.named and call.name != "layout":
            found.append(
                Rejection(
                    field=call.name,
                    value=format_named(call.named),
                    reason="a setting takes its values without names",
                    legal=f".{call.name}({', '.join(str(value) for _, value in call.named)})",
                )
            )
        if any(other.name == call.name for other in stage.settings[:number]):
            found.append(
                Rejection(
                    field=call.name, value=", ".join(map(str, call.positional)), reason="it is set twice", legal="once"
                )
            )
        known = operation.setting(call.name)
        if known is not None and _fractions(call):
            found.append(
                Rejection(
                    field=call.name,
                    value=", ".join(map(str, call.positional)),
                    reason="a whole number, written without a point",
                    legal=", ".join("nothing" if item == () else str(item) for item in known.values),
                )
            )
        elif known is None:
            names = tuple(item.name for item in operation.settings)
            found.append(
                Rejection(
                    field=call.name,
                    value="",
                    reason=f"{operation.name} has no such setting",
                    legal=close(call.name, names),
                )
            )
        elif known.closed and value_of(call) not in known.values:
            value = ", ".join(map(str, call.positional))
            found.append(
                Rejection(
                    field=call.name,
                    value=value,
                    reason=known.reason,
                    legal=", ".join("nothing" if item == () else str(item) for item in known.values),
                )
            )
    return found
