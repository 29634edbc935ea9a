"""Clusters: addresses in another CTA's shared memory, the cluster barrier, asynchronous stores.

An address of shared memory has 32 bits: the offset, and above bit 24 the rank of the CTA in its cluster plus one (0 =
the CTA's own). PTX leaves this mapping open.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import CLUSTER_WAIT, RANK_SHIFT, Batch
from workbench.emulator.execution.operands import Fn, Unknown, bits, getter, setter
from workbench.emulator.isa.access import address, broadcast, write_shared
from workbench.emulator.isa.sm90.mbarrier import complete_tx
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Vec


def map_address(ins: Instruction) -> Fn:
    """mapa{.shared::cluster}.{u32,u64} d, a, rank: the same offset in the shared memory of another CTA of the
    cluster.
    """
    if "shared" not in ins.mods:
        raise Unknown(ins.text)
    size = 8 if ins.mods[-1] == "u64" else 4
    put, get, rank_of = (
        setter(ins.operands[0], size),
        getter(ins.operands[1], f"u{8 * size}"),
        getter(ins.operands[2], "u32"),
    )

    def run(b: Batch, i: Lanes) -> None:
        rank = np.asarray(rank_of(b, i)).astype(np.int64)
        if (rank >= b.cluster_size).any():
            raise b.fault(
                "bad_rank",
                f"rank {int(rank.max())} of a cluster of {b.cluster_size} CTAs",
                ins.line,
                int(b.all_lanes(i)[0]),
            )
        offset = np.asarray(get(b, i)).astype(np.int64) & ((1 << RANK_SHIFT) - 1)
        put(b, i, bits((offset | (rank + 1) << RANK_SHIFT).astype(np.uint64 if size == 8 else np.uint32), size))

    return run


def cta_rank(ins: Instruction) -> Fn:
    """getctarank.shared::cluster.u32 d, a."""
    put, get = setter(ins.operands[0], 4), getter(ins.operands[1], ins.mods[-1])

    def run(b: Batch, i: Lanes) -> None:
        rank = np.asarray(get(b, i)).astype(np.int64) >> RANK_SHIFT & 0x1F
        own = (b.cta if i is None else b.cta[i]) % b.cluster_size
        put(b, i, np.where(rank > 0, rank - 1, own).astype(np.uint32))

    return run


def arrive(b: Batch, idx: Lanes) -> None:
    """barrier.cluster.arrive: each lane stores the phase that it waits for."""
    lanes = b.all_lanes(idx)
    cluster = b.cta[lanes] // b.cluster_size
    b.cluster_phase_of[lanes] = b.cluster_phase[cluster]
    np.add.at(b.cluster_arrived, cluster, 1)
    if b.races is not None:
        b.races.clocks.arrive_cluster(lanes)
    complete(b)


def wait(b: Batch, idx: Lanes, line: int | None) -> None:
    """barrier.cluster.wait: parks the lanes whose phase is not complete."""
    lanes = b.all_lanes(idx)
    not_yet = b.cluster_phase[b.cta[lanes] // b.cluster_size] <= b.cluster_phase_of[lanes]
    early = lanes[not_yet]
    if b.races is not None:
        b.races.clocks.leave_cluster(lanes[~not_yet])
    b.waiting[early] = CLUSTER_WAIT
    b.waiting_line[early] = line or 0


def complete(b: Batch) -> bool:
    """Complete the phase of every cluster whose threads have all arrived (exited ones do not count), and wake its
    waiting lanes.
    """
    count = len(b.cluster_arrived)
    expected = np.bincount(b.cta[b.alive] // b.cluster_size, minlength=count)
    done = (b.cluster_arrived >= expected) & (b.cluster_arrived > 0)
    if not done.any():
        return False
    b.cluster_phase[done] += 1
    b.cluster_arrived[done] = 0
    woken = (b.waiting == CLUSTER_WAIT) & done[b.cta // b.cluster_size]
    b.waiting[woken] = -1
    if b.races is not None:
        b.races.clocks.complete_cluster(done)
        b.races.clocks.leave_cluster(np.nonzero(woken)[0])
    return True


def store_async(ins: Instruction) -> Fn:
    """st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.v2,.v4}.{b32,b64,...} [a], v, [mbar]: writes at
    once, then counts on the mbarrier.
    """
    if "complete_tx" not in ins.text:
        raise Unknown(ins.text)
    size = int(ins.mods[-1][1:]) // 8
    target, source, barrier = ins.operands[:3]
    assert isinstance(target, Mem) and isinstance(barrier, Mem)
    gets = [getter(item, f"b{8 * size}") for item in (source.items if isinstance(source, Vec) else (source,))]
    to, of = address(target, "shared"), address(barrier, "shared")

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        values: list[Array] = [broadcast(b, i, get(b, i)) for get in gets]
        write_shared(b, lanes, broadcast(b, i, to(b, i)), values, size, ins)
        complete_tx(b, lanes, broadcast(b, i, of(b, i)), np.full(len(lanes), size * len(values)), ins)

    return run
