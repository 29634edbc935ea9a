"""Convolutions: Hopper's implicit products, fastest first by a model; elsewhere mma.sync and direct sums.

Depthwise convolutions are sliding sums. The model counts, for one tile and one step, the cycles of wgmma and of the
tiles out of L2 (a cluster shares the filters), adds the epilogue where nothing hides it, and bounds the whole by the
bytes of the copy in front and of the result behind. It ranks; it promises no time.
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
from workbench.proposers.ladders.gemm_hopper import EXACT, IN_PARTS
from workbench.proposers.ladders.gemm_hopper_model import MMA_FLOPS_PER_CYCLE
from workbench.records import record

MMA_SYNC = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}  # precision -> what mma.sync multiplies
WGMMA = {**MMA_SYNC, "fp32": "tf32x3"}  # and Hopper's tensor cores: of float32 two parts each
L2_BYTES_PER_CYCLE = 40  # of one SM while all read; inferred from products, which reach at least 32
# of one step that no multiplication hides, inferred; TMA takes at least a cycle for a row of a tile, inferred too
STEP_CYCLES = 60
TILE_CYCLES = 800  # of one tile: where its results go, the first wait; inferred
# of one result of a warpgroup: through shared memory and out; inferred from the instructions of its store
ELEMENT_CYCLES = 14 / 128
# how much slower than the model pingpong was on tiles of 64 filters, beside cooperative ones
# (one 3-D convolution on an H200)
NARROW = 1.1
# how much slower than the model cooperative tiles of a cluster were, beside others
# (five convolutions on an H200, 2026-11-22)
IN_CLUSTERS = 1.15
# channels, and products per result, up to which the direct sum goes first: 27 products of 3 channels took 2.99 ms so,
# and 3.60 ms as an implicit product (one H200, 2026-11-22); the limits are inferred
FEW, SHALLOW = 4, 32
WIDTHS = (128, 256, 192, 96, 64, 48, 32, 16)  # filters of a tile
MOST_TAPS = 25  # of a plane of the filter, which sliding sums keep in registers


@record
class Size:
    """One convolution: extents of the input and of the result, taps of the filter along each, its stride."""

    images: int
    channels: int
    filters: int
    extents: tuple[int, ...]
    out: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    groups: int = 1
    transposed: bool = False


@record
class Choice:
    """Settings with their modelled time."""

    settings: tuple[Call, ...]
    plan: Sm90Config | GemmSm90Config
    seconds: float
    product: gemm_hopper.Choice | None = None  # of filters of one tap

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
        """What the model sees in it."""
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
        what = f"an implicit product: TMA feeds wgmma a tile of the input for each tap of the filter{how}"
        return f"{what}; modelled {self.seconds * 1e6:.3g} us"


def modelled(plan: Sm90Config, size: Size, device: devices.Device) -> float:
    """Seconds of the copy and the product."""
    tm, tn, tk = plan.tile
    width = BYTES[plan.mma]
    phases = math.prod(size.stride) if size.transposed else 1
    channels, taps = (
        size.channels * (3 if plan.split else 1),
        math.prod(size.taps),
    )  # in parts each stands three times
    if plan.unfold:
        channels, taps = channels * size.taps[-1], math.prod(size.taps[:-1])
    blocks = min(
        (blocks for blocks in range(1, size.groups + 1) if size.groups % blocks == 0),
        key=lambda blocks: blocks * math.ceil(channels / blocks / tk) * math.ceil(size.filters / blocks / tn),
    )
    depth = math.ceil(channels / blocks / tk) * tk
    # the grid: results, and what the filter hangs over
    scale = size.stride if size.transposed else (1,) * len(size.out)
    reach = [math.ceil(tap / step) - 1 for tap, step in zip(size.taps, size.stride, strict=True)]
    if plan.unfold:
        reach[-1] = 0
    places = size.images * math.prod(
        math.ceil(out / step) + over for out, step, over in zip(size.out, scale, reach, strict=True)
    )
    tiles = math.ceil(places / tm) * math.ceil(size.filters / blocks / tn) * blocks * phases
    steps = max(taps / phases, 1) * depth / tk
    multiply = 2 * tm * tn * tk / (MMA_FLOPS_PER_CYCLE * 2 / width)
    fetch = (tm + tn / plan.cluster) * tk * width / L2_BYTES_PER_CYCLE
    store = TILE_CYCLES + plan.rows * tn * ELEMENT_CYCLES
    product = steps * (
        max(multiply, fetch, tm + tn / plan.cluster) + (STEP_CYCLES if plan.schedule == "pingpong" else STEP_CYCLES / 2)
    )
    if plan.schedule == "pingpong":  # of two tiles, the longer of both products and of one with its store
        tile = max(product, (product + store) / 2)
    else:
        tile = product + store
    copied = (
        (
            size.channels * math.prod(size.extents)
            + depth * blocks * (1 if size.transposed or plan.unfold else math.prod(size.stride)) * places / size.images
        )
        * size.images
        * width
    )
    bandwidth = device.copy_bandwidth or device.bandwidth
    moved = (places * depth * blocks + size.images * size.filters * math.prod(size.out)) * width
    return copied / bandwidth + max(math.ceil(tiles / device.sms) * tile / device.clock_hz, moved / bandwidth)


def choices(operation: Call, kind: str, size: Size, device_name: str, most: int = 6) -> tuple[Choice, ...]:
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
                        found.append(Choice(settings=settings, plan=plan, seconds=modelled(plan, size, device)))
    found.sort(key=lambda choice: choice.seconds * _doubt(choice.plan))
    kept: list[Choice] = []
    for choice in found:
        if sum(other.plan.tile == choice.plan.tile for other in kept) < 2:
            kept.append(choice)
    return (*_products(kind, size, device_name), *kept)[:most]


def _doubt(plan: Sm90Config | GemmSm90Config) -> float:
    """How much slower than the model measured kernels of this sort were, beside others."""
    if isinstance(plan, Sm90Config) and plan.schedule == "cooperative":
        return IN_CLUSTERS if plan.cluster > 1 else 1.0
    return NARROW if plan.tile[1] <= 64 else 1.0


def _products(kind: str, size: Size, device_name: str) -> tuple[Choice, ...]:
    """Filters of one tap: the product reads the input where it lies."""
    if (
        size.transposed
        or size.groups != 1
        or math.prod(size.taps) != 1
        or math.prod(size.stride) != 1
        or size.extents != size.out
    ):
        return ()
    found = gemm_hopper.choices(
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


def size_of(context: Context) -> Size | None:
    """The extents at the full case; None where they cannot be told from the facts."""
    facts, found = context.facts, context.found
    case = next((case for case in facts.cases if case.name == "full"), None) if facts is not None else None
    operands = dict(found.operands)
    x = next((spec for spec in case.inputs if spec.name == operands.get("x")), None) if case is not None else None
    w = (
        next((spec for spec in facts.parameters if f"self.{spec.name}" == operands.get("w")), None)
        if facts is not None
        else None
    )
    if (
        case is None
        or x is None
        or w is None
        or not case.outputs
        or len(case.outputs[0].shape) != len(x.shape)
        or found.after
    ):
        return None
    out, named = case.outputs[0].shape, dict(found.operation.named)
    stride, groups = named.get("stride", 1), named.get("groups", 1)
    return Size(
        images=x.shape[0],
        channels=x.shape[1],
        filters=out[1],
        extents=x.shape[2:],
        out=out[2:],
        taps=w.shape[2:],
        stride=stride if isinstance(stride, tuple) else (int(str(stride)),) * len(out[2:]),
        groups=x.shape[1] if groups == "channels" else int(str(groups)),
        transposed=found.operation.name == "convtranspose",
    )


def convolutions(context: Context) -> tuple[Rung, ...]:
    """The rungs of a convolution."""
    operation = context.found.operation
    depthwise = dict(operation.named).get("groups") == "channels"
    simple = Rung(
        settings=(),
        title="one result per thread",
        reason="the simplest correct kernel: every operand is read from global memory each time",
    )
    if operation.name == "convtranspose":
        return (*_hopper(context), simple, *_tensor_cores(context))
    size = size_of(context)
    shallow = (
        not depthwise
        and size is not None
        and size.channels // size.groups <= FEW
        and size.channels // size.groups * math.prod(size.taps) <= SHALLOW
    )
    sliding = _sliding(depthwise, shallow)
    if context.arch != "sm_90a":
        return (simple, *_tensor_cores(context), *sliding)
    if not depthwise and size is not None and math.prod(size.taps[-2:]) > MOST_TAPS:
        return (*_hopper(context), simple)
    if depthwise:
        return (*sliding, simple)
    fastest = sliding[::-1]
    return (*fastest[: 2 * shallow], *_hopper(context), *fastest[2 * shallow :], simple)


def _sliding(depthwise: bool, shallow: bool) -> tuple[Rung, ...]:
    """Direct sums of several results a thread: of a depthwise convolution the fastest first, of others last."""
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


def _tensor_cores(context: Context) -> tuple[Rung, ...]:
    """Implicit products by mma.sync, where there is no wgmma."""
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


def _hopper(context: Context) -> tuple[Rung, ...]:
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
    return tuple(
        Rung(settings=choice.settings, title=choice.title, reason=choice.reason, seconds=choice.seconds)
        for choice in choices(operation, kind, size, context.device)
    )
