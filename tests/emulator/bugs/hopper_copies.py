"""TMA, mbarriers and the asynchronous proxy on sm_90a."""

import cutlass
import cutlass.cute as cute
import torch
from case import Case, numbers, views, written
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack


class TensorCopy(Case):
    """Boxes of a tensor through shared memory and back by TMA; odd extents are clipped."""

    arch = "sm_90a"
    correct = ("", "three dimensions", "adds", "bulk barrier apart")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        box = (16, 2, 2) if cutlass.const_expr(self.variant == "three dimensions") else (32, 4)
        layout = cute.make_layout(box)
        tma_x, tensor_x = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, box)
        store = (
            cpasync.CopyReduceBulkTensorTileS2GOp(cute.ReductionOp.ADD)
            if cutlass.const_expr(self.variant == "adds")
            else cpasync.CopyBulkTensorTileS2GOp()
        )
        tma_y, tensor_y = cpasync.make_tiled_tma_atom(store, y, layout, box)
        boxes = cute.size(cute.ceil_div(cute.shape(x), box))
        self.kernel(tma_x, tensor_x, tma_y, tensor_y, layout, box).launch(grid=[boxes, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(
        self,
        tma_x: cute.CopyAtom,
        x: cute.Tensor,
        tma_y: cute.CopyAtom,
        y: cute.Tensor,
        layout: cute.Layout,
        box: cutlass.Constexpr,
    ):
        block, _, _ = cute.arch.block_idx()
        memory = cutlass.memory.SmemAllocator()
        barrier = memory.allocate_array(cutlass.Int64, 2)
        room = memory.allocate_tensor(cutlass.Float16, layout, 128)
        size = cute.size(layout) * 2
        with cute.arch.elect_one():
            if cutlass.const_expr(self.variant != "no_init"):
                cute.arch.mbarrier_init(barrier, 2 if cutlass.const_expr(self.variant == "count_too_large") else 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        rank = cute.rank(layout)
        tiles_x, tiles_y = cute.zipped_divide(x, box), cute.zipped_divide(y, box)
        into, source = cpasync.tma_partition(
            tma_x, 0, cute.make_layout(1), cute.group_modes(room, 0, rank), cute.group_modes(tiles_x, 0, 1)
        )
        out, target = cpasync.tma_partition(
            tma_y, 0, cute.make_layout(1), cute.group_modes(room, 0, rank), cute.group_modes(tiles_y, 0, 1)
        )
        with cute.arch.elect_one():
            if cutlass.const_expr(self.variant == "no_expect"):
                cute.arch.mbarrier_arrive(barrier)
            elif cutlass.const_expr(self.variant == "bulk barrier apart"):
                cute.arch.mbarrier_expect_tx(barrier, size)
                cute.arch.mbarrier_arrive(barrier)
            else:
                more = 16 if cutlass.const_expr(self.variant == "too_many_bytes") else 0
                cute.arch.mbarrier_arrive_and_expect_tx(barrier, size + more)  # BUG(no_init): mbarrier_uninitialised
                if cutlass.const_expr(self.variant == "arrives_twice"):
                    cute.arch.mbarrier_arrive(barrier)
                    cute.arch.mbarrier_arrive(barrier)
        cute.copy(tma_x, source[None, block], into, tma_bar_ptr=barrier)  # BUG(never_waited): leaked_copy
        if cutlass.const_expr(self.variant == "never_waited"):
            pass
        elif cutlass.const_expr(self.variant != "no_wait"):
            # BUG(too_many_bytes, count_too_large): mbarrier_deadlock
            cute.arch.mbarrier_wait(barrier, 1 if cutlass.const_expr(self.variant == "wrong_parity") else 0)
            if cutlass.const_expr(self.variant == "waits_twice"):
                cute.arch.mbarrier_wait(barrier, 1)  # BUG(waits_twice): mbarrier_deadlock
        if cutlass.const_expr(self.variant != "never_waited"):
            # BUG(no_wait, wrong_parity, no_expect): copy_in_flight
            # BUG(store_never_waited): leaked_copy
            cute.copy(tma_y, out, target[None, block])
            if cutlass.const_expr(self.variant != "store_never_waited"):
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(0)

    def check(self):
        shape = (3, 5, 40) if self.variant == "three dimensions" else (7, 72)
        x = (torch.arange(torch.Size(shape).numel()) % 99).reshape(shape).half().cuda()
        y = (
            torch.ones(shape, dtype=torch.float16, device="cuda")
            if self.variant == "adds"
            else written(*shape, dtype=torch.float16)
        )
        self(
            *(
                from_dlpack(t.permute(*reversed(range(len(shape)))), assumed_align=16).mark_layout_dynamic(
                    leading_dim=0
                )
                for t in (x, y)
            )
        )
        return y, x + 1 if self.variant == "adds" else x


class FillAndStore(Case):
    """Threads write a tile, TMA stores it; twice, through one buffer or two."""

    arch = "sm_90a"
    correct = ("", "two buffers")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        layout = cute.make_layout((32, 8))
        tma, tensor = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), y, layout, (32, 8))
        self.kernel(x, tma, tensor, layout).launch(grid=[1, 1, 1], block=[64, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, tma: cute.CopyAtom, y: cute.Tensor, layout: cute.Layout):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = cutlass.memory.SmemAllocator()
        rooms = [memory.allocate_tensor(cutlass.Float32, layout, 128) for _ in range(2)]
        tiles = cute.zipped_divide(y, (32, 8))
        for turn in cutlass.range_constexpr(2):
            room = rooms[turn if cutlass.const_expr(self.variant == "two buffers") else 0]
            for e in cutlass.range_constexpr(4):
                at = e * 64 + thread
                room[at % 32, at // 32] = x[turn * 256 + at] * 2  # BUG(buffer_reused, only_committed): shared_race
            if cutlass.const_expr(self.variant != "no_proxy_fence"):
                cute.arch.fence_proxy("async.shared", space="cta")
            if cutlass.const_expr(self.variant != "no_barrier"):
                cute.arch.sync_threads()
            out, target = cpasync.tma_partition(
                tma, 0, cute.make_layout(1), cute.group_modes(room, 0, 2), cute.group_modes(tiles, 0, 1)
            )
            if warp == 0:
                with cute.arch.elect_one():
                    # BUG(no_proxy_fence): proxy_fence_missing
                    # BUG(no_barrier): shared_race
                    cute.copy(tma, out, target[None, turn])
                    cute.arch.cp_async_bulk_commit_group()
                    if cutlass.const_expr(self.variant not in ("buffer_reused", "two buffers")):
                        cute.arch.cp_async_bulk_wait_group(
                            1 if cutlass.const_expr(self.variant == "only_committed") else 0, read=True
                        )
            cute.arch.sync_threads()
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.cp_async_bulk_wait_group(0)

    def check(self):
        x, y = numbers(512), written(16, 32)
        self(*views(x), from_dlpack(y.t(), assumed_align=16).mark_layout_dynamic(leading_dim=0))
        return y, x.view(16, 32) * 2


class Ring(Case):
    """Tiles through a ring of two stages: a TMA warp fills, a warp reads and gives back; parities flip each round."""

    arch = "sm_90a"
    correct = ("", "three stages")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        layout = cute.make_layout((32, 4))
        tma, tensor = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, (32, 4))
        self.kernel(tma, tensor, y, layout).launch(grid=[1, 1, 1], block=[64, 1, 1])

    @cute.kernel
    def kernel(self, tma: cute.CopyAtom, x: cute.Tensor, y: cute.Tensor, layout: cute.Layout):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        stages = 3 if cutlass.const_expr(self.variant == "three stages") else 2
        memory = cutlass.memory.SmemAllocator()
        full, empty = memory.allocate_array(cutlass.Int64, stages), memory.allocate_array(cutlass.Int64, stages)
        rooms = memory.allocate_tensor(cutlass.Float32, cute.make_layout((32, 4, stages)), 128)
        if warp == 0:
            with cute.arch.elect_one():
                for stage in cutlass.range_constexpr(stages):
                    cute.arch.mbarrier_init(full + stage, 1)
                    cute.arch.mbarrier_init(
                        empty + stage,
                        33
                        if cutlass.const_expr(self.variant == "one_arrival_too_many_expected")
                        else 16
                        if cutlass.const_expr(self.variant == "too_few_arrivals_expected")
                        else 32,
                    )
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        tiles = cute.zipped_divide(x, (32, 4))
        if warp == 0:
            for step in cutlass.range_constexpr(6):
                stage, round_ = step % stages, step // stages
                if cutlass.const_expr(round_ > 0 and self.variant != "no_wait_for_empty"):
                    # BUG(never_released, one_arrival_too_many_expected): mbarrier_deadlock
                    cute.arch.mbarrier_wait(
                        empty + stage,
                        (round_ if cutlass.const_expr(self.variant == "empty_parity") else round_ - 1) % 2,
                    )
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 512)
                into, source = cpasync.tma_partition(
                    tma,
                    0,
                    cute.make_layout(1),
                    cute.group_modes(rooms[None, None, stage], 0, 2),
                    cute.group_modes(tiles, 0, 1),
                )
                cute.copy(tma, source[None, step], into, tma_bar_ptr=full + stage)
        else:
            total = cutlass.Float32(0)
            for step in cutlass.range_constexpr(6):
                stage, round_ = step % stages, step // stages
                if cutlass.const_expr(self.variant != "no_wait_for_full"):
                    cute.arch.mbarrier_wait(
                        full + stage,
                        1 - round_ % 2
                        if cutlass.const_expr(self.variant == "full_parity")
                        else 0
                        if cutlass.const_expr(self.variant == "parity_never_flips")
                        else round_ % 2,
                    )
                for row in cutlass.range_constexpr(4):
                    # BUG(no_wait_for_full, full_parity, parity_never_flips): copy_in_flight
                    total += rooms[thread - 32, row, stage]
                if cutlass.const_expr(self.variant != "never_released"):
                    cute.arch.mbarrier_arrive(empty + stage)  # BUG(too_few_arrivals_expected): mbarrier_overrun
            y[thread - 32] = total

    def check(self):
        x, y = numbers(24, 32), written(32)
        self(from_dlpack(x.t(), assumed_align=16).mark_layout_dynamic(leading_dim=0), *views(y))
        return y, x.sum(0)


class Handover(Case):
    """Two warps take turns with an mbarrier, without TMA."""

    arch = "sm_90a"
    correct = ("", "one arrival a warp")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[64, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = cutlass.memory.SmemAllocator()
        ready = memory.allocate_array(cutlass.Int64, 1)
        room = memory.allocate_tensor(cutlass.Float32, cute.make_layout(32), 16)
        alone = cutlass.const_expr(self.variant == "one arrival a warp")
        if thread == 0:
            cute.arch.mbarrier_init(
                ready,
                1
                if alone
                else 31
                if cutlass.const_expr(self.variant == "one_too_few")
                else 33
                if cutlass.const_expr(self.variant == "one_too_many")
                else 32,
            )
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        if warp == 0:
            room[thread] = x[thread] + 1
            if cutlass.const_expr(self.variant == "one arrival a warp"):
                cute.arch.sync_warp()
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(ready)
            else:
                cute.arch.mbarrier_arrive(ready)  # BUG(one_too_few): mbarrier_overrun
        else:
            if cutlass.const_expr(self.variant != "no_wait"):
                # BUG(one_too_many, parity): mbarrier_deadlock
                cute.arch.mbarrier_wait(ready, 1 if cutlass.const_expr(self.variant == "parity") else 0)
            y[thread - 32] = room[31 - (thread - 32)]  # BUG(no_wait): shared_race

    def check(self):
        x, y = numbers(32), written(32)
        self(*views(x, y))
        return y, x.flip(0) + 1
