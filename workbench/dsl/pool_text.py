"""Text of pooling: one output per thread, or strips whose rows are combined first and whose columns after, through shared memory."""

from __future__ import annotations

HEADER = '''
WINDOW, STRIDE, PADDING, DILATION = {window}, {stride}, {padding}, {dilation}  # along depth, height, width
CEIL = {ceil}  # whether a window may begin inside and end outside
THREADS = {threads}


def extent(size, axis):
    """Outputs along an axis of `size` inputs; as in torch, a window that would begin behind the padding is left out."""
    reach = DILATION[axis] * (WINDOW[axis] - 1) + 1
    count = (size + 2 * PADDING[axis] - reach + (STRIDE[axis] - 1 if CEIL else 0)) // STRIDE[axis] + 1
    return count - 1 if CEIL and (count - 1) * STRIDE[axis] >= size + PADDING[axis] else count


def both(total, value):
    """Two parts of a window as one."""
    return {combine}

'''
COUNTED = '''
@cute.jit
def counted(at, size, axis: cutlass.Constexpr):
    """By how many elements along an axis the sum of an output's window is divided; `at` is the output's place."""
    first = at * STRIDE[axis] - PADDING[axis]
    last = cutlass.min(first + WINDOW[axis], size + PADDING[axis])
{clipped}    return last - first

'''
CLIPPED = """\
    first = cutlass.max(first, 0)  # padding does not count
    last = cutlass.min(last, size)
"""
DIRECT = '''
@cute.kernel
def pool_kernel(x: cute.Tensor, y: cute.Tensor):
    """One output per thread; x (planes, depth, height, width)."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    planes, depth, height, width = y.shape
    index = cutlass.Int64(block) * THREADS + thread
    if index < cutlass.Int64(planes) * depth * height * width:
        column = cutlass.Int32(index % width)
        rest = index // width
        row = cutlass.Int32(rest % height)
        layer = cutlass.Int32(rest // height % depth)
        plane = cutlass.Int32(rest // height // depth)
        total = {start}
        for a in cutlass.range(WINDOW[0], unroll=1):
            i = layer * STRIDE[0] - PADDING[0] + a * DILATION[0]
            for b in cutlass.range(WINDOW[1], unroll=1):
                j = row * STRIDE[1] - PADDING[1] + b * DILATION[1]
                if i >= 0 and i < x.shape[1] and j >= 0 and j < x.shape[2]:
                    for c in cutlass.range(WINDOW[2], unroll=1):
                        k = column * STRIDE[2] - PADDING[2] + c * DILATION[2]
                        if k >= 0 and k < x.shape[3]:
                            total = both(total, x[plane, i, j, k].to(cutlass.Float32))
        y[plane, layer, row, column] = ({finish}).to(y.element_type)


@cute.jit
def pool(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    pool_kernel(x, y).launch(grid=[(cute.size(y) + THREADS - 1) // THREADS, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
STRIP = '''
ROWS = {rows}  # rows of outputs that a group of threads computes one after the other
TAPS = WINDOW[0] * WINDOW[1]  # rows of inputs that make one row of outputs
ROUNDS = {rounds}  # vectors of a row that a thread loads


def groups_of(across):
    """Groups of threads in a CTA, each with rows of its own."""
    return max(1, THREADS // across)


@cute.jit
def load(x: cute.Tensor, parts: cute.Tensor, plane, layer, row, first, lane, across: cutlass.Constexpr, vector: cutlass.Constexpr):
    """This thread's vectors of all rows under the window of a row of outputs; what the window does not cover, or lies in the padding, is {nothing}."""
    parts.fill({fill})
    if plane < x.shape[0]:
        start = x.iterator + cutlass.Int64(plane) * (x.shape[1] * x.shape[2] * x.shape[3])
        for r in cutlass.range_constexpr(ROUNDS):
            column = first + (r * across + lane) * vector
            if column >= 0 and column < x.shape[3]:
                for tap in cutlass.range_constexpr(TAPS):
                    i = layer * STRIDE[0] - PADDING[0] + tap // WINDOW[1] * DILATION[0]
                    j = row * STRIDE[1] - PADDING[1] + tap % WINDOW[1] * DILATION[1]
{taps}


@cute.kernel
def pool_kernel(x: cute.Tensor, y: cute.Tensor, tile: cutlass.Constexpr, across: cutlass.Constexpr, vector: cutlass.Constexpr):
    """`across` threads load vectors of the rows under a window, combine them element by element into shared memory, and combine neighbours there into `tile` outputs of a row."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    groups = groups_of(across)
    blocks = (y.shape[0] * y.shape[1] * y.shape[2] + groups * ROWS - 1) // (groups * ROWS)
    block, column_block = cta % blocks, cta // blocks  # along one axis of the grid: the others end at 65535
    group, lane = thread // across, thread % across
    memory = cutlass.memory.SmemAllocator()
    line = memory.allocate_tensor(cutlass.Float32, cute.make_layout((vector, across * ROUNDS, groups, 2)), 16)
    before = (PADDING[2] + vector - 1) // vector * vector  # columns in front of the tile's first, whole vectors of them
    first = column_block * tile * STRIDE[2] - before
    planes, depth, height, width = y.shape
    parts = cute.make_rmem_tensor(cute.make_layout((vector, TAPS, ROUNDS)), x.element_type)
    sums = cute.make_rmem_tensor(vector, cutlass.Float32)
    number = (block * groups + group) * ROWS
    row, layer, plane = number % height, number // height % depth, number // height // depth
    target = y.iterator + cutlass.Int64(number) * width
    load(x, parts, plane, layer, row, first, lane, across, vector)
    for step in range(ROWS):
        for r in cutlass.range_constexpr(ROUNDS):
            for e in cutlass.range_constexpr(vector):
                total = parts[e, 0, r].to(cutlass.Float32)
                for tap in cutlass.range_constexpr(1, TAPS):
                    total = both(total, parts[e, tap, r].to(cutlass.Float32))
                sums[e] = total
            cute.autovec_copy(sums, line[None, r * across + lane, group, step % 2])
        cute.arch.sync_threads()
        next_row, next_layer, next_plane = row + 1, layer, plane
        if next_row == height:
            next_row = 0
            next_layer += 1
            if next_layer == depth:
                next_layer = 0
                next_plane += 1
        if step + 1 < ROWS:
            load(x, parts, next_plane, next_layer, next_row, first, lane, across, vector)  # on its way while the columns are combined
        if plane < planes:
            own = cute.make_tensor(line[None, None, group, step % 2].iterator + (before - PADDING[2]), cute.make_layout(vector * across * ROUNDS))
            result = cute.make_tensor(target, cute.make_layout(width))
            for at in range(lane, cutlass.min(tile, width - column_block * tile), across):
                column = column_block * tile + at
                total = own[at * STRIDE[2]]
                for c in cutlass.range_constexpr(1, WINDOW[2]):
                    total = both(total, own[at * STRIDE[2] + c * DILATION[2]])
                result[column] = ({finish}).to(y.element_type)
        row, layer, plane = next_row, next_layer, next_plane
        target += width


@cute.jit
def pool(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream, tile: cutlass.Constexpr, across: cutlass.Constexpr, vector: cutlass.Constexpr):
    rows = y.shape[0] * y.shape[1] * y.shape[2]
    rows_of_cta = groups_of(across) * ROWS
    pool_kernel(x, y, tile, across, vector).launch(grid=[((rows + rows_of_cta - 1) // rows_of_cta) * ((y.shape[3] + tile - 1) // tile), 1, 1], block=[groups_of(across) * across, 1, 1], stream=stream)


def plan(outputs, vector):
    """(outputs of a tile, threads across it): a whole row if the threads of a CTA can load it, else the fewest equal tiles that they can."""
    front = -(-PADDING[2] // vector) * vector
    reach = front - PADDING[2] + DILATION[2] * (WINDOW[2] - 1) + 1  # inputs of one output, and what is in front of them
    for tiles in range(1, outputs + 1):
        tile = -(-outputs // tiles // vector) * vector
        across = -(-((tile - 1) * STRIDE[2] + reach) // (vector * ROUNDS * 32)) * 32
        if across <= THREADS or tile == vector:
            break
    return tile, across
'''
TAP = """\
piece = cute.make_tensor((start + ((i * x.shape[2] + j) * x.shape[3] + column)).align(vector * x.element_type.width // 8), cute.make_layout(vector))
cute.autovec_copy(piece, parts[None, tap, r])"""
