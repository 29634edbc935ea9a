"""muCUTLASS in memory: programs, stages, calls; records only."""

from __future__ import annotations

from workbench.records import record


@record
class Call:
    """`name(positional..., key=value...)`; values are calls, names or numbers."""

    name: str
    positional: tuple[object, ...] = ()
    named: tuple[tuple[str, object], ...] = ()


@record
class Stage:
    """One operation: what it computes, how, and what is fused into its store."""

    operation: Call
    settings: tuple[Call, ...] = ()
    epilogues: tuple[Call, ...] = ()
    result: str | None = (
        None  # the boundary tensor that it writes; the last stage's is the module's own and has no name
    )


@record
class Program:
    """Stages in order; a stage reads forward's tensors, parameters, and what stages before it wrote, by name."""

    stages: tuple[Stage, ...]


@record
class Rejection:
    """Why a program cannot be compiled: which field, what it holds, why not, and what it may hold."""

    field: str
    value: str
    reason: str
    legal: str = ""

    def __str__(self) -> str:
        return f"{self.field}={self.value}: {self.reason}" + (f"; legal: {self.legal}" if self.legal else "")


@record
class Operand:
    """A tensor at the problem's full size; its dtype as torch spells it without the prefix, "" where it is unknown."""

    shape: tuple[int, ...]
    dtype: str = ""


@record
class Binding:
    """Where a program's tensors come from in a module: arguments of forward, or for other operands an expression."""

    init_source: str  # `def __init__` of the reference, so that parameters have the same names
    forward_arguments: tuple[str, ...]
    operands: tuple[tuple[str, str], ...] = ()  # name -> Python expression in forward
    module_names: str = ""  # imports and constants that __init__ needs
    axes: tuple[tuple[str, int], ...] = ()  # name -> how many axes the tensor has, of those of which that is known
    tensors: tuple[
        tuple[str, Operand], ...
    ] = ()  # name -> shape and dtype at full size, of those of which that is known
    signature: str = ""  # text of forward's parameters after self; "" for the forward arguments
    unpacked: tuple[tuple[str, str], ...] = ()  # forward argument -> expression of a tensor inside of a parameter
    fixed: tuple[tuple[str, str], ...] = ()  # argument of forward -> the one value for which the kernels are right
    form: str = "*"  # what forward returns, with `*` for each tensor of the last stage: "{'y': *}"
    classes: str = ""  # definitions of the named tuples and dataclasses in `form`


def setting(stage: Stage, name: str, default: object = None) -> object:
    """The first positional argument of a setting, or `default`."""
    for call in stage.settings:
        if call.name == name:
            return call.positional[0] if len(call.positional) == 1 else call.positional
    return default


def number(stage: Stage, name: str, default: int) -> int:
    """A setting of one whole number, as a check has let it through, or `default`."""
    return int(str(setting(stage, name, default)))


def names_in(value: object) -> tuple[str, ...]:
    """Tensor names in an expression, in order of first use."""
    if isinstance(value, Call):
        return tuple(dict.fromkeys(name for part in value.positional for name in names_in(part)))
    return (value,) if isinstance(value, str) else ()
