"""A small kernel with mistakes that can be planted in it, and the comments that say where each must be reported.

`# BUG(mistake, ...): kind` stands on the line that a finding of that kind must name when the kernel is made with that
mistake, or on a line of its own before it. A mistake that may be found on either of two lines has the comment on both.
`correct` names the variants that have no mistake: their results are compared with torch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import torch
from cutlass.cute.runtime import from_dlpack

MARK = re.compile(r"# BUG\(([\w, ]+)\): (\w+)")


class Case:
    """One kernel: subclasses have `__call__` (the host function), `kernel`, and `check`."""

    arch: ClassVar[str] = "sm_80"
    correct: ClassVar[tuple[str, ...]] = ("",)
    advice: ClassVar[tuple[str, ...]] = ()  # kinds that the correct variants give rise to on purpose

    def __init__(self, variant: str = "") -> None:
        self.variant = variant

    def check(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Run on fresh tensors: (what the kernel computed, what it should have), both on the device."""
        raise NotImplementedError


def planted(case: type[Case]) -> dict[str, tuple[str, set[int]]]:
    """The mistakes of a kernel by name: kind, and the lines of its file that may be reported."""
    found: dict[str, tuple[str, set[int]]] = {}
    for number, text, owner in _lines(Path(str(__import__(case.__module__).__file__))):
        for names, kind in MARK.findall(text) if owner == case.__name__ else ():
            for name in names.split(","):
                known = found.setdefault(name.strip(), (kind, set()))
                assert known[0] == kind, f"{name} is marked with two kinds"
                known[1].add(number)
    return found


def _lines(path: Path) -> list[tuple[int, str, str]]:
    """(number, text, name of the class that it is in) of each line; marks above a line count as its text."""
    owner, lines = "", []
    above: list[str] = []  # comments that stand before the line
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if text.startswith("class "):
            owner = re.split(r"\W", text[6:])[0]
        if text.lstrip().startswith("# BUG("):
            above.append(text)
            continue
        lines += [(number, mark, owner) for mark in (*above, text)]
        above = []
    return lines


def cases(module: Any) -> list[type[Case]]:
    """The kernels of a module, in order."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Case) and value.__module__ == module.__name__
    ]


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers on the device, exact in any order of summation."""
    count = int(torch.Size(shape).numel())
    return (torch.arange(count) * 7 % 11 - 4).reshape(shape).to(dtype).cuda()


def written(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory on the device that the kernel has to write."""
    return torch.empty(shape, dtype=dtype, device="cuda")


def views(*tensors: torch.Tensor, align: int | None = None) -> list[Any]:
    """CuTe tensors with dynamic shapes and strides; `align` in bytes is what the compiler is told, by default what an
    element needs.
    """
    return [from_dlpack(t, assumed_align=align or t.element_size()).mark_layout_dynamic() for t in tensors]
