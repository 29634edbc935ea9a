"""Tiles of 16-bit matrices for mma.sync: predicated copies by cp.async, fragments by ldmatrix, stores of sums.

Rows and columns are tested where elements are copied, so any shape is taken, and copies may be as narrow as an element.
Layouts of shared memory and the tensor cores' operation are those of `sm80`.
"""

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import nvvm
from cutlass.cutlass_dsl import dsl_user_op

from workbench.kernels.gemm.mma_sync import mma_op
from workbench.kernels.gemm.sm80 import ldmatrix_atom
from workbench.kernels.static import Static


@dsl_user_op
def copy_async(target, source, count, size: int, *, loc=None, ip=None):
    """cp.async of `size` bytes (4, 8 or 16) from global to shared memory.

    Of these only the first `count` are read, zeros stand for the rest.
    """
    cache = nvvm.LoadCacheModifierKind.CG if size == 16 else nvvm.LoadCacheModifierKind.CA
    smem, gmem = target.to_llvm_ptr(loc=loc, ip=ip), source.to_llvm_ptr(loc=loc, ip=ip)
    read = cutlass.Int32(count).ir_value(loc=loc, ip=ip)
    nvvm.cp_async_shared_global(smem, gmem, size, cache, cp_size=read, loc=loc, ip=ip)


@cute.jit
def copy_or_zero(
    sX: cute.Tensor,
    row: cutlass.Int32,
    column: cutlass.Int32,
    stage: cutlass.Int32,
    source: cute.Pointer,
    inside: cutlass.Boolean,
    width: cutlass.Constexpr,
):
    """Copy `width` elements from `source` into a stage, or zeros if not `inside`; asynchronously from 4 bytes on."""
    if cutlass.const_expr(width == 1):
        value = sX.element_type(0)
        if inside:
            value = cute.make_tensor(source, cute.make_layout(1))[0]
        sX[row, column, stage] = value
    else:
        count = 2 * width if inside else 0
        copy_async(sX.iterator + cute.crd2idx((row, column, stage), sX.layout), source, count, 2 * width)


@cute.jit
def load_chunk(
    cfg: Static,
    mX: cute.Tensor,
    sX: cute.Tensor,
    stage: cutlass.Int32,
    start: tuple,
    shape: tuple,
    step: cutlass.Int32,
    extent: cutlass.Constexpr,
    along_k: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Start copying this thread's chunk number `step` of a tile."""
    thread, _, _ = cute.arch.thread_idx()
    row, k = start
    across = (cfg.tile_k if cutlass.const_expr(along_k) else extent) // width
    line = (step * cfg.threads + thread) // across
    chunk = (step * cfg.threads + thread) % across * width
    i, j = line, chunk
    if cutlass.const_expr(not along_k):
        i, j = chunk, line
    inside = (row + i < shape[0]) & (k + j < shape[1])
    source = mX.iterator + cute.crd2idx((row + i, k + j), mX.layout)
    copy_or_zero(sX, i, j, stage, source, inside, width)


@cute.jit
def load_tile(
    cfg: Static,
    mX: cute.Tensor,
    sX: cute.Tensor,
    stage: cutlass.Int32,
    start: tuple,
    shape: tuple,
    extent: cutlass.Constexpr,
    along_k: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Start copying the (extent, tile_k) tile at `start` of a matrix of `shape`, (rows, k), into a stage.

    Neighbouring threads copy neighbouring chunks of `width` elements.
    """
    steps = extent * cfg.tile_k // width // cfg.threads
    if cutlass.const_expr(steps <= 16):
        for step in cutlass.range_constexpr(steps):
            load_chunk(cfg, mX, sX, stage, start, shape, step, extent, along_k, width)
    else:  # narrow accesses: too many to write out
        for step in cutlass.range(steps, unroll=8):
            load_chunk(cfg, mX, sX, stage, start, shape, step, extent, along_k, width)


def make_tiled_mma(cfg: Static):
    """mma.sync m16n8k16 with float32 sums, over 2 x 2 warps; each takes 16 x 16 blocks, as ldmatrix.x4 loads them."""
    return cute.make_tiled_mma(mma_op(cfg), cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16))


def partition_product(cfg: Static, tiled_mma, sA, sB, a_along_k, b_along_k):
    """(the MMA, sums, their places in the tile, ldmatrix of a, ldmatrix of b), a thread's part of staged tiles.

    An ldmatrix is (the copy, stages as it reads them, fragments, fragments as it writes them).
    """
    tidx, _, _ = cute.arch.thread_idx()
    thr_mma = tiled_mma.get_slice(tidx)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
    ldmatrix_a = cute.make_tiled_copy_A(ldmatrix_atom(cfg, a_along_k), tiled_mma)
    ldmatrix_b = cute.make_tiled_copy_B(ldmatrix_atom(cfg, b_along_k), tiled_mma)
    load_a = (ldmatrix_a, ldmatrix_a.get_slice(tidx).partition_S(sA), tCrA, ldmatrix_a.retile(tCrA))
    load_b = (ldmatrix_b, ldmatrix_b.get_slice(tidx).partition_S(sB), tCrB, ldmatrix_b.retile(tCrB))
    tCrC = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((cfg.tile_m, cfg.tile_n)))
    tCrC.fill(0.0)
    tCcC = thr_mma.partition_C(cute.make_identity_tensor((cfg.tile_m, cfg.tile_n)))
    return tiled_mma, tCrC, tCcC, load_a, load_b


def load_fragments(load, step, stage):
    """ldmatrix: the fragments of one 16-deep step of a stage."""
    ldmatrix, tCsX, _, tCrX_copy = load
    cute.copy(ldmatrix, tCsX[None, None, step, stage], tCrX_copy[None, None, step])


def multiply_stage(product, stage):
    """Multiply the tiles of a stage; the fragments of a step are loaded while the previous step is multiplied."""
    tiled_mma, tCrC, _, load_a, load_b = product
    tCrA, tCrB = load_a[2], load_b[2]
    steps = cute.size(tCrA, mode=[2])
    load_fragments(load_a, 0, stage)
    load_fragments(load_b, 0, stage)
    for step in range(steps):
        if step + 1 < steps:
            load_fragments(load_a, step + 1, stage)
            load_fragments(load_b, step + 1, stage)
        cute.gemm(tiled_mma, tCrC, tCrA[None, None, step], tCrB[None, None, step], tCrC)


@cute.jit
def store_sums(
    tCrC: cute.Tensor,
    tCcC: cute.Tensor,
    mD: cute.Tensor,
    start: tuple,
    shape: tuple,
    pairs: cutlass.Constexpr,
):
    """Convert and store a tile to d (rows * columns), clipped at the edges.

    The two neighbours that a thread has go out in one access where `pairs` (columns even) allows it.
    """
    width = 2 if cutlass.const_expr(pairs) else 1
    rows, columns = shape
    out = cute.make_rmem_tensor(cute.make_layout(width), mD.element_type)
    slots = cute.zipped_divide(mD, (width,))
    for m in cutlass.range_constexpr(cute.size(tCrC, mode=[1])):
        for n in cutlass.range_constexpr(cute.size(tCrC, mode=[2])):
            for v in cutlass.range_constexpr(4 // width):  # a thread has ((2 neighbours, 2 rows), m, n)
                i, j = start[0] + tCcC[v * width, m, n][0], start[1] + tCcC[v * width, m, n][1]
                if (i < rows) & (j < columns):
                    for e in cutlass.range_constexpr(width):
                        out[e] = tCrC[v * width + e, m, n].to(mD.element_type)
                    cute.autovec_copy(out, slots[None, (cutlass.Int64(i) * columns + j) // width])


@cute.jit
def add_sums(tCrC: cute.Tensor, tCcC: cute.Tensor, mD: cute.Tensor, start: tuple, shape: tuple):
    """Add the accumulators of a tile to d (rows * columns), float32, by atomics, predicated on the shape."""
    rows, columns = shape
    for m in cutlass.range_constexpr(cute.size(tCrC, mode=[1])):
        for n in cutlass.range_constexpr(cute.size(tCrC, mode=[2])):
            for v in cutlass.range_constexpr(4):
                i, j = start[0] + tCcC[v, m, n][0], start[1] + tCcC[v, m, n][1]
                if (i < rows) & (j < columns):
                    place = mD.iterator + (cutlass.Int64(i) * columns + j)
                    cute.arch.atomic_add(place, tCrC[v, m, n], sem="relaxed", scope="gpu")
