"""Epilogue of Hopper attention: a warpgroup stores its 64 rows of O through shared memory by TMA."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.static import Static, dtype


@cute.jit
def wait_for_stores(warp_idx):
    """Wait until the TMA stores of this warpgroup are complete."""
    if warp_idx % 4 == 0:
        cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def store_tile(cfg: Static, tiled_mma, tOrO, tma_atom, mO, sO, coord, group, thread, width: cutlass.Constexpr):
    """Store a warpgroup's rows of O; TMA clips them to the tensor.

    `coord` is (query tile, head, batch entry), `thread` the thread index within the warpgroup.
    """
    tile, head, entry = coord
    warp = cute.arch.make_warp_uniform(thread // 32)
    copy_atom = cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), dtype(cfg.element))
    tiled_copy = cute.make_tiled_copy_C(copy_atom, tiled_mma)
    tOrD = cute.make_rmem_tensor(tOrO.shape, dtype(cfg.element))
    tOrD.store(tOrO.load().to(dtype(cfg.element)))
    if warp == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store of the previous tile has read the buffer
    cute.arch.barrier(barrier_id=4 + group, number_of_threads=128)
    tRS_sO = tiled_copy.get_slice(thread).partition_D(sO)
    cute.copy(tiled_copy, tiled_copy.retile(tOrD), tRS_sO[None, None, None, group])
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.barrier(barrier_id=4 + group, number_of_threads=128)
    if warp == 0:
        gO = cute.group_modes(cute.local_tile(mO, (64, width), (None, 0, None, None)), 0, 2)
        tOsO, tOgO = cpasync.tma_partition(tma_atom, 0, cute.make_layout(1), cute.group_modes(sO, 0, 2), gO)
        with cute.arch.elect_one():  # bulk groups belong to one thread
            cute.copy(tma_atom, tOsO[None, group], tOgO[None, tile * cfg.mma_warpgroups + group, head, entry])
            cute.arch.cp_async_bulk_commit_group()
