"""The ladder of convolutions: Hopper's implicit products, fastest first by a model; else mma.sync and direct sums.

Depthwise convolutions are sliding sums. For one tile and one step, the model counts the cycles of wgmma and of the
tiles from L2 (a cluster shares the filters). It adds the epilogue if nothing hides it. The bytes of the copy in front
and of the result bound the whole. The model ranks configurations; its seconds are not exact.
"""

from __future__ import annotations

import math

from workbench.analysis import devices
from workbench.kernels.conv.config import Sm90Config
from workbench.kernels.gemm.sm90.config import BYTES, TF32, GemmSm90Config
from workbench.language import Call, Program, Stage, check
from workbench.language.operations.conv.configs import sm90_config
from workbench.proposers.ladders import gemm_hopper, gemm_size
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.ladders.convolutions.halos import HaloChoice, list_halo_choices
from workbench.proposers.ladders.convolutions.patches import list_patch_choices
from workbench.proposers.ladders.convolutions.rates import L2_BYTES_PER_CYCLE, STEP_CYCLES, count_store_cycles
from workbench.proposers.ladders.convolutions.reduced_filters import keep_whole_tiles, reduces_filters
from workbench.proposers.ladders.convolutions.size import Size, size_of
from workbench.proposers.ladders.gemm_hopper import EXACT, IN_PARTS
from workbench.proposers.ladders.gemm_hopper_model import MMA_FLOPS_PER_CYCLE
from workbench.records import record

MMA_SYNC = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}  # precision -> operand type of mma.sync
WGMMA = {**MMA_SYNC, "fp32": "tf32x3"}  # and of Hopper's tensor cores; tf32x3 splits each float32 into two parts
# measured over modelled time of pingpong with tiles of 64 filters, relative to cooperative ones
# (one 3-D convolution on an H200)
NARROW = 1.1
# measured over modelled time of cooperative tiles in clusters, relative to others
# (five convolutions on an H200, 2026-11-22)
IN_CLUSTERS = 1.15
# measured over modelled time of implicit products, K being taps and channels of a result: 1.1 to 1.2 from K 480 on,
# 2.4 at K 72; of transposed ones with a stride 4.7 to 6, whose results lie apart (eleven convolutions of KernelBench on
# an H200 and an H100, 2026-11-27; other stages of a pipeline taken off by their bytes)
MEASURED, SHALLOW_K, APART = 1.1, 60, 5.0
# the direct sum goes first up to so many channels and products per result: 27 products of 3 channels took 2.99 ms
# this way, and 3.60 ms as an implicit product (one H200, 2026-11-22); the limits are inferred
FEW, SHALLOW = 4, 32
WIDTHS = (128, 256, 192, 96, 64, 48, 32, 16)  # filters of a tile
MOST_TAPS = 25  # taps of a filter plane that sliding sums can keep in registers


@record
class Choice:
    """Settings with their modelled time."""

    settings: tuple[Call, ...]
    plan: Sm90Config | GemmSm90Config
    seconds: float
    product: gemm_hopper.Choice | None = None  # for filters of one tap, which are a plain product

    @property
    def title(self) -> str:
        """The settings in words."""
        if self.product is not None or not isinstance(self.plan, Sm90Config):
            return f"a product: {self.product.title if self.product else ''}"
        parts = IN_PARTS if self.plan.split else ""
        cluster = f", clusters of {self.plan.cluster}" if self.plan.cluster > 1 else ""
        lines = ", filter lines as channels" if self.plan.unfold else ""
        return f"{parts}{'x'.join(map(str, self.plan.tile))} tiles, {self.plan.schedule}{cluster}{lines}"

    @property
    def reason(self) -> str:
        """Why the model ranks it here."""
        if self.product is not None or not isinstance(self.plan, Sm90Config):
            reason = self.product.reason if self.product else ""
            return f"filters of one tap make a product of the filters and each image, where it lies; {reason}"
        how = "; one warpgroup stores while the other multiplies" if self.plan.schedule == "pingpong" else ""
        how += "; a cluster fetches the filters once" if self.plan.cluster > 1 else ""
        how += (
            "; too few channels fill a tensor core, those under a whole line of the filter do"
            if self.plan.unfold
            else ""
        )
        how += f"; {EXACT}" if self.plan.split else ""
        return f"an implicit product: TMA feeds wgmma a tile of the input for each tap of the filter{how}"


def model_time(plan: Sm90Config, size: Size, device: devices.Device) -> float:
    """Modelled seconds of the copy in front and of the product."""
    tm, tn, tk = plan.tile
    width = BYTES[plan.mma]
    phases = math.prod(size.stride) if size.transposed else 1
    # the three parts of a tf32x3 product are three times the channels
    channels, taps = size.channels * (3 if plan.split else 1), math.prod(size.taps)
    if plan.unfold:
        channels, taps = channels * size.taps[-1], math.prod(size.taps[:-1])
    blocks = min(
        (blocks for blocks in range(1, size.groups + 1) if size.groups % blocks == 0),
        key=lambda blocks: blocks * math.ceil(channels / blocks / tk) * math.ceil(size.filters / blocks / tn),
    )
    depth = math.ceil(channels / blocks / tk) * tk
    places = _grid_places(plan, size)
    tiles = math.ceil(places / tm) * math.ceil(size.filters / blocks / tn) * blocks * phases
    tile = _tile_cycles(plan, steps=max(taps / phases, 1) * depth / tk)
    strides = 1 if size.transposed or plan.unfold else math.prod(size.stride)
    elements = size.channels * math.prod(size.extents) + depth * blocks * strides * places / size.images
    copied = elements * size.images * width
    bandwidth = device.copy_bandwidth or device.bandwidth
    moved = (places * depth * blocks + size.images * size.filters * math.prod(size.out)) * width
    return copied / bandwidth + max(math.ceil(tiles / device.sms) * tile / device.clock_hz, moved / bandwidth)


def _grid_places(plan: Sm90Config, size: Size) -> int:
    """Places of the grid: the results, and the border that the filter reaches beyond them."""
    scale = size.stride if size.transposed else (1,) * len(size.out)
    reach = [math.ceil(tap / step) - 1 for tap, step in zip(size.taps, size.stride, strict=True)]
    if plan.unfold:
        reach[-1] = 0
    return size.images * math.prod(
        math.ceil(out / step) + over for out, step, over in zip(size.out, scale, reach, strict=True)
    )


def _tile_cycles(plan: Sm90Config, steps: float) -> float:
    """Cycles of one tile with so many steps. With pingpong one tile's store overlaps the other's product."""
    tm, tn, tk = plan.tile
    width = BYTES[plan.mma]
    pingpong = plan.schedule == "pingpong"
    multiply = 2 * tm * tn * tk / (MMA_FLOPS_PER_CYCLE * 2 / width)
    fetch = (tm + tn / plan.cluster) * tk * width / L2_BYTES_PER_CYCLE
    store = count_store_cycles(plan.rows, tn)
    step = max(multiply, fetch, tm + tn / plan.cluster) + (STEP_CYCLES if pingpong else STEP_CYCLES / 2)
    product = steps * step
    return max(product, (product + store) / 2) if pingpong else product + store


def list_choices(operation: Call, kind: str, size: Size, device_name: str, most: int = 6) -> tuple[Choice, ...]:
    """Legal configurations, fastest first by the model, at most two of a tile."""
    device, found = devices.find(device_name), []
    unfolds = (
        ((), (Call(name="unfold"),)) if size.groups == 1 and not size.transposed and size.channels <= 16 else ((),)
    )
    widths = [n for n in WIDTHS if kind not in TF32 or n % 32 == 0 or n == 16]
    enough = min((n for n in widths if n >= size.filters), default=max(widths))  # a wider tile would be empty in part
    for tm, tn, bytes_k in ((m, n, k) for m in (128, 256) for n in widths if n <= enough for k in (128, 64, 32)):
        for schedule in ("cooperative", "pingpong"):
            for cluster in (2, 1):
                for unfold in unfolds:
                    settings = (
                        put("mma", kind),
                        put("tile", tm, tn, bytes_k // BYTES[kind]),
                        put("schedule", schedule),
                        *((put("cluster", cluster),) if cluster > 1 else ()),
                        *unfold,
                    )
                    stage = Stage(operation=operation, settings=(put("arch", "sm_90a"), *settings))
                    if not check(Program(stages=(stage,))):
                        plan = sm90_config(stage)
                        found.append(Choice(settings=settings, plan=plan, seconds=model_time(plan, size, device)))
    found.sort(key=lambda choice: choice.seconds * _correction(choice.plan))
    kept: list[Choice] = []
    for choice in found:
        if sum(other.plan.tile == choice.plan.tile for other in kept) < 2:
            kept.append(choice)
    return (*_products(kind, size, device_name), *kept)[:most]


def correct_whole(choice: Choice | HaloChoice, size: Size) -> float:
    """Measured over modelled time of all such choices for a size; with it they compare with patches."""
    if isinstance(choice, Choice) and choice.product is not None:
        return 1.0
    if size.transposed and math.prod(size.stride) > 1:
        return APART
    return MEASURED + SHALLOW_K / (size.channels // size.groups * math.prod(size.taps))


def _correction(plan: Sm90Config | GemmSm90Config) -> float:
    """Measured over modelled time of such kernels, relative to others."""
    if isinstance(plan, Sm90Config) and plan.schedule == "cooperative":
        return IN_CLUSTERS if plan.cluster > 1 else 1.0
    return NARROW if plan.tile[1] <= 64 else 1.0


def _products(kind: str, size: Size, device_name: str) -> tuple[Choice, ...]:
    """Choices for filters of one tap: a product that reads the input without a copy."""
    if (
        size.transposed
        or size.groups != 1
        or math.prod(size.taps) != 1
        or math.prod(size.stride) != 1
        or size.extents != size.out
    ):
        return ()
    found = gemm_hopper.list_choices(
        Call(name="gemm", positional=("a", "b")),
        kind,
        gemm_size.Size(m=size.filters, n=math.prod(size.out), k=size.channels, batches=size.images),
        device_name,
        most=4,
    )
    found = tuple(sorted(found, key=lambda choice: choice.seconds)[:2])
    return tuple(
        Choice(
            settings=(Call(name="product"), *choice.settings), plan=choice.plan, seconds=choice.seconds, product=choice
        )
        for choice in found
    )


def convolution_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of a convolution."""
    operation = context.found.operation
    depthwise = dict(operation.named).get("groups") == "channels"
    simple = Rung(
        settings=(),
        title="one result per thread",
        reason="the simplest correct kernel: every operand is read from global memory each time",
    )
    size = size_of(context)
    if reduces_filters(context.found):
        return keep_whole_tiles(_hopper_rungs(context), size) if size is not None else ()
    patches, hopper = _patch_rungs(context), _hopper_rungs(context)
    if hopper and patches and (hopper[0].seconds or 0.0) <= (patches[0].seconds or 0.0):
        modelled = (*hopper, *patches)
    else:
        modelled = (*patches, *hopper)
    if operation.name == "convtranspose":
        return (*modelled, simple, *_tensor_core_rungs(context))
    shallow = (
        not depthwise
        and size is not None
        and size.channels // size.groups <= FEW
        and size.channels // size.groups * math.prod(size.taps) <= SHALLOW
    )
    sliding = _sliding_rungs(depthwise, shallow)
    if context.arch != "sm_90a":
        return (*modelled, simple, *_tensor_core_rungs(context), *sliding)
    if not depthwise and size is not None and math.prod(size.taps[-2:]) > MOST_TAPS:
        return (*modelled, simple)
    if depthwise:
        return (*sliding, simple)
    fastest = sliding[::-1]
    return (
        (*patches, *fastest[: 2 * shallow], *hopper, *fastest[2 * shallow :], simple)
        if shallow
        else (*modelled, *fastest, simple)
    )


def _patch_rungs(context: Context) -> tuple[Rung, ...]:
    """Convolutions by patches, where TF32 is asked for and the size is known."""
    size, operation = size_of(context), context.found.operation
    if size is None or context.precision != "tf32" or dict(operation.named).get("groups") == "channels":
        return ()
    if math.prod(size.taps) == 1:  # a product, which needs no patch
        return ()
    return tuple(
        Rung(settings=choice.settings, title=choice.title, reason=choice.reason, seconds=choice.seconds)
        for choice in list_patch_choices(operation, context.arch, size, context.device)
    )


def _sliding_rungs(depthwise: bool, shallow: bool) -> tuple[Rung, ...]:
    """Direct sums with several results per thread. The fastest is first for depthwise convolutions, else last."""
    served = "an input that is loaded serves {} filters"
    ways: list[tuple[int, int, int, str, str]] = [
        (
            128,
            8,
            1,
            "8 results below each other per thread",
            "an input row that is loaded serves all results that the filter lays over it",
        ),
        (256, 8, 1, "256 threads per CTA", "a wider CTA reads longer pieces of a row"),
        (128, 16, 1, "16 results below each other per thread", "fewer input rows are read twice"),
    ]
    if depthwise:
        ways.insert(0, (32, 8, 1, "one warp per CTA", "fewer threads stand beyond the end of a row"))
    else:
        ways.append((128, 4, 4, "4 filters per thread", served.format("four")))
    if shallow:
        ways += [
            (128, 16, 8, "8 filters and 16 results below each other per thread", served.format("eight")),
            (
                128,
                16,
                4,
                "4 filters and 16 results below each other per thread",
                f"few products make a result: {served.format('four')}, and its row sixteen results",
            ),
        ]
    return tuple(
        Rung(
            settings=(put("threads", threads), put("rows", rows), *((put("filters", filters),) if filters > 1 else ())),
            title=title,
            reason=reason,
            need="sectors",
        )
        for threads, rows, filters, title, reason in ways
    )


def _tensor_core_rungs(context: Context) -> tuple[Rung, ...]:
    """Implicit products by mma.sync, for architectures without wgmma."""
    kind = MMA_SYNC.get(context.precision)
    if context.arch == "sm_90a" or kind is None or dict(context.found.operation.named).get("groups") == "channels":
        return ()
    deep = 64 // BYTES[kind]
    return tuple(
        Rung(
            settings=(put("mma", kind), put("tile", *tile, deep), put("stages", stages)),
            title=f"{tile[0]}x{tile[1]} tiles on tensor cores",
            reason=reason,
            need="tensor",
        )
        for tile, stages, reason in (
            (
                (128, 64),
                3,
                (
                    f"an implicit product: cp.async feeds mma.sync on {kind} "
                    "a tile of the input for each tap of the filter"
                ),
            ),
            (
                (128, 128),
                4,
                "a larger tile: each input that is loaded serves more filters, with more of them on the way",
            ),
            ((64, 64), 4, "a smaller tile: more CTAs, where results are few"),
        )
    )


def _hopper_rungs(context: Context) -> tuple[Rung, ...]:
    kind, size = WGMMA.get(context.precision), size_of(context)
    operation = context.found.operation
    if context.arch != "sm_90a" or kind is None or dict(operation.named).get("groups") == "channels":
        return ()
    if size is None:
        settings = (put("mma", kind), put("tile", 128, 128, 128 // BYTES[kind]), put("schedule", "pingpong"))
        parts, exact = (IN_PARTS, f"; {EXACT}") if kind == "tf32x3" else ("", "")
        return (
            Rung(
                settings=settings,
                title=f"{parts}128x128 tiles, pingpong",
                reason=f"an implicit product: TMA feeds wgmma a tile of the input for each tap of the filter{exact}",
            ),
        )
    halos = list_halo_choices(operation, kind, size, context.device, stores=not reduces_filters(context.found))
    choices = order_choices(list_choices(operation, kind, size, context.device), halos)
    return tuple(
        Rung(
            settings=choice.settings,
            title=choice.title,
            reason=choice.reason,
            seconds=choice.seconds * correct_whole(choice, size),
        )
        for choice in choices
    )


def order_choices(known: tuple[Choice, ...], halos: tuple[HaloChoice, ...]) -> tuple[Choice | HaloChoice, ...]:
    """Halos first where the model says so, else the fastest of them as the first idea behind the first choice."""
    if not known or (halos and known[0].seconds >= halos[0].seconds):
        return (halos[0], *halos[-1:], *halos[1:-1], *known) if len(halos) > 1 else (*halos, *known)
    return (known[0], *halos[:1], *known[1:])
