"""Transpose through shared memory by TMA (sm_90a): rows of a multiple of 16 bytes on both sides.

TMA puts 16-byte chunk c of row r at chunk c ^ (r % 8) of that row (the 128-byte swizzle). A thread turns a block of
`chunk` x `chunk` elements in registers; the 8 lanes that shared memory serves at a time take blocks along a diagonal,
so that their chunks differ both when reading and when writing: no bank conflict.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.static import Static


@cute.kernel
def transpose_tma_kernel(
    cfg: Static,
    tma_x: cute.CopyAtom,
    x: cute.Tensor,
    tma_y: cute.CopyAtom,
    y: cute.Tensor,
    tile_in: cute.ComposedLayout,
    tile_out: cute.ComposedLayout,
    kind: cutlass.Constexpr,
    chunk: cutlass.Constexpr,
):
    """x (rows, columns) and y (columns, rows) by TMA.

    A tile is 8 * chunk elements square, `boxes` tiles per CTA along x's columns.
    """
    thread, _, _ = cute.arch.thread_idx()
    block_column, block_row, _ = cute.arch.block_idx()
    side = 8 * chunk
    smem = cutlass.memory.SmemAllocator()
    arrived = smem.allocate_array(cutlass.Int64, cfg.boxes)
    tiles_in = smem.allocate_tensor(kind, tile_in.outer, 1024, swizzle=tile_in.inner)
    tiles_out = smem.allocate_tensor(kind, tile_out.outer, 1024, swizzle=tile_out.inner)
    box, rest = thread // 64, thread % 64  # 64 threads turn one tile: 8 x 8 blocks
    if thread == 0:
        for n in cutlass.range_constexpr(cfg.boxes):
            cute.arch.mbarrier_init(arrived + n, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    gX = cute.local_tile(x, (side, side), (block_row, None))
    gY = cute.local_tile(y, (side, side), (None, block_row))
    tXsX, tXgX = cpasync.tma_partition(
        tma_x, 0, cute.make_layout(1), cute.group_modes(tiles_in, 0, 2), cute.group_modes(gX, 0, 2)
    )
    tYsY, tYgY = cpasync.tma_partition(
        tma_y, 0, cute.make_layout(1), cute.group_modes(tiles_out, 0, 2), cute.group_modes(gY, 0, 2)
    )
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
        for n in cutlass.range_constexpr(cfg.boxes):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(arrived + n, side * side * kind.width // 8)
            cute.copy(tma_x, tXgX[None, block_column * cfg.boxes + n], tXsX[None, n], tma_bar_ptr=arrived + n)
    cute.arch.mbarrier_wait(arrived + box, 0)
    at_column = rest % 8
    at_row = (rest // 8 + at_column) % 8  # along a diagonal
    chunks_in = cute.zipped_divide(tiles_in, (1, chunk, 1))
    chunks_out = cute.zipped_divide(tiles_out, (1, chunk, 1))
    loaded = cute.make_rmem_tensor(cute.make_layout((chunk, chunk), stride=(1, chunk)), kind)
    turned = cute.make_rmem_tensor(cute.make_layout((chunk, chunk), stride=(1, chunk)), kind)
    for r in cutlass.range_constexpr(chunk):
        cute.autovec_copy(chunks_in[(0, None, 0), (at_row * chunk + r, at_column, box)], loaded[None, r])
    for c in cutlass.range_constexpr(chunk):
        for r in cutlass.range_constexpr(chunk):
            turned[r, c] = loaded[c, r]
        cute.autovec_copy(turned[None, c], chunks_out[(0, None, 0), (at_column * chunk + c, at_row, box)])
    cute.arch.fence_proxy("async.shared", space="cta")  # TMA is to see what ordinary stores wrote
    cute.arch.sync_threads()
    if thread == 0:
        for n in cutlass.range_constexpr(cfg.boxes):
            cute.copy(tma_y, tYsY[None, n], tYgY[None, block_column * cfg.boxes + n])
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory must live until it has been read


@cute.jit
def launch_transpose_tma(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    stream: cuda.CUstream,
    chunk: cutlass.Constexpr,
):
    """A CTA for every `boxes` tiles."""
    side = 8 * chunk
    # of byte addresses: the 3 bits that number the 16-byte chunk of a 128-byte row, with the 3 bits that number the row
    swizzle = cute.make_swizzle(3, 4, 3)
    one = cute.make_composed_layout(swizzle, 0, cute.make_layout((side, side), stride=(side, 1)))
    tiles = cute.make_composed_layout(
        swizzle, 0, cute.make_layout((side, side, cfg.boxes), stride=(side, 1, side * side))
    )
    tma_x, tensor_x = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, one, (side, side))
    tma_y, tensor_y = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), y, one, (side, side))
    transpose_tma_kernel(cfg, tma_x, tensor_x, tma_y, tensor_y, tiles, tiles, x.element_type, chunk).launch(
        grid=[(columns + side * cfg.boxes - 1) // (side * cfg.boxes), (rows + side - 1) // side, 1],
        block=[cfg.threads, 1, 1],
        stream=stream,
    )
