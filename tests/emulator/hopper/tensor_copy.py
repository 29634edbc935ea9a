"""Tensors of 1 to 5 dimensions through shared memory and back by TMA, box by box; the store may add to what is
there.
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync


class TensorCopy:
    """`box`: extents of a box, the contiguous one first. Planted mistakes by name: `parity`, `bytes`, `count`,
    `uninitialised`, `wait`.
    """

    def __init__(self, box, add=False, mistake=""):
        self.box, self.add, self.mistake = box, add, mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.dtype = x.element_type
        layout = cute.make_layout(self.box)
        tma_x, tensor_x = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, self.box)
        store = (
            cpasync.CopyReduceBulkTensorTileS2GOp(cute.ReductionOp.ADD)
            if cutlass.const_expr(self.add)
            else cpasync.CopyBulkTensorTileS2GOp()
        )
        tma_y, tensor_y = cpasync.make_tiled_tma_atom(store, y, layout, self.box)
        boxes = cute.size(cute.ceil_div(cute.shape(x), self.box))
        self.kernel(tma_x, tensor_x, tma_y, tensor_y, layout).launch(grid=[boxes, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, tma_x: cute.CopyAtom, x: cute.Tensor, tma_y: cute.CopyAtom, y: cute.Tensor, layout: cute.Layout):
        block, _, _ = cute.arch.block_idx()
        memory = cutlass.memory.SmemAllocator()
        barrier = memory.allocate_array(cutlass.Int64, 1)
        box = memory.allocate_tensor(self.dtype, layout, 128)
        size = cute.size(layout) * self.dtype.width // 8
        with cute.arch.elect_one():
            if cutlass.const_expr(self.mistake != "uninitialised"):
                cute.arch.mbarrier_init(barrier, 2 if cutlass.const_expr(self.mistake == "count") else 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        rank = cute.rank(layout)
        tiles_x, tiles_y = cute.zipped_divide(x, self.box), cute.zipped_divide(y, self.box)
        into, source = cpasync.tma_partition(
            tma_x, 0, cute.make_layout(1), cute.group_modes(box, 0, rank), cute.group_modes(tiles_x, 0, 1)
        )
        out, target = cpasync.tma_partition(
            tma_y, 0, cute.make_layout(1), cute.group_modes(box, 0, rank), cute.group_modes(tiles_y, 0, 1)
        )
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(
                barrier, size + 16 if cutlass.const_expr(self.mistake == "bytes") else size
            )
        cute.copy(tma_x, source[None, block], into, tma_bar_ptr=barrier)
        if cutlass.const_expr(self.mistake != "wait"):
            cute.arch.mbarrier_wait(barrier, 1 if cutlass.const_expr(self.mistake == "parity") else 0)
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.copy(tma_y, out, target[None, block])
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)
