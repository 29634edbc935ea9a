"""Configurations of the attention kernels: settings of a program that do not depend on tensor shapes. Pure data."""

from __future__ import annotations

import math
from typing import ClassVar

from workbench.kernels.gemm.config import Epilogue
from workbench.kernels.gemm.sm90.config import GemmSm90Config
from workbench.records.base import record

LEAST = -3.4028234663852886e38  # the least finite number of float32


@record
class Mask:
    """What a mask does to scores."""

    hides: str | None = None  # the elements that hide a score: zero or nonzero; None: the mask is added to the scores
    fill: float = float("-inf")  # what a hidden score is
    empty: str = "nan"  # the result of a query that sees no key: nan, or zero

    @property
    def fill_log2(self) -> float:
        """A hidden score in units of exp2's exponent; finite if `fill` is."""
        return self.fill if math.isinf(self.fill) else max(self.fill * math.log2(math.e), LEAST)


@record
class SimtConfig:
    """Flash attention in float32 on CUDA cores."""

    causal: bool
    scale: float | None = None  # None: 1 / sqrt(head dimension)
    mask: Mask | None = None
    tile_m: int = 64
    tile_n: int = 64

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "queries of a CTA",
        "tile_n": "keys per step",
        "rows_per_thread": "rows of a score tile per thread: y * ROWS_PER_THREAD + i, 0 <= y < 16",
        "columns_per_thread": "columns of a score tile per thread: x + 16 j, 0 <= x < 16",
        "threads": "threads of a CTA",
    }

    @property
    def threads(self) -> int:
        """Threads of a CTA: 16 along the queries, 16 along the keys."""
        return 256

    @property
    def rows_per_thread(self) -> int:
        """Rows of a score tile per thread."""
        return self.tile_m // 16

    @property
    def columns_per_thread(self) -> int:
        """Columns of a score tile per thread."""
        return self.tile_n // 16


@record
class Sm80Config:
    """Flash attention with mma.sync; cp.async loads K and V into two stages."""

    element: str  # operand type of mma.sync: f16, bf16 or tf32
    causal: bool
    warps: int  # with 16 queries each
    most_keys: int  # largest number of keys per step
    smem_bytes: int
    scale: float | None = None  # None: 1 / sqrt(head dimension)
    mask: Mask | None = None

    CONSTANTS: ClassVar[dict[str, str]] = {
        "warps": "warps of a CTA, with 16 queries each",
        "tile_m": "queries of a CTA",
        "threads": "threads of a CTA",
        "pad": "padding of rows in shared memory, in elements, against bank conflicts",
        "most_keys": "largest number of keys per step",
        "smem_bytes": "shared memory that a CTA may use, in bytes",
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
        """Element type in memory."""
        return "f32" if self.element == "tf32" else self.element

    @property
    def pad(self) -> int:
        """Padding of a row in shared memory, in elements: 16 bytes."""
        return 4 if self.stored == "f32" else 8


@record
class Sm90Config:
    """Flash attention with wgmma: one producer warpgroup, `mma_warpgroups` consumers that take turns (ping-pong)."""

    element: str  # f16 or bf16
    causal: bool
    mma_warpgroups: int  # with 64 queries each
    stages: int  # of K and of V each, in shared memory
    smem_bytes: int
    tile_n: int | None = None  # keys per step; None: 128, or 64 for head dimensions over 128
    scale: float | None = None  # None: 1 / sqrt(head dimension)
    mask: Mask | None = None

    CONSTANTS: ClassVar[dict[str, str]] = {
        "mma_warpgroups": "MMA warpgroups, with 64 queries each; one more is the producer",
        "tile_m": "queries of an output tile",
        "tile_n": "keys per step",
        "stages": "stages of K and of V each, in shared memory",
        "l2_bytes": "L2 budget for K and V of the heads that run at the same time",
        "load_registers": "registers per thread of the producer warpgroup",
        "mma_registers": "registers per thread of an MMA warpgroup",
        "smem_bytes": "shared memory that a CTA may use, in bytes",
    }

    @property
    def tile_m(self) -> int:
        """Queries of an output tile."""
        return 64 * self.mma_warpgroups

    @property
    def l2_bytes(self) -> int:
        """L2 budget for K and V of the heads that run at the same time, in bytes."""
        return 32 << 20

    @property
    def load_registers(self) -> int:
        """Registers per thread of the producer warpgroup."""
        return {1: 56, 2: 24, 3: 32}[self.mma_warpgroups]

    @property
    def mma_registers(self) -> int:
        """Registers per thread of an MMA warpgroup."""
        return {1: 240, 2: 240, 3: 160}[self.mma_warpgroups]


@record
class UnfusedConfig:
    """Attention in three kernels: GEMM, softmax of the score rows, GEMM."""

    causal: bool
    product: Epilogue | GemmSm90Config  # of both products
    scale: float | None = None  # None: 1 / sqrt(head dimension)

    @property
    def on_sm90(self) -> bool:
        """Whether both products use the Hopper GEMM."""
        return isinstance(self.product, GemmSm90Config)

    @property
    def product_names(self) -> dict[str, str]:
        """Operand names of the products in error messages."""
        return {"a": "a", "b": "b"}
