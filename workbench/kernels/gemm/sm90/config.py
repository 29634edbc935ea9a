"""Configuration of a Hopper matrix product and the values derived from it. Pure data: no CuTe DSL, no torch."""

from __future__ import annotations

from typing import ClassVar

from workbench.kernels.operands import Read
from workbench.records.base import record

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "tf32x3": 4, "e4m3": 1, "e5m2": 1}
TF32 = ("tf32", "tf32x3")  # tf32x3: each float32 as two TF32 parts, three products
ALONG_K = (*TF32, "e4m3", "e5m2")  # element types whose wgmma operands must be K-major
STORED = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "tf32x3": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}  # torch's name of the operands' dtype
RESULT_BYTES = {"f16": 2, "bf16": 2, "f32": 4}
SHARED_BYTES = 232_448  # shared memory of a CTA on sm_90a
MIN_K_TILES = 8  # fewest k tiles that a cluster computes of an output tile; CUTLASS: min_iters_per_sk_unit_
# inferred: one cluster reads the partial sums of all peers, and those of a tile take as long as one or two k tiles
MAX_PEERS = 16


@record
class GemmSm90Config:
    """One Hopper GEMM kernel. The tile (m, n, k) is in elements, the cluster (m, n) in CTAs, `band` in tiles.

    With split-K, `epilogue` takes (total, operands, batch, row, column): the kernel that adds the partial sums applies
    it. Otherwise it takes (total), or (total, vectors, slices, e, tile, place, shape) if it reads tensors. `slices`
    holds, for each (m, n) tensor, the registers of the current subtile; element `e` of each belongs to this
    accumulator. tile (row, column, batch) + place (row, column) is the accumulator's coordinate in the kernel's
    product, which may lie past its shape (m, n, batch). `finish` takes (total) after a reduction.
    """

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of an output tile",
        "tile_n": "columns of an output tile",
        "tile_k": "k extent of one stage",
        "cluster_m": "CTAs of a cluster along m; TMA multicasts tiles of b to them",
        "cluster_n": "CTAs of a cluster along n; TMA multicasts tiles of a to them",
        "stages": "k tiles in shared memory: one is multiplied while TMA fills the others",
        "mma_warpgroups": "MMA (consumer) warpgroups; one more is the producer",
        "warpgroup_m": "rows of an output tile per MMA warpgroup",
        "band": "width in tiles of a raster band, for L2 reuse; CUTLASS: swizzle size",
        "store_n": "columns of an epilogue subtile of 64 rows",
        "buffers": "epilogue buffers (64 x STORE_N) per warpgroup in shared memory",
        "split_k": "splits of k, computed in parallel",
        "share": "outputs of a tile that each CTA of a cluster reduces",
        "threads": "threads of a CTA",
        "outputs_per_thread": "outputs that a thread reduces at once",
        "min_k_tiles": "fewest k tiles that a cluster computes of an output tile",
        "max_peers": "most clusters that share an output tile",
        "quads": "groups of four accumulators per thread",
        "spare_flags": "flag arrays allocated at once, for further streams and graph captures",
        "quads_in_flight": "groups of four partial sums loaded before they are added",
    }
    kind: str  # f16, bf16, tf32, tf32x3, e4m3 or e5m2: operand type of wgmma
    tile: tuple[int, int, int]
    cluster: tuple[int, int] = (1, 1)
    stages: int = 2
    schedule: str = "cooperative"  # or pingpong
    raster: str = "along_m"  # or along_n: the direction in which consecutive tiles are numbered
    band: int = 8
    store: str = "tma"  # or direct
    store_buffers: int = 0  # epilogue buffers per warpgroup; 0: the default, see `buffers`
    split_k: int = 1  # splits of k; a second kernel or the cluster adds their float32 partial sums
    in_cluster: bool = False  # whether split-K partial sums are added through distributed shared memory
    stream_k: bool = False  # whether the tiles of the last waves are divided along k for load balance
    swap: bool = False  # whether the kernel computes the transpose: its m is the result's n
    pdl: bool = False  # programmatic dependent launch: the next kernel may start while this one ends
    a_in_registers: bool = False  # whether wgmma reads operand a from registers
    cast: str | None = None  # element type of the result; None: that of the operands
    reduction: str = ""  # sum, mean, max or min over rows or columns; the product itself is not stored
    reduces_rows: bool = False  # whether each row is reduced, not each column
    keepdim: bool = False  # whether the reduced extent stays with size 1
    a_transposed: bool = False  # whether a is stored as (k, m)
    b_transposed: bool = False  # whether b is stored as (n, k)
    reads: tuple[Read, ...] = ()  # tensors that the epilogue reads, in order
    epilogue: object = None
    finish: object = None
    min_k_tiles: int = MIN_K_TILES
    max_peers: int = MAX_PEERS
    spare_flags: int = 256

    @property
    def tile_m(self) -> int:
        """Rows of an output tile."""
        return self.tile[0]

    @property
    def tile_n(self) -> int:
        """Columns of an output tile."""
        return self.tile[1]

    @property
    def tile_k(self) -> int:
        """k extent of one stage."""
        return self.tile[2]

    @property
    def cluster_m(self) -> int:
        """CTAs of a cluster along m."""
        return self.cluster[0]

    @property
    def cluster_n(self) -> int:
        """CTAs of a cluster along n."""
        return self.cluster[1]

    @property
    def element(self) -> str:
        """Element type of the wgmma operands."""
        return "tf32" if self.is_tf32 else self.kind

    @property
    def stored(self) -> str:
        """Element type of a and b as the kernels see them; 8-bit floats are passed as bytes."""
        return "f32" if self.is_tf32 else self.kind if BYTES[self.kind] > 1 else "u8"

    @property
    def is_tf32(self) -> bool:
        """Whether the operands are float32, multiplied as tf32."""
        return self.kind in TF32

    @property
    def is_8bit(self) -> bool:
        """Whether the operands are 8-bit floats."""
        return BYTES[self.kind] == 1

    @property
    def along_k(self) -> bool:
        """Whether wgmma requires both operands to be K-major."""
        return self.kind in ALONG_K

    @property
    def result(self) -> str:
        """Element type of the result; for 8-bit operands bfloat16."""
        return self.cast or ("f32" if self.is_tf32 else "bf16" if self.is_8bit else self.kind)

    @property
    def kernel_result(self) -> str:
        """Element type that the product kernel stores; partial sums of split-K are float32."""
        return "f32" if self.split_k > 1 else self.result

    @property
    def is_pingpong(self) -> bool:
        """Whether the two MMA warpgroups alternate: one runs its mainloop while the other runs its epilogue."""
        return self.schedule == "pingpong"

    @property
    def mma_warpgroups(self) -> int:
        """MMA (consumer) warpgroups of a CTA."""
        return 1 if self.schedule == "cooperative" and self.tile[0] == 64 else 2

    @property
    def threads(self) -> int:
        """Threads of a CTA: the MMA warpgroups and one producer warpgroup."""
        return 128 + 128 * self.mma_warpgroups

    @property
    def moves_registers(self) -> bool:
        """Whether setmaxnreg moves registers from the producer to the MMA warpgroups."""
        return self.mma_warpgroups > 1 and not self.in_cluster

    @property
    def warpgroup_m(self) -> int:
        """Rows of an output tile that one warpgroup computes."""
        return self.tile[0] if self.is_pingpong else self.tile[0] // self.mma_warpgroups

    @property
    def accumulators(self) -> int:
        """Accumulator registers of each MMA thread."""
        return self.warpgroup_m * self.tile[1] // 128

    @property
    def result_bytes(self) -> int:
        """Bytes of one element that the kernel stores."""
        return 4 if self.split_k > 1 or self.reduction else RESULT_BYTES[self.result]

    @property
    def store_n(self) -> int:
        """Columns of an epilogue subtile of 64 rows: at most one 128-byte swizzled row."""
        widest = 64 if self.reduction else 128 // self.result_bytes
        return next(width for width in (widest, 32, 16, 8) if self.tile[1] % width == 0)

    @property
    def buffers(self) -> int:
        """Epilogue buffers of a warpgroup in shared memory; one is filled while TMA stores drain the others."""
        return self.store_buffers or (2 if self.subtiles % 2 == 0 else 1)

    @property
    def subtiles(self) -> int:
        """Epilogue subtiles, 64 x `store_n`, of a warpgroup's part of an output tile."""
        return self.warpgroup_m // 64 * (self.tile[1] // self.store_n)

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory of the epilogue, or of the partial sums that a cluster adds, in bytes."""
        if self.reduction:
            return 0
        if self.in_cluster:
            return 4 * (self.tile[0] * (self.tile[1] + 8) if not self.swap else (self.tile[0] + 4) * self.tile[1])
        return self.mma_warpgroups * self.buffers * 64 * self.store_n * self.result_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA in bytes: stages, epilogue, mbarriers."""
        return self.stages * stage_bytes(self.kind, self.tile) + self.epilogue_bytes + 1024

    @property
    def max_stages(self) -> int:
        """The largest number of stages that fits into shared memory."""
        return (SHARED_BYTES - 1024 - self.epilogue_bytes) // stage_bytes(self.kind, self.tile)

    @property
    def tile_reads(self) -> tuple[Read, ...]:
        """Tensors that the product kernel reads; with split-K the kernel that adds the partial sums reads them."""
        return () if self.split_k > 1 else self.reads

    @property
    def has_tile_epilogue(self) -> bool:
        """Whether the product kernel applies the epilogue to its accumulators."""
        return self.epilogue is not None and self.split_k == 1

    @property
    def reads_matrices(self) -> bool:
        """Whether the epilogue of the product kernel reads (m, n) tensors."""
        return any(read.along == "both" for read in self.tile_reads)

    @property
    def reduces_kernel_rows(self) -> bool:
        """Whether the kernel reduces along its own n; with `swap` that is along the result's m."""
        return self.reduces_rows != self.swap

    @property
    def share(self) -> int:
        """Outputs of a tile that each CTA of a split-K cluster reduces."""
        return self.tile[0] * self.tile[1] // self.split_k

    @property
    def outputs_per_thread(self) -> int:
        """Outputs that a thread of a split-K cluster reduces at once."""
        return min(8, -(-self.share // self.threads))

    @property
    def quads(self) -> int:
        """Groups of four accumulators of a thread."""
        return self.accumulators // 4

    @property
    def quads_in_flight(self) -> int:
        """Groups of four partial sums that a thread loads before it adds them."""
        return next(count for count in (8, 4, 2, 1) if self.quads % count == 0)

    @property
    def workspace_bytes(self) -> int:
        """stream-K workspace of each resident CTA in bytes: the float32 partial sums of one tile."""
        return self.tile[0] * self.tile[1] * 4


def stage_bytes(kind: str, tile: tuple[int, int, int]) -> int:
    """Bytes of one stage: a tile of a and a tile of b."""
    return (tile[0] + tile[1]) * tile[2] * BYTES[kind]


def default_tile(kind: str) -> tuple[int, int, int]:
    """Return the default tile: 128 rows, 256 columns, 128 bytes along k."""
    return (128, 256, 128 // BYTES.get(kind, 2))
