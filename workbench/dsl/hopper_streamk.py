"""stream-K of a Hopper product, as text: the tiles of the last wave are cut along k into equal shares, one for each cluster of CTAs.

After Osama, Merrill, Cecka, Garland and Owens, Stream-K (2023), sections 4 and 5: of `works` tiles on `clusters` clusters, the rest of the last wave and
one whole wave are cut (all tiles where there is less than one wave), the others stay whole. A share is a range of steps of k, counted through the tiles that are cut, and so at most the end of
one tile, whole tiles, and the start of one more. Whoever has a tile's last step finishes it, and waits for the sums of those before. A cluster takes its last tile
first: that is the only one whose sums it hands on, so it hands on before it ever waits, nothing waits in a circle, and only for clusters of
smaller numbers. Flags in global memory say that sums are there; the one that waited resets them. Sums are added in one order, so results repeat bit for bit on a device.
"""

from __future__ import annotations

import math
import textwrap

from workbench.dsl.hopper_plan import Plan

LEAST = 8  # steps of k of a piece of a tile at least, as CUTLASS has it (PersistentTileSchedulerSm90StreamKParams::min_iters_per_sk_unit_)
MOST = 16  # inferred: reading a tile's sums takes as long as one or two steps, and one cluster reads those of all
GRAPHS = 256  # streams and captures for which flags are made at once, outside of graphs
CONSTANTS = '''\
LEAST, MOST = {least}, {most}  # steps of k that a piece of a tile has at least, and clusters that share a tile at most
SUMS, EACH = {sums}, {each}  # sums of a thread in fours, and how many of these are on their way at once
'''
CUT = '''
@cute.jit
def edge(cluster: cutlass.Int32, clusters: cutlass.Int32, cut: cutlass.Int32, steps: cutlass.Int32):
    """Where a cluster's share of the tiles that are cut begins, in steps of k through all of them; not close to a tile's start or end."""
    total = cut * steps
    at = cluster * (total // clusters) + cutlass.min(cluster, total % clusters)
    inside = at % steps
    if inside < LEAST:
        at -= inside
    elif steps - inside < LEAST:
        at += steps - inside
    return at


@cute.jit
def share(cluster: cutlass.Int32, clusters: cutlass.Int32, works: cutlass.Int32, steps: cutlass.Int32):
    """(begin, end) of a cluster's share in steps of k, how many tiles are cut, how many of them it has a piece of, how many pieces of work it has."""
    cut = works % clusters
    if cut > 0 and works > clusters:
        cut += clusters  # with one whole wave, so that each share is longer than a tile
    begin, end = edge(cluster, clusters, cut, steps), edge(cluster + 1, clusters, cut, steps)
    pieces = cutlass.Int32(0)
    if begin < end:
        pieces = (end - 1) // steps - begin // steps + 1
    return begin, end, cut, pieces, pieces + (works - cut) // clusters


@cute.jit
def piece_of(item: cutlass.Int32, begin: cutlass.Int32, end: cutlass.Int32, cut: cutlass.Int32, pieces: cutlass.Int32, cluster: cutlass.Int32, clusters: cutlass.Int32, steps: cutlass.Int32):
    """(tile, first, count) of a piece of work in steps of k: the share's last tile first, since another cluster waits for its sums; then whole tiles."""
    work, first, last = cut + cluster + (item - pieces) * clusters, cutlass.Int32(0), steps
    if item < pieces:
        work = (end - 1) // steps - item
        first, last = cutlass.max(begin - work * steps, 0), cutlass.min(end - work * steps, steps)
    return work, first, last - first


@cute.jit
def sums_of(sums: cute.Tensor, number: cutlass.Int32, group: cutlass.Int32, lane: cutlass.Int32):
    """A thread's part of what CTA `number` hands on, (4, SUMS): neighbouring threads have neighbouring 16 bytes."""
    ctas = cute.size(sums) // (512 * SUMS * GROUPS)
    return cute.make_tensor(sums.iterator, cute.make_layout((4, 128, SUMS, GROUPS, ctas), stride=(1, 4, 512, 512 * SUMS, 512 * SUMS * GROUPS)))[None, lane, None, group, number]


@cute.jit
def hand_on(totals: cute.Tensor, sums: cute.Tensor, ready: cute.Tensor, number: cutlass.Int32, group: cutlass.Int32, lane: cutlass.Int32):
    """Store this warpgroup's sums, and say so."""
    target, some = sums_of(sums, number, group, lane), cute.make_rmem_tensor(4, cutlass.Float32)
    for q in cutlass.range_constexpr(SUMS):
        for e in cutlass.range_constexpr(4):
            some[e] = totals[4 * q + e]
        cute.autovec_copy(some, target[None, q])
    cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
    if lane == 0:
        cute.arch.store(ready.iterator + number * GROUPS + group, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def take(totals: cute.Tensor, sums: cute.Tensor, ready: cute.Tensor, number: cutlass.Int32, group: cutlass.Int32, lane: cutlass.Int32):
    """Wait for the sums of a CTA's warpgroup, and add them to this one's."""
    if lane == 0:
        flag, there = ready.iterator + number * GROUPS + group, cutlass.Int32(0)
        while there == 0:
            there = cute.arch.load(flag, cutlass.Int32, sem="acquire", scope="gpu")
        cute.arch.store(flag, cutlass.Int32(0), sem="relaxed", scope="gpu")  # for the next launch
    cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
    source, some = sums_of(sums, number, group, lane), cute.make_rmem_tensor(cute.make_layout((4, EACH)), cutlass.Float32)
    for q in cutlass.range_constexpr(0, SUMS, EACH):
        for part in cutlass.range_constexpr(EACH):
            cute.autovec_copy(source[None, q + part], some[None, part])
        for e in cutlass.range_constexpr(4 * EACH):
            totals[4 * q + e] += some[e]

'''
SHARES = "    begin, end, cut, pieces, items = share(cluster, clusters, works, steps)\n"
PIECE = "{indent}work, first, count = piece_of(item, begin, end, cut, pieces, cluster, clusters, steps)\n"
FINISH = """\
            if first + count < steps:
                # another cluster has the tile's last steps of k, and finishes it
                hand_on(totals, sums, ready, cluster * (CLUSTER_M * CLUSTER_N) + rank, group, lane)
            else:
                peer, missing = cluster, first
                while missing > 0:
                    peer -= 1
                    begun = edge(peer, clusters, cut, steps) - work * steps
                    if begun < missing:
                        take(totals, sums, ready, peer * (CLUSTER_M * CLUSTER_N) + rank, group, lane)
                    missing = begun
"""
GRID = "[CLUSTER_M, CLUSTER_N, cutlass.min(resident, cutlass.max(works, cutlass.min(works, resident) * cutlass.min((a.shape[1] + TILE_K - 1) // TILE_K // LEAST, MOST)))]"
FLAGS = '''

flags = {{}}  # zeros by their number, stream and capture; without these, those that are not taken yet


def workspace(device):
    """Float32 for the sums that CTAs hand on, and an int32 zero for each warpgroup, which every launch leaves zero. A stream has zeros of its own, and so has each capture of a graph, which may run beside its stream."""
    ctas, stream, capture = resident() * CLUSTER_M * CLUSTER_N, torch.cuda.current_stream(), 0
    sums = torch.empty(ctas * TILE_M * TILE_N, dtype=torch.float32, device=device)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        capture = cuda.cuStreamGetCaptureInfo(stream.cuda_stream)[2]
    key, spare = (device, ctas * GROUPS, stream.cuda_stream, capture), flags.setdefault((device, ctas * GROUPS), [])
    if key not in flags:
        if not spare:  # while a graph is captured, its first node is to zero them; otherwise it needs none
            spare += torch.zeros(1 if capture else {graphs}, ctas * GROUPS, dtype=torch.int32, device=device)
            if not capture:
                stream.synchronize()  # other streams take some of them
        flags[key] = spare.pop()
    return sums, flags[key]
'''
LAST = "        if cutlass.const_expr(by_tma):"  # where the text of a store has left the loop over tiles


def fields(plan: Plan, base: dict[str, object]) -> dict[str, object]:
    """The pieces of KERNEL with the walk, the store and the launch of stream-K."""
    sums = plan.accumulators // 4
    loop, last, after = str(base["store"]).partition("\n" + LAST)
    return {
        **base, "splits": CONSTANTS.format(least=LEAST, most=MOST, sums=sums, each=math.gcd(sums, 8)), "place": f"{base['place']}{CUT}", "shares": SHARES, "item": "item", "range_loaded": "items", "range_multiplied": "items", "loaded": "first, first + count",
        "find_loaded": PIECE.format(indent=" " * 16) + str(base["find_loaded"]), "find_multiplied": PIECE.format(indent=" " * 12) + str(base["find_multiplied"]),
        "store_setup": f"{base['store_setup']}        rank = in_n * CLUSTER_M + in_m\n", "store": FINISH + textwrap.indent(loop, " " * 4) + last + after, "grid": GRID, "resident": str(base["resident"]) + FLAGS.format(graphs=GRAPHS),
        "parameter": f"{base['parameter']}sums: cute.Tensor, ready: cute.Tensor, ", "argument": f"{base['argument']}sums, ready, ", "launch_target": f"{base['launch_target']}resident: cutlass.Int32, ",
        "launch_constants": str(base["launch_constants"]).replace(", resident: cutlass.Constexpr", ""),
    }  # fmt: skip


def workspace_bytes(plan: Plan) -> int:
    """Of each CTA that runs at once: the sums of a tile in float32."""
    return plan.tile[0] * plan.tile[1] * 4
