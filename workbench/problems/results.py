"""What a module returns, as a flat list of named tensors: tuples, lists, dicts, dataclasses, None and numbers.

A tensor alone has the name `output0`, and so have the items of a tuple or list, counted. An item of a dict has its key
as name, one of a dataclass or named tuple its field; deeper items have a path (`cache.keys`, `output1.0`). None is part
of the form, not of the list. A number counts as a tensor of no axes: int64, float32 or bool.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

import torch

from workbench.errors import ProblemError
from workbench.records import TensorSpec

Named = dict[str, torch.Tensor]
LIMIT = 1000  # items of a result
NEGLIGIBLE = 1e-6  # values of no larger magnitude may be what is left of terms that cancel


def as_computable(value: torch.Tensor) -> torch.Tensor:
    """The tensor, floats of 8 bits as float32: torch computes next to nothing in them."""
    return value.float() if value.is_floating_point() and value.itemsize == 1 else value


def flatten_result(result: object) -> Named:
    """The tensors of a result by name, in the order of the result. Raises `ProblemError` for anything else in it."""
    found: Named = {}
    for path, value in _leaves(result, ()):
        tensor = torch.tensor(value, dtype=_NUMBERS[type(value)]) if type(value) in _NUMBERS else value
        if not isinstance(tensor, torch.Tensor):
            place = f" in {_title(path)}" if path else ""
            raise ProblemError(
                f"forward returns a {type(value).__name__}{place}; let it return tensors, numbers or None, alone or in "
                "tuples, lists, dicts and dataclasses"
            )
        if tensor.layout != torch.strided:
            place = f" in {_title(path)}" if path else ""
            raise ProblemError(f"forward returns a tensor with the layout {tensor.layout}{place}; return x.to_dense()")
        found[_title(path)] = tensor
        if len(found) > LIMIT:
            raise ProblemError(f"forward returns more than {LIMIT} tensors")
    if not found:
        changed = ", and changes none of its inputs and buffers" if result is None else ""
        what = "returns nothing" if result is None else "returns no tensor"
        raise ProblemError(f"forward {what}{changed}, so there is nothing to compare")
    return found


_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float32}


def tensors_of(result: object) -> list[torch.Tensor]:
    """The tensors of a result in order, without their names."""
    return list(flatten_result(result).values())


def _title(path: tuple[str | int, ...]) -> str:
    if not path:
        return "output0"
    first = f"output{path[0]}" if isinstance(path[0], int) else path[0]
    return ".".join([first, *map(str, path[1:])])


def _leaves(value: object, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], object]]:
    if value is None:
        return
    items = _items(value)
    if items is None or len(path) > 20:  # deeper: it contains itself
        yield path, value
        return
    for key, item in items:
        yield from _leaves(item, (*path, key))


def _items(value: object) -> list[tuple[str | int, object]] | None:
    """The items of a container with their keys; None for anything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return [(str(key), item) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def describe_form(result: object) -> str:
    """The form of a result in which tensors are `*`: `*`, `(*, *)`, `{'y': *, 'cache': None}`, `Output(y=*)`; lists as
    tuples.
    """
    if result is None:
        return "None"
    items = _items(result)
    if items is None:
        return "*"
    parts = [describe_form(item) for _, item in items]
    if _kind_of(result) == "tuple":
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if not isinstance(result, Mapping):
        given = ", ".join(f"{key}={part}" for (key, _), part in zip(items, parts, strict=True))
        return f"{type(result).__name__}({given})"
    return "{" + ", ".join(f"{key!r}: {part}" for (key, _), part in zip(items, parts, strict=True)) + "}"


def _kind_of(container: object) -> str:
    """The kind of a container. Lists count as tuples: a caller indexes and unpacks both."""
    if isinstance(container, Mapping):
        return "dict"
    if isinstance(container, (tuple, list)):
        return "NamedTuple" if hasattr(container, "_fields") else "tuple"
    return "dataclass"


def describe_structure(result: object) -> str:
    """The containers of a result by kind: `dataclass Output(y=*, cache=None)`; the items of dicts sorted by key."""
    items = _items(result)
    if result is None or items is None:
        return "None" if result is None else "*"
    kind = _kind_of(result)
    if kind == "tuple":
        return f"tuple({', '.join(describe_structure(item) for _, item in items)})"
    parts = [f"{key}={describe_structure(item)}" for key, item in items]
    return (
        f"dict({', '.join(sorted(parts))})" if kind == "dict" else f"{kind} {type(result).__name__}({', '.join(parts)})"
    )


def special_structure(result: object) -> str:
    """The structure of a result; "" for a tensor, or a tuple or list of several."""
    structure = describe_structure(result)
    return "" if not special_form(result) and structure != "tuple(*)" else structure


def is_alike(structure: str, other: str) -> bool:
    """Whether two structures are alike. Classes may have other names: a candidate's file has its own."""
    one, two = (re.sub(r"\b(NamedTuple|dataclass) \w+", r"\1", text) for text in (structure, other))
    return one == two


def special_form(result: object) -> str:
    """The form of a result; "" for a tensor, or a tuple or list of tensors."""
    form = describe_form(result)
    return "" if set(form) <= set("*, ()") and form.count("(") <= 1 else form


def spec_of(name: str, value: torch.Tensor) -> TensorSpec:
    """Name, shape, strides and dtype of a tensor."""
    return TensorSpec(
        name=name,
        shape=tuple(value.shape),
        dtype=str(value.dtype).removeprefix("torch."),
        strides=tuple(value.stride()),
    )


def specs_of_call(result: object) -> tuple[TensorSpec, ...]:
    """Specs of the tensors that an ATen call returned."""
    values = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(spec_of(f"output{n}", value) for n, value in enumerate(values) if isinstance(value, torch.Tensor))
