"""Geometry of an implicit GEMM: sizes of input and filters -> grid, planes, stride phases, table of taps.

The activations are packed into a matrix A. Its rows are the positions of a grid (images, three extents) that includes
the padding as zeros, so the input of a tap lies at a fixed row distance from each output position. A strided
convolution has one plane for each remainder of the input position by the stride. A transposed convolution has one phase
for each remainder of the output position by the stride; outputs of a phase are reached by the same taps.
"""

import functools
import itertools
from typing import NamedTuple

import cutlass
import torch

from workbench.kernels.conv.patch.plan import expand_setting
from workbench.kernels.static import Static


class Axis(NamedTuple):
    """One extent of a convolution."""

    outputs: int
    grid: int  # grid positions along this extent
    step: int  # input distance between neighbouring grid positions
    origins: list  # first input of each plane
    phases: list  # (first output, taps as (tap, plane, shift along the grid)) of each stride phase
    scale: int  # output distance between neighbouring grid positions


class Geometry(NamedTuple):
    """The values that the kernels need for one size of input and filters."""

    output: tuple  # (n, k, z, p, q)
    rows: int  # of A
    columns: int  # of A
    filter_columns: int  # of B
    line: int  # positions of a grid line
    one_to_one: bool  # whether the columns of A are the channels of x
    channels_per_tap: int  # channels of one unfolded tap, else 0
    tables: list  # int32: (row offset, tap); (first tap, taps, first output) of each phase; first input of each plane
    grid: tuple  # images, three extents
    steps: tuple
    scale: tuple
    tap_stride: cutlass.Int32  # input distance between unfolded taps
    activation_sizes: tuple  # channels of a block of groups, columns of A for it, blocks
    filter_sizes: tuple  # columns of B for a tap, channels and filters of a block of groups
    gemm_sizes: tuple  # columns for a tap, filters of a block, blocks


def int32s(*values):
    """Return the values as Int32, so that a compiled kernel can be called with other values later."""
    return tuple(cutlass.Int32(value) for value in values)


def plan_axis(size, taps, stride, padding, dilation):
    """Plan one extent of a convolution: one plane for each remainder of the input position by the stride."""
    outputs = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    remainders = sorted({tap * dilation % stride for tap in range(taps)})
    reached = [(tap, remainders.index(tap * dilation % stride), tap * dilation // stride) for tap in range(taps)]
    return Axis(
        outputs=outputs,
        grid=outputs + (taps - 1) * dilation // stride,
        step=stride,
        origins=[remainder - padding for remainder in remainders],
        phases=[(0, reached)],
        scale=1,
    )


def plan_transposed_axis(size, taps, stride, padding, dilation, output_padding):
    """Plan one extent of a transposed convolution: one phase for each remainder of the output by the stride."""
    outputs = (size - 1) * stride - 2 * padding + dilation * (taps - 1) + output_padding + 1
    reach = (taps - 1) * dilation // stride
    low, high = padding // stride, (outputs - 1 + padding) // stride
    phases = []
    for phase in range(stride):
        own = [tap for tap in range(taps) if tap * dilation % stride == phase]
        reached = [(tap, 0, reach - tap * dilation // stride) for tap in own]
        phases.append((stride * low - padding + phase, reached))
    return Axis(
        outputs=outputs, grid=high - low + 1 + reach, step=1, origins=[low - reach], phases=phases, scale=stride
    )


def plan_axes(cfg: Static, extents, taps, space):
    """Return the three axes of a convolution."""
    stride = expand_setting(cfg.stride, space, 1)
    padding = expand_setting(cfg.padding, space, 0)
    dilation = expand_setting(cfg.dilation, space, 1)
    if cfg.transposed:
        output_padding = expand_setting(cfg.output_padding, space, 0)
        return [
            plan_transposed_axis(extents[i], taps[i], stride[i], padding[i], dilation[i], output_padding[i])
            for i in range(3)
        ]
    axes = [plan_axis(extents[i], taps[i], stride[i], padding[i], dilation[i]) for i in range(3)]
    if cfg.unfold:  # the taps of the last extent become channels of A
        outputs = axes[2].outputs
        axes[2] = Axis(outputs, outputs, stride[2], [-padding[2]], [(0, [(0, 0, 0)])], 1)
    return axes


def make_tables(axes, taps, images):
    """Return tables of the taps (row offset in A, tap), phases (first tap, taps, first outputs), planes (origins)."""
    grid0, grid1, grid2 = (axis.grid for axis in axes)
    positions = images * grid0 * grid1 * grid2
    planes = list(itertools.product(*(axis.origins for axis in axes)))
    rows: list[tuple[int, int]] = []
    phases = []
    for phase in itertools.product(*(axis.phases for axis in axes)):
        first = len(rows)
        for (t, plane0, shift0), (r, plane1, shift1), (s, plane2, shift2) in itertools.product(
            *(reached for _, reached in phase)
        ):
            plane = (plane0 * len(axes[1].origins) + plane1) * len(axes[2].origins) + plane2
            offset = plane * positions + (shift0 * grid1 + shift1) * grid2 + shift2
            rows.append((offset, (t * taps[1] + r) * taps[2] + s))
        if len(rows) == first:
            # no tap reaches these outputs: add one that reads zeros past A
            rows.append((len(planes) * positions, -1))
        phases.append((first, len(rows) - first, *(output for output, _ in phase)))
    return rows, phases, planes


def count_blocks(cfg: Static, channels, filters):
    """Return the number of blocks of channel groups that minimises the number of multiplied tiles.

    A block holds the channels and filters of whole groups; filter elements between different groups are zero.
    """
    divisors = [blocks for blocks in range(1, cfg.groups + 1) if cfg.groups % blocks == 0]
    return min(
        divisors,
        key=lambda blocks: blocks * (-(-channels // blocks // cfg.tile_k) * -(-filters // blocks // cfg.tile_n)),
    )


@functools.cache
def plan_geometry(cfg: Static, size, shape, device):
    """Return the geometry of an input of this size and filters of this shape; ValueError if they do not match."""
    space = len(size) - 2
    extents, taps = (1,) * (3 - space) + size[2:], (1,) * (3 - space) + shape[2:]
    channels, filters = size[1], shape[1] * cfg.groups if cfg.transposed else shape[0]
    if (shape[0] if cfg.transposed else shape[1] * cfg.groups) != channels:
        raise ValueError(f"filters of shape {shape} for an input of shape {size} in {cfg.groups} groups")
    axes = plan_axes(cfg, extents, taps, space)
    outputs = [axis.outputs for axis in axes]
    if min(outputs) < 1:
        raise ValueError(f"filters of {shape[2:]} do not fit into an input of {size[2:]}")
    rows, phases, planes = make_tables(axes, taps, size[0])
    inputs = channels * taps[2] if cfg.unfold else channels
    copies = 3 if cfg.split else 1  # of all channels, in k
    blocks = count_blocks(cfg, copies * inputs, filters)
    depth = -(-copies * inputs // blocks // cfg.tile_k) * cfg.tile_k
    grid = [axis.grid for axis in axes]
    return Geometry(
        output=(size[0], filters, *outputs),
        rows=size[0] * grid[0] * grid[1] * grid[2] * len(planes),
        columns=blocks * depth,
        filter_columns=len(rows) * depth,
        line=grid[2],
        one_to_one=blocks == 1 and not cfg.unfold,
        channels_per_tap=channels if cfg.unfold else 0,
        tables=[torch.tensor(table, dtype=torch.int32).to(device) for table in (rows, phases, planes)],
        grid=int32s(size[0], *grid),
        steps=int32s(*(axis.step for axis in axes)),
        scale=int32s(*(axis.scale for axis in axes)),
        tap_stride=cutlass.Int32(expand_setting(cfg.dilation, space, 1)[2] if cfg.unfold else 0),
        activation_sizes=int32s(inputs // blocks, depth, blocks),
        filter_sizes=int32s(depth, inputs // blocks, filters // blocks),
        gemm_sizes=int32s(depth, filters // blocks, blocks),
    )
