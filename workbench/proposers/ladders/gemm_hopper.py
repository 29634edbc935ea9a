"""Lists Hopper configurations of a gemm, fastest first by a model.

Input: problem size and device. Output: muCUTLASS settings, each with its modelled time (`gemm_hopper_model`). Stream-K
is tried if whole tiles fill less than BADLY_FILLED of the device.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

from workbench.analysis import devices
from workbench.kernels.gemm.sm90.config import ALONG_K, BYTES, GemmSm90Config
from workbench.language import Call, Program, Stage, check
from workbench.language.expressions.expressions import functions_used
from workbench.language.expressions.scalars import MATH
from workbench.language.operations.gemm.sm90 import config_of
from workbench.proposers.ladders import heuristics
from workbench.proposers.ladders.base import put
from workbench.proposers.ladders.gemm_hopper_model import busy_share, copied_operands, model_time
from workbench.proposers.ladders.gemm_size import Size
from workbench.records import record

# tiles for elements of two bytes; for other elements, tiles have the same number of bytes along k
TILES = (
    (128, 256, 64),
    (256, 128, 64),
    (128, 192, 64),
    (128, 128, 64),
    (64, 256, 64),
    (128, 64, 64),
    (64, 128, 64),
    (64, 64, 64),
    (64, 32, 64),
    (64, 16, 64),
    (64, 64, 128),
    (64, 32, 128),
    (64, 16, 128),
)
CLUSTERS = ((2, 1), (1, 1), (1, 2), (2, 2))
SPLITS = (1, 2, 4, 8, 16)
IN_CLUSTER = (2, 4, 8)  # parts of k that the CTAs of a cluster add up
# average share of the device at work; inferred: with more, the sums of two tiles through memory cost what is saved
BADLY_FILLED = 0.9
FEW, VERY_FEW = 256, 64  # the transposed product is tried if m is at most FEW, and goes first if at most VERY_FEW
THROUGH_COST = 1.05  # inferred: cost of reading wgmma's first operand into registers
# launch(early) took 0.9 us off 1024^3 and 0.3 us off 2048^3 on an H200 (2026-11-21), and no measurable time at 4096^3
EARLY_BELOW_S = 60e-6
NEAR = 1.05  # a choice that experience prefers may be so much slower by the model
STORED = 4  # if the result is so many times as large as both operands, storing it takes most time (inferred)
IN_PARTS, EXACT = (
    "float32 by three products of TF32, ",
    "each float32 is two parts of TF32, and three products of parts are nearly as accurate as one of float32",
)


@record
class Choice:
    """Settings with their modelled time on the whole device, number of tiles, and number of CTAs."""

    settings: tuple[Call, ...]
    plan: GemmSm90Config
    seconds: float
    tiles: int
    ctas: int
    copied: tuple[str, ...]  # operands that TMA or wgmma cannot read where they lie
    suggested: float | None = None  # seconds that nvidia-matmul-heuristics predicts, if the package proposed it

    @property
    def source(self) -> str:
        """The model that ranks it, in words. Its seconds are not said: the one modelled time is the verdict's."""
        if self.suggested is not None:
            return f"by {heuristics.PACKAGE}, which proposes it"
        return "by this workbench's own model" + (
            "" if heuristics.is_installed() else f" ({heuristics.PACKAGE} is not installed)"
        )

    @property
    def title(self) -> str:
        """The settings in words."""
        plan = self.plan
        tile = "x".join(map(str, plan.tile))
        of = " of the transposed product" if plan.swap else ""
        cluster = "" if plan.cluster == (1, 1) else f", clusters of {plan.cluster[0]}x{plan.cluster[1]}"
        split = "" if plan.split_k == 1 else f", k in {plan.split_k} parts" + " of a cluster" * plan.in_cluster
        split += ", the last wave cut along k" * plan.stream_k
        parts = IN_PARTS if plan.kind == "tf32x3" else ""
        ahead = f", {plan.store_buffers} pieces on their way" if plan.store_buffers else ""
        ahead += " along rows" if plan.store_buffers and plan.band == 64 else ""
        return f"{parts}{tile} tiles{of}, {plan.schedule}{cluster}{split}{ahead}"

    @property
    def reason(self) -> str:
        """Why the model ranks it here."""
        plan, waves = self.plan, self.tiles / self.ctas
        what = f"{self.tiles} tiles on {self.ctas} CTAs ({waves:.1f} waves)"
        text = (
            f"TMA feeds wgmma through {plan.stages} stages; {what}{self._fetch_text}{self._sum_text}{self._move_text}"
        )
        text += f"; {EXACT}" if plan.kind == "tf32x3" else f"{self._copy_text}; on {plan.kind}"
        return f"{text}; ranked {self.source}"

    @property
    def _fetch_text(self) -> str:
        """The operand that a cluster fetches once, and whether a store overlaps a product."""
        plan = self.plan
        operand = "b" if plan.cluster[0] > 1 else "a"
        shared = (
            f"; a cluster fetches a tile of {operand} once for {math.prod(plan.cluster)} CTAs"
            if plan.cluster != (1, 1)
            else ""
        )
        return shared + ("; one warpgroup stores while the other multiplies" if plan.schedule == "pingpong" else "")

    @property
    def _sum_text(self) -> str:
        """How the sum over k is split."""
        plan, text = self.plan, ""
        if plan.split_k > 1:
            text += f"; {plan.split_k} parts of k are summed up side by side"
            text += ", and added in the shared memories of a cluster" if plan.in_cluster else ""
        if plan.stream_k:
            before = " and the one before" * (self.tiles / self.ctas > 1)
            text += f"; whole tiles would keep {100 * busy_share(self.tiles, self.ctas):.0f}% of the device busy, "
            text += f"so stream-K cuts those of the last wave{before} along k into equal shares"
        return text

    @property
    def _move_text(self) -> str:
        """How operands are read and results are stored."""
        plan, text = self.plan, ""
        if plan.swap and not plan.a_in_registers:
            text += "; the few rows are what wgmma calls n, so that no tile sticks out of them"
        if plan.store_buffers:
            text += f"; {plan.store_buffers} pieces of the result leave each warpgroup's shared memory at once"
            text += ", whole rows at about the same time" if plan.band == 64 else ""
        if plan.a_in_registers:
            text += "; b goes through registers as it lies, and needs no copy along k"
        return text

    @property
    def _copy_text(self) -> str:
        """The operands that are copied first, and the reason."""
        if not self.copied:
            return ""
        reader = f"wgmma on {self.plan.kind}" if self.plan.kind in ALONG_K else "TMA"
        return (
            f"; {' and '.join(self.copied)} first copied along k into rows at multiples of 16 bytes, "
            f"since {reader} cannot read {'them' if self.copied[1:] else 'it'}"
        )


def list_choices(
    operation: Call,
    kind: str,
    size: Size,
    device_name: str,
    layout: tuple[tuple[str, str], ...] = (),
    most: int = 8,
    epilogues: tuple[Call, ...] = (),
) -> tuple[Choice, ...]:
    """Legal configurations, fastest first by the model, at most two of a tile. `kind` is wgmma's operand type.

    A configuration within NEAR of the fastest goes first: one that nvidia-matmul-heuristics proposes, else the earliest
    in the order of TILES and CLUSTERS, which comes from experience.
    """
    asked = _terms(kind, size)
    suggested = tuple(
        (_settings(s.tile, kind, s.cluster, (s.splits,)), s.seconds)
        for s in heuristics.suggest(kind, (asked.m, asked.n, asked.k, asked.batches), layout, device_name)
    )
    return _rank(operation, kind, size, devices.find(device_name), layout, epilogues, suggested)[:most]


@functools.lru_cache(maxsize=128)  # each step of a session asks again for each of its products
def _rank(
    operation: Call,
    kind: str,
    original: Size,
    device: devices.Device,
    layout: tuple[tuple[str, str], ...],
    epilogues: tuple[Call, ...],
    suggested: tuple[tuple[tuple[Call, ...], float], ...],
) -> tuple[Choice, ...]:
    size, known = _terms(kind, original), dict(suggested)
    copying = _copy_seconds(kind, original, layout, device)
    direct = tuple(_register_settings(kind, size)) if _needs_copy_of_b_only(kind, size, layout) else ()
    found = []
    for settings in dict.fromkeys((*known, *direct, *_list_settings(kind, size))):
        stage = Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings), epilogues=epilogues)
        choice = None if check(Program(stages=(stage,))) else _rate(stage, size, device, copying)
        if choice is not None:
            found.append(dataclasses.replace(choice, suggested=known.get(settings)))
    kept = _keep_best(found)
    if size.m * size.n > STORED * (size.m + size.n) * size.k:
        ahead = [(*_store_variants(choice, operation, epilogues), choice) for choice in kept[:2]]
        kept = [*itertools.chain.from_iterable(ahead), *kept[2:]]
    return tuple(kept)


def _terms(kind: str, size: Size) -> Size:
    """The size of the product that is computed: of three products for tf32x3."""
    return dataclasses.replace(size, k=3 * size.k) if kind == "tf32x3" else size


def _copy_seconds(
    kind: str, size: Size, layout: tuple[tuple[str, str], ...], device: devices.Device
) -> dict[str, float]:
    """Seconds to copy each operand that needs a copy.

    For tf32x3 both operands are read once and written in three parts; others are read and written once.
    """
    copied, moved = (("a", "b"), 4) if kind == "tf32x3" else (copied_operands(kind, size, layout), 2)
    rows = {"a": size.m, "b": size.n}
    return {name: moved * rows[name] * size.k * size.batches * BYTES[kind] / device.bandwidth for name in copied}


def _needs_copy_of_b_only(kind: str, size: Size, layout: tuple[tuple[str, str], ...]) -> bool:
    """Whether b of a TF32 product would be copied only because it is not contiguous along k."""
    return (
        kind == "tf32"
        and "b" in copied_operands(kind, size, layout)
        and "b" not in copied_operands(kind, size, (*layout, ("b", "row")), along_k=False)
    )


def _rate(stage: Stage, size: Size, device: devices.Device, copying: dict[str, float]) -> Choice | None:
    """The choice of a stage's settings with its modelled time; None for stream-K if whole tiles fill the device."""
    plan, activated = config_of(stage), any(MATH & {*functions_used(call)} for call in stage.epilogues)
    seconds, tiles, ctas = model_time(plan, size, device, activated)
    if plan.stream_k and busy_share(tiles, ctas) >= BADLY_FILLED:
        return None
    left = tuple(name for name in copying if not (plan.a_in_registers and name == "b"))
    seconds = seconds * (THROUGH_COST if plan.a_in_registers else 1.0) + sum(copying[name] for name in left)
    early = (put("launch", "early"),) if seconds < EARLY_BELOW_S else ()
    return Choice(
        settings=(*stage.settings[1:], *early),
        plan=dataclasses.replace(plan, pdl=bool(early)),
        seconds=seconds,
        tiles=tiles,
        ctas=ctas,
        copied=left,
    )


def _keep_best(found: list[Choice]) -> list[Choice]:
    """The first of the choices within NEAR of the fastest, then the others by time, at most two of a tile."""
    if not found:
        return []
    fastest = min(choice.seconds for choice in found)
    first = next(choice for choice in found if choice.seconds <= NEAR * fastest)
    kept = [first]
    for choice in sorted(found, key=lambda choice: choice.seconds):
        if choice != first and sum(other.plan.tile == choice.plan.tile for other in kept) < 2:
            kept.append(choice)
    return kept


def _store_variants(choice: Choice, operation: Call, epilogues: tuple[Call, ...]) -> Iterator[Choice]:
    """Variants of a choice that use shared memory for results on their way out instead of for stages.

    The first variant orders tiles along the result's rows, so that whole rows are written at about the same time.
    """
    kept = tuple(call for call in choice.settings if call.name not in ("stages", "store"))
    for count in (8, 4, 2):
        settings = (put("arch", "sm_90a"), *kept, put("stages", 2), put("store", "tma", count))
        stage = Stage(operation=operation, settings=settings, epilogues=epilogues)
        if not check(Program(stages=(stage,))):
            for more in ((put("raster", "along_m" if choice.plan.swap else "along_n", 64),), ()):
                plan = config_of(dataclasses.replace(stage, settings=(*settings, *more)))
                yield dataclasses.replace(choice, settings=(*settings[1:], *more), plan=plan)
            return


def _list_settings(kind: str, size: Size) -> Iterator[tuple[Call, ...]]:
    """Settings to try, most preferred first. Tiles have as many bytes along k as those of two-byte elements."""
    tiles = [(tm, tn, tk * 2 // BYTES[kind]) for tm, tn, tk in TILES]
    few = () if size.m > FEW or size.n <= size.m else tuple(_swapped_settings(kind, size))
    yield from few if size.m <= VERY_FEW else ()
    for tile in tiles:
        tm, tn, _ = tile
        for cluster in (
            pair for pair in CLUSTERS if pair[0] <= math.ceil(size.m / tm) and pair[1] <= math.ceil(size.n / tn)
        ):  # no CTA without work
            for splits in SPLITS:
                yield _settings(tile, kind, cluster, (splits,))
            yield _settings(tile, kind, cluster, schedule="pingpong")
    yield from few
    for tile, splits in itertools.product(tiles, IN_CLUSTER):
        yield _settings(tile, kind, (1, 1), (splits, "cluster"))
    for tile, cluster in itertools.product(tiles[:6], CLUSTERS[:3]):
        if cluster[0] <= math.ceil(size.m / tile[0]) and cluster[1] <= math.ceil(size.n / tile[1]):
            yield (*_settings(tile, kind, cluster), put("streamk", "yes"))


def _register_settings(kind: str, size: Size) -> Iterator[tuple[Call, ...]]:
    """TF32 with b contiguous along n: the transposed product reads b through registers and needs no copy."""
    if kind == "tf32":
        for tm, tn, tk in TILES[:6]:
            for cluster in (
                pair for pair in CLUSTERS[:3] if pair[0] <= math.ceil(size.n / tm) and pair[1] <= math.ceil(size.m / tn)
            ):
                yield (
                    *_settings((tm, tn, tk * 2 // BYTES[kind]), kind, cluster),
                    Call(name="swap"),
                    put("through", "registers"),
                )


def _swapped_settings(kind: str, size: Size) -> Iterator[tuple[Call, ...]]:
    """The transposed product: a tile as wide as m, or as the next width that wgmma has."""
    wide = next(n for n in (16, 32, 64, 128, 256) if n >= size.m)
    for high, deep, splits in itertools.product((64, 128), (64, 128), (2, 4, 8, 1)):
        yield (
            *_settings(
                (high, wide, deep * 2 // BYTES[kind]), kind, (1, 1), (splits, "cluster") if splits > 1 else (1,)
            ),
            Call(name="swap"),
        )


def _settings(
    tile: tuple[int, int, int],
    kind: str,
    cluster: tuple[int, int],
    splits: tuple[object, ...] = (1,),
    schedule: str = "cooperative",
) -> tuple[Call, ...]:
    how = (
        *((put("cluster", *cluster),) if cluster != (1, 1) else ()),
        *((put("splitk", *splits),) if splits != (1,) else ()),
    )
    return (put("tile", *tile), put("mma", kind), put("schedule", schedule), *how)
