"""Transpose a matrix, elements of 1, 2, 4 or 8 bytes: y[j, i] = x[i, j].

A transpose moves every byte once in and once out, so it should run at the speed of a copy. Read and written naively,
one of the two sides is strided: each warp request touches 32 sectors for 32 elements. Both kernels here take a tile
through shared memory, so that global memory sees contiguous rows on both sides.

`transpose` works on any shape. The unit is a word of at least 4 bytes, V elements (V = 4, 2, 1, 1 for 1, 2, 4, 8
bytes), so that small elements do not waste the bus: a tile is 32*V x 32*V elements, and a thread handles V x V blocks
of it. It loads a block as V words, one from each of V rows, lanes side by side along a row (128 contiguous bytes per
request), turns it in registers, and stores V words to shared memory, where column j*V + c of the tile is line (c, j) of
33 words: the odd pitch puts the 32 lanes of a store into 32 different banks. Each warp then reads whole lines and
writes them out, lanes side by side again. Shapes or addresses that do not allow words of V elements fall back to V = 1.

`transpose_tma` (sm_90a) lets the Tensor Memory Accelerator move the tiles: one thread asks for a box of 128-byte rows,
hardware computes addresses, clips at the matrix's edges and puts 16-byte chunk c of row r at chunk c ^ (r % 8) of that
row (the 128-byte swizzle). A thread reads a block of E x E elements as E chunks of E = 16 bytes / size elements, turns
it in registers, and writes E chunks into a second tile, swizzled the same way, which TMA stores. The 8 lanes that
shared memory serves at a time take blocks along a diagonal (column l, row l + const): then the 8 chunks differ both
when reading and when writing, so there is no bank conflict, with no padding. TMA needs rows of a multiple of 16 bytes,
on both sides.

    python -m workbench.examples.transpose --rows 300 --columns 500
"""

import argparse
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync

from workbench.examples.launching import launch, require, same_place, view

THREADS = 256
WARPS = THREADS // 32
BY_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # a transpose moves bits, whatever they mean


@cute.kernel
def transpose_kernel(
    x: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32, per_word: cutlass.Constexpr
) -> None:
    """x (rows, columns), y (columns, rows), `per_word` elements per access."""
    thread, _, _ = cute.arch.thread_idx()
    block_column, block_row, _ = cute.arch.block_idx()
    warp, lane = thread // 32, thread % 32
    side = 32 * per_word
    memory = cutlass.memory.SmemAllocator()
    # (element of the word, word of the line, column in the word, word of the row); line (c, j) is a column of the tile
    tile = memory.allocate_tensor(
        x.element_type,
        cute.make_layout((per_word, 32, per_word, 32), stride=(1, per_word, 32 * 33 * per_word, 33 * per_word)),
        16,
    )
    from_x = cute.zipped_divide(x, (1, per_word))  # ((1, word), (row, word of the row))
    to_y = cute.zipped_divide(y, (1, per_word))
    loaded = cute.make_rmem_tensor(
        cute.make_layout((per_word, per_word, 32 // WARPS), stride=(1, per_word, per_word * per_word)), x.element_type
    )
    turned = cute.make_rmem_tensor(cute.make_layout((per_word, per_word), stride=(1, per_word)), x.element_type)
    word = block_column * 32 + lane  # of the row of x
    for step in cutlass.range_constexpr(32 // WARPS):  # all loads first: they are in flight together
        for r in cutlass.range_constexpr(per_word):
            row = block_row * side + (step * WARPS + warp) * per_word + r
            if (row < rows) & (word * per_word < columns):
                cute.autovec_copy(from_x[(0, None), (row, word)], loaded[None, r, step])
    for step in cutlass.range_constexpr(32 // WARPS):
        for c in cutlass.range_constexpr(per_word):
            for r in cutlass.range_constexpr(per_word):
                turned[r, c] = loaded[c, r, step]
            cute.autovec_copy(turned[None, c], tile[None, step * WARPS + warp, c, lane])
    cute.arch.sync_threads()
    word = block_row * 32 + lane  # of the row of y
    for step in cutlass.range_constexpr(32 // WARPS):
        for c in cutlass.range_constexpr(per_word):
            row = block_column * side + (step * WARPS + warp) * per_word + c
            if (row < columns) & (word * per_word < rows):
                cute.autovec_copy(tile[None, lane, c, step * WARPS + warp], turned[None, c])
                cute.autovec_copy(turned[None, c], to_y[(0, None), (row, word)])


@cute.jit
def transpose_host(
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    stream: CUstream,
    per_word: cutlass.Constexpr,
) -> None:
    """One CTA per tile."""
    side = 32 * per_word
    transpose_kernel(x, y, rows, columns, per_word).launch(
        grid=[(columns + side - 1) // side, (rows + side - 1) // side, 1], block=[THREADS, 1, 1], stream=stream
    )


BOXES = 4  # tiles of 128-byte rows per CTA, side by side: what one CTA keeps in flight


@cute.kernel
def transpose_tma_kernel(
    tma_x: cute.CopyAtom,
    x: cute.Tensor,
    tma_y: cute.CopyAtom,
    y: cute.Tensor,
    tile_in: cute.ComposedLayout,
    tile_out: cute.ComposedLayout,
    kind: cutlass.Constexpr,
    chunk: cutlass.Constexpr,
) -> None:
    """x (rows, columns) and y (columns, rows) by TMA.

    A tile is 8 * chunk elements square, BOXES tiles per CTA along x's columns.
    """
    thread, _, _ = cute.arch.thread_idx()
    block_column, block_row, _ = cute.arch.block_idx()
    side = 8 * chunk
    memory = cutlass.memory.SmemAllocator()
    arrived = memory.allocate_array(cutlass.Int64, BOXES)
    tiles_in = memory.allocate_tensor(kind, tile_in.outer, 1024, swizzle=tile_in.inner)
    tiles_out = memory.allocate_tensor(kind, tile_out.outer, 1024, swizzle=tile_out.inner)
    box, rest = thread // 64, thread % 64  # 64 threads turn one tile: 8 x 8 blocks
    if thread == 0:
        for n in cutlass.range_constexpr(BOXES):
            cute.arch.mbarrier_init(arrived + n, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    from_x = cute.local_tile(x, (side, side), (block_row, None))
    to_y = cute.local_tile(y, (side, side), (None, block_row))
    into, source = cpasync.tma_partition(
        tma_x, 0, cute.make_layout(1), cute.group_modes(tiles_in, 0, 2), cute.group_modes(from_x, 0, 2)
    )
    out, target = cpasync.tma_partition(
        tma_y, 0, cute.make_layout(1), cute.group_modes(tiles_out, 0, 2), cute.group_modes(to_y, 0, 2)
    )
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
        for n in cutlass.range_constexpr(BOXES):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(arrived + n, side * side * kind.width // 8)
            cute.copy(tma_x, source[None, block_column * BOXES + n], into[None, n], tma_bar_ptr=arrived + n)
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
        for n in cutlass.range_constexpr(BOXES):
            cute.copy(tma_y, out[None, n], target[None, block_column * BOXES + n])
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory must live until it has been read


@cute.jit
def transpose_tma_host(
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    stream: CUstream,
    chunk: cutlass.Constexpr,
) -> None:
    """A CTA for every BOXES tiles."""
    side = 8 * chunk
    # of byte addresses: the 3 bits that number the 16-byte chunk of a 128-byte row, with the 3 bits that number the row
    swizzle = cute.make_swizzle(3, 4, 3)
    one = cute.make_composed_layout(swizzle, 0, cute.make_layout((side, side), stride=(side, 1)))
    tiles = cute.make_composed_layout(swizzle, 0, cute.make_layout((side, side, BOXES), stride=(side, 1, side * side)))
    tma_x, tensor_x = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, one, (side, side))
    tma_y, tensor_y = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), y, one, (side, side))
    transpose_tma_kernel(tma_x, tensor_x, tma_y, tensor_y, tiles, tiles, x.element_type, chunk).launch(
        grid=[(columns + side * BOXES - 1) // (side * BOXES), (rows + side - 1) // side, 1],
        block=[THREADS, 1, 1],
        stream=stream,
    )


def _check(x: torch.Tensor, out: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y as matrices of integers of the same size, checked."""
    require(x.dim() == 2, f"transpose takes a matrix, not {x.dim()} axes")
    require(x.element_size() in BY_SIZE and not x.is_complex(), f"elements must have 1, 2, 4 or 8 bytes, not {x.dtype}")
    y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device) if out is None else out
    require(
        y.shape == (x.shape[1], x.shape[0]) and y.dtype == x.dtype,
        f"out must have shape {(x.shape[1], x.shape[0])} and type {x.dtype}",
    )
    same_place(x, y)
    kind = BY_SIZE[x.element_size()]
    return x.view(kind), y.view(kind)


def transpose(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Transpose x (rows, columns) into a contiguous (columns, rows) tensor: `out` if given.

    x is contiguous, of any type of 1, 2, 4 or 8 bytes; ValueError otherwise.
    """
    bits, turned = _check(x, out)
    size = bits.element_size()
    per_word = max(1, 4 // size)
    if any(extent % per_word for extent in bits.shape) or any(t.data_ptr() % (per_word * size) for t in (bits, turned)):
        per_word = 1
    if bits.numel():
        align = per_word * size
        launch(
            transpose_host,
            (_pitched(bits, per_word), _pitched(turned, per_word)),
            (cutlass.Int32(bits.shape[0]), cutlass.Int32(bits.shape[1])),
            (per_word,),
            key=(size, align),
        )
    return turned.view(x.dtype)


def _pitched(matrix: torch.Tensor, multiple: int) -> Any:
    """A CuTe tensor whose row pitch is a multiple of `multiple` elements: accesses of that width are aligned."""
    return view(matrix, multiple * matrix.element_size()).mark_compact_shape_dynamic(
        mode=1, stride_order=(0, 1), divisibility=multiple
    )


def transpose_tma(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """As `transpose`, by TMA (sm_90a): rows of x and of the result must be a multiple of 16 bytes long."""
    bits, turned = _check(x, out)
    size = bits.element_size()
    require(torch.cuda.get_device_capability(x.device) == (9, 0), "transpose_tma needs sm_90a (Hopper)")
    require(
        not any(extent * size % 16 for extent in bits.shape),
        f"TMA needs rows of a multiple of 16 bytes; x has shape {tuple(x.shape)} with elements of {size} bytes",
    )
    require(not any(t.data_ptr() % 16 for t in (bits, turned)), "TMA needs addresses that are multiples of 16 bytes")
    if bits.numel():
        launch(
            transpose_tma_host,
            (view(bits), view(turned)),
            (cutlass.Int32(bits.shape[0]), cutlass.Int32(bits.shape[1])),
            (16 // size,),
            key=(size,),
        )
    return turned.view(x.dtype)


def main(arguments: list[str] | None = None) -> None:
    """Transpose matrices of every element size, check against torch."""
    parser = argparse.ArgumentParser(description="transpose")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--columns", type=int, default=500)
    options = parser.parse_args(arguments)
    for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.float64):
        x = torch.randint(0, 100, (options.rows, options.columns), device="cuda").to(dtype)
        same = torch.equal(transpose(x), x.t())
        print(f"{dtype}: equal {same}")
        assert same
        if torch.cuda.get_device_capability() == (9, 0) and not any(
            extent * x.element_size() % 16 for extent in x.shape
        ):
            same = torch.equal(transpose_tma(x), x.t())
            print(f"{dtype} by TMA: equal {same}")
            assert same


if __name__ == "__main__":
    main()
