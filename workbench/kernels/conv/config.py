"""Settings of the convolution kernels with defaults filled in, and what follows from them."""

from __future__ import annotations

from typing import ClassVar

from workbench.kernels.operands import Read
from workbench.records.base import record

Extents = int | tuple[int, ...]
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "tf32x3": 4}  # of one element in memory, by what the tensor cores multiply
STORED = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "tf32x3": "f32"}  # type in memory


@record
class ConvConfig:
    """The settings that all convolution kernels have."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "stride": "one number, or one per extent",
        "padding": "one number, or one per extent",
        "dilation": "one number, or one per extent",
        "output_padding": "one number, or one per extent",
        "groups": "groups of channels, each with filters of its own",
    }

    stride: Extents = 1
    padding: Extents = 0
    dilation: Extents = 1
    output_padding: Extents = 0
    groups: int = 1
    transposed: bool = False
    reads: tuple[Read, ...] = ()  # tensors of the epilogue: along n, the filters, or of the output's shape
    epilogue: object = None  # takes the sum, what it reads and where that is; returns the new sum
    result: str | None = None  # the output's element type, where it is not the input's


@record
class DirectConfig(ConvConfig):
    """Sums on CUDA cores. A thread computes one output, or with rows `rows` below each other, of `filters` filters."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ConvConfig.CONSTANTS,
        "threads": "threads of a CTA",
        "rows": "outputs below each other that a thread computes",
        "filters": "filters whose outputs a thread computes",
    }

    threads: int = 128
    rows: int | None = None
    filters: int = 1
    depthwise: bool = False  # whether each input channel is a group, whatever `groups` says


@record
class ImplicitGemmConfig(ConvConfig):
    """An implicit GEMM: rows are output positions, columns are filters, k runs over taps and channels."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ConvConfig.CONSTANTS,
        "tile_m": "output positions of a tile",
        "tile_n": "filters of a tile",
        "tile_k": "input channels of one tap that a stage holds",
        "stages": "tiles of the activations and of the filters in shared memory at once",
        "rows": "output positions of a tile that a warpgroup stores",
        "store_n": "filters that a warpgroup stores at a time",
    }

    mma: str  # f16, bf16, tf32 or tf32x3: what the tensor cores multiply
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    unfold: bool = False  # whether the taps of the filter's last extent become channels of the packed activations

    @property
    def tile(self) -> tuple[int, int, int]:
        """Output positions, filters and input channels of a tile."""
        return self.tile_m, self.tile_n, self.tile_k

    @property
    def stored(self) -> str:
        """The element type in memory."""
        return STORED[self.mma]

    @property
    def split(self) -> bool:
        """Whether each float32 is multiplied as two parts that TF32 holds."""
        return self.mma == "tf32x3"

    @property
    def stage_bytes(self) -> int:
        """Bytes of one tile of the activations and one of the filters."""
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
        """Filters that are stored at a time: two fragments of each warp."""
        return 32

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages and results."""
        return self.stages * self.stage_bytes + self.store_n * (self.rows + 4) * 4


@record
class Sm90Config(ImplicitGemmConfig):
    """Warpgroups multiply by wgmma; one warp fills the stages through TMA."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        **ImplicitGemmConfig.CONSTANTS,
        "cluster": "CTAs side by side along the output positions; TMA multicasts the filters to all of them",
        "warpgroups": "warpgroups that multiply; one more warpgroup loads",
        "threads": "threads of a CTA",
    }

    cluster: int = 1
    schedule: str = "cooperative"  # or pingpong
    warpgroup_mma: ClassVar[bool] = True

    @property
    def pingpong(self) -> bool:
        """Whether the warpgroups take turns with a tile each, instead of sharing one."""
        return self.schedule == "pingpong"

    @property
    def warpgroups(self) -> int:
        """Warpgroups that multiply."""
        return 1 if self.schedule == "cooperative" and self.tile_m == 64 else 2

    @property
    def threads(self) -> int:
        """Threads of a CTA: the warpgroups that multiply and the one that loads."""
        return 128 + 128 * self.warpgroups

    @property
    def rows(self) -> int:
        """Output positions of a tile that one warpgroup computes and stores."""
        return self.tile_m if self.pingpong else self.tile_m // self.warpgroups

    @property
    def store_n(self) -> int:
        """Filters that a warpgroup stores at a time."""
        return next(width for width in (32, 16, 8) if self.tile_n % width == 0)

    @property
    def element(self) -> str:
        """What wgmma multiplies."""
        return {"tf32x3": "tf32"}.get(self.mma, self.mma)

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory for the results."""
        return self.warpgroups * self.store_n * (self.rows + 4) * 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages, results, mbarriers."""
        return self.stages * self.stage_bytes + self.epilogue_bytes + 1024
