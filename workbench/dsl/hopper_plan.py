"""The settings of a Hopper product with defaults filled in, and what follows from them: warpgroups, shared memory, stages that fit."""

from __future__ import annotations

import dataclasses

from workbench.dsl import epilogue, operation
from workbench.dsl.ir import Stage, setting
from workbench.records import record

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "tf32x3": 4, "e4m3": 1, "e5m2": 1}
TF32 = ("tf32", "tf32x3")  # x3: float32 in two parts each, by three products
ALONG_K = (*TF32, "e4m3", "e5m2")  # wgmma takes these along k only
SHARED_BYTES = operation.SHARED_BYTES["sm_90a"]


@record
class Plan:
    """The settings of one kernel, defaults filled in. Tile (m, n, k) and cluster (m, n) in elements and CTAs; band in tiles."""

    kind: str  # f16, bf16, tf32, tf32x3, e4m3 or e5m2: what wgmma multiplies
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    stages: int
    schedule: str  # cooperative or pingpong
    raster: str  # along_m or along_n: where neighbouring CTAs go first
    band: int
    store: str  # tma or direct
    asked: int = 0  # pieces of the result that a warpgroup keeps in shared memory, where the stage says it
    splits: int = 1  # parts of k that are summed up apart, in float32, and added by a second kernel or in a cluster
    in_cluster: bool = False  # whether the parts are added in the shared memories of a cluster
    streamk: bool = False  # whether the tiles of the last wave are cut along k, so that all CTAs have the same to do
    swap: bool = False  # whether the transposed product is computed: a tile's m lies along the result's n
    early: bool = False  # whether the next kernel may start while this one ends
    reduced: bool = False  # whether rows or columns are reduced, and the product itself is not stored
    registers: bool = False  # whether wgmma's first operand goes through registers
    cast: str | None = None  # the type of the result, where it is not the operands'

    @property
    def groups(self) -> int:
        """Warpgroups that multiply."""
        return 1 if self.schedule == "cooperative" and self.tile[0] == 64 else 2

    @property
    def threads(self) -> int:
        """Of a CTA: the warpgroups that multiply and the one that loads."""
        return 128 + 128 * self.groups

    @property
    def rows(self) -> int:
        """Rows of a tile that one warpgroup computes."""
        return self.tile[0] if self.schedule == "pingpong" else self.tile[0] // self.groups

    @property
    def accumulators(self) -> int:
        """Registers of each thread that multiplies, for its sums."""
        return self.rows * self.tile[1] // 128

    @property
    def result_bytes(self) -> int:
        """Bytes of one element that the kernel stores; the product of 8-bit floats is bfloat16."""
        if self.splits > 1 or self.reduced:
            return 4
        return epilogue.CASTS[self.cast][2] if self.cast in epilogue.CASTS else max(BYTES[self.kind], 2)

    @property
    def store_columns(self) -> int:
        """Columns of 64 rows that one TMA store moves: as many as a swizzled row of 128 bytes has."""
        widest = 64 if self.reduced else 128 // self.result_bytes
        return next(width for width in (widest, 32, 16, 8) if self.tile[1] % width == 0)

    @property
    def buffers(self) -> int:
        """Pieces of the result that a warpgroup keeps in shared memory: one is written while those before it leave."""
        return self.asked or (2 if self.pieces % 2 == 0 else 1)

    @property
    def pieces(self) -> int:
        """Pieces of 64 rows and `store_columns` columns that a warpgroup stores of each tile."""
        return self.rows // 64 * (self.tile[1] // self.store_columns)

    @property
    def epilogue_bytes(self) -> int:
        """Shared memory for the result, or for a cluster's parts of it."""
        if self.reduced:
            return 0
        if self.in_cluster:
            return 4 * (self.tile[0] * (self.tile[1] + 8) if not self.swap else (self.tile[0] + 4) * self.tile[1])
        return self.groups * self.buffers * 64 * self.store_columns * self.result_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages, result, mbarriers."""
        return self.stages * stage_bytes(self.kind, self.tile) + self.epilogue_bytes + 1024


def stage_bytes(kind: str, tile: tuple[int, int, int]) -> int:
    """Bytes of one tile of a and one of b."""
    return (tile[0] + tile[1]) * tile[2] * BYTES[kind]


def most_stages(plan: Plan) -> int:
    """How many stages fit."""
    return (SHARED_BYTES - 1024 - plan.epilogue_bytes) // stage_bytes(plan.kind, plan.tile)


def default_tile(kind: str) -> tuple[int, int, int]:
    """128 rows, 256 columns, and 128 bytes along k."""
    return (128, 256, 128 // BYTES.get(kind, 2))


def pair(value: object, default: tuple[int, int]) -> tuple[int, int]:
    """A setting of two numbers; the second is 1 when only one is given."""
    if isinstance(value, int):
        return value, 1
    return (int(value[0]), int(value[1])) if isinstance(value, tuple) and len(value) == 2 else default


def plan_of(stage: Stage) -> Plan:
    """The settings of a checked stage."""
    kind = str(setting(stage, "mma", "f16"))
    tile, raster, split = setting(stage, "tile"), setting(stage, "raster", ("along_m", 8)), setting(stage, "splitk", 1)
    way, band = raster if isinstance(raster, tuple) else (raster, 8)
    store = setting(stage, "store", "tma")
    chain = epilogue.chain_of(stage)
    plan = Plan(
        kind=kind, tile=tile if isinstance(tile, tuple) else default_tile(kind), cluster=pair(setting(stage, "cluster"), (1, 1)), stages=0,
        schedule=str(setting(stage, "schedule", "cooperative")), raster=str(way), band=int(str(band)), store=str(store[0] if isinstance(store, tuple) else store), asked=int(str(store[1])) if isinstance(store, tuple) else 0,
        splits=int(str(split[0] if isinstance(split, tuple) else split)), in_cluster=isinstance(split, tuple), streamk=setting(stage, "streamk") is not None, swap=setting(stage, "swap") is not None,
        early=setting(stage, "launch") == "early", registers=setting(stage, "through") == "registers", reduced=chain.reduction is not None, cast=chain.cast,
    )  # fmt: skip
    stages = setting(stage, "stages")
    return dataclasses.replace(plan, stages=stages if isinstance(stages, int) else min(most_stages(plan), 8))
