"""Multistage matrix products for sm_80 tensor cores: cp.async into swizzled shared memory, ldmatrix, mma.sync.

Operands are a (batch, m, k), b (batch, k, n) and d (batch, m, n), with any strides as long as one extent is contiguous.
At each call the host picks the widest access (16, 8, 4 or 2 bytes) that all row addresses and lengths allow; copies
below 4 bytes are synchronous. The residue k tile is processed first: its first `skip` columns lie before the matrix and
stay zero, so the stages are cleared only once, at the start.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.gemm.mma_sync import mma_op, store_fragment
from workbench.kernels.gemm.simt import tile_coord
from workbench.kernels.static import Many, Static, dtype


def smem_layout(cfg: Static, rows, along_k):
    """Return the layout (rows, tile_k, stages) of an operand in shared memory.

    It is swizzled so that the 16-byte chunks of neighbouring rows fall into different banks.
    """
    width = dtype(cfg.stored).width
    length = math.gcd(cfg.tile_k if along_k else rows, 1024 // width)
    bits = min(3, int(math.log2(length * width // 128)))
    base = int(math.log2(128 // width))
    if along_k:
        plain, order = cute.make_layout((8, length), stride=(length, 1)), (0, 1, 2)
    else:
        plain, order = cute.make_layout((length, 8), stride=(1, length)), (1, 0, 2)
    atom = cute.make_composed_layout(cute.make_swizzle(bits, base, 3), 0, plain)
    return cute.tile_to_shape(atom, (rows, cfg.tile_k, cfg.stages), order)


def tiled_copy(cfg: Static, rows, along_k, width):
    """Return the tiled copy from global to shared memory: `width` bits per thread along the contiguous extent.

    It uses cp.async from 32 bits on, and a plain copy below.
    """
    vector = width // dtype(cfg.stored).width
    if width >= 32:
        mode = cute.nvgpu.cpasync.LoadCacheMode.GLOBAL if width == 128 else cute.nvgpu.cpasync.LoadCacheMode.ALWAYS
        operation = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=mode)
    else:
        operation = cute.nvgpu.CopyUniversalOp()
    atom = cute.make_copy_atom(operation, dtype(cfg.stored), num_bits_per_copy=width)
    across = math.gcd(cfg.threads, (cfg.tile_k if along_k else rows) // vector)
    if along_k:
        threads = cute.make_layout((cfg.threads // across, across), stride=(across, 1))
        values = cute.make_layout((1, vector))
    else:
        threads = cute.make_layout((across, cfg.threads // across))
        values = cute.make_layout((vector, 1))
    return cute.make_tiled_copy_tv(atom, threads, values)


@cute.jit
def load_tile(
    copy: cute.TiledCopy,
    tXgX: cute.Tensor,
    tXsX: cute.Tensor,
    tXcX: cute.Tensor,
    rows: cutlass.Int32,
    skip: cutlass.Int32,
    k_tile: cutlass.Int32,
    stage: cutlass.Int32,
    width: cutlass.Constexpr,
):
    """Start copying one k tile into a stage, predicated on the rows of the matrix.

    Rows past the matrix, and the first `skip` columns of k tile 0, keep the zeros of the start.
    """
    for i in cutlass.range_constexpr(cute.size(tXsX, mode=[1])):
        for j in cutlass.range_constexpr(cute.size(tXsX, mode=[2])):
            row, inner = tXcX[(0, 0), i, j]
            if row < rows and (k_tile > 0 or inner >= skip):
                chunk = tXgX[None, i, j, k_tile]
                source = cute.make_tensor(chunk.iterator.align(width // 8), chunk.layout)
                cute.copy(copy, source, tXsX[None, i, j, stage])


def operand_tiles(cfg: Static, mA, mB, batch, tile_m, tile_n, skip):
    """Return the k tiles of a, (tile_m, tile_k, k tiles), and of b, (tile_n, tile_k, k tiles).

    The first k tile starts `skip` columns before the matrix.
    """
    a = mA[batch, None, None]
    b = cute.make_tensor(mB[batch, None, None].iterator, cute.select(mB[batch, None, None].layout, mode=[1, 0]))
    a = cute.domain_offset((tile_m * cfg.tile_m, -skip), a)
    b = cute.domain_offset((tile_n * cfg.tile_n, -skip), b)
    gA = cute.local_tile(a, (cfg.tile_m, cfg.tile_k), (0, None))
    gB = cute.local_tile(b, (cfg.tile_n, cfg.tile_k), (0, None))
    return gA, gB


def partition_copy(cfg: Static, thr_copy, gX, sX, rows):
    """Return (global memory tiles, shared memory stages, coordinates in a tile) of this thread's copies."""
    cX = cute.make_identity_tensor((rows, cfg.tile_k))
    return thr_copy.partition_S(gX), thr_copy.partition_D(sX), thr_copy.partition_S(cX)


def ldmatrix_atom(cfg: Static, along_k):
    """Return the ldmatrix copy atom; it transposes where k is not the contiguous extent."""
    return cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(not along_k, 4), dtype(cfg.element))


@cute.jit
def round_to_tf32(tCsX, tCrX, step, stage):
    """Load one k step of a float32 fragment from shared memory as TF32; no cvt is emitted, so its low bits stay."""
    for e in cutlass.range_constexpr(cute.size(tCrX, mode=[0])):
        for i in cutlass.range_constexpr(cute.size(tCrX, mode=[1])):
            tCrX[e, i, step] = tCsX[e, i, step, stage].to(cutlass.TFloat32)


@cute.kernel
def sm80_kernel(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    copy_a: cute.TiledCopy,
    copy_b: cute.TiledCopy,
    tiled_mma: cute.TiledMma,
    width_a: cutlass.Constexpr,
    width_b: cutlass.Constexpr,
    a_along_k: cutlass.Constexpr,
    b_along_k: cutlass.Constexpr,
):
    """Compute one output tile: cp.async keeps STAGES k tiles in flight while the warps multiply the oldest one."""
    tidx, _, _ = cute.arch.thread_idx()
    tile_n, tile_m, batch = tile_coord(cfg, m, n)
    smem = cutlass.memory.SmemAllocator()
    sA = smem.allocate_tensor(dtype(cfg.stored), layout_a, 128)
    sB = smem.allocate_tensor(dtype(cfg.stored), layout_b, 128)
    num_k_tiles = (k + cfg.tile_k - 1) // cfg.tile_k
    # the residue k tile comes first: its first `skip` columns lie before the matrix
    skip = num_k_tiles * cfg.tile_k - k
    gA, gB = operand_tiles(cfg, mA, mB, batch, tile_m, tile_n, skip)
    rows_a = m - tile_m * cfg.tile_m
    rows_b = n - tile_n * cfg.tile_n
    thr_copy_a, thr_copy_b = copy_a.get_slice(tidx), copy_b.get_slice(tidx)
    tAgA, tAsA, tAcA = partition_copy(cfg, thr_copy_a, gA, sA, cfg.tile_m)
    tBgB, tBsB, tBcB = partition_copy(cfg, thr_copy_b, gB, sB, cfg.tile_n)
    tAsA.fill(0.0)
    tBsB.fill(0.0)
    cute.arch.sync_threads()
    thr_mma = tiled_mma.get_slice(tidx)
    tCcC = thr_mma.partition_C(cute.make_identity_tensor((cfg.tile_m, cfg.tile_n)))
    tCrC = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((cfg.tile_m, cfg.tile_n)))
    tCrC.fill(0.0)
    if cutlass.const_expr(cfg.element == "tf32"):
        tCsA, tCsB = thr_mma.partition_A(sA), thr_mma.partition_B(sB)
        tCrA = cute.make_rmem_tensor(tiled_mma.partition_shape_A((cfg.tile_m, cfg.tile_k)), cutlass.TFloat32)
        tCrB = cute.make_rmem_tensor(tiled_mma.partition_shape_B((cfg.tile_n, cfg.tile_k)), cutlass.TFloat32)
    else:
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
        ldmatrix_a = cute.make_tiled_copy_A(ldmatrix_atom(cfg, a_along_k), tiled_mma)
        ldmatrix_b = cute.make_tiled_copy_B(ldmatrix_atom(cfg, b_along_k), tiled_mma)
        tCsA, tCrA_copy = ldmatrix_a.get_slice(tidx).partition_S(sA), ldmatrix_a.retile(tCrA)
        tCsB, tCrB_copy = ldmatrix_b.get_slice(tidx).partition_S(sB), ldmatrix_b.retile(tCrB)
    for ahead in cutlass.range_constexpr(cfg.stages - 1):
        if ahead < num_k_tiles:
            load_tile(copy_a, tAgA, tAsA, tAcA, rows_a, skip, ahead, ahead, width_a)
            load_tile(copy_b, tBgB, tBsB, tBcB, rows_b, skip, ahead, ahead, width_b)
        cute.arch.cp_async_commit_group()
    for k_tile in range(num_k_tiles):
        cute.arch.cp_async_wait_group(cfg.stages - 2)
        # after the barrier the k tile is visible to all threads, and the stage to be filled next is free
        cute.arch.sync_threads()
        ahead = k_tile + cfg.stages - 1
        if ahead < num_k_tiles:
            load_tile(copy_a, tAgA, tAsA, tAcA, rows_a, skip, ahead, ahead % cfg.stages, width_a)
            load_tile(copy_b, tBgB, tBsB, tBcB, rows_b, skip, ahead, ahead % cfg.stages, width_b)
        cute.arch.cp_async_commit_group()
        stage = k_tile % cfg.stages
        for step in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            if cutlass.const_expr(cfg.element == "tf32"):
                round_to_tf32(tCsA, tCrA, step, stage)
                round_to_tf32(tCsB, tCrB, step, stage)
            else:
                cute.copy(ldmatrix_a, tCsA[None, None, step, stage], tCrA_copy[None, None, step])
                cute.copy(ldmatrix_b, tCsB[None, None, step, stage], tCrB_copy[None, None, step])
            cute.gemm(tiled_mma, tCrC, tCrA[None, None, step], tCrB[None, None, step], tCrC)
    store_fragment(cfg, tCrC, tCcC, operands, mD, batch, tile_m, tile_n, m, n)


@cute.jit
def launch_sm80(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    batches: cutlass.Int32,
    stream: cuda.CUstream,
    width_a: cutlass.Constexpr,
    width_b: cutlass.Constexpr,
    a_along_k: cutlass.Constexpr,
    b_along_k: cutlass.Constexpr,
):
    tiled_mma = cute.make_tiled_mma(mma_op(cfg), cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, cfg.mma_k))
    layout_a, layout_b = smem_layout(cfg, cfg.tile_m, a_along_k), smem_layout(cfg, cfg.tile_n, b_along_k)
    copy_a, copy_b = tiled_copy(cfg, cfg.tile_m, a_along_k, width_a), tiled_copy(cfg, cfg.tile_n, b_along_k, width_b)
    ctas = ((n + cfg.tile_n - 1) // cfg.tile_n) * ((m + cfg.tile_m - 1) // cfg.tile_m) * batches
    sm80_kernel(
        cfg,
        mA,
        mB,
        operands,
        mD,
        m,
        n,
        k,
        layout_a,
        layout_b,
        copy_a,
        copy_b,
        tiled_mma,
        width_a,
        width_b,
        a_along_k,
        b_along_k,
    ).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)


def access_bits(tensor):
    """Return the widest access, in bits, that the address and length of every row allow."""
    size = tensor.element_size()
    extents = list(zip(tensor.stride(), tensor.shape, strict=True))
    steps = [stride * size for stride, extent in extents if stride != 1 and extent > 1]
    lengths = [extent * size for stride, extent in extents if stride == 1]
    return 8 * math.gcd(16, tensor.data_ptr(), *steps, *lengths)
