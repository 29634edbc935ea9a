"""A tile (16 rows, 64 columns) of a matrix through shared memory by TMA, with a descriptor of another matrix that the
kernel edits, in shared or in global memory.
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync
from cutlass.tensor_utils import TensorMapManager, TensorMapUpdateMode

ROWS, COLUMNS = 16, 64


class EditedMap:
    """`mode`: where the descriptor is edited, `shared` or `global`. Planted mistakes by name: `acquire`, `release`
    (global only), `again` (an edit after the fences).
    """

    def __init__(self, mode, mistake=""):
        self.mode, self.mistake = mode, mistake

    @cute.jit
    def __call__(self, other: cute.Tensor, x: cute.Tensor, y: cute.Tensor, places: cute.Tensor):
        self.dtype = x.element_type
        layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
        tma, tensor = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), other, layout, (ROWS, COLUMNS))
        self.kernel(tma, tensor, x, y, places, layout).launch(grid=[1, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(
        self,
        tma: cute.CopyAtom,
        tensor: cute.Tensor,
        x: cute.Tensor,
        y: cute.Tensor,
        places: cute.Tensor,
        layout: cute.Layout,
    ):
        thread, _, _ = cute.arch.thread_idx()
        memory = cutlass.memory.SmemAllocator()
        barrier = memory.allocate_array(cutlass.Int64, 1)
        draft = memory.allocate_tensor(cutlass.Int64, cute.make_layout(16), 128)
        tile = memory.allocate_tensor(self.dtype, layout, 128)
        maps = TensorMapManager(
            TensorMapUpdateMode.SMEM if cutlass.const_expr(self.mode == "shared") else TensorMapUpdateMode.GMEM, 128
        )
        place = maps.get_tensormap_ptr(places.iterator)
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
        if cutlass.const_expr(self.mode == "shared"):
            maps.init_tensormap_from_atom(tma, draft.iterator, 0)
            maps.update_tensormap((x,), (tma,), (place,), 0, (draft.iterator,))
        else:
            maps.init_tensormap_from_atom(tma, place, 0)
            maps.fence_tensormap_initialization()
            cpasync.update_tma_descriptor(tma, x, place)
            cute.arch.sync_warp()
            if cutlass.const_expr(self.mistake != "release"):
                cpasync.fence_tma_desc_release()
        if cutlass.const_expr(self.mistake != "acquire"):
            maps.fence_tensormap_update(place)
        if cutlass.const_expr(self.mistake == "again"):
            cpasync.update_tma_descriptor(tma, y, place)
            cpasync.fence_tma_desc_release()
        cute.arch.sync_threads()
        tiles = cute.local_tile(tensor, (ROWS, COLUMNS), (None, None))
        into, source = cpasync.tma_partition(
            tma, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(tiles, 0, 2)
        )
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, ROWS * COLUMNS * self.dtype.width // 8)
        cute.copy(
            tma,
            source[None, 0, 0],
            into,
            tma_bar_ptr=barrier,
            tma_desc_ptr=maps.get_tensormap_ptr(places.iterator, cute.AddressSpace.generic),
        )
        cute.arch.mbarrier_wait(barrier, 0)
        for e in range(thread, ROWS * COLUMNS, 32):
            if e // COLUMNS < y.shape[0] and e % COLUMNS < y.shape[1]:
                y[e // COLUMNS, e % COLUMNS] = tile[e // COLUMNS, e % COLUMNS]
