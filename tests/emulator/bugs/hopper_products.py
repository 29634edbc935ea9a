"""wgmma: waits, fences, stages, accumulators; operands from TMA, from threads, from registers."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
import torch
from case import Case, numbers, written
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack

ROWS, COLUMNS, DEPTH = 64, 16, 64


class Filled(Case):
    """One tile: D (64, 16) = A B^T, both operands written to shared memory by the threads."""

    arch = "sm_90a"
    correct = ("", "cleared", "bf16")
    advice = ("uncoalesced", "bank_conflict")

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        major = utils.LayoutEnum.ROW_MAJOR
        mma = sm90.make_trivial_tiled_mma(
            a.element_type,
            b.element_type,
            major.sm90_mma_major_mode(),
            major.sm90_mma_major_mode(),
            cutlass.Float32,
            (1, 1, 1),
            tiler_mn=(ROWS, COLUMNS),
        )
        layout_a = sm90.make_smem_layout_a(major, (ROWS, COLUMNS, DEPTH), a.element_type, 1)
        layout_b = sm90.make_smem_layout_b(major, (ROWS, COLUMNS, DEPTH), b.element_type, 1)
        self.kernel(a, b, d, mma, layout_a, layout_b).launch(grid=[1, 1, 1], block=[128, 1, 1])

    @cute.kernel
    def kernel(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        d: cute.Tensor,
        mma: cute.TiledMma,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
    ):
        thread, _, _ = cute.arch.thread_idx()
        memory = cutlass.memory.SmemAllocator()
        shared_a = memory.allocate_tensor(a.element_type, layout_a.outer, 1024, swizzle=layout_a.inner)
        shared_b = memory.allocate_tensor(b.element_type, layout_b.outer, 1024, swizzle=layout_b.inner)
        rows = ROWS - 1 if cutlass.const_expr(self.variant == "last_row_left_out") else ROWS
        for e in cutlass.range(thread, rows * DEPTH, 128):
            shared_a[e // DEPTH, e % DEPTH, 0] = a[e // DEPTH, e % DEPTH]
        for e in cutlass.range(thread, COLUMNS * DEPTH, 128):
            shared_b[e // DEPTH, e % DEPTH, 0] = b[e // DEPTH, e % DEPTH]
        if cutlass.const_expr(self.variant != "no_proxy_fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        if cutlass.const_expr(self.variant != "no_barrier"):
            cute.arch.sync_threads()
        mine = mma.get_slice(thread)
        part_a, part_b = (
            mma.make_fragment_A(mine.partition_A(shared_a)),
            mma.make_fragment_B(mine.partition_B(shared_b)),
        )
        part_d = mine.partition_C(d)
        totals = mma.make_fragment_C(part_d.shape)
        if cutlass.const_expr(self.variant in ("cleared", "no_fence")):
            totals.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, cutlass.const_expr(self.variant in ("cleared", "not_cleared", "no_fence")))
        if cutlass.const_expr(self.variant != "no_fence"):
            warpgroup.fence()
        for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
            # BUG(no_proxy_fence): proxy_fence_missing
            # BUG(no_barrier): shared_race
            # BUG(last_row_left_out): uninitialised
            # BUG(no_fence): wgmma_fence_missing
            # BUG(not_cleared): uninitialised_register
            cute.gemm(mma, totals, part_a[None, None, part, 0], part_b[None, None, part, 0], totals)
            mma.set(warpgroup.Field.ACCUMULATE, True)
        if cutlass.const_expr(self.variant != "no_commit"):
            warpgroup.commit_group()
        if cutlass.const_expr(self.variant != "no_wait"):
            warpgroup.wait_group(0)
        cute.autovec_copy(totals, part_d)  # BUG(no_wait, no_commit): wgmma_in_flight

    def check(self):
        dtype = torch.bfloat16 if self.variant == "bf16" else torch.float16
        a, b, d = numbers(ROWS, DEPTH, dtype=dtype), numbers(COLUMNS, DEPTH, dtype=dtype), written(ROWS, COLUMNS)
        self(*(from_dlpack(t, assumed_align=16) for t in (a, b, d)))
        return d, a.float() @ b.float().t()


class Loop(Case):
    """D (64, 16) = A B^T over five steps of k: TMA into two stages, one warp loads, one warpgroup multiplies with one
    product in flight.
    """

    arch = "sm_90a"
    correct = ("", "wait at once", "three stages")

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        major = utils.LayoutEnum.ROW_MAJOR
        stages = 3 if cutlass.const_expr(self.variant == "three stages") else 2
        mma = sm90.make_trivial_tiled_mma(
            a.element_type,
            b.element_type,
            major.sm90_mma_major_mode(),
            major.sm90_mma_major_mode(),
            cutlass.Float32,
            (1, 1, 1),
            tiler_mn=(ROWS, COLUMNS),
        )
        layout_a = sm90.make_smem_layout_a(major, (ROWS, COLUMNS, DEPTH), a.element_type, stages)
        layout_b = sm90.make_smem_layout_b(major, (ROWS, COLUMNS, DEPTH), b.element_type, stages)
        load = cpasync.CopyBulkTensorTileG2SOp()
        tma_a, tensor_a = cpasync.make_tiled_tma_atom(load, a, cute.slice_(layout_a, (None, None, 0)), (ROWS, DEPTH))
        tma_b, tensor_b = cpasync.make_tiled_tma_atom(load, b, cute.slice_(layout_b, (None, None, 0)), (COLUMNS, DEPTH))
        self.kernel(tma_a, tensor_a, tma_b, tensor_b, d, mma, layout_a, layout_b, stages).launch(
            grid=[1, 1, 1], block=[256, 1, 1]
        )

    @cute.kernel
    def kernel(
        self,
        tma_a: cute.CopyAtom,
        a: cute.Tensor,
        tma_b: cute.CopyAtom,
        b: cute.Tensor,
        d: cute.Tensor,
        mma: cute.TiledMma,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
        stages: cutlass.Constexpr,
    ):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = cutlass.memory.SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, 2 * stages)
        shared_a = memory.allocate_tensor(cutlass.Float16, layout_a.outer, 1024, swizzle=layout_a.inner)
        shared_b = memory.allocate_tensor(cutlass.Float16, layout_b.outer, 1024, swizzle=layout_b.inner)
        pipe = pipeline.PipelineTmaAsync.create(
            barrier_storage=barriers,
            num_stages=stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(
                pipeline.Agent.Thread, 5 if cutlass.const_expr(self.variant == "one_consumer_too_many") else 4
            ),
            tx_count=(ROWS + COLUMNS) * DEPTH * 2
            + (128 if cutlass.const_expr(self.variant == "too_many_bytes") else 0),
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        tiles_a, tiles_b = cute.local_tile(a, (ROWS, DEPTH), (0, None)), cute.local_tile(b, (COLUMNS, DEPTH), (0, None))
        into_a, from_a = cpasync.tma_partition(
            tma_a, 0, cute.make_layout(1), cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
        )
        into_b, from_b = cpasync.tma_partition(
            tma_b, 0, cute.make_layout(1), cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2)
        )
        if warp == 0:
            writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, stages)
            for step in cutlass.range(5, unroll=1):
                if cutlass.const_expr(self.variant != "no_acquire"):
                    pipe.producer_acquire(writing)  # BUG(one_consumer_too_many, never_released): mbarrier_deadlock
                else:
                    cute.arch.mbarrier_arrive_and_expect_tx(
                        pipe.producer_get_barrier(writing), (ROWS + COLUMNS) * DEPTH * 2
                    )
                bar = pipe.producer_get_barrier(writing)
                # BUG(released_too_early): wgmma_in_flight
                cute.copy(tma_a, from_a[None, step], into_a[None, writing.index], tma_bar_ptr=bar)
                if cutlass.const_expr(self.variant != "b_left_out"):
                    cute.copy(tma_b, from_b[None, step], into_b[None, writing.index], tma_bar_ptr=bar)
                pipe.producer_commit(writing)
                writing.advance()
            if cutlass.const_expr(self.variant not in ("no_acquire",)):
                pipe.producer_tail(writing)
        if warp >= 4:
            mine = mma.get_slice(thread - 128)
            part_a, part_b = (
                mma.make_fragment_A(mine.partition_A(shared_a)),
                mma.make_fragment_B(mine.partition_B(shared_b)),
            )
            part_d = mine.partition_C(d)
            totals = mma.make_fragment_C(part_d.shape)
            mma.set(warpgroup.Field.ACCUMULATE, False)
            reading, releasing = (
                pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages) for _ in range(2)
            )
            at_once = cutlass.const_expr(self.variant == "wait at once")
            for step in cutlass.range_constexpr(5):
                if cutlass.const_expr(self.variant != "no_wait_for_stage"):
                    pipe.consumer_wait(reading)  # BUG(too_many_bytes, b_left_out): mbarrier_deadlock
                warpgroup.fence()
                for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                    # BUG(no_wait_for_stage): copy_in_flight
                    cute.gemm(
                        mma,
                        totals,
                        part_a[None, None, part, reading.index],
                        part_b[None, None, part, reading.index],
                        totals,
                    )
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0 if at_once else 1)
                if cutlass.const_expr(self.variant in ("released_too_early", "wait at once")):
                    pipe.consumer_release(reading)
                elif cutlass.const_expr(step > 0 and self.variant != "never_released"):
                    pipe.consumer_release(releasing)
                    releasing.advance()
                reading.advance()
            warpgroup.wait_group(1 if cutlass.const_expr(self.variant == "last_one_not_waited_for") else 0)
            if cutlass.const_expr(self.variant not in ("released_too_early", "wait at once", "never_released")):
                pipe.consumer_release(releasing)
            cute.autovec_copy(totals, part_d)  # BUG(last_one_not_waited_for): wgmma_in_flight

    def check(self):
        k = 5 * DEPTH
        a, b, d = (
            numbers(ROWS, k, dtype=torch.float16),
            numbers(COLUMNS, k, dtype=torch.float16),
            written(ROWS, COLUMNS),
        )
        self(*(from_dlpack(t, assumed_align=16) for t in (a, b, d)))
        return d, a.float() @ b.float().t()


class FromRegisters(Case):
    """D (64, 16) = A B^T with A in registers; they belong to the product until it is waited for."""

    arch = "sm_90a"
    advice = ("uncoalesced", "bank_conflict")

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        major = utils.LayoutEnum.ROW_MAJOR
        mode = major.sm90_mma_major_mode()
        mma = sm90.make_trivial_tiled_mma(
            a.element_type,
            b.element_type,
            mode,
            mode,
            cutlass.Float32,
            (1, 1, 1),
            tiler_mn=(ROWS, COLUMNS),
            a_source=warpgroup.OperandSource.RMEM,
        )
        layout_b = sm90.make_smem_layout_b(major, (ROWS, COLUMNS, DEPTH), b.element_type, 1)
        self.kernel(a, b, d, mma, layout_b).launch(grid=[1, 1, 1], block=[128, 1, 1])

    @cute.kernel
    def kernel(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, mma: cute.TiledMma, layout_b: cute.ComposedLayout):
        thread, _, _ = cute.arch.thread_idx()
        shared_b = cutlass.memory.SmemAllocator().allocate_tensor(
            b.element_type, layout_b.outer, 1024, swizzle=layout_b.inner
        )
        for e in cutlass.range(thread, COLUMNS * DEPTH, 128):
            shared_b[e // DEPTH, e % DEPTH, 0] = b[e // DEPTH, e % DEPTH]
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()
        mine = mma.get_slice(thread)
        part_a, part_b = mma.make_fragment_A(mine.partition_A(a)), mma.make_fragment_B(mine.partition_B(shared_b))
        if cutlass.const_expr(self.variant != "a_not_loaded"):
            cute.autovec_copy(mine.partition_A(a), part_a)
        part_d = mine.partition_C(d)
        totals = mma.make_fragment_C(part_d.shape)
        mma.set(warpgroup.Field.ACCUMULATE, False)
        warpgroup.fence()
        for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
            # BUG(a_not_loaded): uninitialised_register
            cute.gemm(mma, totals, part_a[None, None, part], part_b[None, None, part, 0], totals)
            mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()
        if cutlass.const_expr(self.variant != "used_in_flight"):
            warpgroup.wait_group(0)
        for e in cutlass.range_constexpr(cute.size(totals)):
            totals[e] = totals[e] * 2.0  # BUG(used_in_flight): wgmma_in_flight
        if cutlass.const_expr(self.variant == "used_in_flight"):
            warpgroup.wait_group(0)
        cute.autovec_copy(totals, part_d)

    def check(self):
        a, b, d = (
            numbers(ROWS, DEPTH, dtype=torch.float16),
            numbers(COLUMNS, DEPTH, dtype=torch.float16),
            written(ROWS, COLUMNS),
        )
        self(*(from_dlpack(t, assumed_align=16) for t in (a, b, d)))
        return d, 2 * (a.float() @ b.float().t())
