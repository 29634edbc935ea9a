"""A Hopper GEMM of our own for the tests: TMA (multicast over a cluster), mbarrier pipeline, warp-specialised, wgmma,
TMA-store epilogue.

D (m, n, L=1) = A (m, k) @ B (n, k) transposed; either operand K-major or MN-major; accumulated in float32 (int32 for
integers).
"""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import cpasync, warpgroup

STAGES = 3


class Gemm:
    """One configuration: tile (m, n, k) of a CTA, CTAs of a cluster along m that share their tile of B. Planted
    mistakes by name: `wait`, `release`, `fence`, `arrivals`.
    """

    def __init__(self, tile, cluster, mistake=""):
        self.tile, self.cluster, self.mistake = tile, cluster, mistake

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        self.dtype, self.dtype_d = a.element_type, d.element_type
        major_a, major_b = utils.LayoutEnum.from_tensor(a), utils.LayoutEnum.from_tensor(b)
        accumulator = cutlass.Int32 if cutlass.const_expr(a.element_type.is_integer) else cutlass.Float32
        tiled_mma = sm90.make_trivial_tiled_mma(
            a.element_type,
            b.element_type,
            major_a.sm90_mma_major_mode(),
            major_b.sm90_mma_major_mode(),
            accumulator,
            (2, 1, 1),
            tiler_mn=(64, self.tile[1]),
        )
        layout_a = sm90.make_smem_layout_a(major_a, self.tile, a.element_type, STAGES)
        layout_b = sm90.make_smem_layout_b(major_b, self.tile, b.element_type, STAGES)
        layout_d = cute.make_layout((self.tile[0], self.tile[1]), stride=(self.tile[1], 1))
        load = cpasync.CopyBulkTensorTileG2SOp()
        shared_load = cpasync.CopyBulkTensorTileG2SMulticastOp() if cutlass.const_expr(self.cluster > 1) else load
        tma_a, tensor_a = cpasync.make_tiled_tma_atom(
            load, a, cute.slice_(layout_a, (None, None, 0)), (self.tile[0], self.tile[2])
        )
        tma_b, tensor_b = cpasync.make_tiled_tma_atom(
            shared_load,
            b,
            cute.slice_(layout_b, (None, None, 0)),
            (self.tile[1], self.tile[2]),
            num_multicast=self.cluster,
        )
        tma_d, tensor_d = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(), d, layout_d, (self.tile[0], self.tile[1])
        )
        grid_m = (cute.size(d, mode=[0]) + self.tile[0] - 1) // self.tile[0]
        grid_n = (cute.size(d, mode=[1]) + self.tile[1] - 1) // self.tile[1]
        self.kernel(tma_a, tensor_a, tma_b, tensor_b, tma_d, tensor_d, tiled_mma, layout_a, layout_b, layout_d).launch(
            grid=[(grid_m + self.cluster - 1) // self.cluster * self.cluster, grid_n, 1],
            block=[384, 1, 1],
            cluster=[self.cluster, 1, 1],
        )

    @cute.kernel
    def kernel(
        self,
        tma_a: cute.CopyAtom,
        a: cute.Tensor,
        tma_b: cute.CopyAtom,
        b: cute.Tensor,
        tma_d: cute.CopyAtom,
        d: cute.Tensor,
        tiled_mma: cute.TiledMma,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
        layout_d: cute.Layout,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block_m, block_n, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        memory = cutlass.memory.SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, STAGES * 2)
        shared_a = memory.allocate_tensor(self.dtype, layout_a.outer, 1024, swizzle=layout_a.inner)
        shared_b = memory.allocate_tensor(self.dtype, layout_b.outer, 1024, swizzle=layout_b.inner)
        shared_d = memory.allocate_tensor(self.dtype_d, layout_d, 1024)
        pipe = pipeline.PipelineTmaAsync.create(
            barrier_storage=barriers,
            num_stages=STAGES,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(
                pipeline.Agent.Thread, (8 if cutlass.const_expr(self.mistake != "arrivals") else 9) * self.cluster
            ),
            tx_count=(self.tile[0] + self.tile[1]) * self.tile[2] * self.dtype.width // 8,
            cta_layout_vmnk=cute.make_layout((1, self.cluster, 1, 1)),
        )
        tiles_a = cute.local_tile(a, (self.tile[0], self.tile[2]), (block_m, None))
        tiles_b = cute.local_tile(b, (self.tile[1], self.tile[2]), (block_n, None))
        into_a, from_a = cpasync.tma_partition(
            tma_a, 0, cute.make_layout(1), cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
        )
        into_b, from_b = cpasync.tma_partition(
            tma_b,
            rank,
            cute.make_layout(self.cluster),
            cute.group_modes(shared_b, 0, 2),
            cute.group_modes(tiles_b, 0, 2),
        )
        steps = cute.size(tiles_a, mode=[2])
        if warp == 0:
            writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for step in cutlass.range(steps, unroll=1):
                pipe.producer_acquire(writing)
                bar = pipe.producer_get_barrier(writing)
                cute.copy(tma_a, from_a[None, step], into_a[None, writing.index], tma_bar_ptr=bar)
                if cutlass.const_expr(self.cluster > 1):
                    cute.copy(
                        tma_b,
                        from_b[None, step],
                        into_b[None, writing.index],
                        tma_bar_ptr=bar,
                        mcast_mask=cutlass.Int16((1 << self.cluster) - 1),
                    )
                else:
                    cute.copy(tma_b, from_b[None, step], into_b[None, writing.index], tma_bar_ptr=bar)
                pipe.producer_commit(writing)
                writing.advance()
            pipe.producer_tail(writing)
        if warp >= 4:
            mine = tiled_mma.get_slice(thread - 128)
            part_a = tiled_mma.make_fragment_A(mine.partition_A(shared_a))
            part_b = tiled_mma.make_fragment_B(mine.partition_B(shared_b))
            part_d = mine.partition_C(shared_d)
            totals = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((self.tile[0], self.tile[1])))
            reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
            for _step in cutlass.range(steps, unroll=1):
                if cutlass.const_expr(self.mistake != "wait"):
                    pipe.consumer_wait(reading)
                warpgroup.fence()
                for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                    cute.gemm(
                        tiled_mma,
                        totals,
                        part_a[None, None, part, reading.index],
                        part_b[None, None, part, reading.index],
                        totals,
                    )
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                if cutlass.const_expr(self.mistake != "release"):
                    pipe.consumer_release(reading)
                reading.advance()
            for e in cutlass.range_constexpr(cute.size(totals)):
                part_d[e] = totals[e].to(self.dtype_d)
            if cutlass.const_expr(self.mistake != "fence"):
                cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1, number_of_threads=256)
            if warp == 4:
                tile_d = cute.local_tile(d, (self.tile[0], self.tile[1]), (block_m, block_n))
                out, target = cpasync.tma_partition(
                    tma_d, 0, cute.make_layout(1), cute.group_modes(shared_d, 0, 2), cute.group_modes(tile_d, 0, 2)
                )
                with cute.arch.elect_one():  # a plain store is not elected by cute.copy, and groups belong to a thread
                    cute.copy(tma_d, out, target)
                    cute.arch.cp_async_bulk_commit_group()
                    cute.arch.cp_async_bulk_wait_group(0, read=True)
