"""Split-K for the Hopper GEMM: a kernel that adds the partial sums, and a GEMM that adds them within a cluster."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.gemm.sm90.mainloop import load_tiles, multiply
from workbench.kernels.gemm.sm90.mma import batch_last, make_fragments, make_loads, make_pipeline
from workbench.kernels.gemm.sm90.scheduler import cluster_tile, count_tiles, split_range, work_range
from workbench.kernels.static import Many, Static, dtype


@cute.kernel
def combine_kernel(cfg: Static, partial: cute.Tensor, operands: Many[cute.Tensor], mD: cute.Tensor):
    """Add the SPLIT_K partial sums of one output per thread and apply the epilogue."""
    tidx, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
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
    """Compute one output tile per cluster; each CTA of the cluster computes one split of k.

    The CTAs exchange their partial sums through distributed shared memory, and each reduces its share of the tile.
    """
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
    # padded against bank conflicts
    stride = (1, cfg.tile_m + 4) if cfg.swap else (cfg.tile_n + 8, 1)
    sums = smem.allocate_tensor(cutlass.Float32, cute.make_layout((cfg.tile_m, cfg.tile_n), stride=stride), 16)
    mainloop_pipeline = make_pipeline(cfg, barriers)
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
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
        multiply_split(cfg, tiled_mma, sA, sB, sums, mainloop_pipeline, schedule, num_k_tiles, cta_k, tidx, warp_idx)
    # each CTA holds the partial sums of its split: each reduces one share of the tile, in a fixed order
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    tile_m, tile_n, batch = cluster_tile(cfg, cluster, rows, columns)
    reduce_share(cfg, sums, operands, mD, (tile_m, tile_n, batch), cta_k, tidx)
    # a CTA must not exit while a peer reads its shared memory
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def multiply_split(
    cfg: Static, tiled_mma, sA, sB, sums, mainloop_pipeline, schedule, num_k_tiles, cta_k, tidx, warp_idx
):
    """Run the mainloop of this CTA's split of k and write the accumulators to shared memory."""
    warp_group, lane = warp_idx // 4 - 1, tidx % 128
    fragments, accumulators, tCcC = make_fragments(cfg, tiled_mma, sA, sB, warp_group, lane)
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, cfg.stages)
    first, last, step = work_range(cfg, schedule)
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


def output_coord(cfg: Static, index):
    """Return (row, column) in the tile of the output with this index."""
    if cutlass.const_expr(cfg.swap):
        return index % cfg.tile_m, index // cfg.tile_m
    return index // cfg.tile_n, index % cfg.tile_n


@cute.jit
def reduce_share(cfg: Static, sums, operands: Many, mD, tile, cta_k, tidx):
    """Reduce this CTA's share of the tile over the shared memories of the cluster, apply the epilogue and store it."""
    m, n, _ = mD.shape
    tile_m, tile_n, batch = tile
    parts = cute.make_rmem_tensor(cute.make_layout((cfg.split_k, cfg.outputs_per_thread)), cutlass.Float32)
    for first in cutlass.range_constexpr(0, cfg.share, cfg.outputs_per_thread * cfg.threads):
        for e in cutlass.range_constexpr(cfg.outputs_per_thread):
            index = cta_k * cfg.share + cutlass.min(first + e * cfg.threads + tidx, cfg.share - 1)
            i, j = output_coord(cfg, index)
            for peer in cutlass.range_constexpr(cfg.split_k):
                own = sums.iterator + cute.crd2idx((i, j), sums.layout)
                address = cute.arch.map_dsmem_ptr(own, cutlass.Int32(peer)).toint()
                source = cute.make_ptr(cutlass.Float32, address, cute.AddressSpace.smem)
                parts[peer, e] = cute.arch.load(source, cutlass.Float32, ss="cluster")
        for e in cutlass.range_constexpr(cfg.outputs_per_thread):
            i, j = output_coord(cfg, cta_k * cfg.share + first + e * cfg.threads + tidx)
            row, column = tile_m * cfg.tile_m + i, tile_n * cfg.tile_n + j
            if first + e * cfg.threads + tidx < cfg.share and row < m and column < n:
                total = cutlass.Float32(0.0)
                for peer in cutlass.range_constexpr(cfg.split_k):
                    total += parts[peer, e]
                if cutlass.const_expr(cfg.epilogue is not None and cfg.swap):
                    # coordinates of the result, whose transpose the kernel computes
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
    """a (batch, m, k), b (batch, n, k), d (batch, m, n); a cluster of SPLIT_K CTAs computes each tile."""
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
