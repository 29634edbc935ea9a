"""Float32 by three products of TF32: the three copies of the channels that an implicit GEMM of it multiplies.

Each float32 is its upper bits, which TF32 holds, and the rest. All channels stand three times, one copy after the
other: as rest, upper, upper in the activations and as upper, rest, upper in the filters, so that one product adds
rest * upper, upper * rest and upper * upper. The small products of all taps come first: tensor cores cut off bits that
the sum does not hold, and so less is lost while it is small. rest * rest is left out: it is under 2^-20 of the product.
An infinity times a number that ten bits hold gives NaN.
"""

import cutlass
import cutlass.cute as cute


@cute.jit
def find_copy(column: cutlass.Int32, channels: cutlass.Int32):
    """Which of the three copies of the channels a column is in, 3 beyond them: a division takes longer."""
    second, third = cutlass.Int32(column >= channels), cutlass.Int32(column >= 2 * channels)
    return second + third + cutlass.Int32(column >= 3 * channels)


@cute.jit
def split_tf32(value: cutlass.Float32, is_rest: cutlass.Boolean):
    """The upper bits of a float32, which TF32 holds, or the rest."""
    upper = cute.make_rmem_tensor(1, cutlass.Float32)
    bits = cute.recast_tensor(upper, cutlass.Int32)
    upper[0] = value
    bits[0] = bits[0] & -8192  # sign, exponent and ten bits
    rest = value - upper[0]
    # an infinity leaves no rest: their difference is NaN, which no number is equal to
    rest = cutlass.select_(rest != value - upper[0], cutlass.Float32(0.0), rest)
    return cutlass.select_(is_rest, rest, upper[0])
