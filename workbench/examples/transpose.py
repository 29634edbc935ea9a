"""Transpose a matrix, elements of 1, 2, 4 or 8 bytes: y[j, i] = x[i, j].

The kernels are `workbench.kernels.transpose.tiled` and `workbench.kernels.transpose.tma`; this module configures, calls
and checks them.

A transpose moves every byte once in and once out, so it should run at the speed of a copy. Read and written naively,
one of the two sides is strided: each warp request touches 32 sectors for 32 elements. Both kernels here take a tile
through shared memory, so that global memory sees contiguous rows on both sides.

`transpose` works on any shape. The unit is a word of at least 4 bytes, V elements (V = 4, 2, 1, 1 for 1, 2, 4, 8
bytes), so that small elements do not waste the bus: a tile is 32*V x 32*V elements, and a thread handles V x V blocks
of it. It loads a block as V words, one from each of V rows, lanes side by side along a row (128 contiguous bytes per
request), turns it in registers, and stores V words to shared memory, where column j*V + c of the tile is line (c, j) of
33 words: the odd pitch puts the 32 lanes of a store into 32 different banks. Each warp then reads whole lines and
writes them out, lanes side by side again. Shapes or addresses that do not allow words of V elements fall back to V = 1.

`transpose_tma` (sm_90a) lets the Tensor Memory Accelerator move the tiles: one thread asks for a box of 128-byte rows,
hardware computes addresses, clips at the matrix's edges and puts 16-byte chunk c of row r at chunk c ^ (r % 8) of that
row (the 128-byte swizzle). A thread reads a block of E x E elements as E chunks of E = 16 bytes / size elements, turns
it in registers, and writes E chunks into a second tile, swizzled the same way, which TMA stores. The 8 lanes that
shared memory serves at a time take blocks along a diagonal (column l, row l + const): then the 8 chunks differ both
when reading and when writing, so there is no bank conflict, with no padding. TMA needs rows of a multiple of 16 bytes,
on both sides.

    python -m workbench.examples.transpose --rows 300 --columns 500
"""

import argparse

import torch

from workbench.kernels.transpose import host
from workbench.kernels.transpose.config import TransposeConfig

TILED, BY_TMA = TransposeConfig(threads=256), TransposeConfig(threads=256, by_tma=True)
NAMES = {"x": "x"}


def transpose(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Transpose x (rows, columns) into a contiguous (columns, rows) tensor: `out` if given.

    x is contiguous, of any type of 1, 2, 4 or 8 bytes. Raises ValueError, and TypeError for dtypes, otherwise.
    """
    y: torch.Tensor = host.transpose(TILED, NAMES, x) if out is None else host.transpose_into(TILED, NAMES, x, out)
    return y


def transpose_tma(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """As `transpose`, by TMA (sm_90a): rows of x and of the result must be a multiple of 16 bytes long."""
    y: torch.Tensor = host.transpose(BY_TMA, NAMES, x) if out is None else host.transpose_into(BY_TMA, NAMES, x, out)
    return y


def main(arguments: list[str] | None = None) -> None:
    """Transpose matrices of every element size, check against torch."""
    parser = argparse.ArgumentParser(description="transpose")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--columns", type=int, default=500)
    options = parser.parse_args(arguments)
    for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.float64):
        x = torch.randint(0, 100, (options.rows, options.columns), device="cuda").to(dtype)
        same = torch.equal(transpose(x), x.t())
        print(f"{dtype}: equal {same}")
        assert same
        if torch.cuda.get_device_capability() == (9, 0) and not any(
            extent * x.element_size() % 16 for extent in x.shape
        ):
            same = torch.equal(transpose_tma(x), x.t())
            print(f"{dtype} by TMA: equal {same}")
            assert same


if __name__ == "__main__":
    main()
