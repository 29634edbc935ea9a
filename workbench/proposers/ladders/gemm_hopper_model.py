"""Time model of a gemm on Hopper: configuration, extents and device -> seconds, tiles and CTAs.

For one tile and one step of k, the model counts the cycles of wgmma, of its operands from shared memory and of the
tiles from L2 (which a cluster shares), and takes the largest. It adds the time that nothing hides: the first tile's
arrival, a store without a product beside it, the last wave. Two or three stages may be too few, because a stage is
filled again only after its load has come, its product is done and the next product has started. The model ranks
configurations; its seconds are not exact. Over 5500 measured kernels of 14 products (landscapes/h200.csv.gz) its rank
correlation is 0.84 to 0.99, median 0.97.

Wave quantisation: T tiles on C CTAs take ceil(T / C) waves, in which a share T / (C ceil(T / C)) of the device works.
With stream-K they take T / C waves. Stream-K adds the store of a tile's sums in float32, and the load of the sums of
each other piece of the tile.
"""

from __future__ import annotations

import dataclasses
import math

from workbench.analysis import devices
from workbench.kernels.gemm.sm90.config import ALONG_K, BYTES, MAX_PEERS, MIN_K_TILES, GemmSm90Config
from workbench.proposers.ladders.gemm_size import Size

MMA_FLOPS_PER_CYCLE = 4096  # dense f16 on one SM: 1024 FMA on each of four tensor cores, in two FLOPs
SHARED_BYTES_PER_CYCLE = 128
# of one SM while all SMs read; at least 32, as a 128x256 kernel without clusters at 660 TFLOP/s shows
L2_BYTES_PER_CYCLE = 48
LATENCY_CYCLES = 1000  # from a TMA load to its arrival
STORE_CYCLES = 1200  # a tile's epilogue: conversion, shared memory, the barriers
# per result if the epilogue has an exponential or a tanh: about 30 instructions on each of 128 lanes (inferred)
ACTIVATION_CYCLES = 30 / 128
STEP_CYCLES = 40  # part of one step of k that no multiplication hides: the wait, the issue
CLUSTER_COST = 0.01  # for each further CTA for which a stage waits
SECOND_KERNEL_S = 3e-6  # launch and tail of the second kernel
# inferred from the order of measured kernels: two barriers of a cluster, and sums from distributed shared memory
CLUSTER_SUM_S = 0.7e-6
# CTAs of a cluster -> share of the SMs that can work, since a cluster stays in one GPC: 2048^3 in 32 clusters of 4 took
# two waves on an H200 (2026-11-21); the share for 8 is inferred
AT_ONCE = {1: 1.0, 2: 1.0, 4: 0.91, 8: 0.85}
# factor on the loads of tiles that are larger than the matrix: a 64x32x128 tile took 1.9 times as long at m = 16 as at
# m = 64 (one H200, 2026-11-21)
PARTLY = 2.0
WASTE_COST = 0.1  # for tiles that lie completely outside the result


def busy_share(tiles: int, ctas: int) -> float:
    """Average share of the CTAs that have a tile, over all waves of whole tiles."""
    return tiles / (ctas * math.ceil(tiles / ctas))


def model_time(
    plan: GemmSm90Config, size: Size, device: devices.Device, activated: bool = False
) -> tuple[float, int, int]:
    """(seconds, tiles, CTAs at work); `activated`: the epilogue has an exponential or a tanh for each result."""
    (tm, tn, tk), (cm, cn) = plan.tile, plan.cluster
    size = dataclasses.replace(size, m=size.n, n=size.m) if plan.swap else size
    tiles = math.ceil(size.m / (tm * cm)) * cm * math.ceil(size.n / (tn * cn)) * cn * size.batches * plan.split_k
    steps = math.ceil(size.k / tk)
    ctas = _count_ctas(plan, tiles, steps, device)
    step = _step_cycles(plan, size, tiles)
    store = STORE_CYCLES + tm * tn * (plan.result_bytes / 64 + ACTIVATION_CYCLES * activated)
    waves = math.ceil(tiles / ctas)
    longest, handed = float(math.ceil(steps / plan.split_k)), 0.0
    if plan.stream_k:
        pieces = math.ceil(ctas / tiles)  # that another CTA has of a tile
        longest = tiles * steps / ctas / waves
        handed = (1 + pieces) * (tm * tn * 4 / L2_BYTES_PER_CYCLE + LATENCY_CYCLES)
    behind, start = (0.2, 100) if plan.schedule == "pingpong" else (1.0, 0)
    cycles = LATENCY_CYCLES + start + waves * (longest * step + behind * store) + (1 - behind) * store + handed
    moved = ((size.m + size.n) * size.k + size.m * size.n) * BYTES[plan.kind] * size.batches
    at_least = moved / (device.copy_bandwidth or device.bandwidth)
    return max(cycles / device.clock_hz, at_least) + _adding_seconds(plan, size, device), tiles, ctas


def _count_ctas(plan: GemmSm90Config, tiles: int, steps: int, device: devices.Device) -> int:
    """CTAs at work at once."""
    cluster = plan.split_k if plan.in_cluster else math.prod(plan.cluster)
    resident = math.floor(device.sms * AT_ONCE[cluster] / cluster) * cluster
    ctas = min(tiles, resident)
    return min(resident, max(tiles, ctas * min(steps // MIN_K_TILES, MAX_PEERS))) if plan.stream_k else ctas


def _step_cycles(plan: GemmSm90Config, size: Size, tiles: int) -> float:
    """Cycles of one tile and one step of k: the slowest of wgmma, shared memory, L2 and a stage's turn."""
    (tm, tn, tk), (cm, cn), width = plan.tile, plan.cluster, BYTES[plan.kind]
    useful = math.ceil(size.m / tm) * math.ceil(size.n / tn) * size.batches * plan.split_k
    outside = PARTLY if size.m < tm or size.n < tn else 1.0
    multiply = 2 * tm * tn * tk / (MMA_FLOPS_PER_CYCLE * 2 / width)
    shared = (tm + tn * (tm // 64)) * tk * width / SHARED_BYTES_PER_CYCLE
    fetch = outside * (tm / cn + tn / cm) * tk * width / L2_BYTES_PER_CYCLE
    # a stage is free again when the multiplication after its own has started
    turn = LATENCY_CYCLES + fetch + 2 * max(multiply, shared)
    return (
        (max(multiply, shared, fetch, turn / plan.stages) + STEP_CYCLES)
        * (1 + CLUSTER_COST * (cm * cn - 1))
        * (1 + WASTE_COST * (1 - useful / tiles))
    )


def _adding_seconds(plan: GemmSm90Config, size: Size, device: devices.Device) -> float:
    """Seconds to add the parts of k."""
    if plan.in_cluster:
        return CLUSTER_SUM_S
    if plan.split_k == 1:
        return 0.0
    moved = (plan.split_k * 8 + BYTES[plan.kind]) * size.m * size.n * size.batches
    return moved / device.bandwidth + SECOND_KERNEL_S


def copied_operands(
    kind: str, size: Size, layout: tuple[tuple[str, str], ...], *, along_k: bool = True
) -> tuple[str, ...]:
    """The operands that must be copied first, if the tensors are contiguous.

    An operand is copied if its rows are no multiple of 16 bytes or, with `along_k`, if wgmma needs it contiguous along
    k and it is not.
    """
    needed = along_k and kind in ALONG_K
    lies = {"a": dict(layout).get("a", "row") == "row", "b": dict(layout).get("b", "row") == "column"}
    extents = {"a": size.k if lies["a"] else size.m, "b": size.k if lies["b"] else size.n}
    return tuple(name for name in ("a", "b") if extents[name] * BYTES[kind] % 16 or (needed and not lies[name]))
