"""Configurations of the attention kernels: what a program of the language settles, and nothing that a shape settles."""

from __future__ import annotations

from typing import ClassVar

from workbench.kernels.gemm.config import Epilogue
from workbench.kernels.gemm.sm90.config import GemmSm90Config
from workbench.records.base import record


@record
class SimtConfig:
    """Flash attention in float32 on the ordinary pipes."""

    causal: bool
    scale: float | None = None  # None: 1 / sqrt(head dimension)
    tile_m: int = 64
    tile_n: int = 64

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "queries of a CTA",
        "tile_n": "keys of one step",
        "rows_per_thread": "of a tile of scores: rows y * ROWS_PER_THREAD + i, with y from 0 to 15",
        "columns_per_thread": "of a tile of scores: columns x + 16 j, with x from 0 to 15",
        "threads": "of a CTA",
    }

    @property
    def threads(self) -> int:
        """Threads of a CTA: 16 along the queries, 16 along the keys."""
        return 256

    @property
    def rows_per_thread(self) -> int:
        """Rows of a tile of scores that a thread has."""
        return self.tile_m // 16

    @property
    def columns_per_thread(self) -> int:
        """Columns of a tile of scores that a thread has."""
        return self.tile_n // 16


@record
class Sm80Config:
    """Flash attention with mma.sync; K and V arrive by cp.async in two stages."""

    element: str  # what the tensor cores multiply: f16, bf16 or tf32
    causal: bool
    warps: int  # each has 16 queries
    most_keys: int  # of one step
    smem_bytes: int
    scale: float | None = None  # None: 1 / sqrt(head dimension)

    CONSTANTS: ClassVar[dict[str, str]] = {
        "warps": "each has 16 queries of its own",
        "tile_m": "queries of a CTA",
        "threads": "of a CTA",
        "pad": "rows in shared memory are 16 bytes longer, so that those of a fragment fall into different banks",
        "most_keys": "of one step",
        "smem_bytes": "what a CTA may have",
    }

    @property
    def tile_m(self) -> int:
        """Queries of a CTA."""
        return 16 * self.warps

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * self.warps

    @property
    def stored(self) -> str:
        """What memory holds."""
        return "f32" if self.element == "tf32" else self.element

    @property
    def pad(self) -> int:
        """Elements between two rows of a tile in shared memory: 16 bytes."""
        return 4 if self.stored == "f32" else 8


@record
class Sm90Config:
    """Flash attention with wgmma: one warpgroup loads, `mma_warpgroups` multiply and take turns with their softmax."""

    element: str  # f16 or bf16
    causal: bool
    mma_warpgroups: int  # with 64 queries each
    stages: int  # of K and of V in shared memory
    smem_bytes: int
    tile_n: int | None = None  # keys of one step; None: 128, or 64 for head dimensions over 128
    scale: float | None = None  # None: 1 / sqrt(head dimension)

    CONSTANTS: ClassVar[dict[str, str]] = {
        "mma_warpgroups": "warpgroups that multiply, with 64 queries each; one more loads",
        "tile_m": "queries of a tile",
        "tile_n": "keys of one step",
        "stages": "of K and of V in shared memory",
        "l2_bytes": "what K and V of the heads that run at the same time may take",
        "load_registers": "of a thread of the warpgroup that loads",
        "mma_registers": "of a thread of a warpgroup that multiplies",
        "smem_bytes": "what a CTA may have",
    }

    @property
    def tile_m(self) -> int:
        """Queries of a tile."""
        return 64 * self.mma_warpgroups

    @property
    def l2_bytes(self) -> int:
        """What K and V of the heads that run at the same time may take."""
        return 32 << 20

    @property
    def load_registers(self) -> int:
        """Registers of a thread of the warpgroup that loads."""
        return {1: 56, 2: 24, 3: 32}[self.mma_warpgroups]

    @property
    def mma_registers(self) -> int:
        """Registers of a thread of a warpgroup that multiplies."""
        return {1: 240, 2: 240, 3: 160}[self.mma_warpgroups]


@record
class UnfusedConfig:
    """Three kernels: a gemm, the softmax of its rows, a gemm."""

    causal: bool
    product: Epilogue | GemmSm90Config  # of both products
    scale: float | None = None  # None: 1 / sqrt(head dimension)

    @property
    def on_sm90(self) -> bool:
        """Whether the products are Hopper's."""
        return isinstance(self.product, GemmSm90Config)

    @property
    def product_names(self) -> dict[str, str]:
        """What messages call the operands of a product."""
        return {"a": "a", "b": "b"}
