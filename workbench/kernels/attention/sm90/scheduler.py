"""Tile scheduler of Hopper attention: tile index -> query tile, head, batch; and the key blocks of a query tile."""

import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def tile_coord(
    cfg: Static,
    index: cutlass.Int32,
    section: cutlass.Int32,
    queries: cutlass.Int32,
    heads: cutlass.Int32,
    batch: cutlass.Int32,
):
    """Return (query tile, head, batch entry) of tile `index`.

    Heads are processed in sections of `section` heads, whose K and V fit into L2. Within a section the head varies
    fastest. With a causal mask the last query tiles come first, because they take longest.
    """
    tiles_m = cute.ceil_div(queries, cfg.tile_m)
    number = index // (section * tiles_m)
    inside = index - number * section * tiles_m
    width = cutlass.min(heads * batch - number * section, section)
    head = number * section + inside % width
    tile = tiles_m - 1 - inside // width if cutlass.const_expr(cfg.causal) else inside // width
    return tile, head % heads, head // heads


@cute.jit
def key_blocks(cfg: Static, tile: cutlass.Int32, keys: cutlass.Int32, tile_n: cutlass.Constexpr):
    """Return (number of key blocks of a query tile, how many of them need no mask)."""
    count = cute.ceil_div(keys, tile_n)
    whole = keys // tile_n
    if cutlass.const_expr(cfg.causal):
        count = cutlass.min(count, cute.ceil_div((tile + 1) * cfg.tile_m, tile_n))
        whole = cutlass.min(whole, (tile * cfg.tile_m + 1) // tile_n)
    return count, cutlass.min(whole, count - 1)  # the last block always takes the masked path
