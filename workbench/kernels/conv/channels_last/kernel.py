"""Two-dimensional convolution as a matrix product that is never written out (implicit GEMM), channels last.

A row of A belongs to one output pixel (image, p, q) and holds the inputs under the filter, in the order (filter row r,
filter column s, channel c); a row of B is one filter in the same order. cp.async gathers A from the images: each thread
copies the same `width` positions of k for several pixels, and zeros where the filter hangs over the image.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.gemm.async_tiles import (
    copy_or_zero,
    load_tile,
    make_tiled_mma,
    multiply_stage,
    partition_product,
    store_sums,
)
from workbench.kernels.gemm.sm80 import smem_layout
from workbench.kernels.static import Static, dtype

OUTSIDE = -(1 << 30)  # marks a row outside of every image


@cute.jit
def find_corners(cfg: Static, geometry: cute.IntTuple, block: cutlass.Int32, width: cutlass.Constexpr):
    """Return (3, n): per pixel of this thread its image's first row in x, and (row, column) of the filter's corner."""
    height, _, out_height, out_width, _, pixels, stride, padding = geometry
    thread, _, _ = cute.arch.thread_idx()
    across = cfg.tile_k // width
    count = cfg.tile_m * across // cfg.threads
    corners = cute.make_rmem_tensor(cute.make_layout((3, count)), cutlass.Int32)
    for step in cutlass.range_constexpr(count):
        pixel = block * cfg.tile_m + step * (cfg.threads // across) + thread // across
        line, q = divide(pixel, out_width)
        image, p = divide(line, out_height)
        corners[0, step] = image * height
        corners[1, step] = p * stride[0] - padding[0]
        corners[2, step] = q * stride[1] - padding[1]
        if pixel >= pixels:
            corners[1, step] = OUTSIDE
    return corners


@cute.jit
def gather_tile(
    cfg: Static,
    x: cute.Tensor,
    sA: cute.Tensor,
    stage: cutlass.Int32,
    k_tile: cutlass.Int32,
    corners: cute.Tensor,
    geometry: cute.IntTuple,
    window: cute.IntTuple,
    dilation: cute.IntTuple,
    width: cutlass.Constexpr,
):
    """Start copying one tile of k of A: for each of the thread's pixels, `width` channels at one filter position."""
    height, columns, _, _, channels, _, _, _ = geometry
    thread, _, _ = cute.arch.thread_idx()
    across = cfg.tile_k // width
    chunk = thread % across * width
    position, c = divide(k_tile * cfg.tile_k + chunk, channels)
    r, s = divide(position, window[1])
    down, right, rows, length = r * dilation[0], s * dilation[1], cutlass.Uint32(height), cutlass.Uint32(columns)
    exists = r < window[0]  # the last k tile may be partial
    for step in cutlass.range_constexpr(cute.size(corners, mode=[1])):
        h, w = corners[1, step] + down, corners[2, step] + right
        # the unsigned comparison also rejects negative values
        inside = exists & (cutlass.Uint32(h) < rows) & (cutlass.Uint32(w) < length)
        offset = (cutlass.Int64(corners[0, step] + h) * columns + w) * channels + c
        row = step * (cfg.threads // across) + thread // across
        copy_or_zero(sA, row, chunk, stage, x.iterator + cute.assume(offset, divby=width), inside, width)


@cute.kernel
def conv2d_kernel(
    cfg: Static,
    x: cute.Tensor,
    mB: cute.Tensor,
    y: cute.Tensor,
    geometry: cute.IntTuple,
    window: cute.IntTuple,
    dilation: cute.IntTuple,
    filters: cutlass.Int32,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    tiled_mma: cute.TiledMma,
    width: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
):
    """x (images * height * columns * channels), B (filters, R * S * channels), y (pixels * filters)."""
    block_n, block_m, _ = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    sA = smem.allocate_tensor(dtype(cfg.element), layout_a, 128)
    sB = smem.allocate_tensor(dtype(cfg.element), layout_b, 128)
    product = partition_product(cfg, tiled_mma, sA, sB, True, True)
    corners = find_corners(cfg, geometry, block_m, width)
    k = window[0] * window[1] * geometry[4]
    n0 = block_n * cfg.tile_n
    num_k_tiles = (k + cfg.tile_k - 1) // cfg.tile_k
    for ahead in cutlass.range(cfg.stages - 1, unroll=1):
        if ahead < num_k_tiles:
            gather_tile(cfg, x, sA, ahead, ahead, corners, geometry, window, dilation, width)
            load_tile(cfg, mB, sB, ahead, (n0, ahead * cfg.tile_k), (filters, k), cfg.tile_n, True, width)
        cute.arch.cp_async_commit_group()
    for k_tile in range(num_k_tiles):
        cute.arch.cp_async_wait_group(cfg.stages - 2)
        # after the barrier the k tile is visible to all threads, and the stage to be filled next is free
        cute.arch.sync_threads()
        ahead = k_tile + cfg.stages - 1
        if ahead < num_k_tiles:
            stage = ahead % cfg.stages
            gather_tile(cfg, x, sA, stage, ahead, corners, geometry, window, dilation, width)
            load_tile(cfg, mB, sB, stage, (n0, ahead * cfg.tile_k), (filters, k), cfg.tile_n, True, width)
        cute.arch.cp_async_commit_group()
        multiply_stage(product, k_tile % cfg.stages)
    _, tCrC, tCcC, _, _ = product
    store_sums(tCrC, tCcC, y, (block_m * cfg.tile_m, n0), (geometry[5], filters), pairs)


@cute.jit
def launch_conv2d(
    cfg: Static,
    x: cute.Tensor,
    mB: cute.Tensor,
    y: cute.Tensor,
    geometry: cute.IntTuple,
    window: cute.IntTuple,
    dilation: cute.IntTuple,
    filters: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
):
    """One CTA per tile of (pixels, filters); CTAs that share pixels are neighbours."""
    layout_a, layout_b = smem_layout(cfg, cfg.tile_m, True), smem_layout(cfg, cfg.tile_n, True)
    conv2d_kernel(
        cfg,
        x,
        mB,
        y,
        geometry,
        window,
        dilation,
        filters,
        layout_a,
        layout_b,
        make_tiled_mma(cfg),
        width,
        pairs,
    ).launch(
        grid=[(filters + cfg.tile_n - 1) // cfg.tile_n, (geometry[5] + cfg.tile_m - 1) // cfg.tile_m, 1],
        block=[cfg.threads, 1, 1],
        stream=stream,
    )
