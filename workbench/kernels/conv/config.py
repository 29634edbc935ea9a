"""Configurations of the convolution kernels, with defaults filled in, and the values derived from them. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.kernels.operands import Read
from workbench.records.base import record

Extents = int | tuple[int, ...]
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "tf32x3": 4}  # bytes of an element in memory
STORED = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "tf32x3": "f32"}  # element type in memory


@record
class ConvConfig:
    """Settings shared by all convolution kernels."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "stride": "one value, or one per extent",
        "padding": "one value, or one per extent",
        "dilation": "one value, or one per extent",
        "output_padding": "one value, or one per extent",
        "groups": "channel groups",
    }

    stride: Extents = 1
    padding: Extents = 0
    dilation: Extents = 1
    output_padding: Extents = 0
    groups: int = 1
    transposed: bool = False
    reads: tuple[Read, ...] = ()  # epilogue operands: vectors along n (filters), or tensors of the output's shape
    epilogue: object = None  # takes the float32 sum, the operands and their indices; returns the new value
    reduction: str = ""  # sum, mean, max or min over the filters, which one tile holds; y then has one channel
    finish: object = None  # takes what the reduction found
    result: str | None = None  # the output's element type; None: that of the input


@record
class DirectConfig(ConvConfig):
    """Direct convolution on CUDA cores.

    A thread computes one output or, with `rows`, that many outputs below each other for `filters` filters.
    """

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ConvConfig.CONSTANTS,
        "threads": "threads of a CTA",
        "rows": "output rows per thread",
        "filters": "filters per thread",
    }

    threads: int = 128
    rows: int | None = None
    filters: int = 1
    depthwise: bool = False  # whether each input channel is its own group; overrides `groups`


@record
class PatchConfig(ConvConfig):
    """mma.sync on TF32 over patches of the input in shared memory; each warp has positions of its own."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ConvConfig.CONSTANTS,
        "tile_m": "output positions of a tile",
        "tile_n": "filters of a tile",
        "tile_k": "input channels of one stage, at most",
        "stages": "groups of channels in shared memory: one is multiplied while the others arrive",
        "threads": "threads of a CTA",
        "phases": "outputs of a position along the last extent",
        "row_blocks": "fragments of sixteen positions of a warp",
        "smem_bytes": "shared memory that a CTA may take",
    }

    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    threads: int
    smem_bytes: int

    @property
    def tile(self) -> tuple[int, int, int]:
        """(output positions, filters, input channels) of a tile."""
        return self.tile_m, self.tile_n, self.tile_k

    @property
    def phases(self) -> int:
        """Outputs of a position along the last extent: the stride of a transposed convolution."""
        last = self.stride if isinstance(self.stride, int) else self.stride[-1]
        return last if self.transposed else 1

    @property
    def row_blocks(self) -> int:
        """Fragments of sixteen positions that each warp multiplies."""
        return self.tile_m // (self.threads // 2)

    @property
    def accumulators(self) -> int:
        """Sums of a thread."""
        return self.tile_m * self.tile_n * self.phases // self.threads


@record
class ImplicitGemmConfig(ConvConfig):
    """An implicit GEMM: m is output positions, n is filters, k is taps and input channels."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ConvConfig.CONSTANTS,
        "tile_m": "output positions of an output tile",
        "tile_n": "filters of an output tile",
        "tile_k": "input channels of one stage; one tap per stage",
        "stages": "k tiles in shared memory: one is multiplied while the others arrive",
        "rows": "output positions of a tile per MMA warpgroup",
        "store_n": "filters of an epilogue subtile",
    }

    mma: str  # operand type of the tensor cores: f16, bf16, tf32 or tf32x3
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    unfold: bool = False  # whether the taps of the last extent become channels of A (partial im2col)

    @property
    def tile(self) -> tuple[int, int, int]:
        """(output positions, filters, input channels) of a tile."""
        return self.tile_m, self.tile_n, self.tile_k

    @property
    def stored(self) -> str:
        """Element type in memory."""
        return STORED[self.mma]

    @property
    def split(self) -> bool:
        """Whether each float32 is multiplied as two TF32 parts (tf32x3)."""
        return self.mma == "tf32x3"

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage: a tile of the activations and a tile of the filters."""
        return (self.tile_m + self.tile_n) * self.tile_k * BYTES[self.mma]


@record
class Sm80Config(ImplicitGemmConfig):
    """Four warps multiply by mma.sync; cp.async fills the stages."""

    CONSTANTS: ClassVar[dict[str, str]] = {**ImplicitGemmConfig.CONSTANTS, "threads": "threads of a CTA: four warps"}

    threads: int = 128
    warpgroup_mma: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        """Output positions of a tile that the four warps store."""
        return self.tile_m

    @property
    def store_n(self) -> int:
        """Filters of an epilogue subtile: two mma.sync columns of each warp."""
        return 32

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA in bytes: stages and epilogue."""
        return self.stages * self.stage_bytes + self.store_n * (self.rows + 4) * 4


@record
class Sm90Config(ImplicitGemmConfig):
    """MMA warpgroups multiply by wgmma; a producer warp fills the stages by TMA."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ImplicitGemmConfig.CONSTANTS,
        "cluster": "CTAs of a cluster along m; TMA multicasts the filters to them",
        "warpgroups": "MMA (consumer) warpgroups; one more is the producer",
        "threads": "threads of a CTA",
    }

    cluster: int = 1
    schedule: str = "cooperative"  # or pingpong
    warpgroup_mma: ClassVar[bool] = True

    @property
    def pingpong(self) -> bool:
        """Whether the MMA warpgroups alternate output tiles instead of sharing one."""
        return self.schedule == "pingpong"

    @property
    def warpgroups(self) -> int:
        """MMA warpgroups of a CTA."""
        return 1 if self.schedule == "cooperative" and self.tile_m == 64 else 2

    @property
    def threads(self) -> int:
        """Threads of a CTA: the MMA warpgroups and one producer warpgroup."""
        return 128 + 128 * self.warpgroups

    @property
    def rows(self) -> int:
        """Output positions of a tile that one MMA warpgroup computes and stores."""
        return self.tile_m if self.pingpong else self.tile_m // self.warpgroups

    @property
    def store_n(self) -> int:
        """Filters of an epilogue subtile."""
        return next(width for width in (32, 16, 8) if self.tile_n % width == 0)

    @property
    def element(self) -> str:
        """Element type of the wgmma operands."""
        return {"tf32x3": "tf32"}.get(self.mma, self.mma)

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory of the epilogue in bytes."""
        return self.warpgroups * self.store_n * (self.rows + 4) * 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA in bytes: stages, epilogue, mbarriers."""
        return self.stages * self.stage_bytes + self.epilogue_bytes + 1024


@record
class HaloConfig(ConvConfig):
    """MMA warpgroups multiply all taps of a stage by wgmma; a producer warp loads the input once, with its halo.

    Two warpgroups take turns with a tile each where the registers of one hold its sums, else they share it.
    """

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ConvConfig.CONSTANTS,
        "tile_m": "output positions of an output tile",
        "tile_n": "filters of an output tile",
        "tile_k": "input channels of one stage",
        "stages": "stages in shared memory, at most: one is multiplied while the others arrive",
        "chunk": "channels that lie together: 16 bytes",
        "sector": "elements of a sector of memory: 32 bytes",
        "rows": "output positions of a tile per MMA warpgroup",
        "cluster": "CTAs of a cluster",
        "store_n": "filters of an epilogue subtile",
        "threads": "threads of a CTA: two MMA warpgroups and one producer warpgroup",
        "stages_bytes": "shared memory of all stages, at most",
    }

    mma: str  # operand type of the tensor cores: f16, bf16 or tf32
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    smem_bytes: int
    cluster: ClassVar[int] = 1
    warpgroup_mma: ClassVar[bool] = True

    @property
    def tile(self) -> tuple[int, int, int]:
        """(output positions, filters, input channels) of a tile."""
        return self.tile_m, self.tile_n, self.tile_k

    @property
    def stored(self) -> str:
        """Element type in memory."""
        return STORED[self.mma]

    @property
    def element(self) -> str:
        """Element type of the wgmma operands."""
        return self.mma

    @property
    def chunk(self) -> int:
        """Channels of 16 bytes."""
        return 16 // BYTES[self.mma]

    @property
    def sector(self) -> int:
        """Elements of a sector of memory."""
        return 32 // BYTES[self.mma]

    @property
    def pingpong(self) -> bool:
        """Whether the MMA warpgroups alternate output tiles instead of sharing one: 128 sums of a thread at most."""
        return self.tile_m * self.tile_n <= 128 * 128

    @property
    def threads(self) -> int:
        """Threads of a CTA: two MMA warpgroups and one producer warpgroup."""
        return 384

    @property
    def rows(self) -> int:
        """Output positions of a tile that one MMA warpgroup computes and stores."""
        return self.tile_m if self.pingpong else self.tile_m // 2

    @property
    def store_n(self) -> int:
        """Filters of an epilogue subtile."""
        return 32 if self.rows <= 128 and self.tile_n % 32 == 0 else 16

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory of the epilogue in bytes."""
        return 2 * self.store_n * (self.rows + 4) * 4

    @property
    def stages_bytes(self) -> int:
        """Shared memory of all stages, at most, in bytes: what epilogue and mbarriers leave."""
        return self.smem_bytes - self.epilogue_bytes - 1024
