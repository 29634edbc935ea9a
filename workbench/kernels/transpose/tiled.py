"""Transpose through shared memory by the threads' own accesses: any shape, words of at least 4 bytes where it allows.

A tile is 32 words square, a word `per_word` elements. A thread handles blocks of `per_word` x `per_word` elements: it
loads them as words, turns them in registers, and stores words to lines of 33 words, whose odd pitch puts the 32 lanes
of a store into 32 banks. Each warp then reads whole lines and writes them out.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.kernel
def transpose_kernel(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    per_word: cutlass.Constexpr,
):
    """x (rows, columns), y (columns, rows), `per_word` elements per access."""
    thread, _, _ = cute.arch.thread_idx()
    block_column, block_row, _ = cute.arch.block_idx()
    warp, lane = thread // 32, thread % 32
    side = 32 * per_word
    smem = cutlass.memory.SmemAllocator()
    # (element of the word, word of the line, column in the word, word of the row); line (c, j) is a column of the tile
    tile = smem.allocate_tensor(
        x.element_type,
        cute.make_layout((per_word, 32, per_word, 32), stride=(1, per_word, 32 * 33 * per_word, 33 * per_word)),
        16,
    )
    words_x = cute.zipped_divide(x, (1, per_word))  # ((1, word), (row, word of the row))
    words_y = cute.zipped_divide(y, (1, per_word))
    loaded = cute.make_rmem_tensor(
        cute.make_layout((per_word, per_word, 32 // cfg.warps), stride=(1, per_word, per_word * per_word)),
        x.element_type,
    )
    turned = cute.make_rmem_tensor(cute.make_layout((per_word, per_word), stride=(1, per_word)), x.element_type)
    word = block_column * 32 + lane  # of the row of x
    for step in cutlass.range_constexpr(32 // cfg.warps):  # all loads first: they are in flight together
        for r in cutlass.range_constexpr(per_word):
            row = block_row * side + (step * cfg.warps + warp) * per_word + r
            if (row < rows) & (word * per_word < columns):
                cute.autovec_copy(words_x[(0, None), (row, word)], loaded[None, r, step])
    for step in cutlass.range_constexpr(32 // cfg.warps):
        for c in cutlass.range_constexpr(per_word):
            for r in cutlass.range_constexpr(per_word):
                turned[r, c] = loaded[c, r, step]
            cute.autovec_copy(turned[None, c], tile[None, step * cfg.warps + warp, c, lane])
    cute.arch.sync_threads()
    word = block_row * 32 + lane  # of the row of y
    for step in cutlass.range_constexpr(32 // cfg.warps):
        for c in cutlass.range_constexpr(per_word):
            row = block_column * side + (step * cfg.warps + warp) * per_word + c
            if (row < columns) & (word * per_word < rows):
                cute.autovec_copy(tile[None, lane, c, step * cfg.warps + warp], turned[None, c])
                cute.autovec_copy(turned[None, c], words_y[(0, None), (row, word)])


@cute.jit
def launch_transpose(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    stream: cuda.CUstream,
    per_word: cutlass.Constexpr,
):
    """One CTA per tile."""
    side = 32 * per_word
    transpose_kernel(cfg, x, y, rows, columns, per_word).launch(
        grid=[(columns + side - 1) // side, (rows + side - 1) // side, 1], block=[cfg.threads, 1, 1], stream=stream
    )
