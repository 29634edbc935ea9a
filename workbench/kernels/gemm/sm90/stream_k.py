"""stream-K of a Hopper product: the tiles of the last wave are cut along k into equal shares, one for each cluster.

After Osama, Merrill, Cecka, Garland and Owens, Stream-K (2023), sections 4 and 5: of `num_tiles` tiles on
`num_clusters` clusters, the rest of the last wave and one whole wave are cut (all tiles where there is less than one wave), the others
stay whole. A share is a range of k tiles, counted through the output tiles that are cut, and so at most the end of one
tile, whole tiles, and the start of one more. Whoever has a tile's last k tile finishes it, and waits for the sums of
those before. A cluster takes its last tile first: that is the only one whose sums it hands on. So it hands on before it
ever waits, only for clusters of smaller numbers, and nothing waits in a circle. Flags in global memory say that sums
are there; the one that waited resets them. Sums are added in one order: results repeat bit for bit on a device.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def share_start(
    cfg: Static, cluster: cutlass.Int32, num_clusters: cutlass.Int32, num_cut: cutlass.Int32, num_k_tiles: cutlass.Int32
):
    """Where a cluster's share begins, in k tiles through all tiles that are cut; not close to a tile's start or end."""
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
    """A cluster's share: (begin, end) in k tiles, tiles that are cut, how many it has a piece of, its work items."""
    num_cut = num_tiles % num_clusters
    if num_cut > 0 and num_tiles > num_clusters:
        num_cut += num_clusters  # with one whole wave, so that each share is longer than a tile
    begin = share_start(cfg, cluster, num_clusters, num_cut, num_k_tiles)
    end = share_start(cfg, cluster + 1, num_clusters, num_cut, num_k_tiles)
    num_pieces = cutlass.Int32(0)
    if begin < end:
        num_pieces = (end - 1) // num_k_tiles - begin // num_k_tiles + 1
    return begin, end, num_cut, num_pieces, num_pieces + (num_tiles - num_cut) // num_clusters


@cute.jit
def stream_k_piece(schedule, item: cutlass.Int32, num_k_tiles: cutlass.Int32):
    """(tile, first, count) of a work item in k tiles: the share's last tile first, since a cluster waits for it."""
    _, _, cluster, num_clusters, begin, end, num_cut, num_pieces, _ = schedule
    tile, first, last = num_cut + cluster + (item - num_pieces) * num_clusters, cutlass.Int32(0), num_k_tiles
    if item < num_pieces:
        tile = (end - 1) // num_k_tiles - item
        first = cutlass.max(begin - tile * num_k_tiles, 0)
        last = cutlass.min(end - tile * num_k_tiles, num_k_tiles)
    return tile, first, last - first


@cute.jit
def partial_sums(cfg: Static, sums: cute.Tensor, cta: cutlass.Int32, warp_group: cutlass.Int32, lane: cutlass.Int32):
    """A thread's part of what a CTA hands on, (4, QUADS): neighbouring threads have neighbouring 16 bytes."""
    ctas = cute.size(sums) // (512 * cfg.quads * cfg.mma_warpgroups)
    layout = cute.make_layout(
        (4, 128, cfg.quads, cfg.mma_warpgroups, ctas),
        stride=(1, 4, 512, 512 * cfg.quads, 512 * cfg.quads * cfg.mma_warpgroups),
    )
    return cute.make_tensor(sums.iterator, layout)[None, lane, None, warp_group, cta]


@cute.jit
def hand_on(cfg: Static, accumulators, sums, ready, cta, warp_group, lane):
    """Store this warpgroup's sums, and say so."""
    target = partial_sums(cfg, sums, cta, warp_group, lane)
    quad = cute.make_rmem_tensor(4, cutlass.Float32)
    for q in cutlass.range_constexpr(cfg.quads):
        for e in cutlass.range_constexpr(4):
            quad[e] = accumulators[4 * q + e]
        cute.autovec_copy(quad, target[None, q])
    cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
    if lane == 0:
        flag = ready.iterator + cta * cfg.mma_warpgroups + warp_group
        cute.arch.store(flag, cutlass.Int32(1), sem="release", scope="gpu")


@cute.jit
def add_peer(cfg: Static, accumulators, sums, ready, cta, warp_group, lane):
    """Wait for the sums of a CTA's warpgroup, and add them to this one's."""
    if lane == 0:
        flag, there = ready.iterator + cta * cfg.mma_warpgroups + warp_group, cutlass.Int32(0)
        while there == 0:
            there = cute.arch.load(flag, cutlass.Int32, sem="acquire", scope="gpu")
        cute.arch.store(flag, cutlass.Int32(0), sem="relaxed", scope="gpu")  # for the next launch
    cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
    source = partial_sums(cfg, sums, cta, warp_group, lane)
    quads = cute.make_rmem_tensor(cute.make_layout((4, cfg.quads_in_flight)), cutlass.Float32)
    for q in cutlass.range_constexpr(0, cfg.quads, cfg.quads_in_flight):
        for part in cutlass.range_constexpr(cfg.quads_in_flight):
            cute.autovec_copy(source[None, q + part], quads[None, part])
        for e in cutlass.range_constexpr(4 * cfg.quads_in_flight):
            accumulators[4 * q + e] += quads[e]


@cute.jit
def add_peers(cfg: Static, accumulators, schedule, tile, k_first, num_k_tiles, rank, warp_group, lane, sums, ready):
    """Add the sums of the clusters that have the tile's k tiles before `k_first`."""
    _, _, cluster, num_clusters, _, _, num_cut, _, _ = schedule
    peer, missing = cluster, k_first
    while missing > 0:
        peer -= 1
        begun = share_start(cfg, peer, num_clusters, num_cut, num_k_tiles) - tile * num_k_tiles
        if begun < missing:
            add_peer(cfg, accumulators, sums, ready, peer * (cfg.cluster_m * cfg.cluster_n) + rank, warp_group, lane)
        missing = begun
