"""Parts of k of a Hopper product: a kernel that adds them, and one that adds them within a cluster."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.gemm.sm90.mainloop import load_tiles, multiply
from workbench.kernels.gemm.sm90.mma import batch_last, make_fragments, make_loads, make_pipeline
from workbench.kernels.gemm.sm90.scheduler import cluster_tile, count_tiles, item_range, split_range
from workbench.kernels.static import Many, Static, dtype


@cute.kernel
def combine_kernel(cfg: Static, partial: cute.Tensor, operands: Many[cute.Tensor], mD: cute.Tensor):
    """One output per thread: the sum of its SPLIT_K partial sums."""
    tidx, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cutlass.const_expr(cfg.pdl):
        # what the kernel before this one wrote can be read from here on; the next one may start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    batches, m, n = mD.shape
    index = cta * 256 + tidx
    row, column, batch = index // n % m, index % n, index // n // m
    if batch < batches:
        total = cutlass.Float32(0.0)
        for split in cutlass.range_constexpr(cfg.split_k):
            total += partial[batch * cfg.split_k + split, row, column]
        if cutlass.const_expr(cfg.epilogue is not None):
            total = cfg.epilogue(total, operands, batch, row, column)
        mD[batch, row, column] = total.to(mD.element_type)


@cute.jit
def launch_combine(
    cfg: Static, partial: cute.Tensor, operands: Many[cute.Tensor], mD: cute.Tensor, stream: cuda.CUstream
):
    """partial (batch * SPLIT_K, m, n) -> d (batch, m, n)."""
    combine_kernel(cfg, partial, operands, mD).launch(
        grid=[(cute.size(mD) + 255) // 256, 1, 1], block=[256, 1, 1], stream=stream, use_pdl=cfg.pdl
    )


@cute.kernel
def gemm_kernel(
    cfg: Static,
    tma_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_b: cute.CopyAtom,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
):
    """A cluster for each tile, whose CTAs have a part of k each: one warp loads, warpgroups multiply, all add up."""
    tidx, _, _ = cute.arch.thread_idx()
    cta_k, _, cluster = cute.arch.block_idx()
    _, _, num_clusters = cute.arch.grid_dim()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp_idx == 0:
        cpasync.prefetch_descriptor(tma_a)
        cpasync.prefetch_descriptor(tma_b)
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, cfg.stages * 2)
    sA = smem.allocate_tensor(dtype(cfg.element), a_smem_layout.outer, 1024, swizzle=a_smem_layout.inner)
    sB = smem.allocate_tensor(dtype(cfg.element), b_smem_layout.outer, 1024, swizzle=b_smem_layout.inner)
    # padded, so that the rows of a fragment fall into different banks
    stride = (1, cfg.tile_m + 4) if cfg.swap else (cfg.tile_n + 8, 1)
    sums = smem.allocate_tensor(cutlass.Float32, cute.make_layout((cfg.tile_m, cfg.tile_n), stride=stride), 16)
    mainloop_pipeline = make_pipeline(cfg, barriers)
    if cutlass.const_expr(cfg.pdl):
        # what the kernel before this one wrote can be read from here on; the next one may start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    m, n, batches = mD.shape
    rows, columns = count_tiles(cfg, m, n)
    num_tiles = rows * columns * batches
    gA = cute.local_tile(mA, (cfg.tile_m, cfg.tile_k), (None, None, None))
    gB = cute.local_tile(mB, (cfg.tile_n, cfg.tile_k), (None, None, None))
    num_k_tiles = cute.size(gA, mode=[3])
    schedule = (rows, columns, num_tiles, cluster, num_clusters)
    if warp_idx < 4:
        if warp_idx == 0:
            load_a, load_b = (tma_a, gA, sA), (tma_b, gB, sB)
            load_tiles(cfg, mainloop_pipeline, load_a, load_b, schedule, num_k_tiles, 0, 0, cta_k)
    else:
        multiply_part(cfg, tiled_mma, sA, sB, sums, mainloop_pipeline, schedule, num_k_tiles, cta_k, tidx, warp_idx)
    # the CTAs of a cluster have a part of k each: every one adds up its share of the tile, always in the same order
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    tile_m, tile_n, batch = cluster_tile(cfg, cluster, rows, columns)
    add_share(cfg, sums, operands, mD, (tile_m, tile_n, batch), cta_k, tidx)
    # nobody leaves while another one reads its sums
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def multiply_part(
    cfg: Static, tiled_mma, sA, sB, sums, mainloop_pipeline, schedule, num_k_tiles, cta_k, tidx, warp_idx
):
    """A CTA's part of k of a tile, into its shared memory."""
    warp_group, lane = warp_idx // 4 - 1, tidx % 128
    fragments, accumulators, tCcC = make_fragments(cfg, tiled_mma, sA, sB, warp_group, lane)
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    first, last, step = item_range(cfg, schedule)
    for _ in cutlass.range(first, last, step, unroll=1):
        _, k_count = split_range(cfg, cta_k, num_k_tiles)
        read_state, release_state = multiply(
            cfg,
            tiled_mma,
            accumulators,
            fragments,
            mainloop_pipeline,
            (read_state, release_state),
            k_count,
            None,
            warp_group,
        )
        for e in cutlass.range_constexpr(cute.size(accumulators)):
            sums[warp_group * cfg.warpgroup_m + tCcC[e][0], tCcC[e][1]] = accumulators[e]


def output_place(cfg: Static, index):
    """(row, column) in the tile of an output by its number."""
    if cutlass.const_expr(cfg.swap):
        return index % cfg.tile_m, index // cfg.tile_m
    return index // cfg.tile_n, index % cfg.tile_n


@cute.jit
def add_share(cfg: Static, sums, operands: Many, mD, tile, cta_k, tidx):
    """Add up this CTA's share of the tile out of the shared memories of all, and bring it through the epilogue."""
    m, n, _ = mD.shape
    tile_m, tile_n, batch = tile
    parts = cute.make_rmem_tensor(cute.make_layout((cfg.split_k, cfg.outputs_per_thread)), cutlass.Float32)
    for first in cutlass.range_constexpr(0, cfg.share, cfg.outputs_per_thread * cfg.threads):
        for e in cutlass.range_constexpr(cfg.outputs_per_thread):
            index = cta_k * cfg.share + cutlass.min(first + e * cfg.threads + tidx, cfg.share - 1)
            i, j = output_place(cfg, index)
            for peer in cutlass.range_constexpr(cfg.split_k):
                own = sums.iterator + cute.crd2idx((i, j), sums.layout)
                address = cute.arch.map_dsmem_ptr(own, cutlass.Int32(peer)).toint()
                source = cute.make_ptr(cutlass.Float32, address, cute.AddressSpace.smem)
                parts[peer, e] = cute.arch.load(source, cutlass.Float32, ss="cluster")
        for e in cutlass.range_constexpr(cfg.outputs_per_thread):
            i, j = output_place(cfg, cta_k * cfg.share + first + e * cfg.threads + tidx)
            row, column = tile_m * cfg.tile_m + i, tile_n * cfg.tile_n + j
            if first + e * cfg.threads + tidx < cfg.share and row < m and column < n:
                total = cutlass.Float32(0.0)
                for peer in cutlass.range_constexpr(cfg.split_k):
                    total += parts[peer, e]
                if cutlass.const_expr(cfg.epilogue is not None and cfg.swap):
                    # of the result, which the kernel computes transposed
                    total = cfg.epilogue(total, operands, batch, column, row)
                elif cutlass.const_expr(cfg.epilogue is not None):
                    total = cfg.epilogue(total, operands, batch, row, column)
                mD[row, column, batch] = total.to(mD.element_type)


@cute.jit
def launch_cluster_split(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    stream: cuda.CUstream,
):
    """a (batch, m, k), b (batch, n, k), d (batch, m, n); SPLIT_K CTAs share a tile."""
    tiled_mma, a_smem_layout, b_smem_layout, tma_a, mA, tma_b, mB = make_loads(cfg, mA, mB)
    mD = batch_last(mD)
    m, n, batches = mD.shape
    rows, columns = count_tiles(cfg, m, n)
    gemm_kernel(cfg, tma_a, mA, tma_b, mB, operands, mD, tiled_mma, a_smem_layout, b_smem_layout).launch(
        grid=[cfg.split_k, 1, rows * columns * batches],
        block=[cfg.threads, 1, 1],
        cluster=[cfg.split_k, 1, 1],
        stream=stream,
        use_pdl=cfg.pdl,
    )
