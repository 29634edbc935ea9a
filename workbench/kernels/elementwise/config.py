"""What an elementwise kernel is written for: its expression, threads and accesses. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class ElementwiseConfig:
    """One elementwise kernel. `expression` takes the float32 values at one place and returns the result's."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "vector": "neighbouring elements in one access, where addresses allow it",
        "unroll": "vectors that a thread loads before it uses the first",
    }
    expression: object  # of the values of the full tensors, then those of the broadcast ones
    threads: int = 256
    vector: int = 1
    unroll: int = 1  # of `unrolled_elementwise`
