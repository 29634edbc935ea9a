"""Pooling by strips: registers combine the rows under a window, shared memory its columns."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.pool.window import combine, window_size
from workbench.kernels.static import Static


def num_groups(cfg: Static, across):
    """Return the number of thread groups in a CTA; a group of `across` threads computes its own rows."""
    return max(1, cfg.threads // across)


def plan_tiles(cfg: Static, outputs, vector):
    """Return (outputs of a tile, threads across it).

    A tile is a whole row if a CTA can load it, otherwise the row is split into the fewest equal tiles.
    """
    front = -(-cfg.padding[2] // vector) * vector
    # input columns of one output, and the alignment padding before them
    reach = front - cfg.padding[2] + cfg.dilation[2] * (cfg.window[2] - 1) + 1
    for tiles in range(1, outputs + 1):
        tile = -(-outputs // tiles // vector) * vector
        across = -(-((tile - 1) * cfg.stride[2] + reach) // (vector * cfg.rounds * 32)) * 32
        if across <= cfg.threads or tile == vector:
            break
    return tile, across


def load_tap(x, start, fragment, i, j, column, vector):
    """Load a vector of one input row under the window."""
    place = start + ((i * x.shape[2] + j) * x.shape[3] + column)
    piece = cute.make_tensor(place.align(vector * x.element_type.width // 8), cute.make_layout(vector))
    cute.autovec_copy(piece, fragment)


@cute.jit
def load_rows(
    cfg: Static,
    x: cute.Tensor,
    fragment: cute.Tensor,
    plane,
    layer,
    row,
    first,
    lane,
    across: cutlass.Constexpr,
    vector: cutlass.Constexpr,
):
    """Load this thread's vectors of all input rows under a row of windows; elements past the input are the identity."""
    fragment.fill(-cutlass.Float32.inf if cfg.op == "max" else 0.0)
    if plane < x.shape[0]:
        start = x.iterator + cutlass.Int64(plane) * (x.shape[1] * x.shape[2] * x.shape[3])
        for r in cutlass.range_constexpr(cfg.rounds):
            column = first + (r * across + lane) * vector
            if column >= 0 and column < x.shape[3]:
                for tap in cutlass.range_constexpr(cfg.taps):
                    i = layer * cfg.stride[0] - cfg.padding[0] + tap // cfg.window[1] * cfg.dilation[0]
                    j = row * cfg.stride[1] - cfg.padding[1] + tap % cfg.window[1] * cfg.dilation[1]
                    # bounds are tested only along axes where a window can leave the input
                    if cutlass.const_expr(cfg.leaves_depth and cfg.leaves_height):
                        if i >= 0 and i < x.shape[1] and j >= 0 and j < x.shape[2]:
                            load_tap(x, start, fragment[None, tap, r], i, j, column, vector)
                    elif cutlass.const_expr(cfg.leaves_depth):
                        if i >= 0 and i < x.shape[1]:
                            load_tap(x, start, fragment[None, tap, r], i, j, column, vector)
                    elif cutlass.const_expr(cfg.leaves_height):
                        if j >= 0 and j < x.shape[2]:
                            load_tap(x, start, fragment[None, tap, r], i, j, column, vector)
                    else:
                        load_tap(x, start, fragment[None, tap, r], i, j, column, vector)


@cute.jit
def combine_rows(cfg: Static, fragment, smem, group, lane, stage, across: cutlass.Constexpr, vector: cutlass.Constexpr):
    """Combine the input rows of this thread's vectors element by element and write the result to shared memory."""
    sums = cute.make_rmem_tensor(vector, cutlass.Float32)
    for r in cutlass.range_constexpr(cfg.rounds):
        for e in cutlass.range_constexpr(vector):
            total = fragment[e, 0, r].to(cutlass.Float32)
            for tap in cutlass.range_constexpr(1, cfg.taps):
                total = combine(cfg, total, fragment[e, tap, r].to(cutlass.Float32))
            sums[e] = total
        cute.autovec_copy(sums, smem[None, r * across + lane, group, stage])


@cute.jit
def store_row(
    cfg: Static, x, y, line, target, layer, row, lane, column0, tile: cutlass.Constexpr, across: cutlass.Constexpr
):
    """Combine neighbouring columns in shared memory and store the outputs of a row, from `column0` on."""
    width = y.shape[3]
    result = cute.make_tensor(target, cute.make_layout(width))
    for at in range(lane, cutlass.min(tile, width - column0), across):
        column = column0 + at
        total = line[at * cfg.stride[2]]
        for c in cutlass.range_constexpr(1, cfg.window[2]):
            total = combine(cfg, total, line[at * cfg.stride[2] + c * cfg.dilation[2]])
        if cutlass.const_expr(cfg.is_counted):
            total = total / window_size(cfg, x, layer, row, column)
        elif cutlass.const_expr(cfg.op == "avg"):
            total = total * cfg.factor
        result[column] = total.to(y.element_type)


@cute.kernel
def strip_kernel(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    tile: cutlass.Constexpr,
    across: cutlass.Constexpr,
    vector: cutlass.Constexpr,
):
    """Compute ROWS rows one after the other, `tile` outputs of each with `across` threads."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    groups = num_groups(cfg, across)
    blocks = (y.shape[0] * y.shape[1] * y.shape[2] + groups * cfg.rows - 1) // (groups * cfg.rows)
    # one-dimensional grid: its y and z extents are limited to 65535
    block, column_block = bidx % blocks, bidx // blocks
    group, lane = tidx // across, tidx % across
    layout = cute.make_layout((vector, across * cfg.rounds, groups, 2))
    smem = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, layout, 16)
    # columns before the tile's first, rounded up to whole vectors
    before = (cfg.padding[2] + vector - 1) // vector * vector
    first = column_block * tile * cfg.stride[2] - before
    planes, depth, height, width = y.shape
    fragment = cute.make_rmem_tensor(cute.make_layout((vector, cfg.taps, cfg.rounds)), x.element_type)
    number = (block * groups + group) * cfg.rows
    row, layer, plane = number % height, number // height % depth, number // height // depth
    target = y.iterator + cutlass.Int64(number) * width
    load_rows(cfg, x, fragment, plane, layer, row, first, lane, across, vector)
    for step in range(cfg.rows):
        combine_rows(cfg, fragment, smem, group, lane, step % 2, across, vector)
        cute.arch.sync_threads()
        next_row, next_layer, next_plane = row + 1, layer, plane
        if next_row == height:
            next_row = 0
            next_layer += 1
            if next_layer == depth:
                next_layer = 0
                next_plane += 1
        if step + 1 < cfg.rows:  # prefetch the next rows while the columns are combined
            load_rows(cfg, x, fragment, next_plane, next_layer, next_row, first, lane, across, vector)
        if plane < planes:
            begin = smem[None, None, group, step % 2].iterator + (before - cfg.padding[2])
            line = cute.make_tensor(begin, cute.make_layout(vector * across * cfg.rounds))
            store_row(cfg, x, y, line, target, layer, row, lane, column_block * tile, tile, across)
        row, layer, plane = next_row, next_layer, next_plane
        target += width


@cute.jit
def launch_strip(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    stream: cuda.CUstream,
    tile: cutlass.Constexpr,
    across: cutlass.Constexpr,
    vector: cutlass.Constexpr,
):
    groups = num_groups(cfg, across)
    rows = y.shape[0] * y.shape[1] * y.shape[2]
    ctas = ((rows + groups * cfg.rows - 1) // (groups * cfg.rows)) * ((y.shape[3] + tile - 1) // tile)
    strip_kernel(cfg, x, y, tile, across, vector).launch(
        grid=[ctas, 1, 1], block=[groups * across, 1, 1], stream=stream
    )
