"""The special registers of a batch: %tid, %ctaid, %laneid, lane masks, cluster registers, by name."""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Value
from workbench.emulator.execution.launch import GridRequest

WARP = 32
U32, U64 = np.uint32, np.uint64
ONE, TWO = U64(1), U64(2)


def special_registers(
    request: GridRequest, *, thread: Array, cta: Array, block: Array, sms: int, shared_bytes: int
) -> dict[str, Value]:
    """Values by name: one for each lane, or one that all share.

    `thread` is each lane's number in its CTA, `cta` the number of its CTA in the batch, `block` its linear number in
    the grid.
    """
    padded = -(-request.block[0] * request.block[1] * request.block[2] // WARP) * WARP
    lane = (thread % WARP).astype(U64)
    return {
        **_geometry(request, thread, block),
        **_cluster(request, cta, block),
        "%laneid": (thread % WARP).astype(U32),
        "%warpid": (thread // WARP).astype(U32),
        "%nwarpid": U32(padded // WARP),
        "%smid": (block % sms).astype(U32),
        "%nsmid": U32(sms),
        "%gridid": U64(1),
        "%clock": U32(0),
        "%clock64": U64(0),
        "%globaltimer": U64(0),
        "%globaltimer_lo": U32(0),
        "%globaltimer_hi": U32(0),
        "%dynamic_smem_size": U32(request.dynamic_shared_bytes),
        "%total_smem_size": U32(shared_bytes),
        "%lanemask_lt": ((ONE << lane) - ONE).astype(U32),
        "%lanemask_eq": (ONE << lane).astype(U32),
        "%lanemask_le": ((TWO << lane) - ONE).astype(U32),
        "%lanemask_gt": (~((TWO << lane) - ONE)).astype(U32),
        "%lanemask_ge": (~((ONE << lane) - ONE)).astype(U32),
    }


def _geometry(request: GridRequest, thread: Array, block: Array) -> dict[str, Value]:
    bx, by, bz = request.block
    gx, gy, gz = request.grid
    return {
        "%tid.x": (thread % bx).astype(U32),
        "%tid.y": (thread // bx % by).astype(U32),
        "%tid.z": (thread // (bx * by)).astype(U32),
        "%ctaid.x": (block % gx).astype(U32),
        "%ctaid.y": (block // gx % gy).astype(U32),
        "%ctaid.z": (block // (gx * gy)).astype(U32),
        **{f"%ntid.{axis}": U32(extent) for axis, extent in zip("xyz", (bx, by, bz), strict=True)},
        **{f"%nctaid.{axis}": U32(extent) for axis, extent in zip("xyz", (gx, gy, gz), strict=True)},
    }


def _cluster(request: GridRequest, cta: Array, block: Array) -> dict[str, Value]:
    gx, gy, gz = request.grid
    cx, cy, cz = request.cluster
    size = cx * cy * cz
    rank = cta % size
    places = (rank % cx, rank // cx % cy, rank // (cx * cy))
    clusters = (block % gx // cx, block // gx % gy // cy, block // (gx * gy) // cz)
    counts = (gx // cx, gy // cy, gz // cz)
    return {
        "%cluster_ctarank": rank.astype(U32),
        "%cluster_nctarank": U32(size),
        "%is_explicit_cluster": size > 1,
        **{f"%cluster_ctaid.{axis}": place.astype(U32) for axis, place in zip("xyz", places, strict=True)},
        **{f"%cluster_nctaid.{axis}": U32(extent) for axis, extent in zip("xyz", (cx, cy, cz), strict=True)},
        **{f"%clusterid.{axis}": number.astype(U32) for axis, number in zip("xyz", clusters, strict=True)},
        **{f"%nclusterid.{axis}": U32(count) for axis, count in zip("xyz", counts, strict=True)},
    }
