"""Tile scheduler of the Hopper GEMM: work index -> output tile coordinate and range of k tiles."""

import cutlass
import cutlass.cute as cute

from workbench.kernels.gemm.sm90.stream_k import stream_k_work
from workbench.kernels.static import Static


@cute.jit
def cluster_tile(cfg: Static, tile: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """Return (m, n, batch) of an output tile, in units of clusters.

    Tiles are rasterised in bands of BAND tiles, one band after the other, so that operands are reused from L2.
    """
    batch = tile // (rows * columns)
    inside = tile % (rows * columns)
    if cutlass.const_expr(cfg.raster == "along_m"):
        first = inside // (cfg.band * columns) * cfg.band
        within = inside % (cfg.band * columns)
        high = cutlass.min(rows - first, cfg.band)
        m, n = first + within % high, within // high
    else:
        first = inside // (cfg.band * rows) * cfg.band
        within = inside % (cfg.band * rows)
        high = cutlass.min(columns - first, cfg.band)
        m, n = within // high, first + within % high
    return m, n, batch


@cute.jit
def split_range(cfg: Static, split: cutlass.Int32, num_k_tiles: cutlass.Int32):
    """Return (first, count) of the k tiles of one split.

    The count is at least 1. An empty split gets a k tile past the end, for which TMA fills in zeros.
    """
    first, last = split * num_k_tiles // cfg.split_k, (split + 1) * num_k_tiles // cfg.split_k
    if first == last:
        first = num_k_tiles
    return first, cutlass.max(last - first, 1)


def count_tiles(cfg: Static, m, n):
    """Return (rows, columns) of the grid of output tiles, in units of clusters."""
    rows = (m + cfg.tile_m * cfg.cluster_m - 1) // (cfg.tile_m * cfg.cluster_m)
    columns = (n + cfg.tile_n * cfg.cluster_n - 1) // (cfg.tile_n * cfg.cluster_n)
    return rows, columns


def work_range(cfg: Static, schedule):
    """Return (first, last, step) of the work indices of this cluster."""
    if cutlass.const_expr(cfg.stream_k):
        return 0, schedule[-1], 1
    _, _, num_tiles, cluster, num_clusters = schedule
    return cluster, num_tiles, num_clusters


@cute.jit
def find_tile(cfg: Static, schedule, item, num_k_tiles):
    """Return (tile, m, n, batch, first k tile, number of k tiles) of a work index; m and n in units of clusters."""
    if cutlass.const_expr(cfg.stream_k):
        tile, k_first, k_count = stream_k_work(schedule, item, num_k_tiles)
    else:
        tile, k_first, k_count = item, 0, num_k_tiles
    tile_m, tile_n, batch = cluster_tile(cfg, tile, schedule[0], schedule[1])
    return tile, tile_m, tile_n, batch, k_first, k_count
