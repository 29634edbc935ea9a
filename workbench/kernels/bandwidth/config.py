"""Configurations of the read-only kernels. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class ReadConfig:
    """How a CTA reads: `unroll` vectors of `width` float32 per thread at a time."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads of a CTA",
        "width": "float32 of one access: 16 bytes",
        "unroll": "accesses in flight per thread",
    }
    threads: int = 512
    width: int = 4
    unroll: int = 8


@record
class L2Config(ReadConfig):
    """Chunks that no CTA reads twice in a row."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ReadConfig.CONSTANTS,
        "steps": "times that a CTA fills its registers from a chunk",
        "vectors": "vectors of a chunk",
    }
    steps: int = 2

    @property
    def vectors(self) -> int:
        """Vectors of a chunk."""
        return self.steps * self.unroll * self.threads

    @property
    def chunk(self) -> int:
        """float32 of a chunk."""
        return self.vectors * self.width

    def count_bytes(self, ctas: int, passes: int) -> int:
        """Bytes that a launch reads."""
        return ctas * passes * self.chunk * 4


@record
class SharedConfig(ReadConfig):
    """Rows of 512 bytes in shared memory, one access of a warp each."""

    CONSTANTS: ClassVar[dict[str, str]] = {**ReadConfig.CONSTANTS, "rows": "rows of 512 bytes in shared memory"}
    rows: int = 64

    @property
    def groups(self) -> int:
        """Groups of rows, of which a warp reads one per pass."""
        return self.rows // self.unroll

    @property
    def elements(self) -> int:
        """float32 of all rows."""
        return self.rows * 32 * self.width

    def count_bytes(self, ctas: int, passes: int) -> int:
        """Bytes that a launch reads from shared memory."""
        return ctas * passes * self.unroll * self.threads * self.width * 4
