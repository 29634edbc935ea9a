"""Text of attention on Hopper: TMA and mbarriers feed wgmma, one warpgroup loads, two or three multiply and take turns with their softmax.

The design is that of `workbench.examples.flash_attention`, for any head dimension up to 256: tiles are as wide as the next multiple of 64,
where TMA fills in zeros, and a result whose rows TMA cannot store is stored by the threads.
"""

from __future__ import annotations

HEADER = '''
CAUSAL = {causal}  # whether query i sees keys 0 to i only
GROUPS = {groups}  # warpgroups that multiply, with 64 queries each; one more loads
QUERIES = 64 * GROUPS  # of one tile
KEYS = {keys}  # head dimension, as wide as a tile -> keys of one step
STAGES = {stages}  # of K and of V in shared memory
L2_BYTES = 32 << 20  # what K and V of the heads that run at the same time may take
REGISTERS = {registers}  # of a thread that loads, of one that multiplies
SHARED_BYTES = {shared}  # what a CTA may have

'''
KERNEL = '''
class Attention:
    """One configuration: the width of a tile along the head dimension, and whether TMA stores the result."""

    def __init__(self, width, by_tma):
        self.width, self.keys = width, KEYS[width]
        used = (QUERIES + 2 * STAGES * self.keys) * width * 2
        self.by_tma = by_tma and used + QUERIES * width * 2 + 2048 <= SHARED_BYTES

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, scale: cutlass.Float32, section: cutlass.Int32, ctas: cutlass.Int32, stream: cuda.CUstream):
        """q, o (queries, dim, heads, batch), k (keys, dim, key heads, batch), v (dim, keys, key heads, batch); `section`: heads that run at the same time."""
        self.dtype = q.element_type
        kinds = q.element_type, q.element_type, OperandMajorMode.K
        first_mma, scores_mma = [sm90.make_trivial_tiled_mma(*kinds, OperandMajorMode.K, cutlass.Float32, (GROUPS, 1, 1), tiler_mn=(64, self.keys)) for _ in range(2)]
        out_mma = sm90.make_trivial_tiled_mma(*kinds, OperandMajorMode.MN, cutlass.Float32, (GROUPS, 1, 1), tiler_mn=(64, self.width), a_source=warpgroup.OperandSource.RMEM)
        one_mma = sm90.make_trivial_tiled_mma(*kinds, OperandMajorMode.MN, cutlass.Float32, (1, 1, 1), tiler_mn=(64, self.width), a_source=warpgroup.OperandSource.RMEM)
        layout_q = sm90.make_smem_layout_a(LayoutEnum.ROW_MAJOR, (QUERIES, self.keys, self.width), self.dtype, 1)
        layout_k = sm90.make_smem_layout_b(LayoutEnum.ROW_MAJOR, (QUERIES, self.keys, self.width), self.dtype, STAGES)
        layout_v = sm90.make_smem_layout_b(LayoutEnum.COL_MAJOR, (QUERIES, self.width, self.keys), self.dtype, STAGES)
        layout_o = sm90.make_smem_layout_epi(self.dtype, LayoutEnum.ROW_MAJOR, (64, self.width), GROUPS)
        load = cpasync.CopyBulkTensorTileG2SOp()
        tma_q, tensor_q = cpasync.make_tiled_tma_atom(load, q, cute.slice_(layout_q, (None, None, 0)), (QUERIES, self.width))
        tma_k, tensor_k = cpasync.make_tiled_tma_atom(load, k, cute.slice_(layout_k, (None, None, 0)), (self.keys, self.width))
        tma_v, tensor_v = cpasync.make_tiled_tma_atom(load, v, cute.slice_(layout_v, (None, None, 0)), (self.width, self.keys))
        tma_o, tensor_o = None, o
        if cutlass.const_expr(self.by_tma):
            tma_o, tensor_o = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), o, cute.slice_(layout_o, (None, None, 0)), (64, self.width))
        tiles = cute.ceil_div(cute.size(q, mode=[0]), QUERIES) * cute.size(q, mode=[2]) * cute.size(q, mode=[3])
        self.kernel(tma_q, tensor_q, tma_k, tensor_k, tma_v, tensor_v, tma_o, tensor_o, o, scale, section, tiles, first_mma, scores_mma, out_mma, one_mma, layout_q, layout_k, layout_v, layout_o).launch(
            grid=[cutlass.min(tiles, ctas), 1, 1], block=[128 + 128 * GROUPS, 1, 1], stream=stream, min_blocks_per_mp=1
        )

    @cute.jit
    def place(self, index: cutlass.Int32, section: cutlass.Int32, queries: cutlass.Int32, heads: cutlass.Int32, batch: cutlass.Int32):
        """(query tile, head, batch entry) of tile `index`: sections of heads; in a section, all heads of one query tile after the other, causal from the last."""
        blocks = cute.ceil_div(queries, QUERIES)
        first = index // (section * blocks)
        inside = index - first * section * blocks
        width = cutlass.min(heads * batch - first * section, section)
        head = first * section + inside % width
        block = blocks - 1 - inside // width if cutlass.const_expr(CAUSAL) else inside // width
        return block, head % heads, head // heads

    @cute.jit
    def blocks(self, block: cutlass.Int32, keys: cutlass.Int32):
        """(key blocks of a query tile, the first of them that needs a mask)."""
        count = cute.ceil_div(keys, self.keys)
        whole = keys // self.keys
        if cutlass.const_expr(CAUSAL):
            count = cutlass.min(count, cute.ceil_div((block + 1) * QUERIES, self.keys))
            whole = cutlass.min(whole, (block * QUERIES + 1) // self.keys)
        return count, cutlass.min(whole, count - 1)  # the last block always takes the path with the mask

    def pipe(self, barriers, stages, size):
        """A pipeline of TMA loads of `size` bytes that every warp that multiplies releases."""
        consumers = pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * GROUPS)
        return pipeline.PipelineTmaAsync.create(
            barrier_storage=barriers, num_stages=stages, producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread), consumer_group=consumers, tx_count=size, cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)), defer_sync=True
        )

    @cute.kernel
    def kernel(
        self, tma_q: cute.CopyAtom, q: cute.Tensor, tma_k: cute.CopyAtom, k: cute.Tensor, tma_v: cute.CopyAtom, v: cute.Tensor, tma_o: cute.CopyAtom, o: cute.Tensor, o_plain: cute.Tensor, scale: cutlass.Float32,
        section: cutlass.Int32, tiles: cutlass.Int32, first_mma: cute.TiledMma, scores_mma: cute.TiledMma, out_mma: cute.TiledMma, one_mma: cute.TiledMma, layout_q: cute.ComposedLayout, layout_k: cute.ComposedLayout,
        layout_v: cute.ComposedLayout, layout_o: cute.ComposedLayout,
    ):
        """Key blocks from the last to the first: those that need a mask come first, the others run in a loop that tests nothing."""
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = cutlass.memory.SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, 2 + 4 * STAGES)
        shared_q = memory.allocate_tensor(self.dtype, layout_q.outer, 1024, swizzle=layout_q.inner)
        shared_k = memory.allocate_tensor(self.dtype, layout_k.outer, 1024, swizzle=layout_k.inner)
        shared_v = memory.allocate_tensor(self.dtype, layout_v.outer, 1024, swizzle=layout_v.inner)
        shared_o = shared_q
        if cutlass.const_expr(self.by_tma):
            shared_o = memory.allocate_tensor(self.dtype, layout_o.outer, 1024, swizzle=layout_o.inner)
        pipe_q = self.pipe(barriers, 1, QUERIES * self.width * 2)
        pipe_k = self.pipe(barriers + 2, STAGES, self.keys * self.width * 2)
        pipe_v = self.pipe(barriers + 2 + 2 * STAGES, STAGES, self.keys * self.width * 2)
        pipeline.pipeline_init_arrive()
        pipeline.pipeline_init_wait()
        queries, heads, batch = q.shape[0], q.shape[2], q.shape[3]
        keys, share = k.shape[0], heads // k.shape[2]
        one = cute.make_layout(1)
        into_q, from_q = cpasync.tma_partition(tma_q, 0, one, cute.group_modes(shared_q, 0, 2), cute.group_modes(cute.local_tile(q, (QUERIES, self.width), (None, 0, None, None)), 0, 2))
        into_k, from_k = cpasync.tma_partition(tma_k, 0, one, cute.group_modes(shared_k, 0, 2), cute.group_modes(cute.local_tile(k, (self.keys, self.width), (None, 0, None, None)), 0, 2))
        into_v, from_v = cpasync.tma_partition(tma_v, 0, one, cute.group_modes(shared_v, 0, 2), cute.group_modes(cute.local_tile(v, (self.width, self.keys), (0, None, None, None)), 0, 2))
        if warp < 4:
            cute.arch.setmaxregister_decrease(REGISTERS[0])
            if warp == 0:
                state_q = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
                state_k = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
                state_v = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
                for index in cutlass.range(cta, tiles, ctas, unroll=1):
                    block, head, entry = self.place(index, section, queries, heads, batch)
                    count, _ = self.blocks(block, keys)
                    pipe_q.producer_acquire(state_q)
                    cute.copy(tma_q, from_q[None, block, head, entry], into_q[None, 0], tma_bar_ptr=pipe_q.producer_get_barrier(state_q))
                    state_q.advance()
                    for step in cutlass.range(count, unroll=1):
                        pipe_k.producer_acquire(state_k)
                        cute.copy(tma_k, from_k[None, count - 1 - step, head // share, entry], into_k[None, state_k.index], tma_bar_ptr=pipe_k.producer_get_barrier(state_k))
                        state_k.advance()
                        pipe_v.producer_acquire(state_v)
                        cute.copy(tma_v, from_v[None, count - 1 - step, head // share, entry], into_v[None, state_v.index], tma_bar_ptr=pipe_v.producer_get_barrier(state_v))
                        state_v.advance()
        else:
            cute.arch.setmaxregister_increase(REGISTERS[1])
            group = warp // 4 - 1
            mine_s, mine_o = scores_mma.get_slice(group * 128), out_mma.get_slice(group * 128)
            part_q = scores_mma.make_fragment_A(mine_s.partition_A(shared_q))
            part_k = scores_mma.make_fragment_B(mine_s.partition_B(shared_k))
            part_v = out_mma.make_fragment_B(mine_o.partition_B(shared_v))
            scores = cute.make_rmem_tensor(scores_mma.partition_shape_C((QUERIES, self.keys)), cutlass.Float32)
            weights = cute.make_rmem_tensor(out_mma.partition_shape_A((QUERIES, self.keys)), self.dtype)
            out = cute.make_rmem_tensor(out_mma.partition_shape_C((QUERIES, self.width)), cutlass.Float32)
            highest, total = cute.make_rmem_tensor(2, cutlass.Float32), cute.make_rmem_tensor(2, cutlass.Float32)  # of this thread's two rows
            state_q = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
            state_k = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
            state_v = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
            first_mma.set(warpgroup.Field.ACCUMULATE, False)
            scores_mma.set(warpgroup.Field.ACCUMULATE, True)
            out_mma.set(warpgroup.Field.ACCUMULATE, True)
            factor = scale * math.log2(math.e)
            lane = thread % 32
            row_in = group * 64 + warp % 4 * 16 + lane // 4  # of the first of the two rows, in the CTA's tile; the second is 8 below
            if group == GROUPS - 1:
                self.pass_turn(group)  # the first warpgroup begins
            for index in cutlass.range(cta, tiles, ctas, unroll=1):
                block, head, entry = self.place(index, section, queries, heads, batch)
                count, masked = self.blocks(block, keys)
                row = block * QUERIES + row_in
                pipe_q.consumer_wait(state_q)
                pipe_k.consumer_wait(state_k)
                warpgroup.fence()
                self.multiply_scores(first_mma, scores_mma, scores, part_q, part_k, state_k.index)
                warpgroup.wait_group(0)
                pipe_k.consumer_release(state_k)
                state_k.advance()
                out.fill(0.0)
                total.fill(0.0)
                highest.fill(-cutlass.Float32.inf)
                mask(scores, row, (count - 1) * self.keys + lane % 4 * 2, keys)
                softmax(scores, highest, total, factor, True)
                weights.store(scores.load().to(self.dtype).reshape(weights.shape))
                for step in cutlass.range(1, count - masked, unroll=1):
                    state_k, state_v = self.step(first_mma, scores_mma, out_mma, scores, weights, out, part_q, part_k, part_v, pipe_k, pipe_v, state_k, state_v, highest, total, factor, group, row, (count - 1 - step) * self.keys + lane % 4 * 2, keys, True)
                for _step in cutlass.range(count - masked, count, unroll=1):
                    state_k, state_v = self.step(first_mma, scores_mma, out_mma, scores, weights, out, part_q, part_k, part_v, pipe_k, pipe_v, state_k, state_v, highest, total, factor, group, row, 0, keys, False)
                pipe_q.consumer_release(state_q)
                state_q.advance()
                pipe_v.consumer_wait(state_v)
                warpgroup.fence()
                self.multiply_out(out_mma, out, weights, part_v, state_v.index)
                warpgroup.wait_group(0)
                pipe_v.consumer_release(state_v)
                state_v.advance()
                normalise(out, total)
                if cutlass.const_expr(self.by_tma):
                    self.store(one_mma, out, tma_o, o, shared_o, block, head, entry, group, thread % 128)
                else:
                    store_direct(out, o_plain[None, None, head, entry], row, lane % 4 * 2)
            if group == 0:
                self.await_turn(group)  # nothing is left pending at the barrier
            if cutlass.const_expr(self.by_tma):
                if warp % 4 == 0:
                    cute.arch.cp_async_bulk_wait_group(0)

    @cute.jit
    def await_turn(self, group):
        """Wait until the warpgroup before this one has issued its multiplications."""
        cute.arch.barrier(barrier_id=1 + group, number_of_threads=256)

    @cute.jit
    def pass_turn(self, group):
        """Let the next warpgroup issue its multiplications."""
        cute.arch.barrier_arrive(barrier_id=1 + (group + 1) % GROUPS, number_of_threads=256)

    @cute.jit
    def multiply_scores(self, first_mma, mma, scores, part_q, part_k, stage):
        """Issue S = Q @ K^T as one group; the first multiplication overwrites S, the others add."""
        for part in cutlass.range_constexpr(cute.size(part_q, mode=[2])):
            cute.gemm(mma if part > 0 else first_mma, scores, part_q[None, None, part, 0], part_k[None, None, part, stage], scores)
        warpgroup.commit_group()

    @cute.jit
    def multiply_out(self, mma, out, weights, part_v, stage):
        """Issue O += P @ V as one group."""
        for part in cutlass.range_constexpr(cute.size(weights, mode=[2])):
            cute.gemm(mma, out, weights[None, None, part], part_v[None, None, part, stage], out)
        warpgroup.commit_group()

    @cute.jit
    def step(self, first_mma, scores_mma, out_mma, scores, weights, out, part_q, part_k, part_v, pipe_k, pipe_v, state_k, state_v, highest, total, factor, group, row, column, keys, masked: cutlass.Constexpr):
        """Scores of the next block and O of the one before, issued together; the softmax runs while O is computed. Returns the pipelines' states."""
        pipe_k.consumer_wait(state_k)
        self.await_turn(group)
        warpgroup.fence()
        self.multiply_scores(first_mma, scores_mma, scores, part_q, part_k, state_k.index)
        pipe_v.consumer_wait(state_v)
        self.multiply_out(out_mma, out, weights, part_v, state_v.index)
        self.pass_turn(group)
        warpgroup.wait_group(1)  # the scores are there
        pipe_k.consumer_release(state_k)
        if cutlass.const_expr(masked):
            mask(scores, row, column, keys)
        shrink = softmax(scores, highest, total, factor, masked)
        if total[0] + total[1] < 0.0:  # never; but now the exponentials must be there before the wait, where ptxas would otherwise move them behind it
            cute.arch.sync_warp()
        warpgroup.wait_group(0)  # O is there, and the weights may be overwritten
        pipe_v.consumer_release(state_v)
        scale_rows(out, shrink)
        weights.store(scores.load().to(self.dtype).reshape(weights.shape))
        state_k.advance()
        state_v.advance()
        return state_k, state_v

    @cute.jit
    def store(self, one_mma, out, tma_o, o, shared_o, block, head, entry, group, thread):
        """A warpgroup's 64 rows of O, through its own shared memory, by TMA, which leaves out what lies beyond the ends."""
        warp = cute.arch.make_warp_uniform(thread // 32)
        storing = cute.make_tiled_copy_C(cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), self.dtype), one_mma)
        final = cute.make_rmem_tensor(out.shape, self.dtype)
        final.store(out.load().to(self.dtype))
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # the last tile's store has read the buffer
        cute.arch.barrier(barrier_id=4 + group, number_of_threads=128)
        cute.copy(storing, storing.retile(final), storing.get_slice(thread).partition_D(shared_o)[None, None, None, group])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=4 + group, number_of_threads=128)
        if warp == 0:
            tiles = cute.group_modes(cute.local_tile(o, (64, self.width), (None, 0, None, None)), 0, 2)
            source, target = cpasync.tma_partition(tma_o, 0, cute.make_layout(1), cute.group_modes(shared_o, 0, 2), tiles)
            with cute.arch.elect_one():  # groups of stores belong to a thread
                cute.copy(tma_o, source[None, group], target[None, block * GROUPS + group, head, entry])
                cute.arch.cp_async_bulk_commit_group()


configured = functools.cache(Attention)


@functools.cache
def multiprocessors():
    """SMs of the device."""
    return utils.HardwareInfo().get_device_multiprocessor_count()


@cute.kernel
def pack_kernel(source: cute.Tensor, target: cute.Tensor):
    """One row for each warp."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks, heads = (source.shape[2] + 7) // 8, source.shape[1]
    block, head, batch = cta % blocks, cta // blocks % heads, cta // blocks // heads  # along one axis of the grid: the others end at 65535
    row = block * 8 + thread // 32
    if row < source.shape[2]:
        for column in range(thread % 32, source.shape[3], 32):
            target[batch, head, row, column] = source[batch, head, row, column]


@cute.jit
def pack(source: cute.Tensor, target: cute.Tensor, stream: cuda.CUstream):
    pack_kernel(source, target).launch(grid=[((source.shape[2] + 7) // 8) * source.shape[1] * source.shape[0], 1, 1], block=[256, 1, 1], stream=stream)


def readable(tensor):
    """A (batch, heads, rows, dim) operand as it is, or a copy with rows at multiples of 16 bytes, as TMA wants them."""
    steps = [tensor.stride(i) * tensor.element_size() for i in range(3) if tensor.shape[i] > 1]
    if tensor.data_ptr() % 16 == 0 and all(step > 0 and step % 16 == 0 for step in steps):
        return tensor
    batch, heads, rows, dim = tensor.shape
    copy = torch.empty(batch, heads, rows, (dim + 7) // 8 * 8, dtype=tensor.dtype, device=tensor.device)[..., :dim]
    call(pack, tensor.dtype, (from_dlpack(tensor.detach()).mark_layout_dynamic(leading_dim=3), from_dlpack(copy).mark_layout_dynamic(leading_dim=3)))
    return copy


def turned(tensor, *order):
    """The tensor for CuTe, its dimensions in this order, with dynamic sizes."""
    return from_dlpack(tensor.detach().permute(order), assumed_align=16).mark_layout_dynamic(leading_dim=order.index(3))
'''
FORWARD = """
dim = q4.shape[3]
if dim > 256 or q4.dtype != {dtype}:
    raise ValueError(f"this kernel is for {dtype} and head dimensions up to 256, not for {{q4.dtype}} and {{dim}}; .schedule(stages) takes any dimension")
q4, k4, v4 = readable(q4), readable(k4), readable(v4)
by_tma = dim % 8 == 0 and o4.data_ptr() % 16 == 0  # otherwise the threads store the result
section = max(1, min(q4.shape[0] * q4.shape[1], L2_BYTES // (4 * k4.shape[2] * dim)))
call(configured(-(-dim // 64) * 64, by_tma), q4.dtype, (
    turned(q4, 2, 3, 1, 0), turned(k4, 2, 3, 1, 0), turned(v4, 3, 2, 1, 0), {target},
    cutlass.Float32(scale), cutlass.Int32(section), cutlass.Int32(multiprocessors()),
))
"""
IMPORTS = "import functools\nimport math\n\nimport cutlass.pipeline as pipeline\nimport cutlass.utils as utils\nimport cutlass.utils.hopper_helpers as sm90\nfrom cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup\nfrom cutlass.tensor_utils import LayoutEnum"
