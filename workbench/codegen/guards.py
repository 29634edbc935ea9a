"""Emitted checks, and the names of operands in their messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from workbench.language.ir import Binding


def called(role: str, bound: Mapping[str, str]) -> str:
    """Return the name of an operand in messages: its name in forward if it has one, otherwise its role."""
    said = bound.get(role, role)
    return said if re.fullmatch(r"[\w.]+", said) else role


def check_value(name: str, value: str, said: str) -> str:
    """Return the statement that raises ValueError for another value of an argument; `said` has a {} for the value."""
    is_other = f"{name} is not {value}" if value in ("None", "True", "False") else f"{name} != {value}"
    message = f"{name} {said.format(value)}".replace('"', "'")
    return f'if {is_other}:\n    raise ValueError("{message}")\n'


def reads_integers(names: Iterable[str], binding: Binding) -> bool:
    """Return whether one of the named tensors, or roles of tensors, is known to be int32 or int64."""
    known, bound = dict(binding.tensors), dict(binding.operands)
    found = [known.get(bound.get(name, name)) or known.get(name) for name in names]
    return any(one.dtype in ("int32", "int64") for one in found if one is not None)
