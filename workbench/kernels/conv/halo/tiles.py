"""Work tiles of a convolution with halos: how many there are, and in which order they are computed."""

import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Static


def count_halo_tiles(cfg: Static, images, filters, plan):
    """Return the tiles along the positions and along the filters."""
    return (images * plan.positions + cfg.tile_m - 1) // cfg.tile_m, (filters + cfg.tile_n - 1) // cfg.tile_n


@cute.jit
def find_halo_tile(
    cfg: Static, work: cutlass.Int32, num_works: cutlass.Int32, tiles_n: cutlass.Int32, plan: cutlass.Constexpr
):
    """Return (tile along the positions, tile along the filters) of a work index.

    Strips take turns: CTAs that run at the same time store neighbouring pieces of the same lines, which L2 joins to
    whole sectors. Tiles do not end where strips do, so the turns are those of the tiles that a strip has on average.
    """
    tile_m, tile_n = divide(work, tiles_n)
    strips, strip_tiles = plan.grid[0], plan.count_strip_tiles(cfg.tile_m)
    if cutlass.const_expr(strips > 1 and strip_tiles > 1):
        turn, place = divide(tile_m, strips * strip_tiles)
        first = turn * (strips * strip_tiles)
        if (first + strips * strip_tiles) * tiles_n <= num_works:
            row, strip = divide(place, strips)
            tile_m = first + strip * strip_tiles + row
    return tile_m, tile_n
