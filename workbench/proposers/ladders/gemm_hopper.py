"""Hopper configurations of a gemm, fastest first by a model: problem size and device -> muCUTLASS settings, each with its modelled time.

The model counts, for one tile and one step of k, the cycles of wgmma, of its operands out of shared memory and of the tiles out of L2 (which a
cluster shares), takes the largest, and adds what is not hidden: the first tile's arrival, a store that nobody multiplies behind, the last
wave. Two or three stages may be too few: a stage is filled again only when its load has come, its product is done and the next one is under way.
It ranks; it is no promise. Over 5500 measured kernels of 14 products (landscapes/h200.csv.gz) its rank correlation is 0.84 to 0.99, median 0.97.

Wave quantisation: T tiles on C CTAs take ceil(T / C) waves, in which T / (C ceil(T / C)) of the device works. Where that is under BADLY_FILLED, stream-K is
tried too. It takes T / C waves; what it adds is to store the sums of a tile in float32, and to read those of each other piece of the tile that is finished.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

from workbench.analysis import devices
from workbench.dsl import Call, Program, Stage, check, hopper_streamk
from workbench.dsl.hopper_plan import ALONG_K, BYTES, Plan, plan_of
from workbench.dsl.scalars import FUNCTIONS
from workbench.proposers.ladders import heuristics
from workbench.proposers.ladders.base import put
from workbench.proposers.recognition.graph import TRANSPOSES, short
from workbench.proposers.recognition.products import PRODUCTS
from workbench.records import Case, Facts, Operation, record

# for elements of two bytes; of others, as many bytes along k
TILES = ((128, 256, 64), (256, 128, 64), (128, 192, 64), (128, 128, 64), (64, 256, 64), (128, 64, 64), (64, 128, 64), (64, 64, 64), (64, 32, 64), (64, 16, 64), (64, 64, 128), (64, 32, 128), (64, 16, 128))
CLUSTERS = ((2, 1), (1, 1), (1, 2), (2, 2))
MMA_FLOPS_PER_CYCLE = 4096  # dense f16 on one SM: 1024 FMA on each of four tensor cores, in two FLOPs
SHARED_BYTES_PER_CYCLE = 128
L2_BYTES_PER_CYCLE = 48  # of one SM while all read: at least 32, by a 128x256 kernel without clusters at 660 TFLOP/s
LATENCY_CYCLES = 1000  # from a TMA load to its arrival
STORE_CYCLES = 1200  # a tile's epilogue: conversion, shared memory, the barriers
ACTIVATION_CYCLES = 30 / 128  # of one result whose epilogue has an exponential or a tanh: about 30 instructions on each of 128 lanes (inferred)
STEP_CYCLES = 40  # of one step of k that no multiplication hides: the wait, the issue
CLUSTER_COST = 0.01  # for each further CTA that a stage waits for
SECOND_KERNEL_S = 3e-6  # its launch and its tail
SPLITS = (1, 2, 4, 8, 16)
IN_CLUSTER = (2, 4, 8)  # parts of k that the CTAs of a cluster add up
CLUSTER_SUM_S = 0.7e-6  # inferred from the order of measured kernels: two barriers of a cluster, and sums out of distributed shared memory
BADLY_FILLED = 0.9  # of the device at work in all waves; inferred: with more, two tiles' sums through memory take what the cut saves
FEW, VERY_FEW = 256, 64  # the transposed product is tried where m is at most this, and first where it is at most that
THROUGH_COST = 1.05  # inferred: of reading wgmma's first operand into registers
EARLY_BELOW_S = 60e-6  # launch(early) took 0.9 us off 1024^3 and 0.3 us off 2048^3 on an H200 (2026-11-21), and nothing that could be told apart at 4096^3
AT_ONCE = {1: 1.0, 2: 1.0, 4: 0.91, 8: 0.85}  # of the SMs, by CTAs of a cluster: one GPC each. 2048^3 in 32 clusters of 4 took two waves on an H200 (2026-11-21); 8 inferred
PARTLY = 2.0  # of tiles that stick out of the matrix: a 64x32x128 tile took 1.9 times as long at m = 16 as at m = 64 (one H200, 2026-11-21)
NEAR = 1.05  # how much slower by the model a choice may be that experience prefers
STORED = 4  # a result this many times as large as both operands makes storing it the work (inferred)
WASTE_COST = 0.1  # for tiles that lie outside the result altogether
IN_PARTS, EXACT = "float32 by three products of TF32, ", "each float32 is two parts of TF32, and three products of parts are nearly as accurate as one of float32"


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
    suggested: float | None = None  # the seconds that nvidia-matmul-heuristics expects of it, where it proposed it

    @property
    def source(self) -> str:
        """Whose idea it is."""
        if self.suggested is not None:
            return f"here, {self.suggested * 1e6:.3g} us by {heuristics.PACKAGE}, which proposes it"
        return "by this workbench's own model" + ("" if heuristics.installed() else f" ({heuristics.PACKAGE} is not installed)")

    @property
    def title(self) -> str:
        """The settings in words."""
        cluster = "" if self.plan.cluster == (1, 1) else f", clusters of {self.plan.cluster[0]}x{self.plan.cluster[1]}"
        split = "" if self.plan.splits == 1 else f", k in {self.plan.splits} parts" + " of a cluster" * self.plan.in_cluster
        split += ", the last wave cut along k" * self.plan.streamk
        parts = IN_PARTS if self.plan.kind == "tf32x3" else ""
        ahead = f", {self.plan.asked} pieces on their way" + (" along rows" if self.plan.band == 64 else "") if self.plan.asked else ""
        return f"{parts}{'x'.join(map(str, self.plan.tile))} tiles{' of the transposed product' if self.plan.swap else ''}, {self.plan.schedule}{cluster}{split}{ahead}"

    @property
    def reason(self) -> str:
        """What the model sees in it."""
        waves = self.tiles / self.ctas
        what = f"{self.tiles} tiles on {self.ctas} CTAs ({waves:.1f} waves)"
        shared = f"; a cluster fetches a tile of {'b' if self.plan.cluster[0] > 1 else 'a'} once for {math.prod(self.plan.cluster)} CTAs" if self.plan.cluster != (1, 1) else ""
        how = "; one warpgroup stores while the other multiplies" if self.plan.schedule == "pingpong" else ""
        how += f"; {self.plan.splits} parts of k are summed up side by side" + (", and added in the shared memories of a cluster" if self.plan.in_cluster else "") if self.plan.splits > 1 else ""
        how += f"; whole tiles would keep {100 * filled(self.tiles, self.ctas):.0f}% of the device busy, so stream-K cuts those of the last wave{' and the one before' * (waves > 1)} along k into equal shares" if self.plan.streamk else ""
        how += "; the few rows are what wgmma calls n, so that no tile sticks out of them" if self.plan.swap and not self.plan.registers else ""
        how += f"; {self.plan.asked} pieces of the result leave each warpgroup's shared memory at once" + (", whole rows at about the same time" if self.plan.band == 64 else "") if self.plan.asked else ""
        how += "; b goes through registers as it lies, and needs no copy along k" if self.plan.registers else ""
        if self.plan.kind == "tf32x3":
            return f"TMA feeds wgmma through {self.plan.stages} stages; {what}{shared}{how}; {EXACT}; modelled {self.seconds * 1e6:.3g} us {self.source}"
        copied = f"; {' and '.join(self.copied)} first copied along k into rows at multiples of 16 bytes, since {'TMA' if self.plan.kind not in ALONG_K else f'wgmma on {self.plan.kind}'} cannot read {'them' if self.copied[1:] else 'it'}" if self.copied else ""
        return f"TMA feeds wgmma through {self.plan.stages} stages; {what}{shared}{how}{copied}; on {self.plan.kind}; modelled {self.seconds * 1e6:.3g} us {self.source}"


def size_of(facts: Facts) -> Size | None:
    """The extents of the product at the full case, from forward's inputs and the counted FLOPs; None where they cannot be told from the facts."""
    case = next((case for case in facts.cases if case.name == "full"), None)
    work = next((work for work in facts.work if work.case == "full"), None)
    product = next((op for op in facts.graph if short(op) in PRODUCTS), None)
    if product is not None and (known := _known(facts, product)) is not None:
        return known
    if case is None or work is None or product is None:
        return None
    flops = next((flops for name, flops in work.parts if name.split(".")[-1] in PRODUCTS or "mm" in name), work.flops)
    a, b = (_full_shape(facts, case, name) for name in product.operands[-2:])
    if a is None and b is None:
        return None
    *lead, m, k = a if a is not None else (*(b or ())[:-2], 0, (b or ())[-2])
    batches = math.prod(lead)
    if a is None:
        n = (b or ())[-1]
        m = flops // max(2 * n * k * batches, 1)
    else:
        n = b[-1] if b is not None else flops // max(2 * m * k * batches, 1)
    return Size(m=m, n=n, k=k, batches=batches) if min(m, n, k, batches) > 0 else None


def _known(facts: Facts, product: Operation) -> Size | None:
    """The extents where the sizes of all values are known."""
    shapes = {spec.name: spec.shape for spec in facts.full}
    a, b = (shapes.get(name) for name in product.operands[-2:])
    if a is None or b is None or not 2 <= len(a) <= 3 or len(b) < 2 or min(*a, *b) < 1:
        return None
    return Size(m=a[-2], n=b[-1], k=a[-1], batches=math.prod(a[:-2]))


def operand_shapes(facts: Facts, name: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shapes of the first two operands of an ATen call at the full case, where both are forward's inputs."""
    case = next((case for case in facts.cases if case.name == "full"), None)
    call = next((op for op in facts.graph if short(op) == name), None)
    if case is None or call is None:
        return None
    a, b = (_full_shape(facts, case, value) for value in call.operands[:2])
    return (a, b) if a is not None and b is not None else None


def _full_shape(facts: Facts, case: Case, value: str) -> tuple[int, ...] | None:
    """The shape of an operand at a case, looking through one transposition; None of a parameter, whose size depends on the module."""
    op = next((op for op in facts.graph if op.name == value), None)
    turned = op is not None and short(op) in TRANSPOSES
    name = op.operands[0] if op is not None and turned else value
    spec = next((spec for spec in case.inputs if spec.name == name), None)
    if spec is None or len(spec.shape) < 2:
        return None
    shape = tuple(spec.shape)
    return (*shape[:-2], shape[-1], shape[-2]) if turned else shape


def filled(tiles: int, ctas: int) -> float:
    """Of the CTAs at work, the share that has something to do in all waves of whole tiles."""
    return tiles / (ctas * math.ceil(tiles / ctas))


def modelled(plan: Plan, size: Size, device: devices.Device, activated: bool = False) -> tuple[float, int, int]:
    """(seconds, tiles, CTAs at work); `activated`: whether the epilogue has an exponential or a tanh for each result."""
    (tm, tn, tk), (cm, cn) = plan.tile, plan.cluster
    width = BYTES[plan.kind]
    size = dataclasses.replace(size, m=size.n, n=size.m) if plan.swap else size
    useful = math.ceil(size.m / tm) * math.ceil(size.n / tn) * size.batches * plan.splits
    tiles = math.ceil(size.m / (tm * cm)) * cm * math.ceil(size.n / (tn * cn)) * cn * size.batches * plan.splits
    cluster = plan.splits if plan.in_cluster else cm * cn
    resident, steps = math.floor(device.sms * AT_ONCE[cluster] / cluster) * cluster, math.ceil(size.k / tk)
    ctas = min(tiles, resident)
    if plan.streamk:
        ctas = min(resident, max(tiles, ctas * min(steps // hopper_streamk.LEAST, hopper_streamk.MOST)))
    outside = PARTLY if size.m < tm or size.n < tn else 1.0
    multiply = 2 * tm * tn * tk / (MMA_FLOPS_PER_CYCLE * 2 / width)
    shared = (tm + tn * (tm // 64)) * tk * width / SHARED_BYTES_PER_CYCLE
    fetch = outside * (tm / cn + tn / cm) * tk * width / L2_BYTES_PER_CYCLE
    turn = LATENCY_CYCLES + fetch + 2 * max(multiply, shared)  # of one stage: it is given back when the multiplication after its own is under way
    step = (max(multiply, shared, fetch, turn / plan.stages) + STEP_CYCLES) * (1 + CLUSTER_COST * (cm * cn - 1)) * (1 + WASTE_COST * (1 - useful / tiles))
    store = STORE_CYCLES + tm * tn * (plan.result_bytes / 64 + ACTIVATION_CYCLES * activated)
    waves = math.ceil(tiles / ctas)
    longest, handed = float(math.ceil(steps / plan.splits)), 0.0
    if plan.streamk:
        pieces = math.ceil(ctas / tiles)  # that another CTA has of a tile
        longest, handed = tiles * steps / ctas / waves, (1 + pieces) * (tm * tn * 4 / L2_BYTES_PER_CYCLE + LATENCY_CYCLES)
    behind, start = (0.2, 100) if plan.schedule == "pingpong" else (1.0, 0)
    cycles = LATENCY_CYCLES + start + waves * (longest * step + behind * store) + (1 - behind) * store + handed
    moved = ((size.m + size.n) * size.k + size.m * size.n) * width * size.batches
    added = CLUSTER_SUM_S if plan.in_cluster else (plan.splits * 8 + width) * size.m * size.n * size.batches / device.bandwidth + SECOND_KERNEL_S if plan.splits > 1 else 0.0
    return max(cycles / device.clock_hz, moved / (device.copy_bandwidth or device.bandwidth)) + added, tiles, ctas


def copied_of(kind: str, size: Size, layout: tuple[tuple[str, str], ...], *, along_k: bool = True) -> tuple[str, ...]:
    """The operands that are copied first, if the tensors are contiguous: rows that are no multiple of 16 bytes, or, with `along_k`, not along k where wgmma needs that."""
    needed = along_k and kind in ALONG_K
    lies = {"a": dict(layout).get("a", "row") == "row", "b": dict(layout).get("b", "row") == "column"}
    extents = {"a": size.k if lies["a"] else size.m, "b": size.k if lies["b"] else size.n}
    return tuple(name for name in ("a", "b") if extents[name] * BYTES[kind] % 16 or (needed and not lies[name]))


def choices(operation: Call, kind: str, size: Size, device_name: str, layout: tuple[tuple[str, str], ...] = (), most: int = 8, epilogues: tuple[Call, ...] = ()) -> tuple[Choice, ...]:
    """Legal configurations, fastest first by the model, at most two of a tile; `kind` is what wgmma multiplies.

    The first is what nvidia-matmul-heuristics proposes, or else the earliest of TILES and CLUSTERS, where that is within NEAR of the fastest: the
    order there is what experience prefers.
    """
    device = devices.find(device_name)
    copied: tuple[str, ...]
    if kind == "tf32x3":  # both operands are written in parts, three times as long
        copied, moved, size = ("a", "b"), 4, dataclasses.replace(size, k=3 * size.k)
    else:
        copied, moved = copied_of(kind, size, layout), 2
    copying = {name: moved * {"a": size.m, "b": size.n}[name] * size.k // (3 if moved == 4 else 1) * size.batches * BYTES[kind] / device.bandwidth for name in copied}
    expected = {_settings(s.tile, kind, s.cluster, (s.splits,)): s.seconds for s in heuristics.suggestions(kind, (size.m, size.n, size.k, size.batches), layout, device_name)}
    found, activated = [], any("cute.math" in FUNCTIONS.get(call.name, "") for call in epilogues)
    direct = tuple(_through_registers(kind, size)) if kind == "tf32" and "b" in copied and "b" not in copied_of(kind, size, (*layout, ("b", "row")), along_k=False) else ()
    for settings in dict.fromkeys((*expected, *direct, *_ways(kind, size))):
        stage = Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings), epilogues=epilogues)
        if check(Program(stages=(stage,))):
            continue
        plan = plan_of(stage)
        seconds, tiles, ctas = modelled(plan, size, device, activated)
        if plan.streamk and filled(tiles, ctas) >= BADLY_FILLED:
            continue
        left = tuple(name for name in copied if not (plan.registers and name == "b"))
        seconds = seconds * (THROUGH_COST if plan.registers else 1.0) + sum(copying[name] for name in left)
        early = (put("launch", "early"),) if seconds < EARLY_BELOW_S else ()
        found.append(Choice(settings=(*settings, *early), plan=dataclasses.replace(plan, early=bool(early)), seconds=seconds, tiles=tiles, ctas=ctas, copied=left, suggested=expected.get(settings)))
    if not found:
        return ()
    fastest = min(choice.seconds for choice in found)
    first = next(choice for choice in found if choice.seconds <= NEAR * fastest)
    kept = [first]
    for choice in sorted(found, key=lambda choice: choice.seconds):
        if choice != first and sum(other.plan.tile == choice.plan.tile for other in kept) < 2:
            kept.append(choice)
    if size.m * size.n > STORED * (size.m + size.n) * size.k:
        kept = [item for n, choice in enumerate(kept) for item in (*(_stored_ahead(choice, operation, epilogues) if n < 2 else ()), choice)]
    return tuple(kept[:most])


def _stored_ahead(choice: Choice, operation: Call, epilogues: tuple[Call, ...]) -> Iterator[Choice]:
    """The choice with shared memory given to what is on its way out instead of to stages; first with tiles walked along the result's rows, so that whole rows are written at about the same time."""
    kept = tuple(call for call in choice.settings if call.name not in ("stages", "store"))
    for count in (8, 4, 2):
        settings = (*kept, put("stages", 2), put("store", "tma", count))
        if not check(Program(stages=(Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings), epilogues=epilogues),))):
            for more in ((put("raster", "along_m" if choice.plan.swap else "along_n", 64),), ()):
                plan = plan_of(Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings, *more), epilogues=epilogues))
                yield dataclasses.replace(choice, settings=(*settings, *more), plan=plan)
            return


def _ways(kind: str, size: Size) -> Iterator[tuple[Call, ...]]:
    """Settings to try, most preferred first; tiles as many bytes along k as those of two-byte elements."""
    tiles = [(tm, tn, tk * 2 // BYTES[kind]) for tm, tn, tk in TILES]
    few = () if size.m > FEW or size.n <= size.m else tuple(_swapped(kind, size))
    yield from few if size.m <= VERY_FEW else ()
    for tile in tiles:
        tm, tn, _ = tile
        for cluster in (pair for pair in CLUSTERS if pair[0] <= math.ceil(size.m / tm) and pair[1] <= math.ceil(size.n / tn)):  # no CTA without work
            for splits in SPLITS:
                yield _settings(tile, kind, cluster, (splits,))
            yield _settings(tile, kind, cluster, schedule="pingpong")
    yield from few
    for tile, splits in itertools.product(tiles, IN_CLUSTER):
        yield _settings(tile, kind, (1, 1), (splits, "cluster"))
    for tile, cluster in itertools.product(tiles[:6], CLUSTERS[:3]):
        if cluster[0] <= math.ceil(size.m / tile[0]) and cluster[1] <= math.ceil(size.n / tile[1]):
            yield (*_settings(tile, kind, cluster), put("streamk", "yes"))


def _through_registers(kind: str, size: Size) -> Iterator[tuple[Call, ...]]:
    """TF32 with b along n: the transposed product reads it through registers, and nothing is copied first."""
    if kind == "tf32":
        for tm, tn, tk in TILES[:6]:
            for cluster in (pair for pair in CLUSTERS[:3] if pair[0] <= math.ceil(size.n / tm) and pair[1] <= math.ceil(size.m / tn)):
                yield (*_settings((tm, tn, tk * 2 // BYTES[kind]), kind, cluster), Call(name="swap"), put("through", "registers"))


def _swapped(kind: str, size: Size) -> Iterator[tuple[Call, ...]]:
    """The transposed product: a tile as wide as m, or as the next width that wgmma has."""
    wide = next(n for n in (16, 32, 64, 128, 256) if n >= size.m)
    for high, deep, splits in itertools.product((64, 128), (64, 128), (2, 4, 8, 1)):
        yield (*_settings((high, wide, deep * 2 // BYTES[kind]), kind, (1, 1), (splits, "cluster") if splits > 1 else (1,)), Call(name="swap"))


def _settings(tile: tuple[int, int, int], kind: str, cluster: tuple[int, int], splits: tuple[object, ...] = (1,), schedule: str = "cooperative") -> tuple[Call, ...]:
    how = (*((put("cluster", *cluster),) if cluster != (1, 1) else ()), *((put("splitk", *splits),) if splits != (1,) else ()))
    return (put("tile", *tile), put("mma", kind), put("schedule", schedule), *how)
