"""Grouped GEMM for Hopper (sm_90a): D_g = A_g @ B_g^T for many problems of different sizes in one launch, as a mixture of experts needs it.

Shapes: A_g (m_g, k_g), B_g (n_g, k_g), D_g (m_g, n_g), all contiguous along their last dimension; dtypes as in `gemm_hopper`, whose tile, pipeline, main loop and epilogue are used here.

What is new is that TMA needs a *descriptor* (tensor map: address, sizes, strides, box) for each tensor, and a launch has room for a few kernel parameters only. So the kernel writes
descriptors itself. The host's table has the addresses, sizes and strides of all problems, and how many tiles come before each. CTAs are persistent and walk over the tiles of all
problems; a warp that comes to a tile of another problem than before

1. edits a copy of a descriptor in shared memory (`tensormap.replace`: address, sizes, strides; box, swizzle and type stay those of the launch's own descriptor),
2. publishes it to global memory, where TMA takes descriptors from (`tensormap.cp_fenceproxy`, a copy that releases to the tensormap proxy),
3. acquires it there (`fence.proxy.tensormap ... acquire`), since TMA has a cache of descriptors that knows nothing of ordinary stores,
4. and only then issues copies with it.

The producer warp does so for A and B, and the first warp of each consumer warpgroup for D, so no warp waits for another one's descriptor.

A descriptor must not change under a copy that still uses it. Each warp has a ring of `stages` + 1 places in global memory: when a place comes round again, at least `stages` later loads
have found their stage free, so the loads with the place's old descriptor have arrived. (Stores are simpler: the warp waits until its stores have been read before it edits.)
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.tensor_utils import LayoutEnum, TensorMapManager, TensorMapUpdateMode

from workbench.examples.gemm_hopper import (
    CONSUMER_REGISTERS,
    DTYPES,
    PRODUCER_REGISTERS,
    WARPGROUP,
    HopperGemm,
    aligned,
    check,
    resident,
    view,
)

MAP_BYTES = 128  # of a TMA descriptor
FIELDS = 10  # of a problem in the table: addresses of A, B, D; m, n, k; row strides of A, B, D in elements; cluster tiles up to its last
MAPS = TensorMapManager(TensorMapUpdateMode.SMEM, MAP_BYTES)
A, B, D, M, N, K, STRIDE_A, STRIDE_B, STRIDE_D, END = range(FIELDS)


class GroupedGemm(HopperGemm):
    """One configuration; see `HopperGemm`."""

    def __init__(self, tile: tuple[int, int, int], cluster: tuple[int, int], swizzle: int) -> None:
        super().__init__(tile, cluster, swizzle, None, True)
        self.maps = 2 + self.consumers  # A, B, and D once for each consumer warpgroup

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, table: cute.Tensor, places: cute.Tensor, tiles: cutlass.Int32, clusters: cutlass.Int32, stream: cuda.CUstream):
        """a, b, d: the first problem's; table (problems, FIELDS) int64; places: int64 of global memory for descriptors (see `places`); `tiles`: cluster tiles of all problems."""
        self.dtype, self.dtype_b, self.dtype_d = a.element_type, b.element_type, d.element_type
        self.plan(a.element_type.width, d.element_type.width)
        mmas, layouts = self.mmas(LayoutEnum.ROW_MAJOR, LayoutEnum.ROW_MAJOR), self.layouts(LayoutEnum.ROW_MAJOR, LayoutEnum.ROW_MAJOR)
        tma_a, tensor_a = self.load_atom(a, layouts[0], (self.tile[0], self.tile[2]), self.cluster[1])
        tma_b, tensor_b = self.load_atom(b, layouts[1], (self.tile[1], self.tile[2]), self.cluster[0])
        tma_d, tensor_d = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), d, cute.slice_(layouts[2], (None, None, 0)), (64, self.columns))
        self.grouped(tma_a, tensor_a, tma_b, tensor_b, tma_d, tensor_d, table, places, tiles, *mmas, *layouts).launch(
            grid=[*self.cluster, cutlass.min(tiles, clusters)], block=[self.threads, 1, 1], cluster=[*self.cluster, 1], stream=stream, min_blocks_per_mp=1
        )

    @cute.jit
    def find(self, table, index, problem):
        """The problem that cluster tile `index` belongs to, searched from `problem` on."""
        while cutlass.Int64(index) >= table[problem, END]:
            problem += 1
        return problem

    @cute.jit
    def tile_of(self, table, problem, index, rank_m, rank_n):
        """(row, column) of this CTA's tile in the problem."""
        first = cutlass.Int32(0)
        if problem > 0:
            first = table[problem - 1, END].to(cutlass.Int32)
        rows = cute.ceil_div(table[problem, M].to(cutlass.Int32), self.tile[0] * self.cluster[0])
        columns = cute.ceil_div(table[problem, N].to(cutlass.Int32), self.tile[1] * self.cluster[1])
        row, column = self.place(index - first, rows, columns)
        return row * self.cluster[0] + rank_m, column * self.cluster[1] + rank_n

    @cute.jit
    def matrix(self, table, problem, dtype, address: cutlass.Constexpr, rows: cutlass.Constexpr, columns: cutlass.Constexpr, stride: cutlass.Constexpr):
        """A matrix of a problem, from these columns of the table."""
        pointer = cute.make_ptr(dtype, table[problem, address], cute.AddressSpace.gmem, assumed_align=16)
        step = cute.assume(table[problem, stride], divby=128 // dtype.width)  # TMA's strides are multiples of 16 bytes
        return cute.make_tensor(pointer, cute.make_layout((table[problem, rows].to(cutlass.Int32), table[problem, columns].to(cutlass.Int32)), stride=(step, 1)))

    def publish(self, atoms, tensors, drafts, places, warp):
        """Steps 1 to 3 of the docstring above, by a whole warp, `warp`: `drafts` are descriptors in shared memory, `places` where they go."""
        MAPS.update_tensormap(tensors, atoms, places, warp, drafts)
        for place in places:
            MAPS.fence_tensormap_update(place)

    def map_at(self, places, number, ring, space=cute.AddressSpace.gmem):
        """Pointer to the global memory of descriptor `number` of this CTA, place `ring` of its ring."""
        cta = cute.arch.block_idx()[2] * (self.cluster[0] * self.cluster[1]) + cute.arch.block_idx()[1] * self.cluster[0] + cute.arch.block_idx()[0]
        here = places[(cta * self.maps + number) * (self.stages + 1) + ring, None].iterator
        return MAPS.get_tensormap_ptr(here, space)

    @cute.kernel
    def grouped(self, tma_a: cute.CopyAtom, a: cute.Tensor, tma_b: cute.CopyAtom, b: cute.Tensor, tma_d: cute.CopyAtom, d: cute.Tensor, table: cute.Tensor, places: cute.Tensor, tiles: cutlass.Int32,
                first_mma: cute.TiledMma, tiled_mma: cute.TiledMma, one_mma: cute.TiledMma, layout_a: cute.ComposedLayout, layout_b: cute.ComposedLayout, layout_d: cute.ComposedLayout):  # fmt: skip
        thread, _, _ = cute.arch.thread_idx()
        rank_m, rank_n, cluster = cute.arch.block_idx()
        _, _, clusters = cute.arch.grid_dim()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = cutlass.memory.SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, self.stages * 2)
        drafts = memory.allocate_tensor(cutlass.Int64, cute.make_layout((self.maps, MAP_BYTES // 8), stride=(MAP_BYTES // 8, 1)), MAP_BYTES)
        shared_a = memory.allocate_tensor(self.dtype, layout_a.outer, 1024, swizzle=layout_a.inner)
        shared_b = memory.allocate_tensor(self.dtype, layout_b.outer, 1024, swizzle=layout_b.inner)
        shared_d = memory.allocate_tensor(self.dtype_d, layout_d.outer, 1024, swizzle=layout_d.inner)
        pipe = self.pipe(barriers)
        pipeline.pipeline_init_arrive(self.cluster, is_relaxed=True)
        (into_a, from_a), (into_b, from_b) = self.partition(tma_a, a, shared_a, tma_b, b, shared_b, rank_m, rank_n)
        pipeline.pipeline_init_wait(self.cluster)
        problem, last, ring = cutlass.Int32(0), cutlass.Int32(-1), cutlass.Int32(-1)
        if warp < 4:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            if warp == 0:
                draft_a, draft_b = drafts[0, None].iterator, drafts[1, None].iterator
                MAPS.init_tensormap_from_atom(tma_a, draft_a, warp)
                MAPS.init_tensormap_from_atom(tma_b, draft_b, warp)
                mask_a, mask_b = self.masks(rank_m, rank_n)
                writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                for index in cutlass.range(cluster, tiles, clusters, unroll=1):
                    problem = self.find(table, index, problem)
                    if problem != last:
                        ring = (ring + 1) % (self.stages + 1)
                        matrix_a, matrix_b = self.matrix(table, problem, self.dtype, A, M, K, STRIDE_A), self.matrix(table, problem, self.dtype_b, B, N, K, STRIDE_B)
                        self.publish((tma_a, tma_b), (matrix_a, matrix_b), (draft_a, draft_b), (self.map_at(places, 0, ring), self.map_at(places, 1, ring)), warp)
                    last = problem
                    row, column = self.tile_of(table, problem, index, rank_m, rank_n)
                    map_a, map_b = self.map_at(places, 0, ring, cute.AddressSpace.generic), self.map_at(places, 1, ring, cute.AddressSpace.generic)
                    for step in cutlass.range(cute.ceil_div(table[problem, K].to(cutlass.Int32), self.tile[2]), unroll=1):
                        pipe.producer_acquire(writing)
                        full = pipe.producer_get_barrier(writing)
                        cute.copy(tma_a, from_a[None, row, step], into_a[None, writing.index], tma_bar_ptr=full, mcast_mask=mask_a, tma_desc_ptr=map_a)
                        cute.copy(tma_b, from_b[None, column, step], into_b[None, writing.index], tma_bar_ptr=full, mcast_mask=mask_b, tma_desc_ptr=map_b)
                        writing.advance()
                pipe.producer_tail(writing)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            group = warp // 4 - 1
            draft = drafts[2 + group, None].iterator
            if warp % 4 == 0:
                MAPS.init_tensormap_from_atom(tma_d, draft, warp)
            mine = tiled_mma.get_slice(group * WARPGROUP)
            part_a = tiled_mma.make_fragment_A(mine.partition_A(shared_a))
            part_b = tiled_mma.make_fragment_B(mine.partition_B(shared_b))
            sums = cute.make_rmem_tensor(tiled_mma.partition_shape_C(self.tile[:2]), cutlass.Float32)
            first_mma.set(warpgroup.Field.ACCUMULATE, False)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            releasing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            written = cutlass.Int32(0)
            for index in cutlass.range(cluster, tiles, clusters, unroll=1):
                problem = self.find(table, index, problem)
                if problem != last:
                    ring = (ring + 1) % (self.stages + 1)
                    if warp % 4 == 0:
                        self.publish((tma_d,), (self.matrix(table, problem, self.dtype_d, D, M, N, STRIDE_D),), (draft,), (self.map_at(places, 2 + group, ring),), warp)
                last = problem
                row, column = self.tile_of(table, problem, index, rank_m, rank_n)
                steps = cute.ceil_div(table[problem, K].to(cutlass.Int32), self.tile[2])
                reading, releasing = self.multiply(first_mma, tiled_mma, sums, part_a, part_b, pipe, reading, releasing, steps)
                map_d = self.map_at(places, 2 + group, ring, cute.AddressSpace.generic)
                self.store(one_mma, sums, None, None, tma_d, d, shared_d, None, row, column, group, thread % WARPGROUP, written, map_d)
                written += self.subtiles
            if warp % 4 == 0:
                cute.arch.cp_async_bulk_wait_group(0)


COMPILED: dict[Any, Any] = {}


def prepare(problems: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], *, tile: tuple[int, int, int] | None = None, cluster: tuple[int, int] = (2, 1), swizzle: int = 8,
            max_clusters: int | None = None) -> Callable[[], None]:  # fmt: skip
    """A function that computes d = a @ b.T for every (a, b, d), on the CUDA stream that is then current; table, compiled kernel and descriptors' memory are made here.
    One launch of it at a time, since the descriptors' memory is its own.

    a (m, k), b (n, k), d (m, n), contiguous along the last dimension; all a and b of one dtype, all d of one. `max_clusters`: no more than these, for tests. Raises ValueError for what TMA
    does not take: an address or a row that is no multiple of 16 bytes (k * size % 16 == 0 and n * size of D % 16 == 0 where rows follow one another).
    """
    a, b, d = problems[0]
    tile = tile or (128, 256, 128 // a.element_size())
    for one in problems:
        check(*one[:2], None, one[2], tile, cluster)
        if any(t.dtype != like.dtype or t.stride(1) != 1 or not aligned(t) for t, like in zip(one, problems[0], strict=True)):
            raise ValueError("every problem has the first one's dtypes and is contiguous along the last dimension, with rows of a multiple of 16 bytes, D too")
    rows, total = [], 0
    for x, y, z in problems:
        total += -(-x.shape[0] // (tile[0] * cluster[0])) * -(-y.shape[0] // (tile[1] * cluster[1]))
        rows.append([x.data_ptr(), y.data_ptr(), z.data_ptr(), *x.shape[:1], *y.shape, x.stride(0), y.stride(0), z.stride(0), total])
    size = cluster[0] * cluster[1]
    clusters = min(max_clusters or 1 << 16, resident(size))
    table = torch.tensor(rows, dtype=torch.int64).to(a.device)
    places = descriptors(min(total, clusters) * size * 4 * 9, a.device)  # of 4 kinds for each CTA, 8 stages + 1 of each at most
    operands = [*(view(t, 1) for t in problems[0]), from_dlpack(table).mark_layout_dynamic(leading_dim=1), from_dlpack(places, assumed_align=MAP_BYTES).mark_layout_dynamic(leading_dim=1),
                cutlass.Int32(total), cutlass.Int32(clusters)]  # fmt: skip
    key = (a.dtype, b.dtype, d.dtype, tile, cluster, swizzle)
    if key not in COMPILED:
        COMPILED[key] = cute.compile(GroupedGemm(tile, cluster, swizzle), *operands, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
    compiled, held = COMPILED[key], (problems, table, places)

    def launch() -> None:
        assert held  # the tensors live as long as this function
        compiled(*operands, cuda.CUstream(torch.cuda.current_stream().cuda_stream))

    return launch


def descriptors(count: int, device: torch.device) -> torch.Tensor:
    """Memory for descriptors, (count, 16) int64, aligned to 128 bytes."""
    words = MAP_BYTES // 8
    raw = torch.zeros((count + 1) * words, dtype=torch.int64, device=device)
    skip = -raw.data_ptr() // 8 % words
    return raw[skip : skip + count * words].view(count, words)


def grouped_gemm(problems: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], **options: Any) -> None:
    """d = a @ b.T for every (a, b, d) in one launch; `options` as for `prepare`, which is the one to use where the same tensors come again."""
    prepare(problems, **options)()


def main() -> None:
    """A few problems of different sizes, compared with torch in float64."""
    parser = argparse.ArgumentParser(description="Grouped GEMM for Hopper")
    parser.add_argument("--problems", type=int, default=4)
    parser.add_argument("--size", type=int, default=128, help="problem i has m, n and k near (i + 1) times this")
    parser.add_argument("--dtype", choices=list(DTYPES)[:4], default="bfloat16")
    options = parser.parse_args()
    problems = []
    for number in range(1, options.problems + 1):
        m, n, k = number * options.size - 3, number * options.size + 8, number * options.size // 2 + 16
        a, b = (torch.randint(-3, 4, shape, device="cuda").to(DTYPES[options.dtype]) for shape in ((m, k), (n, k)))
        problems.append((a, b, torch.empty((m, n), dtype=torch.bfloat16, device="cuda")))
    grouped_gemm(problems)
    for a, b, d in problems:
        torch.testing.assert_close(d, (a.double() @ b.double().t()).to(d.dtype), rtol=0, atol=0)
    print(f"{len(problems)} problems in one launch: equal to torch's, bit for bit")


if __name__ == "__main__":
    main()
