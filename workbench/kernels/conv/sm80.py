"""Implicit GEMM by mma.sync and cp.async: A (positions, channels), B (k, taps * channels) -> y (n, k, z, p, q).

The A tile of a tap is the tile of the output positions, shifted by a fixed number of rows, so one tap with TILE_K
channels is one k tile of a multistage GEMM. Rows past the end repeat the last row; their results are not stored.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.epilogue import allocate_results, find_outputs, store_tile
from workbench.kernels.conv.indexing import divide, find_work_tile
from workbench.kernels.static import Many, Static, dtype


def make_smem_layout(cfg: Static, rows):
    """Return the layout (rows, TILE_K, STAGES) of an operand in shared memory.

    It is swizzled so that the 16-byte chunks of neighbouring rows fall into different banks.
    """
    width = dtype(cfg.stored).width
    length = min(cfg.tile_k, 1024 // width)
    bits, base = min(3, int(math.log2(length * width // 128))), int(math.log2(128 // width))
    plain = cute.make_layout((8, length), stride=(length, 1))
    atom = cute.make_composed_layout(cute.make_swizzle(bits, base, 3), 0, plain)
    return cute.tile_to_shape(atom, (rows, cfg.tile_k, cfg.stages), (0, 1, 2))


def make_gmem_tiled_copy(cfg: Static):
    """Return the cp.async tiled copy: 16 bytes per thread along the channels."""
    vector = 128 // dtype(cfg.stored).width
    copy_op = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=cute.nvgpu.cpasync.LoadCacheMode.GLOBAL)
    atom = cute.make_copy_atom(copy_op, dtype(cfg.stored), num_bits_per_copy=128)
    across = cfg.tile_k // vector
    threads = cute.make_layout((cfg.threads // across, across), stride=(across, 1))
    return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, vector)))


@cute.jit
def copy_tile(
    cfg: Static,
    tiled_copy: cute.TiledCopy,
    matrix: cute.Tensor,
    tSsS: cute.Tensor,
    tScS: cute.Tensor,
    first: cutlass.Int32,
    column: cutlass.Int32,
    stage: cutlass.Int32,
):
    """Start copying TILE_K elements from `column` on of the rows from `first` on to a stage."""
    vector = 128 // dtype(cfg.stored).width
    for i in cutlass.range_constexpr(cute.size(tSsS, mode=[1])):
        for j in cutlass.range_constexpr(cute.size(tSsS, mode=[2])):
            row, inner = tScS[(0, 0), i, j]
            offset = cutlass.Int64(cutlass.min(first + row, matrix.shape[0] - 1)) * matrix.shape[1] + column + inner
            layout = cute.make_layout(((vector, 1),), stride=((1, 0),))
            piece = cute.make_tensor(matrix.iterator + cute.assume(offset, divby=vector), layout)
            cute.copy(tiled_copy, piece, tSsS[None, i, j, stage])


@cute.jit
def copy_k_tile(
    cfg: Static,
    load_a: tuple,
    load_b: tuple,
    taps: cute.Tensor,
    k_tile: cutlass.Int32,
    tap_range: tuple,
    origin: tuple,
    stage: cutlass.Int32,
):
    """Start copying the A and B tiles of one tap and TILE_K channels to a stage.

    `tap_range` is (first tap, k tiles per tap), `origin` is (m0, n0, block, filters of a block, columns of a tap).
    """
    tiled_copy_a, mA, tAsA, tAcA = load_a
    tiled_copy_b, mB, tBsB, tBcB = load_b
    first, k_tiles_per_tap = tap_range
    m0, n0, block, filters, depth = origin
    tap, inner = divide(k_tile, k_tiles_per_tap)
    copy_tile(
        cfg,
        tiled_copy_a,
        mA,
        tAsA,
        tAcA,
        m0 + taps[first + tap, 0],
        block * depth + inner * cfg.tile_k,
        stage,
    )
    copy_tile(
        cfg,
        tiled_copy_b,
        mB,
        tBsB,
        tBcB,
        block * filters + n0,
        (first + tap) * depth + inner * cfg.tile_k,
        stage,
    )


@cute.jit
def round_fragment(tCsS: cute.Tensor, tCrS: cute.Tensor, k_block: cutlass.Constexpr, stage: cutlass.Int32):
    """Load one k block of a float32 fragment from shared memory as TF32; no cvt is emitted, so its low bits stay."""
    for e in cutlass.range_constexpr(cute.size(tCrS, mode=[0])):
        for i in cutlass.range_constexpr(cute.size(tCrS, mode=[1])):
            tCrS[e, i, k_block] = tCsS[e, i, k_block, stage].to(cutlass.TFloat32)


@cute.kernel
def conv_sm80_kernel(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    taps: cute.Tensor,
    phases: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    grid: cute.IntTuple,
    scale: cute.IntTuple,
    sizes: cute.IntTuple,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    tiled_copy_a: cute.TiledCopy,
    tiled_copy_b: cute.TiledCopy,
    tiled_mma: cute.TiledMma,
):
    """Compute one output tile: cp.async keeps STAGES k tiles in flight while the warps multiply the oldest one."""
    tidx, _, _ = cute.arch.thread_idx()
    work, _, _ = cute.arch.block_idx()
    warp_idx = tidx // 32
    smem = cutlass.memory.SmemAllocator()
    sA = smem.allocate_tensor(dtype(cfg.stored), layout_a, 128)
    sB = smem.allocate_tensor(dtype(cfg.stored), layout_b, 128)
    sC = allocate_results(cfg, smem, 1)
    depth, filters, _ = sizes
    images, grid0, grid1, grid2 = grid
    tiles_m = (images * grid0 * grid1 * grid2 + cfg.tile_m - 1) // cfg.tile_m
    tiles_n = (filters + cfg.tile_n - 1) // cfg.tile_n
    tile_m, tile_n, phase, block = find_work_tile(work, tiles_n, phases.shape[0], tiles_m)
    m0, n0 = tile_m * cfg.tile_m, tile_n * cfg.tile_n
    first, k_tiles_per_tap = phases[phase, 0], depth // cfg.tile_k
    num_k_tiles = phases[phase, 1] * k_tiles_per_tap
    if taps[first, 1] < 0:  # no tap reaches these positions
        num_k_tiles = cutlass.Int32(0)
    thr_copy_a, thr_copy_b = tiled_copy_a.get_slice(tidx), tiled_copy_b.get_slice(tidx)
    tAsA, tAcA = partition_copy(thr_copy_a, sA, (cfg.tile_m, cfg.tile_k))
    tBsB, tBcB = partition_copy(thr_copy_b, sB, (cfg.tile_n, cfg.tile_k))
    thr_mma = tiled_mma.get_slice(tidx)
    tCcC = thr_mma.partition_C(cute.make_identity_tensor((cfg.tile_m, cfg.tile_n)))
    acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((cfg.tile_m, cfg.tile_n)))
    acc.fill(0.0)
    load_a, load_b = (tiled_copy_a, mA, tAsA, tAcA), (tiled_copy_b, mB, tBsB, tBcB)
    tap_range, origin = (first, k_tiles_per_tap), (m0, n0, block, filters, depth)
    multiply_tiles(cfg, tiled_mma, thr_mma, tidx, acc, sA, sB, load_a, load_b, taps, num_k_tiles, tap_range, origin)
    addresses = cute.make_rmem_tensor(cfg.rows // 32, cutlass.Int64)
    rC = cute.make_rmem_tensor(cfg.rows // 32, cutlass.Float32)
    fragments = tuple(
        cute.make_rmem_tensor(1 if read.along == "n" else cfg.rows // 32, x.element_type)
        for x, read in zip(operands, cfg.reads, strict=True)
    )
    for fragment in fragments:
        fragment.fill(0.0)
    find_outputs(cfg, mY, addresses, m0 + tidx % 32, grid, scale, phases, phase)
    store_tile(cfg, acc, tCcC, sC, rC, addresses, operands, fragments, mY, (n0, block, filters), (0, warp_idx, tidx))


def partition_copy(thr_copy, sS, tile):
    """Return (shared memory stages, coordinates in a tile) of this thread's copies."""
    return thr_copy.partition_D(sS), thr_copy.partition_S(cute.make_identity_tensor(tile))


@cute.jit
def multiply_tiles(
    cfg: Static,
    tiled_mma: cute.TiledMma,
    thr_mma: cute.ThrMma,
    tidx: cutlass.Int32,
    acc: cute.Tensor,
    sA: cute.Tensor,
    sB: cute.Tensor,
    load_a: tuple,
    load_b: tuple,
    taps: cute.Tensor,
    num_k_tiles: cutlass.Int32,
    tap_range: tuple,
    origin: tuple,
):
    """Run the mainloop: fill the stages ahead and multiply the k tile that has arrived."""
    if cutlass.const_expr(cfg.mma == "tf32"):
        tCsA, tCsB = thr_mma.partition_A(sA), thr_mma.partition_B(sB)
        tCrA = cute.make_rmem_tensor(tiled_mma.partition_shape_A((cfg.tile_m, cfg.tile_k)), cutlass.TFloat32)
        tCrB = cute.make_rmem_tensor(tiled_mma.partition_shape_B((cfg.tile_n, cfg.tile_k)), cutlass.TFloat32)
    else:
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
        ldmatrix = cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(False, 4), dtype(cfg.stored))
        smem_copy_a = cute.make_tiled_copy_A(ldmatrix, tiled_mma)
        smem_copy_b = cute.make_tiled_copy_B(ldmatrix, tiled_mma)
        tCsA, tCsB = smem_copy_a.get_slice(tidx).partition_S(sA), smem_copy_b.get_slice(tidx).partition_S(sB)
        tCrA_view, tCrB_view = smem_copy_a.retile(tCrA), smem_copy_b.retile(tCrB)
    for ahead in cutlass.range_constexpr(cfg.stages - 1):
        if ahead < num_k_tiles:
            copy_k_tile(cfg, load_a, load_b, taps, cutlass.Int32(ahead), tap_range, origin, ahead)
        cute.arch.cp_async_commit_group()
    for k_tile in range(num_k_tiles):
        cute.arch.cp_async_wait_group(cfg.stages - 2)
        # after the barrier the k tile is visible to all threads, and the stage to be filled next is free
        cute.arch.sync_threads()
        ahead = k_tile + cfg.stages - 1
        if ahead < num_k_tiles:
            copy_k_tile(cfg, load_a, load_b, taps, ahead, tap_range, origin, ahead % cfg.stages)
        cute.arch.cp_async_commit_group()
        stage = k_tile % cfg.stages
        for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            if cutlass.const_expr(cfg.mma == "tf32"):
                round_fragment(tCsA, tCrA, k_block, stage)
                round_fragment(tCsB, tCrB, k_block, stage)
            else:
                cute.copy(smem_copy_a, tCsA[None, None, k_block, stage], tCrA_view[None, None, k_block])
                cute.copy(smem_copy_b, tCsB[None, None, k_block, stage], tCrB_view[None, None, k_block])
            cute.gemm(tiled_mma, acc, tCrA[None, None, k_block], tCrB[None, None, k_block], acc)


@cute.jit
def conv_sm80(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    taps: cute.Tensor,
    phases: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    grid: cute.IntTuple,
    scale: cute.IntTuple,
    sizes: cute.IntTuple,
    stream: cuda.CUstream,
):
    """A (positions, channels), B (k, taps * channels), y (n, k, z, p, q)."""
    if cutlass.const_expr(cfg.mma == "tf32"):
        mma_op, mma_k = cute.nvgpu.warp.MmaTF32Op((16, 8, 8)), 8
    else:
        mma_op, mma_k = cute.nvgpu.warp.MmaF16BF16Op(dtype(cfg.stored), cutlass.Float32, (16, 8, 16)), 16
    tiled_mma = cute.make_tiled_mma(mma_op, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, mma_k))
    images, grid0, grid1, grid2 = grid
    _, filters, blocks = sizes
    tiles_m = (images * grid0 * grid1 * grid2 + cfg.tile_m - 1) // cfg.tile_m
    tiles_n = (filters + cfg.tile_n - 1) // cfg.tile_n
    layout_a, layout_b = make_smem_layout(cfg, cfg.tile_m), make_smem_layout(cfg, cfg.tile_n)
    tiled_copy = make_gmem_tiled_copy(cfg)
    conv_sm80_kernel(
        cfg,
        mA,
        mB,
        taps,
        phases,
        operands,
        mY,
        grid,
        scale,
        sizes,
        layout_a,
        layout_b,
        tiled_copy,
        tiled_copy,
        tiled_mma,
    ).launch(grid=[tiles_m * tiles_n * phases.shape[0] * blocks, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
