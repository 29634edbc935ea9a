"""Text of attention with mma.sync: K and V in two stages of cp.async, P from registers straight into the second product.

The operand layouts of mma.sync are PTX's (m16n8k8 for TF32, m16n8k16 for 16 bits). A TF32 operand a has columns t and t + 4 where an
accumulator has 2 t and 2 t + 1: the keys of V are taken in that order, so that P need not be moved between threads.
"""

from __future__ import annotations

HEADER = '''
CAUSAL = {causal}  # whether query i sees keys 0 to i only
STORED = cutlass.{stored}  # what memory holds
ELEMENT = cutlass.{element}  # what the tensor cores multiply; they accumulate in float32
WARPS = {warps}  # each has 16 queries of its own
QUERIES, THREADS = 16 * WARPS, 32 * WARPS
PAD = 128 // STORED.width  # rows are 16 bytes longer, so that those of a fragment fall into different banks
SHARED_BYTES = {shared}  # what a CTA may have
MOST_KEYS = {keys}  # of one step

'''
KERNEL = '''
def keys_at_once(width):
    """Keys of one step: the most for which Q, and two stages of K and of V, fit into shared memory."""
    keys = MOST_KEYS
    while (QUERIES + 4 * keys) * (width + PAD) * STORED.width // 8 > SHARED_BYTES and keys > 16:
        keys //= 2
    return keys


@cute.jit
def fetch(source: cute.Tensor, tile: cute.Tensor, first, thread, vector: cutlass.Constexpr):
    """Start copying rows `first` and following of source (rows, dim) into a tile, `vector` elements at a time; zeros beyond both ends."""
    rows, width = tile.shape
    operation = cute.nvgpu.CopyUniversalOp()
    if cutlass.const_expr(vector * STORED.width == 128):
        operation = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=cute.nvgpu.cpasync.LoadCacheMode.GLOBAL)
    elif cutlass.const_expr(vector * STORED.width >= 32):
        operation = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=cute.nvgpu.cpasync.LoadCacheMode.ALWAYS)
    copy = cute.make_copy_atom(operation, STORED, num_bits_per_copy=vector * STORED.width)
    piece = cute.make_layout(vector)
    for at in cutlass.range(thread, rows * width // vector, THREADS, unroll=4):
        i, j = at // (width // vector), at % (width // vector) * vector
        target = cute.make_tensor(cute.domain_offset((i, j), tile).iterator.align(vector * STORED.width // 8), piece)
        if first + i < source.shape[0] and j < source.shape[1]:
            cute.copy(copy, cute.make_tensor(cute.domain_offset((first + i, j), source).iterator.align(vector * STORED.width // 8), piece), target)
        else:
            target.fill(0.0)


@cute.jit
def take(source: cute.Tensor, target: cute.Tensor):
    """A fragment out of shared memory, rounded to what the tensor cores multiply."""
    for e in cutlass.range_constexpr(cute.size(target)):
        target[e] = source[e].to(ELEMENT)


@cute.kernel
def attention_kernel(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, scale: cutlass.Float32, tiled_mma: cute.TiledMma, width: cutlass.Constexpr, vector: cutlass.Constexpr):
    """One tile of queries; a block of keys is multiplied while the next one arrives."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks, heads = (q.shape[2] + QUERIES - 1) // QUERIES, q.shape[1]
    block, head, batch = cta % blocks, cta // blocks % heads, cta // blocks // heads  # along one axis of the grid: the others end at 65535
    KEYS = keys_at_once(width)
    memory = cutlass.memory.SmemAllocator()
    pitch = width + PAD
    tile_q = memory.allocate_tensor(STORED, cute.make_layout((QUERIES, width), stride=(pitch, 1)), 16)
    tiles_k = memory.allocate_tensor(STORED, cute.make_layout((KEYS, width, 2), stride=(pitch, 1, KEYS * pitch)), 16)
    tiles_v = memory.allocate_tensor(STORED, cute.make_layout((KEYS, width, 2), stride=(pitch, 1, KEYS * pitch)), 16)
    # V as (dim, keys), its keys in the order in which a thread's columns of S are those of operand a
    order = {order}
    turned_v = cute.make_tensor(tiles_v.iterator, order)
    queries, keys = q.shape[2], k.shape[2]
    other = head // (q.shape[1] // k.shape[1])  # several heads of q may share one of k and v
    from_k, from_v = k[batch, other, None, None], v[batch, other, None, None]
    first_query = block * QUERIES
    count = (keys + KEYS - 1) // KEYS
    if cutlass.const_expr(CAUSAL):
        count = cutlass.min(count, (first_query + QUERIES + KEYS - 1) // KEYS)
    fetch(q[batch, head, None, None], tile_q, first_query, thread, vector)
    fetch(from_k, tiles_k[None, None, 0], 0, thread, vector)
    fetch(from_v, tiles_v[None, None, 0], 0, thread, vector)
    cute.arch.cp_async_commit_group()
    mine = tiled_mma.get_slice(thread)
    shared_q, shared_k, shared_v = mine.partition_A(tile_q), mine.partition_B(tiles_k), mine.partition_B(turned_v)
    part_q = cute.make_rmem_tensor(shared_q[None, None, 0].shape, ELEMENT)
    part_k = cute.make_rmem_tensor(shared_k[None, None, 0, 0].shape, ELEMENT)
    part_v = cute.make_rmem_tensor(shared_v[None, None, 0, 0].shape, ELEMENT)
    scores = cute.make_rmem_tensor(tiled_mma.partition_shape_C((QUERIES, KEYS)), cutlass.Float32)
    weights = cute.make_rmem_tensor(tiled_mma.partition_shape_A((QUERIES, KEYS)), ELEMENT)
    out = cute.make_rmem_tensor(tiled_mma.partition_shape_C((QUERIES, width)), cutlass.Float32)
    highest, total = cute.make_rmem_tensor(2, cutlass.Float32), cute.make_rmem_tensor(2, cutlass.Float32)  # of this thread's two rows
    out.fill(0.0)
    total.fill(0.0)
    highest.fill(-cutlass.Float32.inf)
    factor = scale * math.log2(math.e)
    lane = thread % 32
    row = first_query + thread // 32 * 16 + lane // 4
    for step in range(count):
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # this block is there for everyone, and nobody still reads the one before
        stage = step % 2
        if step + 1 < count:
            fetch(from_k, tiles_k[None, None, 1 - stage], (step + 1) * KEYS, thread, vector)
            fetch(from_v, tiles_v[None, None, 1 - stage], (step + 1) * KEYS, thread, vector)
        cute.arch.cp_async_commit_group()
        scores.fill(0.0)
        for part in cutlass.range_constexpr(cute.size(shared_q, mode=[2])):
            take(shared_q[None, None, part], part_q)
            take(shared_k[None, None, part, stage], part_k)
            cute.gemm(tiled_mma, scores, part_q, part_k, scores)
        if (step + 1) * KEYS > {whole}:
            mask(scores, row, step * KEYS + lane % 4 * 2, keys)
        shrink = softmax(scores, highest, total, factor, True)
        scale_rows(out, shrink)
{convert}
        for part in cutlass.range_constexpr(cute.size(weights, mode=[2])):
            take(shared_v[None, None, part, stage], part_v)
            cute.gemm(tiled_mma, out, weights[None, None, part], part_v, out)
    normalise(out, total)
    store_direct(out, o[batch, head, None, None], row, lane % 4 * 2)


@cute.jit
def attention(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, scale: cutlass.Float32, stream: cuda.CUstream, width: cutlass.Constexpr, vector: cutlass.Constexpr):
    tiled_mma = cute.make_tiled_mma({operation}, cute.make_layout((WARPS, 1, 1)))
    attention_kernel(q, k, v, o, scale, tiled_mma, width, vector).launch(grid=[((q.shape[2] + QUERIES - 1) // QUERIES) * q.shape[1] * q.shape[0], 1, 1], block=[THREADS, 1, 1], stream=stream)


def access(*tensors):
    """How many elements every row's start and length allow to move at once, of at most 16 bytes."""
    size = tensors[0].element_size()
    return math.gcd(16, *(t.data_ptr() for t in tensors), *(stride * size for t in tensors for stride in t.stride()[:3]), tensors[0].shape[3] * size) // size
'''
TF32 = {
    "order": "cute.make_layout((width, ((4, 2), KEYS // 8), 2), stride=(1, ((2 * pitch, pitch), 8 * pitch), KEYS * pitch))",
    "convert": """\
        for n in cutlass.range_constexpr(KEYS // 8):
            for e in cutlass.range_constexpr(4):
                weights[(e % 2, e // 2), 0, n] = scores[(e // 2, e % 2), 0, n].to(ELEMENT)""",
}
SIXTEEN = {
    "order": "cute.make_layout((width, KEYS, 2), stride=(1, pitch, KEYS * pitch))",
    "convert": """\
        for n in cutlass.range_constexpr(KEYS // 8):
            for e in cutlass.range_constexpr(4):
                weights[(e % 2, e // 2, n % 2), 0, n // 2] = scores[(e % 2, e // 2), 0, n].to(ELEMENT)""",
}
