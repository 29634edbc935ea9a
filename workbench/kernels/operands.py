"""What configs say of tensors that a kernel reads beside its operands; no CuTe DSL or torch is imported here."""

from __future__ import annotations

from workbench.records.base import record


@record
class Read:
    """A tensor that an epilogue reads. `along`: n or m for a vector along it, both for (m, n)."""

    role: str
    along: str
