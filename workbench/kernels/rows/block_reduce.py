"""All-reduce over the threads that share a row: across a warp, then a CTA, then a cluster."""

import cutlass
from cutlass import cute

from workbench.kernels.static import Many, Static


@cute.jit
def load_remote(memory, place: cutlass.Constexpr, rank: cutlass.Constexpr):
    """Return element `place` of the shared memory of CTA `rank` of the cluster."""
    kind = "f32" if cutlass.const_expr(memory.element_type is cutlass.Float32) else "s32"
    there = cute.arch.map_dsmem_ptr(memory.iterator + place, rank)
    return cute.arch.inline_ptx(
        "ld.shared::cluster." + kind + " {$w0}, [{$r0}];",
        write_only_types=[memory.element_type],
        read_only_args=[there.toint()],
    )


@cute.jit
def all_reduce(warps: Static, cluster: Static, merge: Static, state: Many, memory: Many, tidx):
    """Combine `state` over the threads of a row; return the result in every thread."""
    for step in cutlass.range_constexpr(5):
        others = tuple(cute.arch.shuffle_sync_bfly(value, offset=16 >> step) for value in state)
        state = merge(*state, *others)
    if cutlass.const_expr(warps > 1):
        if tidx % 32 == 0:
            for value, scratch in zip(state, memory, strict=True):
                scratch[tidx // 32] = value
        cute.arch.sync_threads()
        state = tuple(scratch[0] for scratch in memory)
        for warp in cutlass.range_constexpr(1, warps):
            others = tuple(scratch[warp] for scratch in memory)
            state = merge(*state, *others)
        cute.arch.sync_threads()
    if cutlass.const_expr(cluster > 1):
        # every CTA leaves its part behind the warps' and reads those of all CTAs, in the same order everywhere
        if tidx == 0:
            for value, scratch in zip(state, memory, strict=True):
                scratch[warps] = value
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        state = tuple(load_remote(scratch, warps, 0) for scratch in memory)
        for rank in cutlass.range_constexpr(1, cluster):
            others = tuple(load_remote(scratch, warps, rank) for scratch in memory)
            state = merge(*state, *others)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    return state


@cute.jit
def all_reduce_online(warps: Static, cluster: Static, level: Static, state: Many, memory: Many, tidx):
    """Combine a running maximum and sum of exponentials; each sum is scaled once, to the final maximum."""
    mine, total = state
    largest = all_reduce(warps, cluster, level.merge, (mine,), memory, tidx)
    (most,) = largest
    scaled = total * cute.math.exp(mine - most, fastmath=True)
    totals = all_reduce(warps, cluster, level.merge_total, (scaled,), memory, tidx)
    return tuple(value for value in (*largest, *totals))
