"""Plan of a convolution by patches: sizes of input and filters -> box of positions, patch, table of k. Pure Python.

A position stands for one output of each phase. A transposed convolution has a phase for each remainder of the output by
the stride, whose outputs meet the same taps, so no inserted zero is multiplied; other convolutions have one phase. A
CTA computes a box of positions, and all phases of the last extent at once. The inputs that the box meets are a patch.
"""

import itertools
import math
from typing import NamedTuple


class PatchAxis(NamedTuple):
    """One extent of a convolution."""

    outputs: int
    places: int  # positions along this extent
    step: int  # input distance between neighbouring positions
    scale: int  # output distance between neighbouring positions
    phases: list  # of each remainder of the output: (tap, input distance from the position)
    low: int  # smallest input distance
    reach: int  # largest input distance, from the smallest on


class PatchPlan(NamedTuple):
    """What the kernel needs for one size of input and filters."""

    axes: list
    box: tuple  # positions of a tile along each extent
    patch: tuple  # inputs under a box along each extent
    pitch: int  # elements of shared memory for one channel of a patch
    channels: int  # input channels of one stage
    zeros: bool  # whether a channel of zeros follows them
    stages: int  # as many as there are groups of channels, at most
    blocks: int  # most blocks of eight k that one CTA multiplies
    entries: list  # of each k: (element of the patch, tap or -1, channel)
    ranges: list  # of each pair of phases: first block of each phase of the last extent, the end, the two phases
    stage_bytes: int
    shared_bytes: int


def expand_setting(values, space, fill):
    """Expand a setting of the last `space` extents to three, `fill` in front. Raises TypeError for another length."""
    values = (values,) * space if isinstance(values, int) else values
    if len(values) != space:
        raise TypeError(f"a setting of {len(values)} dimensions, {values}, for an input of {space}")
    return (fill,) * (3 - space) + tuple(values)


def plan_patch_axes(extents, taps, how):
    """Plan the three extents of a convolution of `extents` by filters of `taps`, as many as the input has.

    `how` is (stride, padding, dilation, output padding, whether it is transposed).
    """
    space = len(extents)
    sizes, reach = expand_setting(extents, space, 1), expand_setting(taps, space, 1)
    stride, padding = expand_setting(how[0], space, 1), expand_setting(how[1], space, 0)
    dilation, more = expand_setting(how[2], space, 1), expand_setting(how[3], space, 0)
    return [plan_patch_axis(sizes[i], reach[i], stride[i], padding[i], dilation[i], more[i], how[4]) for i in range(3)]


def plan_patch_axis(size, taps, stride, padding, dilation, output_padding, transposed):
    """Plan one extent."""
    if transposed:
        outputs = (size - 1) * stride - 2 * padding + dilation * (taps - 1) + output_padding + 1
        phases = [
            [
                (tap, (phase + padding - tap * dilation) // stride)
                for tap in range(taps)
                if (phase + padding - tap * dilation) % stride == 0
            ]
            for phase in range(stride)
        ]
        places, step, scale = -(-outputs // stride), 1, stride
    else:
        outputs = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
        phases = [[(tap, tap * dilation - padding) for tap in range(taps)]]
        places, step, scale = outputs, stride, 1
    distances = [distance for phase in phases for _, distance in phase]
    return PatchAxis(outputs, places, step, scale, phases, min(distances), max(distances) - min(distances))


def list_boxes(tile_m):
    """Return the boxes of so many positions whose extents are powers of two."""
    powers = [1 << power for power in range(tile_m.bit_length())]
    return [(tile_m // (p * q), p, q) for q in powers for p in powers if p * q <= tile_m]


def find_patch(axes, box):
    """Return the inputs that a box of positions meets, along each extent."""
    return tuple((extent - 1) * axis.step + axis.reach + 1 for axis, extent in zip(axes, box, strict=True))


def count_tiles(axes: list, box: tuple) -> tuple:
    """Return the boxes along each extent."""
    return tuple(-(-axis.places // extent) for axis, extent in zip(axes, box, strict=True))


def find_pitch(patch, channels):
    """Return the distance of channels in shared memory, which keeps four neighbouring k in different banks.

    Eight positions take eight banks; of few channels the next tap, often one element further, is among the four.
    """
    rest = {2: 16, 3: 10}.get(channels, 8)
    return (math.prod(patch) + 31 - rest) // 32 * 32 + rest


def list_entries(axes, patch, pitch, channels):
    """Return the table of k, in blocks of eight, and the ranges of blocks of each pair of phases.

    What fills up a block reads a channel of zeros behind the others: infinity times a factor of zero would be NaN.
    """
    entries: list[tuple[int, int, int]] = []
    ranges = []
    taps = [1 + max(tap for phase in axis.phases for tap, _ in phase) for axis in axes]
    for first, second in itertools.product(range(axes[0].scale), range(axes[1].scale)):
        starts = []
        for last in axes[2].phases:
            starts.append(len(entries) // 8)
            for (t, down), (r, below), (s, right) in itertools.product(
                axes[0].phases[first], axes[1].phases[second], last
            ):
                line = (down - axes[0].low) * patch[1] + below - axes[1].low
                spot = line * patch[2] + right - axes[2].low
                tap = (t * taps[1] + r) * taps[2] + s
                entries += [(spot + channel * pitch, tap, channel) for channel in range(channels)]
            entries += [(channels * pitch, -1, 0)] * (-len(entries) % 8)
        ranges.append((*starts, len(entries) // 8, first, second))
    return entries, ranges


def plan_patches(
    extents: tuple, taps: tuple, channels: int, how: tuple, tile: tuple, stages: int, most_bytes: int
) -> PatchPlan | None:
    """Return the plan with the cheapest box for `channels` of a group, or None if no box fits into shared memory.

    `how` as for `plan_patch_axes`; `tile` is (positions, filters, channels of a stage at most). The cost of a box is
    the multiplications of all tiles, those beyond the outputs included, and the copies of their patches, which take
    about as long as 50 multiplications each.
    """
    axes = plan_patch_axes(extents, taps, how)
    stages = min(stages, -(-channels // tile[2]))
    channels, products = min(channels, tile[2]), math.prod(taps) * tile[0] * tile[1]
    best, least = None, 0
    for box in list_boxes(tile[0]):
        patch = find_patch(axes, box)
        cost = math.prod(count_tiles(axes, box)) * (products + 50 * math.prod(patch))
        if best is None or cost < least:
            pitch = find_pitch(patch, channels)
            entries, ranges = list_entries(axes, patch, pitch, channels)
            blocks = max(max(part[-3] - part[0] for part in ranges), 1)
            zeros = any(tap < 0 for _, tap, _ in entries)
            stage_bytes = 4 * ((channels + zeros) * pitch + blocks * 8 * tile[1])
            shared_bytes = stages * stage_bytes + 32 * blocks
            if shared_bytes <= most_bytes:
                best, least = (
                    PatchPlan(
                        axes,
                        box,
                        patch,
                        pitch,
                        channels,
                        zeros,
                        stages,
                        blocks,
                        entries,
                        ranges,
                        stage_bytes,
                        shared_bytes,
                    ),
                    cost,
                )
    return best
