"""Configuration of a Hopper product: what is chosen, and what follows from it. Pure data; no CuTe DSL or torch."""

from __future__ import annotations

from typing import ClassVar

from workbench.kernels.operands import Read
from workbench.records.base import record

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "tf32x3": 4, "e4m3": 1, "e5m2": 1}
TF32 = ("tf32", "tf32x3")  # x3: float32 in two parts each, by three products
ALONG_K = (*TF32, "e4m3", "e5m2")  # wgmma takes these along k only
STORED = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "tf32x3": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}  # what torch calls the operands' type
RESULT_BYTES = {"f16": 2, "bf16": 2, "f32": 4}
SHARED_BYTES = 232_448  # of a CTA on sm_90a
MIN_K_TILES = 8  # k tiles of a piece of an output tile at least, as CUTLASS has it (min_iters_per_sk_unit_)
MAX_PEERS = (
    16  # inferred: reading a tile's sums takes as long as one or two k tiles, and one cluster reads those of all
)


@record
class GemmSm90Config:
    """One kernel. Tile (m, n, k) and cluster (m, n) in elements and CTAs; band in tiles.

    `epilogue` takes (total, operands, batch, row, column) where parts of k are added by another kernel or a cluster.
    Else it takes (total), or where it reads tensors (total, vectors, slices, e, tile, place, shape): of (m, n) tensors
    the kernel has loaded a slice each, whose element is `e`; tile (row, column, batch) + place (row, column) is where
    the sum lies in the kernel's product, which may reach past its shape (m, n, batch). `finish` takes (total) after a
    reduction.
    """

    CONSTANTS: ClassVar[dict[str, str]] = {
        "tile_m": "rows of d that one tile covers",
        "tile_n": "columns of d that one tile covers",
        "tile_k": "how much of k one stage holds",
        "cluster_m": "CTAs along m that share tiles of b: TMA sends one to all of them",
        "cluster_n": "CTAs along n that share tiles of a",
        "stages": "tiles of a and of b in shared memory: some arrive while one is multiplied",
        "mma_warpgroups": "warpgroups that multiply; one more loads",
        "warpgroup_m": "rows of a tile that a warpgroup computes",
        "band": "tiles across a band that is walked together, so that its operands stay in L2",
        "store_n": "columns of 64 rows that leave the registers together",
        "buffers": "pieces of 64 x STORE_N that a warpgroup has in shared memory",
        "split_k": "parts of k, summed up side by side",
        "share": "outputs of a tile that one CTA of a cluster adds up",
        "threads": "threads of a CTA",
        "outputs_per_thread": "outputs that a thread adds up at once",
        "min_k_tiles": "k tiles that a piece of an output tile has at least",
        "max_peers": "clusters that share an output tile at most",
        "quads": "sums of a thread, in fours",
        "spare_flags": "streams and captures for which flags are made at once, outside of graphs",
        "quads_in_flight": "fours of sums that are on their way at once",
    }
    kind: str  # f16, bf16, tf32, tf32x3, e4m3 or e5m2: what wgmma multiplies
    tile: tuple[int, int, int]
    cluster: tuple[int, int] = (1, 1)
    stages: int = 2
    schedule: str = "cooperative"  # or pingpong
    raster: str = "along_m"  # or along_n: where neighbouring CTAs go first
    band: int = 8
    store: str = "tma"  # or direct
    store_buffers: int = 0  # pieces of the result that a warpgroup keeps in shared memory; 0: as many as are usual
    split_k: int = 1  # parts of k that are summed up apart, in float32, and added by a second kernel or in a cluster
    in_cluster: bool = False  # whether the parts are added in the shared memories of a cluster
    stream_k: bool = False  # whether the tiles of the last wave are cut along k, so that all CTAs have the same to do
    swap: bool = False  # whether the transposed product is computed: a tile's m lies along the result's n
    pdl: bool = False  # whether the next kernel may start while this one ends
    a_in_registers: bool = False  # whether wgmma's first operand goes through registers
    cast: str | None = None  # element type of the result, where it is not the operands'
    reduction: str = ""  # sum, mean, max or min: rows or columns are reduced, and the product itself is not stored
    reduces_rows: bool = False  # whether rows of the result are reduced, not columns
    keepdim: bool = False  # whether the reduced extent stays, as 1
    a_transposed: bool = False  # whether a is given as (k, m)
    b_transposed: bool = False  # whether b is given as (n, k)
    reads: tuple[Read, ...] = ()  # tensors that the epilogue reads, in order
    epilogue: object = None
    finish: object = None
    min_k_tiles: int = MIN_K_TILES
    max_peers: int = MAX_PEERS
    spare_flags: int = 256

    @property
    def tile_m(self) -> int:
        """Rows of a tile."""
        return self.tile[0]

    @property
    def tile_n(self) -> int:
        """Columns of a tile."""
        return self.tile[1]

    @property
    def tile_k(self) -> int:
        """How much of k one stage holds."""
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
        """Element type that wgmma multiplies."""
        return "tf32" if self.is_tf32 else self.kind

    @property
    def stored(self) -> str:
        """Element type of a and b in memory, as kernels know it: 8-bit floats are bytes."""
        return "f32" if self.is_tf32 else self.kind if BYTES[self.kind] > 1 else "u8"

    @property
    def is_tf32(self) -> bool:
        """Whether float32 is multiplied as tf32."""
        return self.kind in TF32

    @property
    def is_8bit(self) -> bool:
        """Whether 8-bit floats are multiplied."""
        return BYTES[self.kind] == 1

    @property
    def along_k(self) -> bool:
        """Whether wgmma takes both operands along k only."""
        return self.kind in ALONG_K

    @property
    def result(self) -> str:
        """Element type of the result; the product of 8-bit floats is bfloat16."""
        return self.cast or ("f32" if self.is_tf32 else "bf16" if self.is_8bit else self.kind)

    @property
    def kernel_result(self) -> str:
        """Element type that the product's kernel stores: parts of k are float32."""
        return "f32" if self.split_k > 1 else self.result

    @property
    def is_pingpong(self) -> bool:
        """Whether one warpgroup multiplies while the other one stores."""
        return self.schedule == "pingpong"

    @property
    def mma_warpgroups(self) -> int:
        """Warpgroups that multiply."""
        return 1 if self.schedule == "cooperative" and self.tile[0] == 64 else 2

    @property
    def threads(self) -> int:
        """Of a CTA: the warpgroups that multiply and the one that loads."""
        return 128 + 128 * self.mma_warpgroups

    @property
    def moves_registers(self) -> bool:
        """Whether the warpgroup that loads gives registers to those that multiply."""
        return self.mma_warpgroups > 1 and not self.in_cluster

    @property
    def warpgroup_m(self) -> int:
        """Rows of a tile that one warpgroup computes."""
        return self.tile[0] if self.is_pingpong else self.tile[0] // self.mma_warpgroups

    @property
    def accumulators(self) -> int:
        """Registers of each thread that multiplies, for its sums."""
        return self.warpgroup_m * self.tile[1] // 128

    @property
    def result_bytes(self) -> int:
        """Bytes of one element that the kernel stores."""
        return 4 if self.split_k > 1 or self.reduction else RESULT_BYTES[self.result]

    @property
    def store_n(self) -> int:
        """Columns of 64 rows that one TMA store moves: as many as a swizzled row of 128 bytes has."""
        widest = 64 if self.reduction else 128 // self.result_bytes
        return next(width for width in (widest, 32, 16, 8) if self.tile[1] % width == 0)

    @property
    def buffers(self) -> int:
        """Pieces of the result that a warpgroup keeps in shared memory: one is written while those before it leave."""
        return self.store_buffers or (2 if self.subtiles % 2 == 0 else 1)

    @property
    def subtiles(self) -> int:
        """Pieces of 64 rows and `store_n` columns that a warpgroup stores of each tile."""
        return self.warpgroup_m // 64 * (self.tile[1] // self.store_n)

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory for the result, or for a cluster's parts of it."""
        if self.reduction:
            return 0
        if self.in_cluster:
            return 4 * (self.tile[0] * (self.tile[1] + 8) if not self.swap else (self.tile[0] + 4) * self.tile[1])
        return self.mma_warpgroups * self.buffers * 64 * self.store_n * self.result_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages, result, mbarriers."""
        return self.stages * stage_bytes(self.kind, self.tile) + self.epilogue_bytes + 1024

    @property
    def max_stages(self) -> int:
        """How many stages fit."""
        return (SHARED_BYTES - 1024 - self.epilogue_bytes) // stage_bytes(self.kind, self.tile)

    @property
    def tile_reads(self) -> tuple[Read, ...]:
        """Tensors that the product's kernel reads; parts of k are brought through the epilogue when they are added."""
        return () if self.split_k > 1 else self.reads

    @property
    def has_tile_epilogue(self) -> bool:
        """Whether the product's kernel applies the epilogue to each sum of a tile."""
        return self.epilogue is not None and self.split_k == 1

    @property
    def reads_matrices(self) -> bool:
        """Whether the product's kernel reads (m, n) tensors."""
        return any(read.along == "both" for read in self.tile_reads)

    @property
    def reduces_kernel_rows(self) -> bool:
        """Whether the kernel reduces along its own n: the transposed product's rows are the result's columns."""
        return self.reduces_rows != self.swap

    @property
    def share(self) -> int:
        """Outputs of a tile that one CTA of a cluster adds up."""
        return self.tile[0] * self.tile[1] // self.split_k

    @property
    def outputs_per_thread(self) -> int:
        """Outputs that a thread of a cluster's CTA adds up at once."""
        return min(8, -(-self.share // self.threads))

    @property
    def quads(self) -> int:
        """Sums of a thread, in fours."""
        return self.accumulators // 4

    @property
    def quads_in_flight(self) -> int:
        """Fours of sums of another cluster that a thread loads at once."""
        return next(count for count in (8, 4, 2, 1) if self.quads % count == 0)

    @property
    def workspace_bytes(self) -> int:
        """Of each CTA that runs at once: the sums of a tile in float32, for stream-K."""
        return self.tile[0] * self.tile[1] * 4


def stage_bytes(kind: str, tile: tuple[int, int, int]) -> int:
    """Bytes of one tile of a and one of b."""
    return (tile[0] + tile[1]) * tile[2] * BYTES[kind]


def default_tile(kind: str) -> tuple[int, int, int]:
    """128 rows, 256 columns, and 128 bytes along k."""
    return (128, 256, 128 // BYTES.get(kind, 2))
