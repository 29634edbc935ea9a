"""Index arithmetic of the convolution kernels: a flat index -> its coordinates."""

import cutlass
import cutlass.cute as cute


@cute.jit
def divide(a: cutlass.Int32, b: cutlass.Int32):
    """Return quotient and remainder of two non-negative integers."""
    quotient = (cutlass.Uint32(a) // cutlass.Uint32(b)).to(cutlass.Int32)
    return quotient, a - quotient * b


@cute.jit
def find_work_tile(work: cutlass.Int32, tiles_n: cutlass.Int32, phases: cutlass.Int32, tiles_m: cutlass.Int32):
    """Return (tile along m, tile along n, stride phase, block of channel groups) of a work index.

    Phases are rotated from row to row, so that no CTA gets one phase more often than the others.
    """
    rest, tile_n = divide(work, tiles_n)
    row, turn = divide(rest, phases)
    _, phase = divide(turn + row, phases)
    block, tile_m = divide(row, tiles_m)
    return tile_m, tile_n, phase, block
