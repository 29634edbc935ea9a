"""Epilogue of the Hopper GEMM: accumulators -> registers -> shared memory -> d, by TMA or by the threads."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.tensor_utils import LayoutEnum

from workbench.kernels.static import Many, Static, dtype


def make_store(cfg: Static, mD, by_tma):
    """Return (shared memory layout of the epilogue buffers, TMA atom or None, its tensor) for d (m, n, batch)."""
    layout = LayoutEnum.COL_MAJOR if cfg.swap else LayoutEnum.ROW_MAJOR
    d_smem_layout = sm90.make_smem_layout_epi(
        dtype(cfg.kernel_result), layout, (64, cfg.store_n), cfg.mma_warpgroups * cfg.buffers
    )
    tma_d, tma_mD = None, mD
    if cutlass.const_expr(by_tma):
        tma_d, tma_mD = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(),
            mD,
            cute.slice_(d_smem_layout, (None, None, 0)),
            (64, cfg.store_n),
        )
    return d_smem_layout, tma_d, tma_mD


def make_smem_copy(cfg: Static, tiled_mma, accumulators, sD, lane):
    """Return (stmatrix tiled copy, accumulators, registers of one subtile, buffers), retiled for the copy."""
    layout = LayoutEnum.COL_MAJOR if cfg.swap else LayoutEnum.ROW_MAJOR
    stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(cfg.swap, 4), cutlass.Float16)
    store_op = sm90.sm90_get_smem_store_op(layout, dtype(cfg.kernel_result), cutlass.Float32)
    tiled_copy_r2s = cute.make_tiled_copy_S(store_op, cute.make_tiled_copy_C_atom(stmatrix, tiled_mma))
    tRS_sD = tiled_copy_r2s.get_slice(lane).partition_D(sD)
    tRS_rAcc = tiled_copy_r2s.retile(accumulators)
    tRS_rD = cute.make_rmem_tensor(tRS_sD[None, None, None, 0].shape, dtype(cfg.kernel_result))
    return tiled_copy_r2s, tRS_rAcc, tRS_rD, tRS_sD


def partition_store(cfg: Static, tma_d, tma_mD, sD):
    """Return (epilogue buffers, global tiles), partitioned for TMA stores."""
    gD = cute.local_tile(tma_mD, (64, cfg.store_n), (None, None, None))
    return cpasync.tma_partition(tma_d, 0, cute.make_layout(1), cute.group_modes(sD, 0, 2), cute.group_modes(gD, 0, 2))


def make_operand_fragment(cfg: Static, operand):
    """Allocate registers for two subtiles of a (batch, m, n) operand: the current one and the prefetched one."""
    fragment = cute.make_rmem_tensor(cute.make_layout((cfg.store_n // 2, 2)), operand.element_type)
    fragment.fill(0.0)
    return fragment


@cute.jit
def load_operand(cfg: Static, fragment, operand, tCcC, i: cutlass.Constexpr, j: cutlass.Constexpr, at):
    """Load this thread's elements of one 64 x STORE_N subtile of a (batch, m, n) operand, predicated on m and n.

    `at` is (row, column, batch) of the tile. If the operand is aligned to two elements, which implies even strides, one
    access loads two neighbouring columns.
    """
    batches, m, n = operand.shape
    m0, n0, batch = at
    width = operand.element_type.width
    pairs = width in (16, 32) and operand.iterator.alignment * 8 > width
    for e in cutlass.range_constexpr(0, cfg.store_n // 2, 2 if pairs else 1):
        place = tCcC[j * (cfg.store_n // 2) + e, i, 0]
        row, column = m0 + place[0], n0 + place[1]
        if row < m and column < n:
            if cutlass.const_expr(pairs):
                wide = cutlass.Int32 if width == 16 else cutlass.Int64
                stride = (operand.stride[0] // 2, operand.stride[1] // 2, 1)
                both = cute.make_tensor(
                    cute.recast_ptr(operand.iterator, dtype=wide),
                    cute.make_layout((batches, m, n // 2), stride=stride),
                )
                cute.recast_tensor(fragment, wide)[e // 2] = both[batch, row, column // 2]
            else:
                fragment[e] = operand[batch, row, column]


def apply_epilogue(cfg: Static, total, vectors: Many, slices: Many, e, tile, place, shape):
    """Apply the epilogue to one accumulator; `place` is its (row, column) in the tile that starts at `tile`."""
    if cutlass.const_expr(len(vectors) + len(slices) > 0):
        return cfg.epilogue(total, vectors, slices, e, tile, place, shape)
    return cfg.epilogue(total)


@cute.jit
def convert_subtile(
    cfg: Static,
    tRS_rAcc,
    tRS_rD,
    vectors: Many,
    slices: Many,
    tCcC,
    i: cutlass.Constexpr,
    j: cutlass.Constexpr,
    tile,
    shape,
):
    """Apply the epilogue to the accumulators of one 64 x STORE_N subtile and convert them to the result's type."""
    for e in cutlass.range_constexpr(cute.size(tRS_rD)):
        total = tRS_rAcc[j * cute.size(tRS_rD) + e, i, 0]
        if cutlass.const_expr(cfg.has_tile_epilogue):
            place = tCcC[j * cute.size(tRS_rD) + e, i, 0]
            total = apply_epilogue(cfg, total, vectors, slices, e, tile, place, shape)
        tRS_rD[e] = total.to(dtype(cfg.kernel_result))


@cute.jit
def prefetch_operands(
    cfg: Static, fragments: Many, matrices: Many, tCcC, subtile: cutlass.Constexpr, rows_inner: Static, at
):
    """Prefetch the epilogue operands of the next subtile, in the order in which the subtiles are visited."""
    across, high = cfg.tile_n // cfg.store_n, cfg.warpgroup_m // 64
    after = subtile + 1
    if cutlass.const_expr(after < high * across):
        i, j = (after // across, after % across) if cutlass.const_expr(rows_inner) else (after % high, after // high)
        for fragment, matrix in zip(fragments, matrices, strict=True):
            load_operand(cfg, fragment[None, after % 2], matrix, tCcC, i, j, at)


@cute.jit
def store_tile(cfg: Static, output, tCcC, operands: Many, fragments: Many, at, warp_idx, warp_group, lane):
    """Apply the epilogue to a warpgroup's part of an output tile and store it to d.

    `output` is (shared memory copy, TMA copy or None, sD, d); without a TMA copy the threads store.
    """
    smem_copy, tma_copy, sD, mD = output
    tiled_copy_r2s, tRS_rAcc, tRS_rD, tRS_sD = smem_copy
    m0, n0, batch = at
    vectors = tuple(operand for operand, read in zip(operands, cfg.tile_reads, strict=True) if read.along != "both")
    matrices = tuple(operand for operand, read in zip(operands, cfg.tile_reads, strict=True) if read.along == "both")
    across = cfg.tile_n // cfg.store_n
    for i in cutlass.range_constexpr(cfg.warpgroup_m // 64):
        for j in cutlass.range_constexpr(cfg.tile_n // cfg.store_n):
            # one 64 x STORE_N subtile at a time: registers, shared memory, global memory
            subtile = i * across + j
            buffer = warp_group * cfg.buffers + subtile % cfg.buffers
            row, column = m0 + 64 * i, n0 + cfg.store_n * j
            if cutlass.const_expr(cfg.reads_matrices):
                prefetch_operands(cfg, fragments, matrices, tCcC, subtile, True, at)
            slices = tuple(fragment[None, subtile % 2] for fragment in fragments)
            convert_subtile(cfg, tRS_rAcc, tRS_rD, vectors, slices, tCcC, i, j, at, mD.shape)
            if cutlass.const_expr(tma_copy is not None):
                wait_for_buffer(warp_idx, cfg.buffers - 1)
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            cute.copy(tiled_copy_r2s, tRS_rD, tRS_sD[None, None, None, buffer])
            if cutlass.const_expr(tma_copy is not None):
                cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            if cutlass.const_expr(tma_copy is not None):
                tma_d, bSG_sD, bSG_gD = tma_copy
                if warp_idx % 4 == 0:
                    with cute.arch.elect_one():
                        target = bSG_gD[None, row // 64, column // cfg.store_n, batch]
                        cute.copy(tma_d, bSG_sD[None, buffer], target)
                        cute.arch.cp_async_bulk_commit_group()
            else:
                store_by_threads(cfg, sD, mD, row, column, batch, buffer, lane)


@cute.jit
def wait_for_buffer(warp_idx, in_flight: cutlass.Constexpr):
    """Wait until at most `in_flight` TMA store groups still read shared memory; the issuing thread waits."""
    if warp_idx % 4 == 0:
        with cute.arch.elect_one():
            cute.arch.cp_async_bulk_wait_group(in_flight, read=True)


@cute.jit
def store_by_threads(cfg: Static, sD, mD, row, column, batch, buffer, lane):
    """Store one buffer to d element by element, predicated on m and n, with coalesced accesses."""
    m, n, _ = mD.shape
    for e in cutlass.range(lane, 64 * cfg.store_n, 128, unroll=4):
        if cutlass.const_expr(cfg.swap):
            i, j = e % 64, e // 64
        else:
            i, j = e // cfg.store_n, e % cfg.store_n
        if row + i < m and column + j < n:
            mD[row + i, column + j, batch] = sD[i, j, buffer]
