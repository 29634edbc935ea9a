"""Configurations of matrix products for sm_80 and below: tile shapes, layouts, tensor cores, epilogue. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.kernels.operands import Read
from workbench.records import record

MMA_K = {"f16": 16, "bf16": 16, "tf32": 8}  # k extent of one mma.sync


@record
class Epilogue:
    """The epilogue of a product: how each float32 accumulator is changed before it is stored.

    `epilogue` takes (total, operands, batch, row, column) and returns the new float32 value.
    """

    epilogue: object = None
    reads: tuple[Read, ...] = ()  # tensors that the epilogue reads, in order
    result: str = ""  # element type of the result; empty: that of a


@record
class NaiveConfig(Epilogue):
    """One output element per thread."""

    CONSTANTS: ClassVar[dict[str, str]] = {"tile_m": "rows of an output tile", "tile_n": "columns of an output tile"}
    kind: str = "naive"
    metric: str = "inner"  # what is combined along k: see `simt.accumulate`
    tile_m: int = 8
    tile_n: int = 32

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.tile_m * self.tile_n


@record
class TiledConfig(Epilogue):
    """Tiles of a and b in shared memory; each thread computes `per_m` x `per_n` outputs."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of an output tile",
        "tile_n": "columns of an output tile",
        "tile_k": "k extent of the tiles in shared memory",
        "per_m": "rows of the output tile per thread",
        "per_n": "columns of the output tile per thread",
        "threads_n": "threads of a CTA along n",
        "threads": "threads of a CTA",
    }
    kind: str = "tiled"
    metric: str = "inner"  # what is combined along k: see `simt.accumulate`
    tile_m: int
    tile_n: int
    tile_k: int
    per_m: int = 1
    per_n: int = 1
    a_by_rows: bool = True  # whether neighbouring threads load neighbours along k of a, not along m
    b_by_rows: bool = True  # whether neighbouring threads load neighbours along n of b, not along k

    @property
    def threads_n(self) -> int:
        """Threads of a CTA along n."""
        return self.tile_n // self.per_n

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.tile_m // self.per_m * self.threads_n


@record
class MmaConfig(Epilogue):
    """Tensor cores by mma.sync; shared memory holds one k tile at a time."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of an output tile",
        "tile_n": "columns of an output tile",
        "tile_k": "k extent of the tiles in shared memory",
        "threads": "threads of a CTA: four warps, two along m and two along n",
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
        """k extent of one mma.sync."""
        return MMA_K[self.element]

    @property
    def pad(self) -> int:
        """Padding of a row in shared memory, in elements: 16 bytes."""
        return 4 if self.element == "tf32" else 8


@record
class Sm80Config(Epilogue):
    """Tensor cores by mma.sync in a multistage pipeline: cp.async keeps `stages` k tiles in flight."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of an output tile",
        "tile_n": "columns of an output tile",
        "tile_k": "k extent of one stage",
        "stages": "k tiles in shared memory: one is multiplied while cp.async fills the others",
        "threads": "threads of a CTA: four warps, two along m and two along n",
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
        """k extent of one mma.sync."""
        return MMA_K[self.element]

    @property
    def stored(self) -> str:
        """Element type in memory. For tf32 that is f32, which mma.sync reads as it is."""
        return "f32" if self.element == "tf32" else self.element


@record
class SplitKConfig(Sm80Config):
    """Tensor cores by mma.sync; several CTAs share a tile, each with a slice of k."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **Sm80Config.CONSTANTS,
        "min_k_tiles": "tiles of k of a slice, at least",
        "ctas_per_sm": "CTAs that are to fill an SM",
    }
    kind: str = "split_k"
    tile_k: int = 64
    atomic: bool = False  # whether slices are added by atomics, to a float32 result; else in their order
    min_k_tiles: int = 4
    ctas_per_sm: int = 2
