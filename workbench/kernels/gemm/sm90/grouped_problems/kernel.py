"""D_g = A_g @ B_g^T for many problems of different sizes in one launch; the kernel writes their TMA descriptors.

A table has the addresses, sizes and strides of all problems, and how many tiles come before each. Persistent CTAs walk
over the tiles of all problems; a warp that comes to another problem edits a copy of a descriptor in shared memory,
publishes it to global memory, acquires it there, and then issues copies with it. A descriptor must not change under a
copy that still uses it, so each warp has a ring of `stages` + 1 places: when a place comes round again, at least
`stages` later loads have found their stage free.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
from cutlass.tensor_utils import TensorMapManager, TensorMapUpdateMode

from workbench.kernels.gemm.sm90.epilogue import (
    convert_subtile,
    make_smem_copy,
    make_store,
    partition_store,
    wait_for_buffer,
)
from workbench.kernels.gemm.sm90.mainloop import multicast_masks, multiply, partition_load, start_states
from workbench.kernels.gemm.sm90.mma import batch_last, make_fragments, make_loads, make_pipeline
from workbench.kernels.gemm.sm90.scheduler import cluster_tile, count_tiles
from workbench.kernels.static import Static, dtype

MAP_BYTES = 128  # of a TMA descriptor
MAPS = TensorMapManager(TensorMapUpdateMode.SMEM, MAP_BYTES)
# columns of the table
A = 0  # addresses
B = 1
D = 2
M = 3  # sizes
N = 4
K = 5
STRIDE_A = 6  # strides of rows, in elements
STRIDE_B = 7
STRIDE_D = 8
END = 9  # cluster tiles up to the problem's last


@cute.jit
def find_problem(table, tile, problem):
    """Return the problem of a cluster tile; the search starts at `problem`."""
    while cutlass.Int64(tile) >= table[problem, END]:
        problem += 1
    return problem


@cute.jit
def tile_in_problem(cfg: Static, table, problem, tile, cta_m, cta_n):
    """Return (m, n) of this CTA's tile within the problem."""
    first = cutlass.Int32(0)
    if problem > 0:
        first = table[problem - 1, END].to(cutlass.Int32)
    m, n = table[problem, M].to(cutlass.Int32), table[problem, N].to(cutlass.Int32)
    rows, columns = count_tiles(cfg, m, n)
    tile_m, tile_n, _ = cluster_tile(cfg, tile - first, rows, columns)
    return tile_m * cfg.cluster_m + cta_m, tile_n * cfg.cluster_n + cta_n


def count_k_tiles(cfg: Static, table, problem):
    """Return the number of k tiles of a problem."""
    return cute.ceil_div(table[problem, K].to(cutlass.Int32), cfg.tile_k)


def problem_matrix(table, problem, element, columns):
    """(rows, columns, 1) of a problem; `columns`: where the table has its address, rows, columns and stride."""
    address, rows, across, stride = (table[problem, column] for column in columns)
    pointer = cute.make_ptr(element, address, cute.AddressSpace.gmem, assumed_align=16)
    step = cute.assume(stride, divby=128 // element.width)  # TMA's strides are multiples of 16 bytes
    shape = (rows.to(cutlass.Int32), across.to(cutlass.Int32), 1)
    return cute.make_tensor(pointer, cute.make_layout(shape, stride=(step, 1, step)))


def publish(atoms, tensors, drafts, places, warp_idx):
    """Steps 1 to 3, by a whole warp: `drafts` are descriptors in shared memory, `places` where they go."""
    MAPS.update_tensormap(tensors, atoms, places, warp_idx, drafts)
    for place in places:
        MAPS.fence_tensormap_update(place)


def map_at(cfg: Static, places, number, ring, space):
    """Pointer to the global memory of descriptor `number` of this CTA, place `ring` of its ring."""
    x, y, z = cute.arch.block_idx()
    cta = z * (cfg.cluster_m * cfg.cluster_n) + y * cfg.cluster_m + x
    slot = (cta * (2 + cfg.mma_warpgroups) + number) * (cfg.stages + 1) + ring
    return MAPS.get_tensormap_ptr(places[slot, None].iterator, space)


@cute.kernel
def grouped_kernel(
    cfg: Static,
    tma_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_b: cute.CopyAtom,
    mB: cute.Tensor,
    tma_d: cute.CopyAtom,
    mD: cute.Tensor,
    table: cute.Tensor,
    places: cute.Tensor,
    num_tiles: cutlass.Int32,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
    d_smem_layout: cute.ComposedLayout,
):
    """Persistent warp-specialised GEMM over many problems: one producer warp loads by TMA, MMA warpgroups multiply."""
    tidx, _, _ = cute.arch.thread_idx()
    cta_m, cta_n, cluster = cute.arch.block_idx()
    _, _, num_clusters = cute.arch.grid_dim()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, cfg.stages * 2)
    drafts_layout = cute.make_layout((2 + cfg.mma_warpgroups, MAP_BYTES // 8), stride=(MAP_BYTES // 8, 1))
    drafts = smem.allocate_tensor(cutlass.Int64, drafts_layout, MAP_BYTES)
    sA = smem.allocate_tensor(dtype(cfg.element), a_smem_layout.outer, 1024, swizzle=a_smem_layout.inner)
    sB = smem.allocate_tensor(dtype(cfg.element), b_smem_layout.outer, 1024, swizzle=b_smem_layout.inner)
    sD = smem.allocate_tensor(dtype(cfg.result), d_smem_layout.outer, 1024, swizzle=d_smem_layout.inner)
    mainloop_pipeline = make_pipeline(cfg, barriers)
    schedule = (num_tiles, cluster, num_clusters, cta_m, cta_n)
    maps = (drafts, places, table)
    if warp_idx < 4:
        if cutlass.const_expr(cfg.moves_registers):
            cute.arch.setmaxregister_decrease(40)
        if warp_idx == 0:
            gA = cute.local_tile(mA, (cfg.tile_m, cfg.tile_k), (None, None, None))
            gB = cute.local_tile(mB, (cfg.tile_n, cfg.tile_k), (None, None, None))
            load_problems(cfg, mainloop_pipeline, (tma_a, gA, sA), (tma_b, gB, sB), maps, schedule, warp_idx)
    else:
        if cutlass.const_expr(cfg.moves_registers):
            cute.arch.setmaxregister_increase(232)
        multiply_problems(cfg, tiled_mma, (sA, sB, sD), mainloop_pipeline, (tma_d, mD), maps, schedule, tidx, warp_idx)


@cute.jit
def load_problems(cfg: Static, mainloop_pipeline, load_a, load_b, maps, schedule, warp_idx):
    """Run the producer loop: load the k tiles of every output tile of this cluster, problem after problem."""
    num_tiles, cluster, num_clusters, cta_m, cta_n = schedule
    drafts, places, table = maps
    tma_a, tAgA, tAsA = partition_load(load_a, cta_n, cfg.cluster_n)
    tma_b, tBgB, tBsB = partition_load(load_b, cta_m, cfg.cluster_m)
    mask_a, mask_b = multicast_masks(cfg, cta_m, cta_n)
    draft_a, draft_b = drafts[0, None].iterator, drafts[1, None].iterator
    MAPS.init_tensormap_from_atom(tma_a, draft_a, warp_idx)
    MAPS.init_tensormap_from_atom(tma_b, draft_b, warp_idx)
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, cfg.stages)
    problem, last, ring = cutlass.Int32(0), cutlass.Int32(-1), cutlass.Int32(-1)
    for tile in cutlass.range(cluster, num_tiles, num_clusters, unroll=1):
        problem = find_problem(table, tile, problem)
        if problem != last:
            ring = (ring + 1) % (cfg.stages + 1)
            a = problem_matrix(table, problem, dtype(cfg.element), (A, M, K, STRIDE_A))
            b = problem_matrix(table, problem, dtype(cfg.element), (B, N, K, STRIDE_B))
            targets = tuple(map_at(cfg, places, number, ring, cute.AddressSpace.gmem) for number in (0, 1))
            publish((tma_a, tma_b), (a, b), (draft_a, draft_b), targets, warp_idx)
        last = problem
        tile_m, tile_n = tile_in_problem(cfg, table, problem, tile, cta_m, cta_n)
        map_a = map_at(cfg, places, 0, ring, cute.AddressSpace.generic)
        map_b = map_at(cfg, places, 1, ring, cute.AddressSpace.generic)
        for k_tile in cutlass.range(count_k_tiles(cfg, table, problem), unroll=1):
            mainloop_pipeline.producer_acquire(producer_state)
            full, stage = mainloop_pipeline.producer_get_barrier(producer_state), producer_state.index
            source_a, source_b = tAgA[None, tile_m, k_tile, 0], tBgB[None, tile_n, k_tile, 0]
            cute.copy(tma_a, source_a, tAsA[None, stage], tma_bar_ptr=full, mcast_mask=mask_a, tma_desc_ptr=map_a)
            cute.copy(tma_b, source_b, tBsB[None, stage], tma_bar_ptr=full, mcast_mask=mask_b, tma_desc_ptr=map_b)
            producer_state.advance()
    mainloop_pipeline.producer_tail(producer_state)


@cute.jit
def multiply_problems(cfg: Static, tiled_mma, smem, mainloop_pipeline, store, maps, schedule, tidx, warp_idx):
    """Run the consumer loop of one MMA warpgroup over the output tiles of all problems."""
    num_tiles, cluster, num_clusters, cta_m, cta_n = schedule
    drafts, places, table = maps
    sA, sB, sD = smem
    tma_d, mD = store
    warp_group, lane = warp_idx // 4 - 1, tidx % 128
    draft = drafts[2 + warp_group, None].iterator
    if warp_idx % 4 == 0:
        MAPS.init_tensormap_from_atom(tma_d, draft, warp_idx)
    fragments, accumulators, tCcC = make_fragments(cfg, tiled_mma, sA, sB, warp_group, lane)
    states = start_states(cfg, None, warp_group, 0)
    smem_copy = make_smem_copy(cfg, tiled_mma, accumulators, sD, lane)
    tma_copy = (tma_d, *partition_store(cfg, tma_d, mD, sD))
    problem, last, ring = cutlass.Int32(0), cutlass.Int32(-1), cutlass.Int32(-1)
    for tile in cutlass.range(cluster, num_tiles, num_clusters, unroll=1):
        problem = find_problem(table, tile, problem)
        if problem != last:
            ring = (ring + 1) % (cfg.stages + 1)
            if warp_idx % 4 == 0:
                d = problem_matrix(table, problem, dtype(cfg.result), (D, M, N, STRIDE_D))
                place = map_at(cfg, places, 2 + warp_group, ring, cute.AddressSpace.gmem)
                publish((tma_d,), (d,), (draft,), (place,), warp_idx)
        last = problem
        tile_m, tile_n = tile_in_problem(cfg, table, problem, tile, cta_m, cta_n)
        k_count = count_k_tiles(cfg, table, problem)
        states = multiply(cfg, tiled_mma, accumulators, fragments, mainloop_pipeline, states, k_count, None, warp_group)
        map_d = map_at(cfg, places, 2 + warp_group, ring, cute.AddressSpace.generic)
        at = (tile_m * cfg.tile_m + warp_group * cfg.warpgroup_m, tile_n * cfg.tile_n, 0)
        store_tile(cfg, smem_copy, tma_copy, map_d, tCcC, at, mD.shape, warp_idx, warp_group)
    wait_for_buffer(warp_idx, 0)


@cute.jit
def store_tile(cfg: Static, smem_copy, tma_copy, map_d, tCcC, at, shape, warp_idx, warp_group):
    """Store a warpgroup's part of an output tile to d through shared memory, with the problem's own TMA descriptor."""
    tiled_copy_r2s, tRS_rAcc, tRS_rD, tRS_sD = smem_copy
    tma_d, bSG_sD, bSG_gD = tma_copy
    m0, n0, _ = at
    across = cfg.tile_n // cfg.store_n
    for i in cutlass.range_constexpr(cfg.warpgroup_m // 64):
        for j in cutlass.range_constexpr(across):
            buffer = warp_group * cfg.buffers + (i * across + j) % cfg.buffers
            convert_subtile(cfg, tRS_rAcc, tRS_rD, (), (), tCcC, i, j, at, shape)
            wait_for_buffer(warp_idx, cfg.buffers - 1)
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            cute.copy(tiled_copy_r2s, tRS_rD, tRS_sD[None, None, None, buffer])
            cute.arch.fence_proxy("async.shared", space="cta")  # what the threads wrote, TMA will read
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            if warp_idx % 4 == 0:
                with cute.arch.elect_one():
                    target = bSG_gD[None, m0 // 64 + i, n0 // cfg.store_n + j, 0]
                    cute.copy(tma_d, bSG_sD[None, buffer], target, tma_desc_ptr=map_d)
                    cute.arch.cp_async_bulk_commit_group()


@cute.jit
def launch_grouped(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mD: cute.Tensor,
    table: cute.Tensor,
    places: cute.Tensor,
    num_tiles: cutlass.Int32,
    max_clusters: cutlass.Int32,
    stream: cuda.CUstream,
):
    """mA, mB, mD: the first problem's, (1, rows, columns); table (problems, 10) int64; places: see `descriptors`."""
    tiled_mma, a_smem_layout, b_smem_layout, tma_a, tma_mA, tma_b, tma_mB = make_loads(cfg, mA, mB)
    d_smem_layout, tma_d, tma_mD = make_store(cfg, batch_last(mD), True)
    grouped_kernel(
        cfg,
        tma_a,
        tma_mA,
        tma_b,
        tma_mB,
        tma_d,
        tma_mD,
        table,
        places,
        num_tiles,
        tiled_mma,
        a_smem_layout,
        b_smem_layout,
        d_smem_layout,
    ).launch(
        grid=[cfg.cluster_m, cfg.cluster_n, cutlass.min(num_tiles, max_clusters)],
        block=[cfg.threads, 1, 1],
        cluster=[cfg.cluster_m, cfg.cluster_n, 1],
        stream=stream,
    )
