"""Configuration of an elementwise kernel. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class ElementwiseConfig:
    """One elementwise kernel. `expression` takes float32 elements, one per tensor, and returns the result's element."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "vector": "elements per access, where addresses allow it",
        "unroll": "vectors per thread, all loaded before the first use",
    }
    expression: object  # of the elements of the full tensors, then of the broadcast ones
    threads: int = 256
    vector: int = 1
    unroll: int = 1  # of `unrolled_elementwise`
    reads_integers: bool = False  # whether a tensor is int32 or int64: its values are rounded to float32, as torch does
    out: str = ""  # the result's type where it is not the one to which torch promotes those of the tensors
