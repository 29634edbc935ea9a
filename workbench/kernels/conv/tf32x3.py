"""float32 products as three TF32 products: the three copies of the channels in an implicit GEMM.

Each float32 is split into its upper bits, which TF32 represents, and the remainder. k holds all channels three times:
rest, upper, upper in the activations and upper, rest, upper in the filters, so one product adds rest * upper, upper *
rest and upper * upper. The small products of all taps come first, because tensor cores truncate bits below the
accumulator's last place, and less is lost while the sum is small. The term rest * rest is dropped: it is below 2^-20 of
the product. Infinity times a number that ten bits represent gives NaN.
"""

import cutlass
import cutlass.cute as cute


@cute.jit
def find_copy(column: cutlass.Int32, channels: cutlass.Int32):
    """Return which of the three channel copies a column lies in, 3 past them; comparisons beat a division."""
    second, third = cutlass.Int32(column >= channels), cutlass.Int32(column >= 2 * channels)
    return second + third + cutlass.Int32(column >= 3 * channels)


@cute.jit
def split_tf32(value: cutlass.Float32, is_rest: cutlass.Boolean):
    """Return the upper bits of a float32, which TF32 represents, or the remainder if `is_rest`."""
    upper = cute.make_rmem_tensor(1, cutlass.Float32)
    bits = cute.recast_tensor(upper, cutlass.Int32)
    upper[0] = value
    bits[0] = bits[0] & -8192  # keep sign, exponent and ten mantissa bits
    rest = value - upper[0]
    # infinity minus infinity is NaN, which differs from itself: the remainder is zero
    rest = cutlass.select_(rest != value - upper[0], cutlass.Float32(0.0), rest)
    return cutlass.select_(is_rest, rest, upper[0])
