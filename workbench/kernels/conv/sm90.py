"""Implicit GEMM by TMA and wgmma: A (positions, channels), B (k, taps * channels) -> y (n, k, z, p, q).

The A tile of a tap is the tile of the output positions, shifted by a fixed number of rows. So no im2col matrix is
built, and strides, dilations and transposed convolutions differ only in the table of taps. A has a few more positions
than the output, under the overhang of the filter; they are computed and not stored.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass import pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.tensor_utils import LayoutEnum

from workbench.kernels.conv.epilogue import allocate_results
from workbench.kernels.conv.sm90_consumer import compute_tiles
from workbench.kernels.conv.sm90_producer import load_tiles
from workbench.kernels.gemm.sm90.mma import MmaTF32Op
from workbench.kernels.static import Many, Static, dtype


def make_mma(cfg: Static, mA, mB):
    """Return the tiled wgmma of one warpgroup: 64 x tile_n with float32 accumulators."""
    if cutlass.const_expr(cfg.element == "tf32"):
        source, major = warpgroup.OperandSource.SMEM, OperandMajorMode.K
        mma_op = MmaTF32Op(cutlass.TFloat32, cutlass.Float32, (64, cfg.tile_n, 8), source, major, major)
        return cute.make_tiled_mma(cute.make_mma_atom(mma_op), (1, 1, 1))
    return sm90_utils.make_trivial_tiled_mma(
        dtype(cfg.element),
        dtype(cfg.element),
        LayoutEnum.from_tensor(mA).sm90_mma_major_mode(),
        LayoutEnum.from_tensor(mB).sm90_mma_major_mode(),
        cutlass.Float32,
        (1, 1, 1),
        tiler_mn=(64, cfg.tile_n),
    )


def make_pipeline(cfg: Static, barriers):
    """Return the TMA mainloop pipeline between the producer warp and the MMA warpgroups."""
    # each MMA warp arrives at the empty barriers of all CTAs that multicast to it
    warps = 4 if cutlass.const_expr(cfg.pingpong) else 4 * cfg.warpgroups
    return pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=cfg.stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, warps * cfg.cluster),
        tx_count=(cfg.tile_m + cfg.tile_n) * cfg.tile_k * dtype(cfg.element).width // 8,
        cta_layout_vmnk=cute.make_layout((1, cfg.cluster, 1, 1)),
    )


@cute.kernel
def conv_sm90_kernel(
    cfg: Static,
    tma_atom_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_atom_b: cute.CopyAtom,
    mB: cute.Tensor,
    taps: cute.Tensor,
    phases: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    grid: cute.IntTuple,
    scale: cute.IntTuple,
    sizes: cute.IntTuple,
    tiled_mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
):
    """Persistent warp-specialised implicit GEMM: a producer warp loads by TMA, MMA warpgroups multiply and store."""
    tidx, _, _ = cute.arch.thread_idx()
    cta_rank, _, first_work = cute.arch.block_idx()
    _, _, work_stride = cute.arch.grid_dim()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp_idx == 0:
        cpasync.prefetch_descriptor(tma_atom_a)
        cpasync.prefetch_descriptor(tma_atom_b)
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, cfg.stages * 2)
    if cutlass.const_expr(cfg.pingpong):  # ping-pong: whose turn the mainloop is
        turn_barriers = smem.allocate_array(cutlass.Int64, cfg.warpgroups)
        if tidx < cfg.warpgroups:
            cute.arch.mbarrier_init(turn_barriers + tidx, 128)
    sA = smem.allocate_tensor(dtype(cfg.element), layout_a.outer, 1024, swizzle=layout_a.inner)
    sB = smem.allocate_tensor(dtype(cfg.element), layout_b.outer, 1024, swizzle=layout_b.inner)
    sC = allocate_results(cfg, smem, cfg.warpgroups)
    mainloop_pipeline = make_pipeline(cfg, barriers)
    _, filters, blocks = sizes
    images, grid0, grid1, grid2 = grid
    tiles_m = (images * grid0 * grid1 * grid2 + cfg.tile_m * cfg.cluster - 1) // (cfg.tile_m * cfg.cluster)
    tiles_n = (filters + cfg.tile_n - 1) // cfg.tile_n
    num_works = tiles_m * tiles_n * phases.shape[0] * blocks
    works, tiles = (first_work, num_works, work_stride), (tiles_m, tiles_n)
    if warp_idx < 4:
        if cutlass.const_expr(cfg.warpgroups > 1):
            cute.arch.setmaxregister_decrease(40)
        if warp_idx == 0:
            load_a, load_b = (tma_atom_a, mA, sA), (tma_atom_b, mB, sB)
            load_tiles(cfg, load_a, load_b, taps, phases, mainloop_pipeline, works, tiles, sizes, cta_rank)
    else:
        if cutlass.const_expr(cfg.warpgroups > 1):
            cute.arch.setmaxregister_increase(232)
        buffers = (sA, sB, sC)
        pipelines = (mainloop_pipeline, turn_barriers) if cutlass.const_expr(cfg.pingpong) else (mainloop_pipeline,)
        indices = (cta_rank, warp_idx, tidx)
        compute_tiles(
            cfg,
            tiled_mma,
            buffers,
            phases,
            operands,
            mY,
            pipelines,
            works,
            tiles,
            (grid, scale, sizes),
            indices,
        )


@cute.jit
def conv_sm90(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    taps: cute.Tensor,
    phases: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    grid: cute.IntTuple,
    scale: cute.IntTuple,
    sizes: cute.IntTuple,
    stream: cuda.CUstream,
    max_active_clusters: cutlass.Constexpr,
):
    """A (positions, channels), B (k, taps * channels), y (n, k, z, p, q)."""
    if cutlass.const_expr(cfg.element == "tf32"):  # TMA rounds float32 to tf32
        mA, mB = cute.recast_tensor(mA, cutlass.TFloat32), cute.recast_tensor(mB, cutlass.TFloat32)
    tile = (cfg.tile_m, cfg.tile_n, cfg.tile_k)
    tiled_mma = make_mma(cfg, mA, mB)
    layout_a = sm90_utils.make_smem_layout_a(LayoutEnum.from_tensor(mA), tile, dtype(cfg.element), cfg.stages)
    layout_b = sm90_utils.make_smem_layout_b(LayoutEnum.from_tensor(mB), tile, dtype(cfg.element), cfg.stages)
    tma_atom_a, tma_tensor_a = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), mA, cute.slice_(layout_a, (None, None, 0)), (cfg.tile_m, cfg.tile_k)
    )
    if cutlass.const_expr(cfg.cluster > 1):
        load_op = cpasync.CopyBulkTensorTileG2SMulticastOp()
    else:
        load_op = cpasync.CopyBulkTensorTileG2SOp()
    tma_atom_b, tma_tensor_b = cpasync.make_tiled_tma_atom(
        load_op, mB, cute.slice_(layout_b, (None, None, 0)), (cfg.tile_n, cfg.tile_k), num_multicast=cfg.cluster
    )
    images, grid0, grid1, grid2 = grid
    _, filters, blocks = sizes
    tiles_m = (images * grid0 * grid1 * grid2 + cfg.tile_m * cfg.cluster - 1) // (cfg.tile_m * cfg.cluster)
    tiles_n = (filters + cfg.tile_n - 1) // cfg.tile_n
    num_works = tiles_m * tiles_n * phases.shape[0] * blocks
    conv_sm90_kernel(
        cfg,
        tma_atom_a,
        tma_tensor_a,
        tma_atom_b,
        tma_tensor_b,
        taps,
        phases,
        operands,
        mY,
        grid,
        scale,
        sizes,
        tiled_mma,
        layout_a,
        layout_b,
    ).launch(
        grid=[cfg.cluster, 1, cutlass.min(num_works, max_active_clusters)],
        block=[cfg.threads, 1, 1],
        cluster=[cfg.cluster, 1, 1],
        stream=stream,
    )
