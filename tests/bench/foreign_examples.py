"""Cases of foreign_kernels.py: the worked examples, with several configurations each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from foreign_cases import LIMITS, Arguments, Case, Made, product_work, work_of

from workbench.examples import flash_attention, gemm_hopper, grouped_gemm, scan, split_k
from workbench.examples.conv2d import NAMES as CONV_NAMES
from workbench.examples.norm import NAMES as NORM_NAMES
from workbench.kernels.bandwidth import host as bandwidth_host
from workbench.kernels.bandwidth.config import L2Config
from workbench.kernels.conv.channels_last import host as conv2d_host
from workbench.kernels.conv.channels_last.config import ChannelsLastConfig
from workbench.kernels.histogram import host as histogram_host
from workbench.kernels.histogram.config import HistogramConfig
from workbench.kernels.norm import host as norm_host
from workbench.kernels.norm.config import NormConfig
from workbench.kernels.reduce_all import host as reduce_all_host
from workbench.kernels.reduce_all.config import ReduceAllConfig
from workbench.kernels.scan.config import ScanConfig
from workbench.kernels.scan.host import launch_rows
from workbench.kernels.top_k import host as top_k_host
from workbench.kernels.top_k.config import TopKConfig
from workbench.kernels.transpose import host as transpose_host
from workbench.kernels.transpose.config import TransposeConfig
from workbench.records import Work

Shape = tuple[int, int, int, int]
HALF, BFLOAT, SINGLE = torch.float16, torch.bfloat16, torch.float32


def make_gemm(given: Arguments, size: int, dtype: torch.dtype, **settings: Any) -> Made:
    """gemm_hopper on square matrices."""
    a, b = given.normal(size, size, dtype=dtype), given.normal(size, size, dtype=dtype)
    d = given.empty(size, size, dtype=dtype)
    return Made(lambda: gemm_hopper.gemm(a, b, d, **settings), lambda: a @ b.t(), LIMITS[dtype])


def make_split(given: Arguments, shape: tuple[int, int, int], dtype: torch.dtype, **settings: Any) -> Made:
    """split_k."""
    m, n, k = shape
    a, b = given.normal(m, k, dtype=dtype), given.normal(n, k, dtype=dtype).t()
    return Made(lambda: split_k.matmul(a, b, **settings), lambda: a @ b, LIMITS[dtype])


def products(tiny: bool) -> Iterator[Case]:
    """gemm_hopper and split_k, D = A B^T with rows of A and B along k."""
    square = 192 if tiny else 4096
    wide, large, small = (128, 256, 64), (128, 128), (64, 64)
    for dtype, size in ((HALF, square), (BFLOAT, square // 2)):
        group = f"gemm {dtype} {size}"
        work = product_work(size, size, size, dtype)
        for tile, cluster, stages in (
            (wide, (2, 1), None),
            (wide, (1, 1), None),
            ((128, 128, 64), (2, 1), None),
            ((128, 128, 64), (1, 1), 2),
            ((64, 256, 64), (1, 2), None),
        ):
            make = partial(make_gemm, size=size, dtype=dtype, tile=tile, cluster=cluster, stages=stages)
            yield Case(f"gemm_hopper {group} tile {tile} cluster {cluster} stages {stages}", group, make, work)
        yield from split_products(group, (size, size, size), dtype, ((1, large, True), (1, small, True)))
    deep = (128, 128, 1024) if tiny else (512, 512, 32768)
    splits = ((1, large, True), (4, large, True), (8, large, False), (8, small, False), (32, small, False))
    yield from split_products("split_k {}x{}x{}".format(*deep), deep, BFLOAT, splits)
    flat = (32, 256, 512) if tiny else (64, 4096, 8192)
    yield from split_products("split_k {}x{}x{}".format(*flat), flat, BFLOAT, ((1, small, True), (4, small, False)))


def split_products(
    group: str, shape: tuple[int, int, int], dtype: torch.dtype, splits: Sequence[tuple[int, tuple[int, int], bool]]
) -> Iterator[Case]:
    """split_k with so many slices, this tile, and slices added in their order or by atomics."""
    for count, tile, ordered in splits:
        make = partial(make_split, shape=shape, dtype=dtype, splits=count, tile=tile, deterministic=ordered)
        name = (
            f"split_k {group.removeprefix('split_k ')} splits {count} tile {tile} {'ordered' if ordered else 'atomic'}"
        )
        yield Case(name, group, make, product_work(*shape, dtype))


def make_grouped(given: Arguments, rows: tuple[int, ...], size: int, **settings: Any) -> Made:
    """grouped_gemm; it is prepared in the first call, which compiles."""
    problems = [
        tuple(given.normal(*shape, dtype=BFLOAT) for shape in ((m, size), (size, size), (m, size))) for m in rows
    ]
    launch: list[Callable[[], None]] = []

    def call() -> list[torch.Tensor]:
        if not launch:
            launch.append(grouped_gemm.prepare(problems, **settings))
        launch[0]()
        return [d for _, _, d in problems]

    return Made(call, lambda: [a @ b.t() for a, b, _ in problems], LIMITS[BFLOAT])


def grouped(tiny: bool) -> Iterator[Case]:
    """grouped_gemm, as a mixture of experts has it."""
    rows, size = ((40, 96), 128) if tiny else ((512, 1024, 96, 2048, 320, 768, 1536, 1888), 4096)
    work = work_of(2 * sum(rows) * size * size, 2 * (2 * sum(rows) * size + len(rows) * size * size), BFLOAT)
    for tile, cluster in (((128, 256, 64), (2, 1)), ((128, 256, 64), (1, 1)), ((128, 128, 64), (2, 1))):
        make = partial(make_grouped, rows=rows, size=size, tile=tile, cluster=cluster)
        yield Case(f"grouped_gemm rows {rows} tile {tile} cluster {cluster}", "grouped_gemm", make, work)


def attention_shapes(tiny: bool) -> Iterator[tuple[Shape, torch.dtype, bool]]:
    """(batch, length, heads, dim), dtype and whether causal: NVIDIA's kernels are in the same groups."""
    yield (1, 256, 2, 128) if tiny else (4, 2048, 16, 128), BFLOAT, False
    yield (1, 256, 2, 64) if tiny else (4, 4096, 16, 64), HALF, True


def attention_group(shape: Shape, dtype: torch.dtype, causal: bool) -> tuple[str, Callable[[], Work]]:
    """The name of a group of attention kernels, and its work."""
    batch, length, heads, dim = shape
    flops = 4 * batch * heads * length * length * dim // (2 if causal else 1)
    name = f"attention {dtype} {shape}{' causal' if causal else ''}"
    return name, work_of(flops, 4 * math.prod(shape) * dtype.itemsize, dtype)


def make_attention(given: Arguments, shape: Shape, dtype: torch.dtype, causal: bool, groups: int) -> Made:
    """flash_attention on tensors of (batch, length, heads, dim)."""
    q, k, v, out = (given.normal(*shape, dtype=dtype).transpose(1, 2) for _ in range(4))
    return Made(
        lambda: flash_attention.attention(q, k, v, causal=causal, out=out, groups=groups),
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        LIMITS[dtype],
    )


def attentions(tiny: bool) -> Iterator[Case]:
    """flash_attention."""
    for shape, dtype, causal in attention_shapes(tiny):
        group, work = attention_group(shape, dtype, causal)
        for groups in (2, 3) if shape[3] == 64 else (2,):
            make = partial(make_attention, shape=shape, dtype=dtype, causal=causal, groups=groups)
            yield Case(f"flash_attention {group} {groups} warpgroups", group, make, work)


def make_norm(given: Arguments, shape: tuple[int, int], dtype: torch.dtype, config: NormConfig) -> Made:
    """norm; torch's result is that of LayerNorm or RMSNorm, and the sum with the residual."""
    x, other = (given.normal(*shape, dtype=dtype) for _ in range(2))
    weight, bias = (given.normal(shape[1], dtype=dtype) for _ in range(2))
    added, shift = (other,) if config.adds_residual else (), (bias,) if config.is_layer else ()

    def expected() -> list[torch.Tensor]:
        total = x + other if config.adds_residual else x
        if config.is_layer:
            return [F.layer_norm(total, shape[1:], weight, bias, 1e-5), total]
        return [F.rms_norm(total, shape[1:], weight, 1e-5), total]

    return Made(lambda: norm_host.norm(config, NORM_NAMES, x, added, weight, shift, 1e-5), expected, LIMITS[dtype])


def norms(tiny: bool) -> Iterator[Case]:
    """norm: with a residual, and LayerNorm alone, which NVIDIA's kernel computes too."""
    for shape, dtype, layer, adds in (
        ((8, 256) if tiny else (16384, 4096), BFLOAT, False, True),
        ((8, 512) if tiny else (4096, 16384), SINGLE, True, True),
        ((8, 1024) if tiny else (16384, 8192), HALF, True, False),
    ):
        kind = "layer_norm" if layer else "rms_norm"
        group = f"{kind} {dtype} {shape[0]}x{shape[1]}{' + residual' if adds else ''}"
        size = math.prod(shape)
        work = work_of(8 * size, (4 if adds else 2) * size * dtype.itemsize, SINGLE)
        # rows of 16384 have as many threads with 8 as with 16
        for per_thread in (16, 32) if shape[1] > 8192 else (8, 16, 32):
            config = NormConfig(is_layer=layer, adds_residual=adds, per_thread=per_thread)
            make = partial(make_norm, shape=shape, dtype=dtype, config=config)
            yield Case(f"norm {group} per_thread {per_thread}", group, make, work)


def make_scan(given: Arguments, shape: tuple[int, int], config: ScanConfig) -> Made:
    """scan by look-back, or with a CTA for each row."""
    x, y = given.normal(*shape, dtype=SINGLE), given.empty(*shape, dtype=SINGLE)

    def call() -> torch.Tensor:
        if config.lookback:
            return scan.scan(x, y)
        launch_rows(config, (x,), y)
        return y

    return Made(call, lambda: torch.cumsum(x, -1), LIMITS[SINGLE])


def scans(tiny: bool) -> Iterator[Case]:
    """scan."""
    shape = (3, 9001) if tiny else (4096, 32768)
    group, size = f"scan float32 {shape[0]}x{shape[1]}", math.prod(shape)
    for lookback, threads, items in ((True, 256, 16), (False, 256, 16), (False, 512, 8), (False, 128, 16)):
        make = partial(make_scan, shape=shape, config=ScanConfig(lookback=lookback, threads=threads, per_thread=items))
        name = f"{group} {'look-back' if lookback else 'rows'} threads {threads} per_thread {items}"
        yield Case(name, group, make, work_of(size, 8 * size, SINGLE))


def make_histogram(given: Arguments, count: int, bins: int, dtype: torch.dtype, config: HistogramConfig) -> Made:
    """histogram of random values: where the atomics go depends on them."""
    x = given.integers(bins, count, dtype=dtype)
    names = {"x": "x"}
    return Made(
        lambda: histogram_host.histogram(config, names, x, bins), lambda: torch.bincount(x, minlength=bins), 0.0
    )


def histograms(tiny: bool) -> Iterator[Case]:
    """histogram, of few and of many bins."""
    for count, bins, dtype in (
        (1 << 12 if tiny else 1 << 27, 256, torch.uint8),
        (1 << 12 if tiny else 1 << 25, 4000, torch.int32),
    ):
        group = f"histogram {dtype} {count} of {bins}"
        for threads, unroll in ((512, 4), (256, 8), (1024, 1)):
            config = HistogramConfig(threads=threads, unroll=unroll)
            make = partial(make_histogram, count=count, bins=bins, dtype=dtype, config=config)
            work = work_of(count, count * dtype.itemsize + 4 * bins, SINGLE)
            yield Case(f"{group} threads {threads} unroll {unroll}", group, make, work)


def make_top_k(given: Arguments, shape: tuple[int, int], k: int, dtype: torch.dtype, config: TopKConfig) -> Made:
    """top_k of random values: how often a candidate is replaced depends on them."""
    x = given.real_normal(*shape, dtype=dtype)
    return Made(lambda: top_k_host.top_k(config, {"x": "x"}, x, k)[0], lambda: torch.topk(x, k)[0], 0.0)


def top_ks(tiny: bool) -> Iterator[Case]:
    """top_k, of short rows, with so many rows in a CTA, and of long ones."""
    short = [TopKConfig(unroll=4, rows_per_cta=rows) for rows in (1, 4, 8)]
    long = [TopKConfig(unroll=unroll) for unroll in (1, 4, 8)]
    for shape, k, dtype, configs in (
        ((8 if tiny else 65536, 256), 8, SINGLE, short),
        ((2, 3000) if tiny else (2048, 32000), 50, BFLOAT, long),
    ):
        rows, columns = shape
        group = f"top_k {dtype} {rows}x{columns} k {k}"
        work = work_of(rows * columns, rows * (columns * dtype.itemsize + k * (dtype.itemsize + 8)), SINGLE)
        for config in configs:
            make = partial(make_top_k, shape=shape, k=k, dtype=dtype, config=config)
            yield Case(f"{group} unroll {config.unroll} rows {config.rows_per_cta}", group, make, work)


def make_transpose(given: Arguments, shape: tuple[int, int], dtype: torch.dtype, config: TransposeConfig) -> Made:
    """transpose."""
    x, y = given.normal(*shape, dtype=dtype), given.empty(shape[1], shape[0], dtype=dtype)
    return Made(lambda: transpose_host.transpose_into(config, {"x": "x"}, x, y), lambda: x.t(), 0.0)


def transposes(tiny: bool) -> Iterator[Case]:
    """transpose, by the threads and by TMA."""
    shape = (128, 256) if tiny else (16384, 8192)
    for dtype, choices in (
        (BFLOAT, ((False, 128), (False, 256), (False, 512), (True, 128), (True, 256))),
        (SINGLE, ((False, 128), (False, 256), (True, 256))),
    ):
        group = f"transpose {dtype} {shape[0]}x{shape[1]}"
        work = work_of(0, 2 * math.prod(shape) * dtype.itemsize, SINGLE)
        for by_tma, threads in choices:
            config = TransposeConfig(threads=threads, by_tma=by_tma)
            make = partial(make_transpose, shape=shape, dtype=dtype, config=config)
            yield Case(f"{group} {'TMA' if by_tma else 'threads'} {threads}", group, make, work)


def make_maximum(given: Arguments, count: int, config: ReduceAllConfig) -> Made:
    """reduce_all."""
    x = given.normal(count, dtype=SINGLE)
    return Made(lambda: reduce_all_host.reduce_all(config, {"x": "x"}, x), lambda: x.max(), 0.0)


def maxima(tiny: bool) -> Iterator[Case]:
    """reduce_all."""
    count = 5000 if tiny else 1 << 28
    group = f"reduce_all float32 {count}"
    for threads, unroll, ctas in ((256, 4, 8), (256, 1, 8), (128, 4, 2), (512, 8, 4), (1024, 1, 1)):
        config = ReduceAllConfig(op="max", threads=threads, unroll=unroll, ctas_per_sm=ctas)
        name = f"{group} threads {threads} unroll {unroll} CTAs per SM {ctas}"
        yield Case(name, group, partial(make_maximum, count=count, config=config), work_of(count, 4 * count, SINGLE))


def make_convolution(given: Arguments, x_shape: Shape, w_shape: Shape, config: ChannelsLastConfig) -> Made:
    """conv2d; shapes are (images, size, size, channels) and (filters, window, window, channels)."""
    x, w = (given.normal(*shape).permute(0, 3, 1, 2) for shape in (x_shape, w_shape))
    pad = w_shape[1] // 2
    return Made(
        lambda: conv2d_host.conv2d(config, CONV_NAMES, x, w, 1, pad, 1),
        lambda: F.conv2d(x, w, None, 1, pad),
        LIMITS[HALF],
    )


def convolutions(tiny: bool) -> Iterator[Case]:
    """conv2d: filters of 3 x 3 and of 1 x 1."""
    full = ((32, 256, 56, 256, 3), (32, 64, 112, 128, 1))
    for images, channels, size, filters, window in ((1, 16, 6, 64, 3), (1, 16, 6, 64, 1)) if tiny else full:
        group = f"conv2d {images}x{channels}x{size}x{size} to {filters}, {window}x{window}"
        pixels, weights = images * size * size, filters * channels * window * window
        work = work_of(2 * pixels * weights, 2 * (pixels * (channels + filters) + weights), HALF)
        shapes = (images, size, size, channels), (filters, window, window, channels)
        for tile_m, tile_n, stages in ((128, 128, 3), (128, 64, 3), (64, 64, 3), (128, 128, 2)):
            config = ChannelsLastConfig(element="f16", tile_m=tile_m, tile_n=tile_n, tile_k=64, stages=stages)
            make = partial(make_convolution, x_shape=shapes[0], w_shape=shapes[1], config=config)
            yield Case(f"{group} tile {tile_m}x{tile_n} stages {stages}", group, make, work)


def make_read(given: Arguments, chunks: int, passes: int, config: L2Config) -> Made:
    """bandwidth, from L2."""
    x = given.normal(chunks * config.chunk, dtype=SINGLE)
    return Made(
        lambda: bandwidth_host.read_l2(config, x, passes, chunks),
        lambda: passes * x.double().sum(),
        1e-3,
        read=lambda sums: sums.double().sum(),
    )


def reads(tiny: bool) -> Iterator[Case]:
    """bandwidth: chunks of 128 KiB, read so often from L2."""
    chunks, passes = (3, 2) if tiny else (132, 40)
    for unroll, steps, threads in ((8, 2, 512), (1, 16, 512), (4, 8, 256)):
        config = L2Config(threads=threads, unroll=unroll, steps=steps)
        make = partial(make_read, chunks=chunks, passes=passes, config=config)
        work = work_of(chunks * passes * config.chunk, 4 * chunks * config.chunk, SINGLE)
        yield Case(f"read L2 threads {threads} unroll {unroll}", f"read L2 {chunks} chunks", make, work)


def cases(tiny: bool) -> Iterator[Case]:
    """All of this file; `tiny` sizes are for a run on the emulator."""
    for made in (products, grouped, attentions, norms, scans, histograms, top_ks, transposes, maxima, convolutions):
        yield from made(tiny)
    yield from reads(tiny)
