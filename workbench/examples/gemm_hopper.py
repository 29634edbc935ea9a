"""GEMM for Hopper (sm_90a): D = A @ B^T, or A @ B^T + C, the way the fastest kernels do it.

Shapes: A (m, k), B (n, k), C and D (m, n), row-major C and D. A and B in float16 or bfloat16 (K-major or MN-major, that is, contiguous along k or along m and n),
float8_e4m3fn or float8_e5m2 (K-major). Sums are float32; D is float16, bfloat16 or float32. Any m, n, k >= 1, but TMA asks for rows of a multiple of 16 bytes.

Who does what. A CTA computes one tile of D after the other; it has three warpgroups (of 128 threads) for the default tile of 128 x 256:

- The *producer* warpgroup gives its registers away (`setmaxnreg`), and one warp of it issues TMA loads: for each step of 64 elements of k (128 bytes: the width of the
  widest swizzle) a tile of A and one of B into the next *stage* of shared memory. An mbarrier counts the bytes that arrive: "full".
- Two *consumer* warpgroups own 64 rows of the tile each, with their sums in 128 registers a thread. They wait for "full", issue the step's wgmmas, and, one step later, when
  `wait_group(1)` has shown that the multiplication before the newest is done, arrive at the stage's "empty" mbarrier. So a wgmma group is always in flight, and the tensor
  cores never wait for the issue of the next one.
- The producer runs ahead through the stages, also into the next tile: loads of tile i + 1 fly while the consumers store tile i.

Cluster. The two CTAs of a 2 x 1 cluster compute tiles one below the other, which need the same tile of B. Each loads half of it and *multicasts* that half into the shared memory
of both: half the traffic from L2. "Empty" then counts the consumers of both CTAs, since a stage may be refilled only when no CTA reads it any more.

Epilogue. Each consumer warpgroup converts 64 rows x 128 bytes of its sums at a time, writes them with `stmatrix` into swizzled shared memory (no bank conflicts), and one thread stores
them with TMA, which clips at the edges of D. There are two such buffers a warpgroup: one is filled while TMA reads the other. C, if there is one, comes by TMA into the same buffer that
the sum leaves from, prefetched while the main loop runs. Where rows of D are not a multiple of 16 bytes, the threads store from shared memory themselves.

Tile order. The grid is as large as the device holds clusters (*persistent*), and cluster c takes tiles c, c + clusters, ... in bands of `swizzle` cluster columns, so that what runs at
the same time is a near-square patch of D: the fewest rows of A and B, which then stay in L2.
"""

import argparse
import functools
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.tensor_utils import LayoutEnum

SHARED_BYTES = 232_448  # of a CTA on Hopper
ROW_BYTES = 128  # width of the widest swizzle: of a stage's rows along k, and of an epilogue buffer's rows
BUFFERS = 2  # of the epilogue, for each consumer warpgroup
WARPGROUP = 128
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232


class HopperGemm:
    """One configuration. `tile`: (m, n, k) of a CTA, m in 64, 128, 256; `cluster`: CTAs along m and n; `swizzle`: cluster columns of a band; `stages`: None for as many as fit."""

    def __init__(self, tile: tuple[int, int, int], cluster: tuple[int, int], swizzle: int, stages: int | None, tma_store: bool) -> None:
        self.tile, self.cluster, self.swizzle, self.asked_stages, self.tma_store = tile, cluster, swizzle, stages, tma_store
        self.consumers = min(2, tile[0] // 64)
        self.threads = WARPGROUP * (1 + self.consumers)

    def plan(self, width_ab: int, width_d: int) -> None:
        """Stages and the epilogue's sub-tile, from the sizes of the elements in bits."""
        self.columns = next(c for c in (ROW_BYTES * 8 // width_d >> shift for shift in range(4)) if self.tile[1] % c == 0)
        self.subtiles = self.tile[0] * self.tile[1] // (64 * self.columns * self.consumers)  # of a warpgroup's part of a tile
        self.stage_bytes = (self.tile[0] + self.tile[1]) * self.tile[2] * width_ab // 8
        epilogue = 64 * self.columns * width_d // 8 * BUFFERS * self.consumers
        fit = (SHARED_BYTES - epilogue - 2048) // self.stage_bytes  # 2048: mbarriers, and what alignment to 1024 costs
        self.stages = self.asked_stages or min(fit, 8)
        if not 2 <= self.stages <= fit:
            raise ValueError(f"{self.stages} stages of tile {self.tile}: 2 to {fit} fit into shared memory")

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor | None, d: cute.Tensor, clusters: cutlass.Int32, stream: cuda.CUstream):
        self.dtype, self.dtype_b, self.dtype_d = a.element_type, b.element_type, d.element_type
        self.plan(a.element_type.width, d.element_type.width)
        m, n, depth = self.tile
        majors = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
        mmas, layouts = self.mmas(*majors), self.layouts(*majors)
        tma_a, tensor_a = self.load_atom(a, layouts[0], (m, depth), self.cluster[1])
        tma_b, tensor_b = self.load_atom(b, layouts[1], (n, depth), self.cluster[0])
        tma_c, tensor_c, tma_d, tensor_d = None, None, None, d
        if cutlass.const_expr(c is not None):
            tma_c, tensor_c = self.load_atom(c, layouts[2], (64, self.columns), 1)
        if cutlass.const_expr(self.tma_store):
            tma_d, tensor_d = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), d, cute.slice_(layouts[2], (None, None, 0)), (64, self.columns))
        rows = cute.ceil_div(cute.size(d, mode=[0]), m * self.cluster[0])
        columns = cute.ceil_div(cute.size(d, mode=[1]), n * self.cluster[1])
        self.kernel(tma_a, tensor_a, tma_b, tensor_b, tma_c, tensor_c, tma_d, tensor_d, rows, columns, *mmas, *layouts).launch(
            grid=[self.cluster[0], self.cluster[1], cutlass.min(rows * columns, clusters)], block=[self.threads, 1, 1], cluster=[*self.cluster, 1], stream=stream, min_blocks_per_mp=1
        )

    def mmas(self, major_a, major_b):
        """Three wgmmas: of all consumer warpgroups together, twice (one is to overwrite, one to add), and of one warpgroup, which the epilogue's copies are cut by."""
        modes = major_a.sm90_mma_major_mode(), major_b.sm90_mma_major_mode()
        groups = self.consumers, self.consumers, 1
        return [sm90.make_trivial_tiled_mma(self.dtype, self.dtype_b, *modes, cutlass.Float32, (count, 1, 1), tiler_mn=(64, self.tile[1])) for count in groups]

    def layouts(self, major_a, major_b):
        """Swizzled shared memory of the stages of A, of B, and of the epilogue's buffers."""
        layout_a = sm90.make_smem_layout_a(major_a, self.tile, self.dtype, self.stages)
        layout_b = sm90.make_smem_layout_b(major_b, self.tile, self.dtype_b, self.stages)
        return layout_a, layout_b, sm90.make_smem_layout_epi(self.dtype_d, LayoutEnum.ROW_MAJOR, (64, self.columns), BUFFERS * self.consumers)

    def load_atom(self, tensor, layout, tile, multicast):
        """TMA atom and tensor to load tiles into stages of `layout`, each CTA of `multicast` a slice for all of them."""
        load = cpasync.CopyBulkTensorTileG2SMulticastOp() if multicast > 1 else cpasync.CopyBulkTensorTileG2SOp()
        return cpasync.make_tiled_tma_atom(load, tensor, cute.slice_(layout, (None, None, 0)), tile, num_multicast=multicast)

    def pipe(self, barriers):
        """The pipeline of stages: a stage is empty when every consumer warp of every CTA that its copies go to has said so to the CTA that loads."""
        consumers = pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * self.consumers * (sum(self.cluster) - 1))
        return pipeline.PipelineTmaAsync.create(
            barrier_storage=barriers, num_stages=self.stages, producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread), consumer_group=consumers, tx_count=self.stage_bytes,
            cta_layout_vmnk=cute.make_layout((1, *self.cluster, 1)), defer_sync=True,
        )  # fmt: skip

    def partition(self, tma_a, a, shared_a, tma_b, b, shared_b, rank_m, rank_n):
        """((stages, tiles in global memory) of A, the same of B): what this CTA loads, which is a slice where others of the cluster load the rest."""
        tiles_a, tiles_b = cute.local_tile(a, (self.tile[0], self.tile[2]), (None, None)), cute.local_tile(b, (self.tile[1], self.tile[2]), (None, None))
        share_a, share_b = cute.make_layout(self.cluster[1]), cute.make_layout(self.cluster[0])
        return (cpasync.tma_partition(tma_a, rank_n, share_a, cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)),
                cpasync.tma_partition(tma_b, rank_m, share_b, cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2)))  # fmt: skip

    def masks(self, rank_m, rank_n):
        """CTAs of the cluster that get what this one loads of A (those of its row) and of B (those of its column); None for only this one."""
        mask_a = cutlass.Int16(sum(1 << self.cluster[0] * y for y in range(self.cluster[1]))) << cutlass.Int16(rank_m) if self.cluster[1] > 1 else None
        mask_b = cutlass.Int16((1 << self.cluster[0]) - 1) << cutlass.Int16(rank_n * self.cluster[0]) if self.cluster[0] > 1 else None
        return mask_a, mask_b

    @cute.jit
    def place(self, index: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
        """(row, column) of cluster tile `index`: bands of `swizzle` columns, a band row by row."""
        band = index // (rows * self.swizzle)
        inside = index - band * rows * self.swizzle
        width = cutlass.min(columns - band * self.swizzle, self.swizzle)
        return inside // width, band * self.swizzle + inside % width

    @cute.kernel
    def kernel(self, tma_a: cute.CopyAtom, a: cute.Tensor, tma_b: cute.CopyAtom, b: cute.Tensor, tma_c: cute.CopyAtom | None, c: cute.Tensor | None, tma_d: cute.CopyAtom | None, d: cute.Tensor,
               rows: cutlass.Int32, columns: cutlass.Int32, first_mma: cute.TiledMma, tiled_mma: cute.TiledMma, one_mma: cute.TiledMma, layout_a: cute.ComposedLayout, layout_b: cute.ComposedLayout, layout_d: cute.ComposedLayout):  # fmt: skip
        thread, _, _ = cute.arch.thread_idx()
        rank_m, rank_n, cluster = cute.arch.block_idx()
        _, _, clusters = cute.arch.grid_dim()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            cpasync.prefetch_descriptor(tma_a)
            cpasync.prefetch_descriptor(tma_b)
        memory = cutlass.memory.SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, self.stages * 2)
        barriers_c = memory.allocate_array(cutlass.Int64, BUFFERS * self.consumers)
        shared_a = memory.allocate_tensor(self.dtype, layout_a.outer, 1024, swizzle=layout_a.inner)
        shared_b = memory.allocate_tensor(self.dtype, layout_b.outer, 1024, swizzle=layout_b.inner)
        shared_d = memory.allocate_tensor(self.dtype_d, layout_d.outer, 1024, swizzle=layout_d.inner)
        pipe = self.pipe(barriers)
        if cutlass.const_expr(c is not None):  # noqa: SIM102 (one is for the compiler, one for the device)
            if warp == 0:
                with cute.arch.elect_one():
                    for one in cutlass.range_constexpr(BUFFERS * self.consumers):
                        cute.arch.mbarrier_init(barriers_c + one, 1)
        pipeline.pipeline_init_arrive(self.cluster, is_relaxed=True)
        (into_a, from_a), (into_b, from_b) = self.partition(tma_a, a, shared_a, tma_b, b, shared_b, rank_m, rank_n)
        steps = cute.ceil_div(cute.size(a, mode=[1]), self.tile[2])
        pipeline.pipeline_init_wait(self.cluster)
        if warp < 4:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            if warp == 0:
                mask_a, mask_b = self.masks(rank_m, rank_n)
                writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                for index in cutlass.range(cluster, rows * columns, clusters, unroll=1):
                    row, column = self.place(index, rows, columns)
                    row, column = row * self.cluster[0] + rank_m, column * self.cluster[1] + rank_n
                    for step in cutlass.range(steps, unroll=1):
                        pipe.producer_acquire(writing)
                        full = pipe.producer_get_barrier(writing)
                        cute.copy(tma_a, from_a[None, row, step], into_a[None, writing.index], tma_bar_ptr=full, mcast_mask=mask_a)
                        cute.copy(tma_b, from_b[None, column, step], into_b[None, writing.index], tma_bar_ptr=full, mcast_mask=mask_b)
                        writing.advance()
                pipe.producer_tail(writing)  # no CTA of a cluster may leave while another still writes into it or arrives at its mbarriers
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            group = warp // 4 - 1
            mine = tiled_mma.get_slice(group * WARPGROUP)
            part_a = tiled_mma.make_fragment_A(mine.partition_A(shared_a))
            part_b = tiled_mma.make_fragment_B(mine.partition_B(shared_b))
            sums = cute.make_rmem_tensor(tiled_mma.partition_shape_C(self.tile[:2]), cutlass.Float32)
            first_mma.set(warpgroup.Field.ACCUMULATE, False)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            releasing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            written = cutlass.Int32(0)  # sub-tiles that this warpgroup has stored
            for index in cutlass.range(cluster, rows * columns, clusters, unroll=1):
                row, column = self.place(index, rows, columns)
                row, column = row * self.cluster[0] + rank_m, column * self.cluster[1] + rank_n
                if cutlass.const_expr(c is not None):
                    self.prefetch(tma_c, c, shared_d, barriers_c, row, column, group, warp % 4, written)
                reading, releasing = self.multiply(first_mma, tiled_mma, sums, part_a, part_b, pipe, reading, releasing, steps)
                self.store(one_mma, sums, tma_c, c, tma_d, d, shared_d, barriers_c, row, column, group, thread % WARPGROUP, written, None)
                written += self.subtiles
            if warp % 4 == 0:
                cute.arch.cp_async_bulk_wait_group(0)

    @cute.jit
    def multiply(self, first_mma, mma, sums, part_a, part_b, pipe, reading, releasing, steps):
        """The main loop over k of one tile: `first_mma` overwrites the sums of the last tile, `mma` adds. Returns the pipeline's states."""
        warpgroup.fence()
        pipe.consumer_wait(reading)
        for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
            cute.gemm(mma if part > 0 else first_mma, sums, part_a[None, None, part, reading.index], part_b[None, None, part, reading.index], sums)
        warpgroup.commit_group()
        reading.advance()
        for _step in cutlass.range(1, steps, unroll=1):
            pipe.consumer_wait(reading)
            for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                cute.gemm(mma, sums, part_a[None, None, part, reading.index], part_b[None, None, part, reading.index], sums)
            warpgroup.commit_group()
            warpgroup.wait_group(1)  # all but the newest are done: their stage is free
            pipe.consumer_release(releasing)
            releasing.advance()
            reading.advance()
        warpgroup.wait_group(0)
        pipe.consumer_release(releasing)
        releasing.advance()
        return reading, releasing

    def corner(self, row, column, group, subtile):
        """(row, column) in units of sub-tiles of a warpgroup's sub-tile `subtile` in the CTA's tile (row, column)."""
        across = self.tile[1] // self.columns
        return row * (self.tile[0] // 64) + subtile // across * self.consumers + group, column * across + subtile % across

    @cute.jit
    def load_c(self, tma_c, c, shared_d, barriers_c, corner, group, number):
        """One sub-tile of C into the buffer of the `number`-th sub-tile, by a whole warp."""
        buffer = group * BUFFERS + number % BUFFERS
        into, source = cpasync.tma_partition(tma_c, 0, cute.make_layout(1), cute.group_modes(shared_d, 0, 2), cute.group_modes(cute.local_tile(c, (64, self.columns), (None, None)), 0, 2))
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barriers_c + buffer, 64 * self.columns * self.dtype_d.width // 8)
        cute.copy(tma_c, source[None, corner[0], corner[1]], into[None, buffer], tma_bar_ptr=barriers_c + buffer)

    @cute.jit
    def prefetch(self, tma_c, c, shared_d, barriers_c, row, column, group, warp, written):
        """The first sub-tiles of C, as many as there are buffers, before the main loop."""
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # the last tile's stores have read the buffers
            for subtile in cutlass.range_constexpr(min(BUFFERS, self.subtiles)):
                self.load_c(tma_c, c, shared_d, barriers_c, self.corner(row, column, group, subtile), group, written + subtile)

    @cute.jit
    def store(self, one_mma, sums, tma_c, c, tma_d, d, shared_d, barriers_c, row, column, group, thread, written, map_d):
        """A warpgroup's part of a tile, sub-tile by sub-tile through its two buffers; one barrier each.

        When the warpgroup meets at the barrier after filling a buffer, the storing thread has seen that the store before has been read, so the other buffer may be filled next.
        `map_d`: pointer to another TMA descriptor of D than the atom's, or None.
        """
        store_atom = sm90.get_smem_store_op(LayoutEnum.ROW_MAJOR, self.dtype_d, cutlass.Float32)
        pattern = cute.make_tiled_copy_C_atom(cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), cutlass.Float16), one_mma)
        storing = cute.make_tiled_copy_S(store_atom, pattern)
        mine, pieces = storing.get_slice(thread), storing.retile(sums)
        into = mine.partition_D(shared_d)
        out = cute.make_rmem_tensor(cute.make_layout(mine.partition_S(shared_d).shape[:3]).shape, self.dtype_d)
        size = cute.size(out)
        for subtile in cutlass.range_constexpr(self.subtiles):
            number = written + subtile
            buffer = group * BUFFERS + number % BUFFERS
            values = cute.make_rmem_tensor(out.shape, cutlass.Float32)
            for e in cutlass.range(size, unroll_full=True):
                values[e] = pieces[subtile * size + e]
            if cutlass.const_expr(c is not None):
                loading = cute.make_tiled_copy_S(cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), self.dtype_d), pattern)
                cute.arch.mbarrier_wait(barriers_c + buffer, number // BUFFERS % 2)
                cute.autovec_copy(loading.get_slice(thread).partition_D(shared_d)[None, None, None, buffer], out)
                values.store(values.load() + out.load().to(cutlass.Float32))
            out.store(values.load().to(self.dtype_d))
            cute.copy(storing, out, into[None, None, None, buffer])
            place = self.corner(row, column, group, subtile)
            if cutlass.const_expr(self.tma_store):
                self.store_tma(tma_c, c, tma_d, d, shared_d, barriers_c, place, row, column, group, thread, subtile, number, map_d)
            else:
                self.store_plain(d, shared_d[None, None, buffer], place, group, thread)

    @cute.jit
    def store_tma(self, tma_c, c, tma_d, d, shared_d, barriers_c, place, row, column, group, thread, subtile, number, map_d):
        """A filled buffer to D by TMA; where C follows, the next sub-tile of C into the same buffer."""
        warp = cute.arch.make_warp_uniform(thread // 32)
        cute.arch.fence_proxy("async.shared", space="cta")  # what the threads wrote, TMA will read
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=1 + group, number_of_threads=WARPGROUP)
        if warp == 0:
            out, target = cpasync.tma_partition(tma_d, 0, cute.make_layout(1), cute.group_modes(shared_d, 0, 2), cute.group_modes(cute.local_tile(d, (64, self.columns), (None, None)), 0, 2))
            with cute.arch.elect_one():  # groups of stores belong to a thread
                cute.copy(tma_d, out[None, group * BUFFERS + number % BUFFERS], target[None, place[0], place[1]], tma_desc_ptr=map_d)
                cute.arch.cp_async_bulk_commit_group()
            if cutlass.const_expr(c is not None and subtile + BUFFERS < self.subtiles):
                cute.arch.cp_async_bulk_wait_group(0, read=True)
                self.load_c(tma_c, c, shared_d, barriers_c, self.corner(row, column, group, subtile + BUFFERS), group, number + BUFFERS)

    @cute.jit
    def store_plain(self, d, filled, place, group, thread):
        """A filled buffer to D by the threads, element by element, inside D only; consecutive threads store consecutive elements."""
        cute.arch.barrier(barrier_id=1 + group, number_of_threads=WARPGROUP)
        for one in cutlass.range(64 * self.columns // WARPGROUP, unroll=8):
            e = one * WARPGROUP + thread
            row, column = place[0] * 64 + e // self.columns, place[1] * self.columns + e % self.columns
            if row < d.shape[0] and column < d.shape[1]:
                d[row, column] = filled[e // self.columns, e % self.columns]


COMPILED: dict[Any, Any] = {}


@functools.cache
def resident(size: int) -> int:
    """Clusters of `size` CTAs, one on each SM, that the device runs at the same time."""
    return int(utils.HardwareInfo().get_max_active_clusters(size))


def gemm(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, *, c: torch.Tensor | None = None, tile: tuple[int, int, int] | None = None, cluster: tuple[int, int] = (2, 1), swizzle: int = 8,
         stages: int | None = None, max_clusters: int | None = None) -> torch.Tensor:  # fmt: skip
    """d = a @ b.T (+ c), on the current CUDA stream; returns d. The first call of a configuration compiles (seconds); sizes are dynamic.

    a (m, k), b (n, k), float16, bfloat16 or float8; d, c (m, n), float16, bfloat16 or float32, of one dtype. `tile`: None means (128, 256, 128 bytes of k). `max_clusters`: no more than
    these, for tests. Raises ValueError for what TMA does not take: a base address or a row (the stride of the dimension that is not contiguous) that is no multiple of 16 bytes.
    """
    tile = tile or (128, 256, ROW_BYTES // a.element_size())
    check(a, b, c, d, tile, cluster)
    majors, tma_store = (leading(a), leading(b)), aligned(d)
    key = (a.dtype, b.dtype, d.dtype, c is not None, majors, tma_store, tile, cluster, swizzle, stages)
    clusters = min(max_clusters or 1 << 16, resident(cluster[0] * cluster[1]))
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    operands = [view(a, majors[0]), view(b, majors[1]), None if c is None else view(c, 1), view(d, 1)]
    if key not in COMPILED:
        COMPILED[key] = cute.compile(HopperGemm(tile, cluster, swizzle, stages, tma_store), *operands, clusters, stream)
    COMPILED[key](*operands, clusters, stream)
    return d


def leading(t: torch.Tensor) -> int:
    """The contiguous dimension of a matrix."""
    return 1 if t.stride(1) == 1 else 0


def aligned(t: torch.Tensor) -> bool:
    """Whether TMA takes a matrix: its address and the stride of its other dimension are multiples of 16 bytes."""
    return bool(t.data_ptr() % 16 == 0 and t.stride(1 - leading(t)) * t.element_size() % 16 == 0)


def view(t: torch.Tensor, major: int) -> Any:
    """The matrix for CuTe, with dynamic sizes; torch's DLPack does not know float8."""
    if t.dtype not in FLOAT8:
        return from_dlpack(t, assumed_align=16 if aligned(t) else t.element_size()).mark_layout_dynamic(leading_dim=major)
    wrapped = from_dlpack(t.view(torch.uint8), assumed_align=16)
    wrapped.element_type = FLOAT8[t.dtype]
    return wrapped.mark_layout_dynamic(leading_dim=major)


FLOAT8 = {torch.float8_e4m3fn: cutlass.Float8E4M3FN, torch.float8_e5m2: cutlass.Float8E5M2}
HALVES = (torch.float16, torch.bfloat16)


def check(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, d: torch.Tensor, tile: tuple[int, int, int], cluster: tuple[int, int]) -> None:
    """Raises ValueError, saying what is wrong, for operands and configurations that the kernel does not take."""
    (m, k), n = a.shape, b.shape[0]
    if b.shape[1] != k or tuple(d.shape) != (m, n) or (c is not None and tuple(c.shape) != (m, n)) or 0 in (m, n, k):
        raise ValueError(f"shapes a {tuple(a.shape)}, b {tuple(b.shape)}, d {tuple(d.shape)}: a is (m, k), b (n, k), c and d (m, n), none empty")
    if not ((a.dtype in HALVES and b.dtype == a.dtype) or (a.dtype in FLOAT8 and b.dtype in FLOAT8)) or d.dtype not in (*HALVES, torch.float32) or (c is not None and c.dtype != d.dtype):
        raise ValueError(f"dtypes a {a.dtype}, b {b.dtype}, d {d.dtype}: a and b both float16, both bfloat16, or float8; c and d float16, bfloat16 or float32, the same")
    if d.stride(1) != 1 or (c is not None and c.stride(1) != 1) or any(1 not in t.stride() for t in (a, b)):
        raise ValueError("a and b are contiguous along one dimension, c and d along n")
    if a.dtype in FLOAT8 and (leading(a), leading(b)) != (1, 1):
        raise ValueError("float8 operands are contiguous along k: wgmma transposes 16-bit types only")
    for name, t in (("a", a), ("b", b), ("c", c), ("d, which C is added to,", None if c is None else d)):
        if t is not None and not aligned(t):
            raise ValueError(f"{name}: TMA needs an address and rows of a multiple of 16 bytes, but a row takes {t.stride(1 - leading(t)) * t.element_size()} bytes: pad the contiguous dimension "
                             f"(k * size % 16 == 0 where it is k)")  # fmt: skip
    if tile[0] not in (64, 128, 256) or tile[1] % 32 or not 32 <= tile[1] <= 256 or tile[0] * tile[1] > 128 * 256 or tile[2] * a.element_size() % 32:
        raise ValueError(f"tile {tile}: m is 64, 128 or 256, n a multiple of 32 up to 256, m * n up to 32768 (the registers of two warpgroups), k a multiple of 32 bytes")
    if cluster[0] * cluster[1] > 8 or any(extent not in (1, 2, 4) for extent in cluster):
        raise ValueError(f"cluster {cluster}: 1, 2 or 4 CTAs along each of m and n, 8 at most")


DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "float32": torch.float32}


def main() -> None:
    """One product, compared with torch in float64, and timed where there is a GPU (on the emulator times are modelled)."""
    parser = argparse.ArgumentParser(description="GEMM for Hopper: D = A @ B^T")
    for name, default in (("m", 512), ("n", 512), ("k", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=list(DTYPES)[:4], default="bfloat16")
    parser.add_argument("--out", choices=["float16", "bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--add", action="store_true", help="add a matrix C")
    parser.add_argument("--tile", type=int, nargs=3)
    parser.add_argument("--cluster", type=int, nargs=2, default=(2, 1))
    options = parser.parse_args()
    m, n, k = options.m, options.n, options.k
    a, b = (torch.randint(-3, 4, shape, device="cuda").to(DTYPES[options.dtype]) for shape in ((m, k), (n, k)))
    d = torch.empty((m, n), dtype=DTYPES[options.out], device="cuda")
    c = torch.randint(-3, 4, (m, n), device="cuda").to(d.dtype) if options.add else None
    gemm(a, b, d, c=c, tile=tuple(options.tile) if options.tile else None, cluster=tuple(options.cluster))
    expected = a.double() @ b.double().t() + (0 if c is None else c.double())
    torch.testing.assert_close(d, expected.to(d.dtype), rtol=0, atol=0)
    print(f"{m} x {n} x {k}, {options.dtype}: equal to torch's, bit for bit")


if __name__ == "__main__":
    main()
