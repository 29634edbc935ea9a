"""Configurations of matrix products without warpgroups: tiles, tensor cores, layouts, epilogue. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.kernels.operands import Read
from workbench.records import record

MMA_K = {"f16": 16, "bf16": 16, "tf32": 8}  # k of one mma.sync


@record
class Epilogue:
    """What happens to each sum in float32 before it is stored.

    `epilogue` takes (total, operands, batch, row, column) and returns the new total.
    """

    epilogue: object = None
    reads: tuple[Read, ...] = ()  # tensors that it reads, in order
    result: str = ""  # element type of the result, that of a where empty


@record
class NaiveConfig(Epilogue):
    """One output per thread."""

    CONSTANTS: ClassVar[dict[str, str]] = {"tile_m": "rows of d that a CTA computes", "tile_n": "columns of d"}
    kind: str = "naive"
    tile_m: int = 8
    tile_n: int = 32

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.tile_m * self.tile_n


@record
class TiledConfig(Epilogue):
    """Tiles in shared memory; `per_m` x `per_n` outputs per thread."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of d that a CTA computes",
        "tile_n": "columns of d that a CTA computes",
        "tile_k": "how much of k is in shared memory at once",
        "per_m": "rows of d that a thread computes",
        "per_n": "columns of d that a thread computes",
        "threads_n": "threads along n",
        "threads": "threads of a CTA",
    }
    kind: str = "tiled"
    tile_m: int
    tile_n: int
    tile_k: int
    per_m: int = 1
    per_n: int = 1
    a_by_rows: bool = True  # whether neighbouring threads load neighbours along k of a, not along m
    b_by_rows: bool = True  # whether neighbouring threads load neighbours along n of b, not along k

    @property
    def threads_n(self) -> int:
        """Threads along n."""
        return self.tile_n // self.per_n

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.tile_m // self.per_m * self.threads_n


@record
class MmaConfig(Epilogue):
    """Tensor cores by mma.sync, one tile of k at a time."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of d that a CTA computes",
        "tile_n": "columns of d that a CTA computes",
        "tile_k": "how much of k is in shared memory at once",
        "threads": "four warps, two along m and two along n",
    }
    kind: str = "mma"
    element: str
    tile_m: int = 64
    tile_n: int = 64
    tile_k: int = 32
    threads: int = 128
    a_by_rows: bool = True
    b_by_rows: bool = True

    @property
    def mma_k(self) -> int:
        """k of one mma.sync."""
        return MMA_K[self.element]

    @property
    def pad(self) -> int:
        """Elements of 16 bytes."""
        return 4 if self.element == "tf32" else 8


@record
class Sm80Config(Epilogue):
    """Tensor cores by mma.sync, `stages` tiles of k in flight through cp.async."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of d that a CTA computes",
        "tile_n": "columns of d that a CTA computes",
        "tile_k": "how much of k one stage holds",
        "stages": "tiles of k in shared memory: one is multiplied while the others arrive",
        "threads": "four warps, two along m and two along n",
    }
    kind: str = "sm80"
    element: str
    tile_m: int = 64
    tile_n: int = 64
    tile_k: int = 32
    stages: int = 3
    threads: int = 128

    @property
    def mma_k(self) -> int:
        """k of one mma.sync."""
        return MMA_K[self.element]

    @property
    def stored(self) -> str:
        """The element type in memory: tf32 is rounded on the way to the tensor cores."""
        return "f32" if self.element == "tf32" else self.element
