"""Hopper configurations of a gemm, fastest first by a model: problem size and device -> muCUTLASS settings, each with its modelled time.

The model counts, for one tile and one step of k, the cycles of wgmma, of its operands out of shared memory and of the tiles out of L2 (which a
cluster shares), takes the largest, and adds what is not hidden: the first tile's arrival, a store that nobody multiplies behind, the last
wave. It ranks; it is no promise.
"""

from __future__ import annotations

import math

from workbench.analysis import devices
from workbench.dsl import Call, Program, Stage, check
from workbench.dsl.hopper_plan import ALONG_K, BYTES, Plan, plan_of
from workbench.proposers.ladders.base import put
from workbench.records import Facts, record

# for elements of two bytes; of others, as many bytes along k
TILES = ((128, 256, 64), (256, 128, 64), (128, 192, 64), (128, 128, 64), (64, 256, 64), (128, 64, 64), (64, 128, 64), (64, 64, 64), (64, 32, 64), (64, 16, 64), (64, 64, 128), (64, 32, 128), (64, 16, 128))
CLUSTERS = ((2, 1), (1, 1), (1, 2), (2, 2))
MMA_FLOPS_PER_CYCLE = 4096  # dense f16 on one SM: 1024 FMA on each of four tensor cores, in two FLOPs
SHARED_BYTES_PER_CYCLE = 128
L2_BYTES_PER_CYCLE = 48  # of one SM while all read: at least 32, by a 128x256 kernel without clusters at 660 TFLOP/s
LATENCY_CYCLES = 1000  # from a TMA load to its arrival
STORE_CYCLES = 1200  # a tile's epilogue: conversion, shared memory, the barriers
STEP_CYCLES = 40  # of one step of k that no multiplication hides: the wait, the issue
CLUSTER_COST = 0.01  # for each further CTA that a stage waits for
SECOND_KERNEL_S = 3e-6  # its launch and its tail
SPLITS = (1, 2, 4, 8, 16)
NEAR = 1.1  # how much slower by the model a choice may be that experience prefers
WASTE_COST = 0.1  # for tiles that lie outside the result altogether


@record
class Size:
    """Extents of a product."""

    m: int
    n: int
    k: int
    batches: int = 1


@record
class Choice:
    """Settings with their modelled time on the whole device, how many tiles there are and how many CTAs work on them."""

    settings: tuple[Call, ...]
    plan: Plan
    seconds: float
    tiles: int
    ctas: int
    copied: tuple[str, ...]  # operands that TMA or wgmma cannot read where they lie

    @property
    def title(self) -> str:
        """The settings in words."""
        cluster = "" if self.plan.cluster == (1, 1) else f", clusters of {self.plan.cluster[0]}x{self.plan.cluster[1]}"
        split = "" if self.plan.splits == 1 else f", k in {self.plan.splits} parts"
        return f"{'x'.join(map(str, self.plan.tile))} tiles, {self.plan.schedule}{cluster}{split}"

    @property
    def reason(self) -> str:
        """What the model sees in it."""
        waves = self.tiles / self.ctas
        what = f"{self.tiles} tiles on {self.ctas} CTAs ({waves:.1f} waves)"
        shared = f"; a cluster fetches a tile of {'b' if self.plan.cluster[0] > 1 else 'a'} once for {math.prod(self.plan.cluster)} CTAs" if self.plan.cluster != (1, 1) else ""
        how = "; one warpgroup stores while the other multiplies" if self.plan.schedule == "pingpong" else ""
        how += f"; {self.plan.splits} parts of k are summed up side by side" if self.plan.splits > 1 else ""
        copied = f"; {' and '.join(self.copied)} first copied along k into rows at multiples of 16 bytes, since {'TMA' if self.plan.kind not in ALONG_K else f'wgmma on {self.plan.kind}'} cannot read {'them' if self.copied[1:] else 'it'}" if self.copied else ""
        return f"TMA feeds wgmma through {self.plan.stages} stages; {what}{shared}{how}{copied}; modelled {self.seconds * 1e6:.3g} us"


def size_of(facts: Facts) -> Size | None:
    """The extents at the full case; None where they cannot be told from the facts."""
    case = next((case for case in facts.cases if case.name == "full"), None)
    work = next((work for work in facts.work if work.case == "full"), None)
    if case is None or work is None or not case.outputs or len(case.outputs[0].shape) < 2:
        return None
    *lead, m, n = case.outputs[0].shape
    products = next((flops for name, flops in work.parts if name.split(".")[-1] in ("mm", "addmm", "bmm", "baddbmm") or "mm" in name), work.flops)
    k = products // max(2 * m * n * math.prod(lead), 1)
    return Size(m=m, n=n, k=max(k, 1), batches=math.prod(lead))


def modelled(plan: Plan, size: Size, device: devices.Device) -> tuple[float, int, int]:
    """(seconds, tiles, CTAs at work)."""
    (tm, tn, tk), (cm, cn) = plan.tile, plan.cluster
    width = BYTES[plan.kind]
    useful = math.ceil(size.m / tm) * math.ceil(size.n / tn) * size.batches * plan.splits
    tiles = math.ceil(size.m / (tm * cm)) * cm * math.ceil(size.n / (tn * cn)) * cn * size.batches * plan.splits
    ctas = min(tiles, math.floor(device.sms * (1.0 if cm * cn < 4 else 0.97) / (cm * cn)) * cm * cn)  # the SMs of a GPC rarely divide by four
    multiply = 2 * tm * tn * tk / (MMA_FLOPS_PER_CYCLE * 2 / width)
    shared = (tm + tn * (tm // 64)) * tk * width / SHARED_BYTES_PER_CYCLE
    fetch = (tm / cn + tn / cm) * tk * width / L2_BYTES_PER_CYCLE
    step = (max(multiply, shared, fetch, LATENCY_CYCLES / plan.stages) + STEP_CYCLES) * (1 + CLUSTER_COST * (cm * cn - 1)) * (1 + WASTE_COST * (1 - useful / tiles))
    store = STORE_CYCLES + tm * tn * plan.result_bytes / 64
    behind, start = (0.2, 100) if plan.schedule == "pingpong" else (1.0, 0)
    cycles = LATENCY_CYCLES + start + math.ceil(tiles / ctas) * (math.ceil(math.ceil(size.k / tk) / plan.splits) * step + behind * store) + (1 - behind) * store
    moved = ((size.m + size.n) * size.k + size.m * size.n) * width * size.batches
    added = (plan.splits * 8 + width) * size.m * size.n * size.batches / device.bandwidth + SECOND_KERNEL_S if plan.splits > 1 else 0.0
    return max(cycles / device.clock_hz, moved / (device.copy_bandwidth or device.bandwidth)) + added, tiles, ctas


def copied_of(kind: str, size: Size, layout: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The operands that are copied first, if the tensors are contiguous: rows that are no multiple of 16 bytes, or not along k where wgmma needs that."""
    along_k = {"a": dict(layout).get("a", "row") == "row", "b": dict(layout).get("b", "row") == "column"}
    extents = {"a": size.k if along_k["a"] else size.m, "b": size.k if along_k["b"] else size.n}
    return tuple(name for name in ("a", "b") if extents[name] * BYTES[kind] % 16 or (kind in ALONG_K and not along_k[name]))


def choices(operation: Call, kind: str, size: Size, device_name: str, layout: tuple[tuple[str, str], ...] = (), most: int = 8) -> tuple[Choice, ...]:
    """Legal configurations, fastest first by the model, at most two of a tile; `kind` is what wgmma multiplies.

    The first is the earliest of TILES and CLUSTERS that is within NEAR of the fastest: the order there is what experience prefers.
    """
    device = devices.find(device_name)
    copied = copied_of(kind, size, layout)
    copying = sum(2 * {"a": size.m, "b": size.n}[name] * size.k * size.batches * BYTES[kind] for name in copied) / device.bandwidth
    found = []
    for tile in ((tm, tn, tk * 2 // BYTES[kind]) for tm, tn, tk in TILES):
        for cluster in (pair for pair in CLUSTERS if pair[0] <= math.ceil(size.m / tile[0]) and pair[1] <= math.ceil(size.n / tile[1])):  # no CTA without work
            for schedule, splits in (*(("cooperative", splits) for splits in SPLITS), ("pingpong", 1)):
                how = (*((put("cluster", *cluster),) if cluster != (1, 1) else ()), *((put("splitk", splits),) if splits > 1 else ()))
                settings = (put("tile", *tile), put("mma", kind), put("schedule", schedule), *how)
                stage = Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings))
                if check(Program(stages=(stage,))):
                    continue
                plan = plan_of(stage)
                seconds, tiles, ctas = modelled(plan, size, device)
                found.append(Choice(settings=settings, plan=plan, seconds=seconds + copying, tiles=tiles, ctas=ctas, copied=copied))
    fastest = min(choice.seconds for choice in found)
    first = next(choice for choice in found if choice.seconds <= NEAR * fastest)
    kept = [first]
    for choice in sorted(found, key=lambda choice: choice.seconds):
        if choice != first and sum(other.plan.tile == choice.plan.tile for other in kept) < 2:
            kept.append(choice)
    return tuple(kept[:most])


