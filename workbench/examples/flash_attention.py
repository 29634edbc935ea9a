"""Flash attention, forward, for Hopper (sm_90a): O = softmax(scale * Q @ K^T) @ V, without ever writing the scores to memory.

Shapes (torch's own): Q, O (batch, heads, queries, dim), K, V (batch, key heads, keys, dim), float16 or bfloat16, dim 64 or 128, contiguous along dim. `heads` may be a multiple of `key
heads` (grouped queries). Causal as torch means it: query i sees keys 0 to i. Any numbers of queries and keys.

The computation. A CTA keeps a tile of queries and walks over blocks of 128 keys. For each row it carries the maximum so far and the sum of exponentials (*online softmax*): a block's
scores S = Q @ K^T become P = exp2(S * c - maximum * c), c = scale * log2(e); when the maximum grows from old to new, what was summed before is scaled by exp2((old - new) * c). Blocks are
visited from the last to the first: those that need a mask (the diagonal, the end of the keys) come first, the others run in a loop that does not test anything.

Who does what. One warp of the *producer* warpgroup loads Q once a tile, and K and V block by block through pipelines of two stages each, with TMA, which fills rows beyond the end with zeros.
Each *consumer* warpgroup owns 64 queries: S and O are accumulators of wgmma in registers, and P goes from registers straight into the second multiplication as its A operand: the
accumulator's layout of 16 columns is just the operand's layout of one wgmma, so that converting to 16 bits is all that lies between.

Keeping the tensor cores busy. The exponentials are slow (16 a cycle and SM), so they must hide behind multiplications, in two ways:
- within a warpgroup: S of the next block and O += P @ V of this one are issued together; the softmax of S runs while O is being computed;
- across warpgroups: named barriers pass a token round, so that one warpgroup's multiplications run while another is in its softmax ("ping-pong").

Order of tiles. Persistent CTAs take tiles in turn; heads come in sections whose K and V fit into L2, and within a section the longest tiles (causal: the last queries) come first, which
balances the ends.

With inputs of a standard normal distribution the result lies within 2e-3 (float16) or 1.6e-2 (bfloat16) of float32 arithmetic on the same inputs: the rounding of P and O to 16 bits.
"""

import argparse
import functools
import math
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.tensor_utils import LayoutEnum

WARPGROUP = 128
BLOCK = 128  # keys
STAGES = 2  # of K and of V
L2_BYTES = 32 << 20  # what K and V of a section of heads may take
REGISTERS = {2: (24, 240), 3: (32, 160)}  # consumer warpgroups -> registers of a producer's and of a consumer's thread


class FlashAttention:
    """One configuration: head dimension, causal or not, consumer warpgroups (2 or 3, of 64 queries each)."""

    def __init__(self, dim: int, causal: bool, groups: int) -> None:
        self.dim, self.causal, self.groups = dim, causal, groups
        self.queries = 64 * groups
        self.threads = WARPGROUP * (1 + groups)

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, scale: cutlass.Float32, section: cutlass.Int32, ctas: cutlass.Int32, stream: cuda.CUstream):
        """q, o (queries, dim, heads, batch), k (keys, dim, key heads, batch), v (dim, keys, key heads, batch); `section`: heads that run at the same time."""
        self.dtype = q.element_type
        kinds = q.element_type, q.element_type, OperandMajorMode.K
        first_mma, scores_mma = [sm90.make_trivial_tiled_mma(*kinds, OperandMajorMode.K, cutlass.Float32, (self.groups, 1, 1), tiler_mn=(64, BLOCK)) for _ in range(2)]
        out_mma = sm90.make_trivial_tiled_mma(*kinds, OperandMajorMode.MN, cutlass.Float32, (self.groups, 1, 1), tiler_mn=(64, self.dim), a_source=warpgroup.OperandSource.RMEM)
        one_mma = sm90.make_trivial_tiled_mma(*kinds, OperandMajorMode.MN, cutlass.Float32, (1, 1, 1), tiler_mn=(64, self.dim), a_source=warpgroup.OperandSource.RMEM)
        layout_q = sm90.make_smem_layout_a(LayoutEnum.ROW_MAJOR, (self.queries, BLOCK, self.dim), self.dtype, 1)
        layout_k = sm90.make_smem_layout_b(LayoutEnum.ROW_MAJOR, (self.queries, BLOCK, self.dim), self.dtype, STAGES)
        layout_v = sm90.make_smem_layout_b(LayoutEnum.COL_MAJOR, (self.queries, self.dim, BLOCK), self.dtype, STAGES)
        layout_o = sm90.make_smem_layout_epi(self.dtype, LayoutEnum.ROW_MAJOR, (64, self.dim), self.groups)
        load = cpasync.CopyBulkTensorTileG2SOp()
        tma_q, tensor_q = cpasync.make_tiled_tma_atom(load, q, cute.slice_(layout_q, (None, None, 0)), (self.queries, self.dim))
        tma_k, tensor_k = cpasync.make_tiled_tma_atom(load, k, cute.slice_(layout_k, (None, None, 0)), (BLOCK, self.dim))
        tma_v, tensor_v = cpasync.make_tiled_tma_atom(load, v, cute.slice_(layout_v, (None, None, 0)), (self.dim, BLOCK))
        tma_o, tensor_o = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), o, cute.slice_(layout_o, (None, None, 0)), (64, self.dim))
        tiles = cute.ceil_div(cute.size(q, mode=[0]), self.queries) * cute.size(q, mode=[2]) * cute.size(q, mode=[3])
        self.kernel(tma_q, tensor_q, tma_k, tensor_k, tma_v, tensor_v, tma_o, tensor_o, scale, section, tiles, first_mma, scores_mma, out_mma, one_mma, layout_q, layout_k, layout_v, layout_o).launch(
            grid=[cutlass.min(tiles, ctas), 1, 1], block=[self.threads, 1, 1], stream=stream, min_blocks_per_mp=1
        )

    @cute.jit
    def place(self, index: cutlass.Int32, section: cutlass.Int32, queries: cutlass.Int32, heads: cutlass.Int32, batch: cutlass.Int32):
        """(query tile, head, batch entry) of tile `index`: sections of heads; in a section, all heads of one query tile after the other, causal from the last."""
        blocks = cute.ceil_div(queries, self.queries)
        first = index // (section * blocks)
        inside = index - first * section * blocks
        width = cutlass.min(heads * batch - first * section, section)
        head = first * section + inside % width
        block = blocks - 1 - inside // width if cutlass.const_expr(self.causal) else inside // width
        return block, head % heads, head // heads

    @cute.jit
    def blocks(self, block: cutlass.Int32, keys: cutlass.Int32):
        """(key blocks of a query tile, the first of them that needs a mask)."""
        count = cute.ceil_div(keys, BLOCK)
        whole = keys // BLOCK
        if cutlass.const_expr(self.causal):
            count = cutlass.min(count, cute.ceil_div((block + 1) * self.queries, BLOCK))
            whole = cutlass.min(whole, (block * self.queries + 1) // BLOCK)
        return count, cutlass.min(whole, count - 1)  # the last block always takes the path with the mask

    def pipe(self, barriers, stages, size):
        """A pipeline of TMA loads of `size` bytes that every consumer warp releases."""
        consumers = pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * self.groups)
        return pipeline.PipelineTmaAsync.create(
            barrier_storage=barriers, num_stages=stages, producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread), consumer_group=consumers, tx_count=size, cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)), defer_sync=True
        )

    @cute.kernel
    def kernel(self, tma_q: cute.CopyAtom, q: cute.Tensor, tma_k: cute.CopyAtom, k: cute.Tensor, tma_v: cute.CopyAtom, v: cute.Tensor, tma_o: cute.CopyAtom, o: cute.Tensor, scale: cutlass.Float32,
               section: cutlass.Int32, tiles: cutlass.Int32, first_mma: cute.TiledMma, scores_mma: cute.TiledMma, out_mma: cute.TiledMma, one_mma: cute.TiledMma, layout_q: cute.ComposedLayout, layout_k: cute.ComposedLayout,
               layout_v: cute.ComposedLayout, layout_o: cute.ComposedLayout):  # fmt: skip
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = cutlass.memory.SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, 2 + 4 * STAGES)
        shared_q = memory.allocate_tensor(self.dtype, layout_q.outer, 1024, swizzle=layout_q.inner)
        shared_k = memory.allocate_tensor(self.dtype, layout_k.outer, 1024, swizzle=layout_k.inner)
        shared_v = memory.allocate_tensor(self.dtype, layout_v.outer, 1024, swizzle=layout_v.inner)
        shared_o = memory.allocate_tensor(self.dtype, layout_o.outer, 1024, swizzle=layout_o.inner)
        pipe_q = self.pipe(barriers, 1, self.queries * self.dim * 2)
        pipe_k = self.pipe(barriers + 2, STAGES, BLOCK * self.dim * 2)
        pipe_v = self.pipe(barriers + 2 + 2 * STAGES, STAGES, BLOCK * self.dim * 2)
        pipeline.pipeline_init_arrive()
        pipeline.pipeline_init_wait()
        queries, heads, batch = q.shape[0], q.shape[2], q.shape[3]
        keys, share = k.shape[0], heads // k.shape[2]
        one = cute.make_layout(1)
        into_q, from_q = cpasync.tma_partition(tma_q, 0, one, cute.group_modes(shared_q, 0, 2), cute.group_modes(cute.local_tile(q, (self.queries, self.dim), (None, 0, None, None)), 0, 2))
        into_k, from_k = cpasync.tma_partition(tma_k, 0, one, cute.group_modes(shared_k, 0, 2), cute.group_modes(cute.local_tile(k, (BLOCK, self.dim), (None, 0, None, None)), 0, 2))
        into_v, from_v = cpasync.tma_partition(tma_v, 0, one, cute.group_modes(shared_v, 0, 2), cute.group_modes(cute.local_tile(v, (self.dim, BLOCK), (0, None, None, None)), 0, 2))
        if warp < 4:
            cute.arch.setmaxregister_decrease(REGISTERS[self.groups][0])
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
            cute.arch.setmaxregister_increase(REGISTERS[self.groups][1])
            group = warp // 4 - 1
            mine_s, mine_o = scores_mma.get_slice(group * WARPGROUP), out_mma.get_slice(group * WARPGROUP)
            part_q = scores_mma.make_fragment_A(mine_s.partition_A(shared_q))
            part_k = scores_mma.make_fragment_B(mine_s.partition_B(shared_k))
            part_v = out_mma.make_fragment_B(mine_o.partition_B(shared_v))
            scores = cute.make_rmem_tensor(scores_mma.partition_shape_C((self.queries, BLOCK)), cutlass.Float32)
            weights = cute.make_rmem_tensor(out_mma.partition_shape_A((self.queries, BLOCK)), self.dtype)
            out = cute.make_rmem_tensor(out_mma.partition_shape_C((self.queries, self.dim)), cutlass.Float32)
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
            if group == self.groups - 1:
                self.pass_turn(group)  # the first warpgroup begins
            for index in cutlass.range(cta, tiles, ctas, unroll=1):
                block, head, entry = self.place(index, section, queries, heads, batch)
                count, masked = self.blocks(block, keys)
                row = block * self.queries + row_in
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
                self.mask(scores, row, (count - 1) * BLOCK + lane % 4 * 2, keys)
                self.softmax(scores, highest, total, factor, True)
                weights.store(scores.load().to(self.dtype).reshape(weights.shape))
                for step in cutlass.range(1, count - masked, unroll=1):
                    state_k, state_v = self.step(first_mma, scores_mma, out_mma, scores, weights, out, part_q, part_k, part_v, pipe_k, pipe_v, state_k, state_v, highest, total, factor, group, row, (count - 1 - step) * BLOCK + lane % 4 * 2, keys, True)
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
                self.normalise(out, total)
                self.store(one_mma, out, tma_o, o, shared_o, block, head, entry, group, thread % WARPGROUP)
            if group == 0:
                self.await_turn(group)  # nothing is left pending at the barrier
            if warp % 4 == 0:
                cute.arch.cp_async_bulk_wait_group(0)

    @cute.jit
    def await_turn(self, group):
        """Wait until the warpgroup before this one has issued its multiplications."""
        cute.arch.barrier(barrier_id=1 + group, number_of_threads=2 * WARPGROUP)

    @cute.jit
    def pass_turn(self, group):
        """Let the next warpgroup issue its multiplications."""
        cute.arch.barrier_arrive(barrier_id=1 + (group + 1) % self.groups, number_of_threads=2 * WARPGROUP)

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
            self.mask(scores, row, column, keys)
        shrink = self.softmax(scores, highest, total, factor, masked)
        if total[0] + total[1] < 0.0:  # never; but now the exponentials must be there before the wait, where ptxas would otherwise move them behind it
            cute.arch.sync_warp()
        warpgroup.wait_group(0)  # O is there, and the weights may be overwritten
        pipe_v.consumer_release(state_v)
        self.scale_rows(out, shrink)
        weights.store(scores.load().to(self.dtype).reshape(weights.shape))
        state_k.advance()
        state_v.advance()
        return state_k, state_v

    @cute.jit
    def mask(self, scores, row, column, keys):
        """Minus infinity where a query does not see a key; `row`, `column`: of this thread's first element."""
        for half in cutlass.range_constexpr(2):
            limit = keys - column
            if cutlass.const_expr(self.causal):
                limit = cutlass.min(limit, row + half * 8 + 1 - column)
            part = self.by_row(scores)[half, None]
            for e in cutlass.range(cute.size(part), unroll_full=True):
                part[e] = part[e] if e // 2 * 8 + e % 2 < limit else -cutlass.Float32.inf

    @cute.jit
    def softmax(self, scores, highest, total, factor, masked: cutlass.Constexpr):
        """Scores to exponentials in place, with the running maximum and sum of the two rows; returns by what O must shrink. Four neighbouring threads share a row."""
        shrink = cute.make_rmem_tensor(2, cutlass.Float32)
        by_row = self.by_row(scores)
        for half in cutlass.range_constexpr(2):
            row = by_row[half, None]
            top = row.load().reduce(cute.ReductionOp.MAX, highest[half], 0)
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
            base = top * factor
            if cutlass.const_expr(masked):
                base = cutlass.Float32(0.0) if top == -cutlass.Float32.inf else base  # no key of this row so far
            shrink[half] = cute.math.exp2(highest[half] * factor - base, fastmath=True)
            row.store(cute.math.exp2(row.load() * factor - base, fastmath=True))
            total[half] = row.load().reduce(cute.ReductionOp.ADD, total[half] * shrink[half], 0)
            highest[half] = top
        return shrink

    @cute.jit
    def normalise(self, out, total):
        """O over the sums, which four threads hold in parts."""
        for half in cutlass.range_constexpr(2):
            added = total[half] + cute.arch.shuffle_sync_bfly(total[half], 1)
            total[half] = cute.arch.rcp_approx(added + cute.arch.shuffle_sync_bfly(added, 2))
        self.scale_rows(out, total)

    def by_row(self, accumulator):
        """An accumulator's elements (2 rows, the rest) of a thread: element e is in row e // 2 % 2, which is 8 rows below the first, and column e // 4 * 8 + e % 2."""
        return cute.make_tensor(accumulator.iterator, cute.make_layout((2, (2, cute.size(accumulator) // 4)), stride=(2, (1, 4))))

    @cute.jit
    def scale_rows(self, accumulator, factors):
        """Multiply each of a thread's two rows by its factor."""
        for half in cutlass.range_constexpr(2):
            row = self.by_row(accumulator)[half, None]
            row.store(row.load() * factors[half])

    @cute.jit
    def store(self, one_mma, out, tma_o, o, shared_o, block, head, entry, group, thread):
        """A warpgroup's 64 rows of O, through its own shared memory, by TMA, which leaves out rows beyond the end."""
        warp = cute.arch.make_warp_uniform(thread // 32)
        storing = cute.make_tiled_copy_C(cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), self.dtype), one_mma)
        final = cute.make_rmem_tensor(out.shape, self.dtype)
        final.store(out.load().to(self.dtype))
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # the last tile's store has read the buffer
        cute.arch.barrier(barrier_id=4 + group, number_of_threads=WARPGROUP)
        cute.copy(storing, storing.retile(final), storing.get_slice(thread).partition_D(shared_o)[None, None, None, group])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=4 + group, number_of_threads=WARPGROUP)
        if warp == 0:
            tiles = cute.group_modes(cute.local_tile(o, (64, self.dim), (None, 0, None, None)), 0, 2)
            source, target = cpasync.tma_partition(tma_o, 0, cute.make_layout(1), cute.group_modes(shared_o, 0, 2), tiles)
            with cute.arch.elect_one():  # groups of stores belong to a thread
                cute.copy(tma_o, source[None, group], target[None, block * self.groups + group, head, entry])
                cute.arch.cp_async_bulk_commit_group()


COMPILED: dict[Any, Any] = {}


@functools.cache
def multiprocessors() -> int:
    """SMs of the device."""
    return int(utils.HardwareInfo().get_device_multiprocessor_count())


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, scale: float | None = None, out: torch.Tensor | None = None, groups: int = 2,
              max_ctas: int | None = None) -> torch.Tensor:  # fmt: skip
    """softmax(scale * q @ k^T) @ v, on the current CUDA stream. The first call of a configuration compiles (seconds); sizes are dynamic.

    q (batch, heads, queries, dim), k, v (batch, key heads, keys, dim), float16 or bfloat16, dim 64 or 128; returns a tensor like q. `scale`: None means 1 / sqrt(dim). `groups`: consumer
    warpgroups of 64 queries, 2, or 3 for dim 64 (which spills: 2.4 times as slow on an H200). `max_ctas`: no more than these, for tests. Raises ValueError for what the kernel does not take.
    """
    check(q, k, v)
    dim = q.shape[3]
    if groups not in REGISTERS or (groups == 3 and dim == 128):
        raise ValueError(f"{groups} warpgroups for dim {dim}: 2, or for dim 64 also 3")
    out = torch.empty_like(q) if out is None else out
    section = max(1, min(q.shape[0] * q.shape[1], L2_BYTES // (4 * k.shape[2] * dim)))
    arguments = [view(q, (2, 3, 1, 0)), view(k, (2, 3, 1, 0)), view(v, (3, 2, 1, 0)), view(out, (2, 3, 1, 0)), cutlass.Float32(dim**-0.5 if scale is None else scale), cutlass.Int32(section),
                 cutlass.Int32(min(max_ctas or 1 << 16, multiprocessors())), cuda.CUstream(torch.cuda.current_stream().cuda_stream)]  # fmt: skip
    key = (q.dtype, dim, causal, groups)
    if key not in COMPILED:
        COMPILED[key] = cute.compile(FlashAttention(dim, causal, groups), *arguments)
    COMPILED[key](*arguments)
    return out


def view(t: torch.Tensor, order: tuple[int, int, int, int]) -> Any:
    """The tensor for CuTe, its dimensions in this order, with dynamic sizes."""
    return from_dlpack(t.permute(order), assumed_align=16).mark_layout_dynamic(leading_dim=order.index(3))


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raises ValueError, saying what is wrong, for operands that the kernel does not take."""
    batch, heads, _, dim = q.shape
    if k.shape != v.shape or k.shape[0] != batch or heads % k.shape[1] or k.shape[3] != dim or 0 in (*q.shape, *k.shape):
        raise ValueError(f"shapes q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: q is (batch, heads, queries, dim), k and v (batch, key heads, keys, dim), heads a multiple of key heads")
    if dim not in (64, 128) or q.dtype not in (torch.float16, torch.bfloat16) or any(t.dtype != q.dtype for t in (k, v)):
        raise ValueError(f"{q.dtype}, {k.dtype}, {v.dtype}, dim {dim}: all float16 or all bfloat16, dim 64 or 128")
    if any(t.stride(3) != 1 or t.data_ptr() % 16 or any(stride % 8 for stride in t.stride()[:3]) for t in (q, k, v)):
        raise ValueError("TMA needs addresses and strides of a multiple of 16 bytes, and dim contiguous")


def main() -> None:
    """One attention, compared with torch in float32."""
    parser = argparse.ArgumentParser(description="Flash attention for Hopper, forward")
    for name, default in (("batch", 1), ("heads", 2), ("queries", 200), ("keys", 200), ("dim", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=["float16", "bfloat16"], default="bfloat16")
    parser.add_argument("--causal", action="store_true")
    options = parser.parse_args()
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[options.dtype]
    q, k, v = (torch.randn(options.batch, options.heads, length, options.dim, device="cuda").to(dtype) for length in (options.queries, options.keys, options.keys))
    out = attention(q, k, v, causal=options.causal)
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=options.causal)
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=2e-3 if dtype == torch.float16 else 1.6e-2)
    print(f"{tuple(q.shape)}, {options.keys} keys: at most {(out.float() - expected).abs().max().item():.1e} from float32")


if __name__ == "__main__":
    main()
