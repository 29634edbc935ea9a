"""Tensors that a kernel reads beside its operands, as configurations name them; CuTe DSL and torch are not imported."""

from __future__ import annotations

from workbench.records.base import record


@record
class Read:
    """A tensor that an epilogue reads. `along`: n or m for a vector along that extent, both for an (m, n) tensor."""

    role: str
    along: str
