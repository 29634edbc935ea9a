"""Text of strict float32 convolutions on TF32 (tf32x3), for the copies of `conv_around`: each float32 is its upper bits, which TF32 holds, and what they leave.

Every channel stands three times, side by side: as rest, upper, upper in the input's copy and as upper, rest, upper in the filters', so that the product as it is adds
rest * upper, upper * rest and upper * upper. What is left out, rest * rest, is under 2^-20 of the product. An infinity times a number that ten bits hold gives NaN.
"""

from __future__ import annotations

IN_PARTS = '''\
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
                if line & (inner < channels) & (there >= 0) & (there < x.shape[4]):
                    value = cute.make_tensor(x.iterator + (at + cutlass.Int64(channel) * x.stride[1] + tap * spread * x.stride[4]), cute.make_layout(1))[0]
                values[step] = in_parts(value, third == 0)  # of each channel rest, upper, upper
'''
CHANNEL_TAP = {
    False: "part, copy = (0, own + step * lines) if cutlass.const_expr(plain) else divide(own + step * lines, depth)\ninner, third = divide(copy, 3)\nchannel, tap = part * channels + inner, 0",
    True: "inner, third = divide(own + step * lines, 3)\ntap, channel = inner // per, inner % per",
}
ARRANGED = {"which": "\n        inner, third = divide(inner, 3)", "arranged": "in_parts(value, third == 1)  # of each channel upper, rest, upper"}
