"""How forward is called: `get_inputs` gives arguments by position or by name, and tensors may lie inside of them.

Everywhere else a call's inputs are a flat list of tensors and plain values. Each has a name that is its Python
expression inside of forward: `x`, `x[0]` in a list or a tuple, `x['keys']` in a dict, `x.keys` in a named tuple or a
dataclass, `xs[0]` for `*xs`. A `Call` makes the arguments from such a list again. Used in workers only.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from workbench.errors import ProblemError

LIMIT = 1000  # tensors and plain values of a call
DEEPEST = 20  # levels of containers; what is deeper contains itself
PLAIN = (bool, int, float, str, type(None))  # values that differ from call to call as tensors do

Parameters = Mapping[str, inspect.Parameter]


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """The place of a tensor or a plain value in the arguments."""

    number: int


@dataclasses.dataclass(frozen=True)
class Call:
    """The form of forward's arguments. `args` and `kwargs` have a `_Leaf` for each input; `names` are the inputs'."""

    names: tuple[str, ...]
    args: list[object]
    kwargs: dict[str, object]

    def __deepcopy__(self, memo: dict[int, object]) -> Call:
        return self

    @property
    def is_flat(self) -> bool:
        """Whether the inputs are the arguments, all by position."""
        return not self.kwargs and all(isinstance(value, _Leaf) for value in self.args)

    def restore(self, inputs: Sequence[object]) -> tuple[list[object], dict[str, object]]:
        """(arguments by position, arguments by name) made of the inputs."""
        return [_fill(item, inputs) for item in self.args], {
            name: _fill(item, inputs) for name, item in self.kwargs.items()
        }


def read_call(made: object, parameters: Parameters) -> tuple[list[object], Call]:
    """(the inputs, the form of the call) for what `get_inputs` returned; `parameters` are forward's, without self."""
    if inspect.isgenerator(made):
        raise ProblemError("get_inputs() yields its values one by one: return them in a list")
    args, kwargs = _split(made, parameters)
    _check_fit(parameters, args, kwargs)
    inputs: list[object] = []
    names: list[str] = []

    def take(value: object, path: str) -> object:
        return _replace(value, path, inputs, names)

    labels = _position_names(parameters, len(args))
    form_args = [take(value, label) for value, label in zip(args, labels, strict=True)]
    form_kwargs = {name: take(value, _keyword_name(parameters, name)) for name, value in kwargs.items()}
    return inputs, Call(tuple(names), form_args, form_kwargs)


def _position_names(parameters: Parameters, count: int) -> list[str]:
    plain = [one.name for one in parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = next((one.name for one in parameters.values() if one.kind is one.VAR_POSITIONAL), None)
    more = range(count - len(plain))
    return [*plain[:count], *(f"{rest}[{n}]" if rest else f"argument{len(plain) + n}" for n in more)]


def _keyword_name(parameters: Parameters, name: str) -> str:
    rest = next((one.name for one in parameters.values() if one.kind is one.VAR_KEYWORD), "kwargs")
    return name if name in parameters else f"{rest}[{name!r}]"


def _split(made: object, parameters: Parameters) -> tuple[list[object], dict[str, object]]:
    """(arguments by position, arguments by name)."""
    if isinstance(made, dict):
        return _split_dictionary(made, parameters)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], (list, tuple)) and isinstance(made[1], dict):
        args, kwargs = made
        takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        if (takes_any or {*kwargs} <= {*parameters}) and _fits(parameters, args, kwargs):
            return list(args), dict(kwargs)
    if hasattr(made, "_fields") and _fits(parameters, [made], {}):
        return [made], {}  # one named tuple that forward takes whole
    return (list(made), {}) if isinstance(made, (list, tuple)) else ([made], {})


def _split_dictionary(given: dict[Any, object], parameters: Parameters) -> tuple[list[object], dict[str, object]]:
    """Values by forward's argument: by position as far as it goes, with defaults for those between them that are left
    out, then by name. A dictionary with other keys is the one argument that forward takes.
    """
    if not {*given} & {*parameters} and _fits(parameters, [given], {}) and given:
        return [given], {}
    plain = [one for one in parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    unknown = [str(name) for name in given if name not in parameters and not takes_any]
    missing = [
        one.name
        for one in parameters.values()
        if one.name not in given and one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if unknown or missing:
        wrong = f"has no argument {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"
        raise ProblemError(f"get_inputs() returns a dictionary of forward's arguments, but forward {wrong}")
    last = max((n for n, one in enumerate(plain) if one.name in given), default=-1)
    args = [given.get(one.name, one.default) for one in plain[: last + 1]]
    taken = {one.name for one in plain}
    return args, {name: value for name, value in given.items() if name not in taken}


def _check_fit(parameters: Parameters, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Raise `ProblemError` if forward cannot be called so."""
    if _fits(parameters, args, kwargs):
        return
    wanted = inspect.Signature([one.replace(annotation=one.empty) for one in parameters.values()])
    named = [one.name for one in parameters.values() if one.kind is one.KEYWORD_ONLY]
    given = f"{len(args)} value{'s' * (len(args) != 1)}" + f" and {', '.join(kwargs)} by name" * bool(kwargs)
    by_name = f", as {named[0]} has to be" if named else ""
    raise ProblemError(
        f"get_inputs() returns {given}, but forward takes {wanted}: return as many values in that order, or a "
        f"dictionary {{'name': value}} to give them by name{by_name}"
    )


def _fits(parameters: Parameters, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether forward can be called so."""
    try:
        inspect.Signature([*parameters.values()]).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


# ---- containers -----------------------------------------------------------------------------------------------------


def _items(value: object, path: str) -> Iterator[tuple[Any, str, object]] | None:
    """(key, expression, item) of each item of a container; None for anything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ((name, f"{path}.{name}", item) for name, item in zip(value._fields, value, strict=True))
    if isinstance(value, (list, tuple)):
        return ((n, f"{path}[{n}]", item) for n, item in enumerate(value))
    if isinstance(value, dict):
        return ((key, f"{path}[{key!r}]", item) for key, item in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)]
        return ((name, f"{path}.{name}", getattr(value, name)) for name in names)
    return None


def _rebuild(value: Any, items: dict[Any, object]) -> object:
    """A container like `value` with other items."""
    if hasattr(value, "_make"):  # a named tuple
        return value._make(items.values())
    if isinstance(value, tuple):
        return tuple(items.values())
    made = copy.copy(value)
    for key, item in items.items():
        if isinstance(value, (list, dict)):
            made[key] = item
        else:
            object.__setattr__(made, key, item)
    return made


def _replace(value: object, path: str, inputs: list[object], names: list[str]) -> object:
    """The value with a `_Leaf` for each tensor and each plain value in it, which are added to the inputs."""
    if isinstance(value, torch.Tensor) or type(value) in PLAIN:
        inputs.append(value)
        names.append(path)
        if len(inputs) > LIMIT:
            raise ProblemError(f"get_inputs() returns more than {LIMIT} values")
        return _Leaf(len(inputs) - 1)
    items = _items(value, path)
    if items is None:  # the same for every call, such as a dtype
        return value
    if path.count("[") + path.count(".") > DEEPEST:
        raise ProblemError(f"get_inputs() returns containers more than {DEEPEST} levels deep")
    return _rebuild(value, {key: _replace(item, label, inputs, names) for key, label, item in items})


def _fill(form: object, inputs: Sequence[object]) -> object:
    """The reverse of `_replace`."""
    if isinstance(form, _Leaf):
        return inputs[form.number]
    items = _items(form, "")
    return form if items is None else _rebuild(form, {key: _fill(item, inputs) for key, _, item in items})
