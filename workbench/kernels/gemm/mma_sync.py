"""Matrix products on tensor cores by mma.sync, with one k tile in shared memory at a time.

Operands are a (batch, m, k), b (batch, k, n) and d (batch, m, n), with any strides.
"""

import cutlass
import cutlass.cute as cute

from workbench.kernels.gemm.simt import load_tile_a, load_tile_b, tile_coord
from workbench.kernels.static import Many, Static, dtype


def mma_op(cfg: Static):
    """Return the mma.sync operation; it accumulates in float32."""
    if cutlass.const_expr(cfg.element == "tf32"):
        return cute.nvgpu.warp.MmaTF32Op((16, 8, 8))
    return cute.nvgpu.warp.MmaF16BF16Op(dtype(cfg.element), cutlass.Float32, (16, 8, 16))


@cute.kernel
def mma_kernel(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    tiled_mma: cute.TiledMma,
):
    """Stage tiles of a and b through shared memory, then load fragments and multiply them by mma.sync."""
    tidx, _, _ = cute.arch.thread_idx()
    tile_n, tile_m, batch = tile_coord(cfg, m, n)
    smem = cutlass.memory.SmemAllocator()
    # rows are padded by 16 bytes against bank conflicts
    layout_a = cute.make_layout((cfg.tile_m, cfg.tile_k), stride=(cfg.tile_k + cfg.pad, 1))
    layout_b = cute.make_layout((cfg.tile_n, cfg.tile_k), stride=(cfg.tile_k + cfg.pad, 1))
    sA = smem.allocate_tensor(dtype(cfg.element), layout_a, 16)
    sB = smem.allocate_tensor(dtype(cfg.element), layout_b, 16)
    thr_mma = tiled_mma.get_slice(tidx)
    tCsA, tCsB = thr_mma.partition_A(sA), thr_mma.partition_B(sB)
    tCrA, tCrB = tiled_mma.make_fragment_A(tCsA), tiled_mma.make_fragment_B(tCsB)
    tCcC = thr_mma.partition_C(cute.make_identity_tensor((cfg.tile_m, cfg.tile_n)))
    tCrC = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((cfg.tile_m, cfg.tile_n)))
    tCrC.fill(0.0)
    for k0 in range(0, k, cfg.tile_k):
        load_tile_a(cfg, mA, sA, batch, tile_m, k0, m, k)
        load_tile_b(cfg, mB, sB, batch, k0, tile_n, k, n)
        cute.arch.sync_threads()
        cute.autovec_copy(tCsA, tCrA)
        cute.autovec_copy(tCsB, tCrB)
        cute.gemm(tiled_mma, tCrC, tCrA, tCrB, tCrC)
        cute.arch.sync_threads()
    store_fragment(cfg, tCrC, tCcC, operands, mD, batch, tile_m, tile_n, m, n)


@cute.jit
def store_fragment(cfg: Static, tCrC, tCcC, operands: Many, mD, batch, tile_m, tile_n, m, n):
    """Apply the epilogue to this thread's accumulators and store them, predicated on m and n.

    `tCcC` holds the (row, column) of each accumulator within the output tile.
    """
    for e in cutlass.range_constexpr(cute.size(tCrC)):
        row = tile_m * cfg.tile_m + tCcC[e][0]
        column = tile_n * cfg.tile_n + tCcC[e][1]
        if row < m:  # noqa: SIM102
            if column < n:
                total = tCrC[e]
                if cutlass.const_expr(cfg.epilogue is not None):
                    total = cfg.epilogue(total, operands, batch, row, column)
                mD[batch, row, column] = total.to(mD.element_type)
