"""Text of strict float32 convolutions on TF32 (tf32x3), for the copies of `conv_around`: each float32 is its upper bits, which TF32 holds, and what they leave.

All channels stand three times, one after the other: as rest, upper, upper in the input's copy and as upper, rest, upper in the filters', so that the product as it is adds
rest * upper, upper * rest and upper * upper. The small products of all taps come first: tensor cores cut off what the sum has no bits for, and so less is lost while it is small.
What is left out, rest * rest, is under 2^-20 of the product. An infinity times a number that ten bits hold gives NaN.
"""

from __future__ import annotations

IN_PARTS = '''\
@cute.jit
def third_of(copy: cutlass.Int32, channels: cutlass.Int32):
    """Which of three copies of the channels this is of, 3 beyond them: a division takes longer."""
    return cutlass.Int32(copy >= channels) + cutlass.Int32(copy >= 2 * channels) + cutlass.Int32(copy >= 3 * channels)


@cute.jit
def in_parts(value: cutlass.Float32, left: cutlass.Boolean):
    """The upper bits of a float32, which TF32 holds, or what they leave."""
    upper = cute.make_rmem_tensor(1, STORED)
    bits = cute.recast_tensor(upper, cutlass.Int32)
    upper[0] = value
    bits[0] = bits[0] & -8192  # sign, exponent and ten bits
    rest = value - upper[0]
    rest = cutlass.select_(rest != rest, STORED(0.0), rest)  # of an infinity nothing is left
    return cutlass.select_(left, rest, upper[0])


'''
COPIED = '''\
            for step in cutlass.range_constexpr(wide // lines):
                value = STORED(0.0)
{channel_tap}
                there = i2 + tap * spread
                if line & (third < 3) & (there >= 0) & (there < x.shape[4]):
                    value = cute.make_tensor(x.iterator + (at + cutlass.Int64(channel) * x.stride[1] + tap * spread * x.stride[4]), cute.make_layout(1))[0]
                values[step] = in_parts(value, third == 0)  # of all channels rest, upper, upper
'''
CHANNEL_TAP = {
    False: "part, copy = (0, own + step * lines) if cutlass.const_expr(plain) else divide(own + step * lines, depth)\nthird = third_of(copy, channels)\ninner = copy - third * channels\nchannel, tap = part * channels + inner, 0",
    True: "third = third_of(own + step * lines, channels)\ninner = own + step * lines - third * channels\ntap, channel = inner // per, inner % per",
}
ARRANGED = {"which": "\n        third = third_of(inner, channels)\n        inner -= third * channels", "inside": "third < 3", "arranged": "in_parts(value, third == 1)  # of all channels upper, rest, upper"}
SWEEPS = '''\
small = depth * 2 // 3 // TILE_K * TILE_K  # where about the products of two upper parts begin
for sweep in cutlass.range_constexpr(2):
    begin, end = (0, small) if cutlass.const_expr(sweep == 0) else (small, depth)
'''
