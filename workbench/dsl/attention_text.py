"""Text of attention that its kernels share: the online softmax on accumulators of the tensor cores, and the kernel that needs none of them.

The accumulators of wgmma (m64nN) and of mma.sync (m16n8, warps along m) lie alike: element e of a thread is in row e // 2 % 2, 8 rows
below the first, and in column e // 4 * 8 + e % 2 past the thread's first.
"""

from __future__ import annotations

ROWS = '''
@cute.jit
def by_row(accumulator):
    """A thread's elements as (2 rows, the rest): element e is in row e // 2 % 2, 8 below the first, and in column e // 4 * 8 + e % 2."""
    return cute.make_tensor(accumulator.iterator, cute.make_layout((2, (2, cute.size(accumulator) // 4)), stride=(2, (1, 4))))


@cute.jit
def mask(scores, row, column, keys):
    """Minus infinity where a query does not see a key; `row`, `column`: of this thread's first element."""
    for half in cutlass.range_constexpr(2):
        limit = keys - column
        if cutlass.const_expr(CAUSAL):
            limit = cutlass.min(limit, row + half * 8 + 1 - column)
        part = by_row(scores)[half, None]
        for e in cutlass.range(cute.size(part), unroll_full=True):
            part[e] = part[e] if e // 2 * 8 + e % 2 < limit else -cutlass.Float32.inf


@cute.jit
def softmax(scores, highest, total, factor, masked: cutlass.Constexpr):
    """Scores to exponentials in place, with the running maximum and sum of the two rows; returns by what O must shrink. Four neighbouring threads share a row."""
    shrink = cute.make_rmem_tensor(2, cutlass.Float32)
    for half in cutlass.range_constexpr(2):
        row = by_row(scores)[half, None]
        top = row.load().reduce(cute.ReductionOp.MAX, highest[half], 0)
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
        base = top * factor
        if cutlass.const_expr(masked):
            base = cutlass.Float32(0.0) if top == -cutlass.Float32.inf else base  # no key of this row so far
        shrink[half] = cute.math.exp2(highest[half] * factor - base, fastmath=True)
        row.store(cute.math.exp2(row.load() * factor - base, fastmath=True))
        total[half] = row.load().reduce(cute.ReductionOp.ADD, total[half] * shrink[half], 0)
        highest[half] = top
    return shrink


@cute.jit
def scale_rows(accumulator, factors):
    """Multiply each of a thread's two rows by its factor."""
    for half in cutlass.range_constexpr(2):
        row = by_row(accumulator)[half, None]
        row.store(row.load() * factors[half])


@cute.jit
def normalise(out, total):
    """O over the sums, which four threads hold in parts."""
    for half in cutlass.range_constexpr(2):
        added = total[half] + cute.arch.shuffle_sync_bfly(total[half], 1)
        total[half] = 1.0 / (added + cute.arch.shuffle_sync_bfly(added, 2))
    scale_rows(out, total)


@cute.jit
def store_direct(out, o: cute.Tensor, row, column):
    """A thread's elements of O to o (queries, dim); `row`, `column`: of the first."""
    for half in cutlass.range_constexpr(2):
        part = by_row(out)[half, None]
        if row + half * 8 < o.shape[0]:
            for e in cutlass.range(cute.size(part), unroll_full=True):
                if column + e // 2 * 8 + e % 2 < o.shape[1]:
                    o[row + half * 8, column + e // 2 * 8 + e % 2] = part[e].to(o.element_type)

'''
SIMT = '''
CAUSAL = {causal}  # whether query i sees keys 0 to i only
QUERIES, KEYS, THREADS = {queries}, {keys}, 256  # of one CTA; keys at a time
PER_M, PER_N = QUERIES // 16, KEYS // 16  # a thread has rows y * PER_M + i and columns x + 16 j, x and y from 0 to 15


@cute.jit
def load(source: cute.Tensor, tile: cute.Tensor, first, thread):
    """Rows `first` and following of source (rows, dim) into a tile of shared memory, as float32; zeros beyond both ends."""
    rows, width = tile.shape
    for at in range(thread, rows * width, THREADS):
        i, j = at // width, at % width
        value = cutlass.Float32(0.0)
        if first + i < source.shape[0] and j < source.shape[1]:
            value = source[first + i, j].to(cutlass.Float32)
        tile[i, j] = value


@cute.kernel
def attention_kernel(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, scale: cutlass.Float32, width: cutlass.Constexpr):
    """Online softmax: a block of keys at a time, with the maximum and the sum so far of every row; all arithmetic in float32."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks, heads = (q.shape[2] + QUERIES - 1) // QUERIES, q.shape[1]
    block, head, batch = cta % blocks, cta // blocks % heads, cta // blocks // heads  # along one axis of the grid: the others end at 65535
    x, y = thread % 16, thread // 16
    memory = cutlass.memory.SmemAllocator()
    # rows are one element longer, so that 16 rows of a column fall into different banks (zero too: the compiler may read one ahead); K and V take turns in one tile
    tile_q = memory.allocate_tensor(cutlass.Float32, cute.make_layout((QUERIES, width + 1), stride=(width + 1, 1)), 16)
    tile = memory.allocate_tensor(cutlass.Float32, cute.make_layout((KEYS, width + 1), stride=(width + 1, 1)), 16)
    weights = memory.allocate_tensor(cutlass.Float32, cute.make_layout((QUERIES, KEYS + 1), stride=(KEYS + 1, 1)), 16)
    queries, keys, dim = q.shape[2], k.shape[2], q.shape[3]
    other = head // (q.shape[1] // k.shape[1])  # several heads of q may share one of k and v
    from_k, from_v = k[batch, other, None, None], v[batch, other, None, None]
    scores = cute.make_rmem_tensor(cute.make_layout((PER_M, PER_N)), cutlass.Float32)
    out = cute.make_rmem_tensor(cute.make_layout((PER_M, width // 16)), cutlass.Float32)
    highest, total = cute.make_rmem_tensor(PER_M, cutlass.Float32), cute.make_rmem_tensor(PER_M, cutlass.Float32)
    out.fill(0.0)
    total.fill(0.0)
    highest.fill(-cutlass.Float32.inf)
    load(q[batch, head, None, None], tile_q, block * QUERIES, thread)
    for i in range(thread, QUERIES, THREADS):
        weights[i, KEYS] = cutlass.Float32(0.0)
    count = (keys + KEYS - 1) // KEYS
    if cutlass.const_expr(CAUSAL):
        count = cutlass.min(count, ((block + 1) * QUERIES + KEYS - 1) // KEYS)
    for step in range(count):
        cute.arch.sync_threads()
        load(from_k, tile, step * KEYS, thread)
        cute.arch.sync_threads()
        scores.fill(0.0)
        for e in range(dim):
            for i in cutlass.range_constexpr(PER_M):
                left = tile_q[y * PER_M + i, e]
                for j in cutlass.range_constexpr(PER_N):
                    scores[i, j] += left * tile[x + 16 * j, e]
        cute.arch.sync_threads()
        load(from_v, tile, step * KEYS, thread)
        for i in cutlass.range_constexpr(PER_M):
            row = block * QUERIES + y * PER_M + i
            top = highest[i]
            for j in cutlass.range_constexpr(PER_N):
                column = step * KEYS + x + 16 * j
                seen = column < keys
                if cutlass.const_expr(CAUSAL):
                    seen = column < keys and column <= row
                scores[i, j] = scores[i, j] * scale if seen else -cutlass.Float32.inf
                top = cute.arch.fmax(top, scores[i, j])
            for step_of_four in cutlass.range_constexpr(4):
                top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 8 >> step_of_four))
            base = cutlass.Float32(0.0) if top == -cutlass.Float32.inf else top  # no key of this row so far
            shrink = cute.math.exp(highest[i] - base, fastmath=True)
            highest[i] = top
            total[i] = total[i] * shrink
            for j in cutlass.range_constexpr(PER_N):
                weight = cute.math.exp(scores[i, j] - base, fastmath=True)
                total[i] += weight
                weights[y * PER_M + i, x + 16 * j] = weight
            for j in cutlass.range_constexpr(width // 16):
                out[i, j] = out[i, j] * shrink
        cute.arch.sync_threads()
        for e in range(KEYS):
            for i in cutlass.range_constexpr(PER_M):
                left = weights[y * PER_M + i, e]
                for j in cutlass.range_constexpr(width // 16):
                    out[i, j] += left * tile[e, x + 16 * j]
    for i in cutlass.range_constexpr(PER_M):
        row = block * QUERIES + y * PER_M + i
        for step_of_four in cutlass.range_constexpr(4):
            total[i] += cute.arch.shuffle_sync_bfly(total[i], 8 >> step_of_four)
        for j in cutlass.range_constexpr(width // 16):
            if row < queries and x + 16 * j < dim:
                o[batch, head, row, x + 16 * j] = (out[i, j] / total[i]).to(o.element_type)


@cute.jit
def attention(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, scale: cutlass.Float32, stream: cuda.CUstream, width: cutlass.Constexpr):
    attention_kernel(q, k, v, o, scale, width).launch(grid=[((q.shape[2] + QUERIES - 1) // QUERIES) * q.shape[1] * q.shape[0], 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
OPERANDS = '''

def four(tensor):
    """(batch, heads, rows, dim), contiguous along dim."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor if tensor.stride(-1) == 1 else tensor.clone(memory_format=torch.contiguous_format)


def fit(q, k, v):
    """Say which operands are wrong, if they are."""
    expect_axes("q", q, 4, 4)
    expect_axes("k", k, 4, 4)
    expect("q", q, q.shape)
    if q.dtype != k.dtype or q.dtype != v.dtype or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q {q.dtype} {tuple(q.shape)}, k {k.dtype} {tuple(k.shape)}, v {v.dtype} {tuple(v.shape)}: one dtype; k and v of one shape, with q's batch and dim, and heads that divide q's")
'''
