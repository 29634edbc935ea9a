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

# cycles of an SM that each result takes at least where lines are cut into more than FEW_STRIPS strips, whose pieces of
# lines L2 joins only in part (fitted to the order of 48 convolutions on an H200, 2026-11-29, and not checked on others;
# 0.5 to 0.6 serve alike)
STRIP_STORE_CYCLES, FEW_STRIPS = 0.6, 4
SHARED_BYTES_PER_CYCLE = 128  # of an SM: 32 banks of 4 bytes
ROW_BYTES = 32  # of k that one wgmma multiplies
# channels of a stage, in rows of k, of a further choice: more to multiply between two waits. Where warpgroups take
# turns, 4 and 2 such rows took 0.83 and 0.87 of the first choice's time (two transposed convolutions, H200, 2026-11-29)
DEEPER = (4, 2)
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


def model_halo_time(cfg: HaloConfig, plan: HaloPlan, size: Size, device: devices.Device, stores: bool = True) -> float:
    """Modelled seconds of the copy in front and of the product; without `stores` its filters are reduced first."""
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
    if stores and plan.grid[0] > FEW_STRIPS:
        tile = max(tile, m * n * STRIP_STORE_CYCLES)
    copied = (size.images * size.channels * math.prod(size.extents) + depth * places) * width
    moved = (places * depth + size.images * size.filters * math.prod(size.out)) * width
    bandwidth = device.copy_bandwidth or device.bandwidth
    return copied / bandwidth + max(math.ceil(tiles / device.sms) * tile / device.clock_hz, moved / bandwidth)


def list_halo_choices(
    operation: Call, kind: str, size: Size, device_name: str, most: int = 2, stores: bool = True
) -> tuple[HaloChoice, ...]:
    """Legal configurations that fit into shared memory, fastest first by the model, then one with deeper stages; none
    for filters of one tap. Without `stores` the filters are reduced before anything is stored.
    """
    device, row = devices.find(device_name), ROW_BYTES // BYTES[kind]
    if math.prod(size.taps) == 1:  # a product, whose inputs no taps share
        return ()
    tiles = [(m, n) for m, n in TILES if n < 2 * max(size.filters, 32)]
    found = [
        one
        for m, n in tiles
        if (one := make_halo_choice(operation, kind, (m, n, row), size, device, stores)) is not None
    ]
    deeper = [
        one
        for rows in DEEPER
        if size.channels % (rows * row) == 0
        for m, n in tiles
        if (one := make_halo_choice(operation, kind, (m, n, rows * row), size, device, stores)) is not None
        and one.cfg.pingpong
    ]
    fastest = sorted(found, key=lambda choice: choice.seconds)[:most]
    deeper.sort(key=lambda choice: (-choice.cfg.tile_m * choice.cfg.tile_n, -choice.cfg.tile_k, choice.seconds))
    return (*fastest, *deeper[:1]) if fastest else ()


def make_halo_choice(
    operation: Call, kind: str, tile: tuple[int, int, int], size: Size, device: devices.Device, stores: bool
) -> HaloChoice | None:
    """The choice of a tile (positions, filters, channels); None if it is not legal, or does not fit."""
    settings = (put("mma", kind), put("tile", *tile), put("schedule", "halo"))
    stage = Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings))
    if check(Program(stages=(stage,))):
        return None
    cfg = halo_config(stage)
    how = (cfg.padding, cfg.dilation, cfg.output_padding, cfg.transposed)
    plan = plan_halo(size.extents, size.taps, how, cfg.tile, BYTES[kind], cfg.stages, cfg.stages_bytes)
    if plan is None:
        return None
    return HaloChoice(settings=settings, cfg=cfg, plan=plan, seconds=model_halo_time(cfg, plan, size, device, stores))
