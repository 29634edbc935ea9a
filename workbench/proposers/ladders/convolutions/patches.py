"""Convolutions by patches, fastest first by a model: what a CTA keeps busy, and the bytes of input and result.

The kernel has no copy in front. It counts only where TF32 is asked for. Its tensor cores are those of mma.sync, which
on Hopper reach a part of wgmma's rate; so it is for few channels or filters, whose time is that of memory.
"""

from __future__ import annotations

import math

from workbench.analysis import devices
from workbench.kernels.conv.patch.plan import PatchPlan, count_tiles, plan_patches
from workbench.language import Call, Program, Stage, check
from workbench.language.operations.conv.configs import patch_config
from workbench.proposers.ladders.base import put
from workbench.proposers.ladders.convolutions.rates import L2_BYTES_PER_CYCLE
from workbench.proposers.ladders.convolutions.size import Size
from workbench.records import record

# of the data sheet's rate of tensor cores; on Hopper as the time model has it (fitted), elsewhere inferred
MMA_SHARE, MMA_SHARE_BEFORE = 0.44, 0.8
# modelled time over the sum of what the resources take, of 16 warps on an SM and of 8: 0.6 to 0.75 and 0.75 to 1.15 (30
# programs of seven convolutions by the time model, not measured)
OVERLAP, FEW_WARPS = 0.55, 2.4
OTHER_REGISTERS = 64  # of a thread beside its sums; inferred
COPY_INSTRUCTIONS = 5  # for each element of a patch that a warp copies; inferred from the kernel's text
LOOP_INSTRUCTIONS = 14  # of a block of eight k beside loads, conversions and products; inferred likewise
STORE_INSTRUCTIONS = 12  # for each result of a thread, with a short epilogue; inferred likewise
# cycles of an SM for each result of a box that is narrower than LINE along the last extent, for each time that it fits
# beyond the first: such results are stored apart (11 convolutions on an H200, 2026-11-29: 0.3 to 0.7 for boxes of 8,
# 0.7 to 2.2 for 4, 2.1 and 2.3 for 1 and 2)
APART_CYCLES, LINE = 0.45, 16
TILES = (  # positions, filters, threads
    (256, 64, 256),
    (128, 64, 128),
    (256, 32, 256),
    (128, 32, 128),
    (64, 64, 128),
    (256, 16, 128),
    (256, 16, 64),
    (128, 16, 128),
    (64, 16, 64),
)


@record
class PatchChoice:
    """Settings with their modelled time."""

    settings: tuple[Call, ...]
    seconds: float

    @property
    def title(self) -> str:
        """The settings in words."""
        said = {call.name: call.positional for call in self.settings}
        m, n, k = said["tile"]
        return f"{m} positions by {n} filters from patches, {k} channels at a time, {said['threads'][0]} threads"

    @property
    def reason(self) -> str:
        """Why the model ranks it here."""
        return (
            "each warp gathers from a patch of the input in shared memory: no copy in front, an input that is loaded "
            "serves all taps, and k is filled by taps and channels together"
        )


def model_patch_time(
    plan: PatchPlan, size: Size, tile: tuple[int, int, int], threads: int, device: devices.Device
) -> float:
    """Modelled seconds: what the resources of an SM take, in part at once; at least the bytes of input and result."""
    m, n, _ = tile
    warps, pairs, rows = threads // 32, n // 16, m // (threads // 2)
    channels, filters = size.channels // size.groups, size.filters // size.groups
    chunks = math.ceil(channels / plan.channels)
    phases = len(plan.ranges)
    blocks = len(plan.entries) / 8 / phases * chunks  # of eight k, of a CTA
    outputs = m * n * len(plan.axes[2].phases)
    share = MMA_SHARE if device.arch.startswith("sm_9") else MMA_SHARE_BEFORE
    multiply = blocks * m * n * 16 / (device.tf32 * share / device.sms / device.clock_hz)
    patch = math.prod(plan.patch) * plan.channels * chunks
    # two products of each pair of eight filters take one vector of four words
    loads = blocks * warps * (4 * rows + 2 + 4 * pairs) + patch / 32 + blocks * 8 * n / 32
    copied = (patch + blocks * 2 * n) / 32 * COPY_INSTRUCTIONS
    issued = blocks * warps * (8 * rows + 2 * rows * pairs + pairs + LOOP_INSTRUCTIONS) + copied
    issued += outputs / 32 * STORE_INSTRUCTIONS
    fetched = (patch * 1.25 + blocks * 8 * n + outputs) * 4 / L2_BYTES_PER_CYCLE
    registers = 65_536 // (threads * min(255, outputs // threads + OTHER_REGISTERS))
    resident = max(min(device.shared_bytes_per_sm // (plan.shared_bytes + 1024), registers, 2048 // threads), 1)
    cycles = multiply + loads + issued / 4 + fetched
    tiles = math.prod(count_tiles(plan.axes, plan.box)) * size.images * phases
    tiles *= math.ceil(filters / n) * size.groups
    moved = size.images * (size.channels * math.prod(size.extents) + size.filters * math.prod(size.out)) * 4
    apart: float = m * n * max(min(LINE / plan.box[2], 6) - 1, 0) * APART_CYCLES * len(plan.axes[2].phases)
    memory = moved / (device.copy_bandwidth or device.bandwidth)
    busy = max(tiles / device.sms, 1) * cycles / device.clock_hz
    seconds: float = max((busy + memory) * (OVERLAP + FEW_WARPS / min(resident * warps, 16)), memory)
    scattered: float = max(tiles / device.sms, 1) * apart / device.clock_hz
    return seconds + scattered


def list_patch_choices(
    operation: Call, arch: str, size: Size, device_name: str, most: int = 3
) -> tuple[PatchChoice, ...]:
    """Legal configurations that fit into shared memory, fastest first by the model."""
    device, found = devices.find(device_name), []
    channels, filters = size.channels // size.groups, size.filters // size.groups
    for m, n, threads in TILES:
        for k, stages in ((4, 2), (8, 3), (8, 2), (16, 2)):
            if k >= 2 * max(channels, 4) or n >= 2 * max(filters, 16):
                continue
            settings = (
                put("mma", "tf32"),
                put("tile", m, n, k),
                put("schedule", "patch"),
                put("threads", threads),
                put("stages", stages),
            )
            stage = Stage(operation=operation, settings=(put("arch", arch), *settings))
            if check(Program(stages=(stage,))):
                continue
            cfg = patch_config(stage)
            how = (cfg.stride, cfg.padding, cfg.dilation, cfg.output_padding, cfg.transposed)
            most_bytes = min(cfg.smem_bytes, device.shared_bytes_per_block)
            plan = plan_patches(size.extents, size.taps, channels, how, cfg.tile, stages, most_bytes)
            if plan is not None:
                seconds = model_patch_time(plan, size, cfg.tile, threads, device)
                found.append(PatchChoice(settings=settings, seconds=seconds))
    return tuple(sorted(found, key=lambda choice: choice.seconds)[:most])
