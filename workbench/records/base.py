"""The `record` decorator and the literal types that records share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeVar, dataclass_transform

Provenance = Literal["counted", "modelled", "measured"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "mixed", "declared"]
Mode = Literal["train", "eval"]
TorchCompile = Literal["later", "now", "never"]
Stage = Literal["source", "import", "compile", "launch", "run", "check", "time", "integrity", "limits"]
Scalar = bool | int | float | str | None
Settings = tuple[tuple[str, Scalar], ...]

T = TypeVar("T")
# metadata of a field added later: a content hash leaves it out while it has its default, so old hashes stay valid
LATER = {"hashed": "when set"}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A frozen, keyword-only dataclass with slots."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)
