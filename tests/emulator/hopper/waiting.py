"""A software-pipelined wgmma loop for the tests: D (64, n) = A (64, k) @ B (n, k) transposed, TMA into three stages,
the multiplication of one step in flight while the next is issued.

Planted mistakes by name: `wait` (no wait before the accumulators are stored), `one too few` (wait_group(1) there),
`commit` (the last groups are never committed), `fence` (none at all), `scale` and `scale in flight` (the accumulators
are scaled with no fence after it; before the wait), `release` (a stage is released while it is still multiplied).
"""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import cpasync, warpgroup

STAGES, ROWS, DEPTH = 3, 64, 64


class Waiting:
    """One warp loads, one warpgroup multiplies; fp16 in, float32 out; n a multiple of 8, k of 64."""

    def __init__(self, mistake="", scaled=False):
        self.mistake, self.scaled = mistake, scaled

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        self.dtype, n = a.element_type, cute.size(b, mode=[0])
        major = utils.LayoutEnum.ROW_MAJOR
        tiled_mma = sm90.make_trivial_tiled_mma(
            a.element_type,
            b.element_type,
            major.sm90_mma_major_mode(),
            major.sm90_mma_major_mode(),
            cutlass.Float32,
            (1, 1, 1),
            tiler_mn=(ROWS, n),
        )
        layout_a = sm90.make_smem_layout_a(major, (ROWS, n, DEPTH), a.element_type, STAGES)
        layout_b = sm90.make_smem_layout_b(major, (ROWS, n, DEPTH), b.element_type, STAGES)
        load = cpasync.CopyBulkTensorTileG2SOp()
        tma_a, tensor_a = cpasync.make_tiled_tma_atom(load, a, cute.slice_(layout_a, (None, None, 0)), (ROWS, DEPTH))
        tma_b, tensor_b = cpasync.make_tiled_tma_atom(load, b, cute.slice_(layout_b, (None, None, 0)), (n, DEPTH))
        self.kernel(tma_a, tensor_a, tma_b, tensor_b, d, tiled_mma, layout_a, layout_b).launch(
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
        tiled_mma: cute.TiledMma,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
    ):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = cutlass.memory.SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
        shared_a = memory.allocate_tensor(self.dtype, layout_a.outer, 1024, swizzle=layout_a.inner)
        shared_b = memory.allocate_tensor(self.dtype, layout_b.outer, 1024, swizzle=layout_b.inner)
        n = cute.size(layout_b.outer, mode=[0])
        pipe = pipeline.PipelineTmaAsync.create(
            barrier_storage=barriers,
            num_stages=STAGES,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4),
            tx_count=(ROWS + n) * DEPTH * 2,
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        tiles_a, tiles_b = cute.local_tile(a, (ROWS, DEPTH), (0, None)), cute.local_tile(b, (n, DEPTH), (0, None))
        into_a, from_a = cpasync.tma_partition(
            tma_a, 0, cute.make_layout(1), cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
        )
        into_b, from_b = cpasync.tma_partition(
            tma_b, 0, cute.make_layout(1), cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2)
        )
        steps = cute.size(tiles_a, mode=[2])
        if warp == 0:
            writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for step in cutlass.range(steps, unroll=1):
                pipe.producer_acquire(writing)
                bar = pipe.producer_get_barrier(writing)
                cute.copy(tma_a, from_a[None, step], into_a[None, writing.index], tma_bar_ptr=bar)  # load
                cute.copy(tma_b, from_b[None, step], into_b[None, writing.index], tma_bar_ptr=bar)
                pipe.producer_commit(writing)
                writing.advance()
            pipe.producer_tail(writing)
        if warp >= 4:
            mine = tiled_mma.get_slice(thread - 128)
            part_a, part_b = (
                tiled_mma.make_fragment_A(mine.partition_A(shared_a)),
                tiled_mma.make_fragment_B(mine.partition_B(shared_b)),
            )
            part_d = mine.partition_C(d)
            totals = tiled_mma.make_fragment_C(part_d.shape)
            totals.fill(0.0)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            reading, releasing = (
                pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES) for _ in range(2)
            )
            for step in cutlass.range(steps, unroll=1):
                pipe.consumer_wait(reading)
                if cutlass.const_expr(self.mistake == "scale"):
                    warpgroup.fence()
                if cutlass.const_expr(self.scaled):
                    if cutlass.const_expr(self.mistake != "scale in flight"):
                        warpgroup.wait_group(0)
                    totals.store(totals.load() * 0.5)  # scale
                if cutlass.const_expr(self.mistake != "fence" and self.mistake != "scale"):
                    warpgroup.fence()
                for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                    cute.gemm(  # multiply
                        tiled_mma,
                        totals,
                        part_a[None, None, part, reading.index],
                        part_b[None, None, part, reading.index],
                        totals,
                    )
                if cutlass.const_expr(self.mistake != "commit"):
                    warpgroup.commit_group()
                warpgroup.wait_group(1)
                if cutlass.const_expr(self.mistake == "release"):
                    pipe.consumer_release(reading)
                elif step > 0:
                    pipe.consumer_release(releasing)
                    releasing.advance()
                reading.advance()
            if cutlass.const_expr(self.mistake == "one too few"):
                warpgroup.wait_group(1)
            elif cutlass.const_expr(self.mistake != "wait"):
                warpgroup.wait_group(0)
            if cutlass.const_expr(self.mistake != "release"):
                pipe.consumer_release(releasing)
            cute.autovec_copy(totals, part_d)  # store
