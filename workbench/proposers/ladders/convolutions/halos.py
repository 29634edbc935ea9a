"""Convolutions by wgmma with halos, fastest first by a model: the cycles of a tile, and the bytes of copy and result.

A tile of the input is loaded once for all taps, so what wgmma waits for are shared memory, which feeds it both operands
and takes what arrives, and its own rate. The kernel has not been timed on a GPU yet; its constants are those of other
convolutions by wgmma.
"""

from __future__ import annotations

import math

from workbench.analysis import devices
from workbench.kernels.conv.config import BYTES, HaloConfig
from workbench.kernels.conv.halo.plan import HaloPlan, plan_halo
from workbench.language import Call, Program, Stage, check
from workbench.language.operations.conv.configs import halo_config
from workbench.proposers.ladders.base import put
from workbench.proposers.ladders.convolutions.rates import L2_BYTES_PER_CYCLE, STEP_CYCLES, count_store_cycles
from workbench.proposers.ladders.convolutions.size import Size
from workbench.proposers.ladders.gemm_hopper_model import MMA_FLOPS_PER_CYCLE
from workbench.records import record

# modelled time of the other implicit products over this one's from which on it goes first; inferred: four convolutions
# of KernelBench beyond it took 0.50 to 0.91 of the others' time (H200, 2026-11-28 and 29), none below was timed
HALO_GAIN = 1.3
SHARED_BYTES_PER_CYCLE = 128  # of an SM: 32 banks of 4 bytes
ROW_BYTES = 32  # of k that one wgmma multiplies
TILES = ((512, 64), (256, 128), (256, 64), (512, 32), (256, 32), (128, 128), (128, 64))  # positions, filters


@record
class HaloChoice:
    """Settings with their modelled time."""

    settings: tuple[Call, ...]
    cfg: HaloConfig
    plan: HaloPlan
    seconds: float

    @property
    def title(self) -> str:
        """The settings in words."""
        turns = "taking turns" if self.cfg.pingpong else "sharing a tile"
        return f"{'x'.join(map(str, self.cfg.tile))} tiles with halos, warpgroups {turns}"

    @property
    def reason(self) -> str:
        """Why the model ranks it here."""
        return (
            f"an implicit product: a tile of the input is loaded with its halo once for {self.plan.taps} taps, and "
            "wgmma reads each from another row on"
        )


def model_halo_time(cfg: HaloConfig, plan: HaloPlan, size: Size, device: devices.Device) -> float:
    """Modelled seconds of the copy in front and of the product."""
    m, n, k = cfg.tile
    width = BYTES[cfg.mma]
    depth = math.ceil(size.channels / k) * k
    places = size.images * plan.positions
    tiles = math.ceil(places / m) * math.ceil(size.filters / n)
    multiply = 2 * m * n * plan.taps * k / (MMA_FLOPS_PER_CYCLE * 2 / width)
    loaded = (plan.patch + plan.taps * n) * k * width
    operands = plan.taps * k * width // ROW_BYTES * (m // 64) * (64 + n) * ROW_BYTES
    step = max(multiply, (loaded + operands) / SHARED_BYTES_PER_CYCLE, loaded / L2_BYTES_PER_CYCLE)
    product = plan.steps * depth / k * (step + (STEP_CYCLES if cfg.pingpong else STEP_CYCLES / 2))
    store = count_store_cycles(cfg.rows, n)
    tile = max(product, (product + store) / 2) if cfg.pingpong else product + store
    copied = (size.images * size.channels * math.prod(size.extents) + depth * places) * width
    moved = (places * depth + size.images * size.filters * math.prod(size.out)) * width
    bandwidth = device.copy_bandwidth or device.bandwidth
    return copied / bandwidth + max(math.ceil(tiles / device.sms) * tile / device.clock_hz, moved / bandwidth)


def list_halo_choices(
    operation: Call, kind: str, size: Size, device_name: str, most: int = 2
) -> tuple[HaloChoice, ...]:
    """Legal configurations that fit into shared memory, fastest first by the model; none for filters of one tap."""
    device, found = devices.find(device_name), []
    if math.prod(size.taps) == 1:  # a product, whose inputs no taps share
        return ()
    for m, n in TILES:
        if n >= 2 * max(size.filters, 32):
            continue
        settings = (put("mma", kind), put("tile", m, n, ROW_BYTES // BYTES[kind]), put("schedule", "halo"))
        stage = Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings))
        if check(Program(stages=(stage,))):
            continue
        cfg = halo_config(stage)
        how = (cfg.padding, cfg.dilation, cfg.output_padding, cfg.transposed)
        plan = plan_halo(size.extents, size.taps, how, cfg.tile, BYTES[kind], cfg.stages, cfg.stages_bytes)
        if plan is not None:
            seconds = model_halo_time(cfg, plan, size, device)
            found.append(HaloChoice(settings=settings, cfg=cfg, plan=plan, seconds=seconds))
    return tuple(sorted(found, key=lambda choice: choice.seconds)[:most])
