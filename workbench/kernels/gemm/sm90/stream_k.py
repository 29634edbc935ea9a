"""stream-K decomposition: the k tiles of the last waves are divided evenly among all clusters.

After Osama, Merrill, Cecka, Garland and Owens, Stream-K (2023), sections 4 and 5. Of `num_tiles` tiles on
`num_clusters` clusters, the partial last wave and one full wave are stream-K tiles (all tiles, if there is less than
one wave); the others are data-parallel tiles. A cluster's share is a contiguous range of k tiles over all stream-K
tiles, so it covers at most the end of one tile, some whole tiles, and the start of another. The cluster with the last k
tile of an output tile finishes it: it waits for the partial sums of the clusters with the earlier k tiles and adds
them.

Each cluster processes the last tile of its share first, which is the only one whose partial sums it stores for another
cluster. So it stores before it ever waits, and it waits only for clusters with smaller indices: no deadlock. A flag in
global memory announces stored partial sums, and the waiting CTA resets it. Partial sums are added in a fixed order, so
results are bitwise reproducible on a given device.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def share_start(
    cfg: Static, cluster: cutlass.Int32, num_clusters: cutlass.Int32, num_cut: cutlass.Int32, num_k_tiles: cutlass.Int32
):
    """Return the first k tile of a cluster's share, counted over all stream-K tiles.

    The boundary moves to that of an output tile if it would cut off fewer than MIN_K_TILES k tiles.
    """
    total = num_cut * num_k_tiles
    at = cluster * (total // num_clusters) + cutlass.min(cluster, total % num_clusters)
    inside = at % num_k_tiles
    if inside < cfg.min_k_tiles:
        at -= inside
    elif num_k_tiles - inside < cfg.min_k_tiles:
        at += num_k_tiles - inside
    return at


@cute.jit
def stream_k_share(
    cfg: Static,
    cluster: cutlass.Int32,
    num_clusters: cutlass.Int32,
    num_tiles: cutlass.Int32,
    num_k_tiles: cutlass.Int32,
):
    """Return (begin, end, stream-K tiles, tiles in the share, work items) of a cluster; begin and end in k tiles."""
    num_cut = num_tiles % num_clusters
    if num_cut > 0 and num_tiles > num_clusters:
        num_cut += num_clusters  # with one full wave, so that each share is longer than a tile
    begin = share_start(cfg, cluster, num_clusters, num_cut, num_k_tiles)
    end = share_start(cfg, cluster + 1, num_clusters, num_cut, num_k_tiles)
    num_pieces = cutlass.Int32(0)
    if begin < end:
        num_pieces = (end - 1) // num_k_tiles - begin // num_k_tiles + 1
    return begin, end, num_cut, num_pieces, num_pieces + (num_tiles - num_cut) // num_clusters


@cute.jit
def stream_k_work(schedule, item: cutlass.Int32, num_k_tiles: cutlass.Int32):
    """Return (tile, first k tile, number of k tiles) of a work item.

    The share's last tile comes first, because another cluster waits for its partial sums.
    """
    _, _, cluster, num_clusters, begin, end, num_cut, num_pieces, _ = schedule
    tile, first, last = num_cut + cluster + (item - num_pieces) * num_clusters, cutlass.Int32(0), num_k_tiles
    if item < num_pieces:
        tile = (end - 1) // num_k_tiles - item
        first = cutlass.max(begin - tile * num_k_tiles, 0)
        last = cutlass.min(end - tile * num_k_tiles, num_k_tiles)
    return tile, first, last - first


@cute.jit
def partition_workspace(
    cfg: Static, partials: cute.Tensor, cta: cutlass.Int32, warp_group: cutlass.Int32, lane: cutlass.Int32
):
    """Return this thread's slice, (4, QUADS), of a CTA's partial sums in the workspace.

    Neighbouring threads access neighbouring 16-byte vectors.
    """
    ctas = cute.size(partials) // (512 * cfg.quads * cfg.mma_warpgroups)
    layout = cute.make_layout(
        (4, 128, cfg.quads, cfg.mma_warpgroups, ctas),
        stride=(1, 4, 512, 512 * cfg.quads, 512 * cfg.quads * cfg.mma_warpgroups),
    )
    return cute.make_tensor(partials.iterator, layout)[None, lane, None, warp_group, cta]


@cute.jit
def store_partial_sums(cfg: Static, accumulators, partials, flags, cta, warp_group, lane):
    """Store this warpgroup's partial sums to the workspace and set its flag, for the cluster that finishes the tile."""
    target = partition_workspace(cfg, partials, cta, warp_group, lane)
    quad = cute.make_rmem_tensor(4, cutlass.Float32)
    for q in cutlass.range_constexpr(cfg.quads):
        for e in cutlass.range_constexpr(4):
            quad[e] = accumulators[4 * q + e]
        cute.autovec_copy(quad, target[None, q])
    cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
    if lane == 0:
        flag = flags.iterator + cta * cfg.mma_warpgroups + warp_group
        cute.arch.store(flag, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def add_peer_sums(cfg: Static, accumulators, partials, flags, cta, warp_group, lane):
    """Wait for the flag of a peer CTA's warpgroup, then add its partial sums to the accumulators."""
    if lane == 0:
        flag, there = flags.iterator + cta * cfg.mma_warpgroups + warp_group, cutlass.Int32(0)
        while there == 0:
            there = cute.arch.load(flag, cutlass.Int32, sem="acquire", scope="gpu")
        cute.arch.store(flag, cutlass.Int32(0), sem="relaxed", scope="gpu")  # reset for the next launch
    cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
    source = partition_workspace(cfg, partials, cta, warp_group, lane)
    quads = cute.make_rmem_tensor(cute.make_layout((4, cfg.quads_in_flight)), cutlass.Float32)
    for q in cutlass.range_constexpr(0, cfg.quads, cfg.quads_in_flight):
        for part in cutlass.range_constexpr(cfg.quads_in_flight):
            cute.autovec_copy(source[None, q + part], quads[None, part])
        for e in cutlass.range_constexpr(4 * cfg.quads_in_flight):
            accumulators[4 * q + e] += quads[e]


@cute.jit
def fixup_tile(
    cfg: Static, accumulators, schedule, tile, k_first, num_k_tiles, rank, warp_group, lane, partials, flags
):
    """Add the partial sums of all clusters that computed the tile's k tiles before `k_first` (stream-K fixup)."""
    _, _, cluster, num_clusters, _, _, num_cut, _, _ = schedule
    peer, missing = cluster, k_first
    while missing > 0:
        peer -= 1
        begun = share_start(cfg, peer, num_clusters, num_cut, num_k_tiles) - tile * num_k_tiles
        if begun < missing:
            add_peer_sums(
                cfg, accumulators, partials, flags, peer * (cfg.cluster_m * cfg.cluster_n) + rank, warp_group, lane
            )
        missing = begun
