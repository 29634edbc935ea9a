"""A warpgroup's 64 rows of O, through its own part of shared memory and by TMA."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.static import Static, dtype


@cute.jit
def await_stores(warp_idx):
    """Wait until TMA has stored what this warpgroup's first warp issued."""
    if warp_idx % 4 == 0:
        cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def store_tile(cfg: Static, tiled_mma, tOrO, tma_atom, mO, sO, coord, group, thread, width: cutlass.Constexpr):
    """Store O; TMA leaves out what lies beyond the ends.

    `coord`: query tile, head and batch entry; `thread`: of the warpgroup.
    """
    tile, head, entry = coord
    warp = cute.arch.make_warp_uniform(thread // 32)
    copy_atom = cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), dtype(cfg.element))
    tiled_copy = cute.make_tiled_copy_C(copy_atom, tiled_mma)
    tOrD = cute.make_rmem_tensor(tOrO.shape, dtype(cfg.element))
    tOrD.store(tOrO.load().to(dtype(cfg.element)))
    if warp == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # the last tile's store has read the buffer
    cute.arch.barrier(barrier_id=4 + group, number_of_threads=128)
    tRS_sO = tiled_copy.get_slice(thread).partition_D(sO)
    cute.copy(tiled_copy, tiled_copy.retile(tOrD), tRS_sO[None, None, None, group])
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.barrier(barrier_id=4 + group, number_of_threads=128)
    if warp == 0:
        gO = cute.group_modes(cute.local_tile(mO, (64, width), (None, 0, None, None)), 0, 2)
        tOsO, tOgO = cpasync.tma_partition(tma_atom, 0, cute.make_layout(1), cute.group_modes(sO, 0, 2), gO)
        with cute.arch.elect_one():  # groups of stores belong to a thread
            cute.copy(tma_atom, tOsO[None, group], tOgO[None, tile * cfg.mma_warpgroups + group, head, entry])
            cute.arch.cp_async_bulk_commit_group()
