"""Convolution with halos by wgmma: A (chunks, positions, 16 bytes), B (tiles, stages, 16 bytes) -> y (n, k, z, p, q).

An implicit GEMM whose tile of the input is loaded once, with the positions that its taps read beyond it, and serves
every tap of a stage: the operand of a tap starts a few rows further on in shared memory.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import pipeline
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup

from workbench.kernels.conv.epilogue import allocate_results
from workbench.kernels.conv.halo.consumer import compute_halos
from workbench.kernels.conv.halo.producer import load_halos
from workbench.kernels.conv.halo.tiles import count_halo_tiles
from workbench.kernels.gemm.sm90.mma import MmaTF32Op
from workbench.kernels.static import Many, Static, dtype


def make_halo_mma(cfg: Static):
    """Return the tiled wgmma of one warpgroup: 64 x tile_n with float32 accumulators."""
    source, major = warpgroup.OperandSource.SMEM, OperandMajorMode.K
    if cutlass.const_expr(cfg.element == "tf32"):
        mma_op = MmaTF32Op(cutlass.TFloat32, cutlass.Float32, (64, cfg.tile_n, 8), source, major, major)
        return cute.make_tiled_mma(cute.make_mma_atom(mma_op), (1, 1, 1))
    shape = (64, cfg.tile_n, 16)
    mma_op = warpgroup.MmaF16BF16Op(dtype(cfg.element), cutlass.Float32, shape, source, major, major)
    return cute.make_tiled_mma(cute.make_mma_atom(mma_op), (1, 1, 1))


def make_halo_pipeline(cfg: Static, barriers, plan):
    """Return the pipeline between the producer warp and the MMA warpgroups."""
    warps = 4 if cutlass.const_expr(cfg.pingpong) else 8
    return pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=plan.stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, warps),
        tx_count=(plan.patch + plan.taps * cfg.tile_n) * cfg.tile_k * dtype(cfg.element).width // 8,
    )


@cute.kernel
def conv_halo_kernel(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    sizes: cute.IntTuple,
    tiled_mma: cute.TiledMma,
    plan: cutlass.Constexpr,
):
    """Persistent warp-specialised implicit GEMM; `sizes`: images, filters, groups of channels, positions of A."""
    tidx, _, _ = cute.arch.thread_idx()
    first_work, _, _ = cute.arch.block_idx()
    work_stride, _, _ = cute.arch.grid_dim()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, plan.stages * 2)
    if cutlass.const_expr(cfg.pingpong):  # whose turn the mainloop is
        turn_barriers = smem.allocate_array(cutlass.Int64, 2)
        if tidx < 2:
            cute.arch.mbarrier_init(turn_barriers + tidx, 128)
    a_layout = cute.make_layout((plan.patch * cfg.chunk, cfg.tile_k // cfg.chunk, plan.stages))
    sA = smem.allocate_tensor(dtype(cfg.element), a_layout, 128)
    b_layout = cute.make_layout((plan.taps * cfg.tile_n * cfg.tile_k, plan.stages))
    sB = smem.allocate_tensor(dtype(cfg.element), b_layout, 128)
    sC = allocate_results(cfg, smem, 2)
    mainloop_pipeline = make_halo_pipeline(cfg, barriers, plan)
    images, filters, blocks, positions = sizes
    tiles_m, tiles_n = count_halo_tiles(cfg, images, filters, plan)
    works = (first_work, tiles_m * tiles_n, work_stride)
    if warp_idx < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp_idx == 0:
            load_halos(cfg, mA, mB, (sA, sB), mainloop_pipeline, works, (tiles_n, blocks, positions), tidx, plan)
    else:
        cute.arch.setmaxregister_increase(232)
        pipelines = (mainloop_pipeline, turn_barriers) if cutlass.const_expr(cfg.pingpong) else (mainloop_pipeline,)
        own = (images, filters, tiles_n, plan.steps * blocks)
        compute_halos(cfg, tiled_mma, (sA, sB, sC), operands, mY, pipelines, works, own, (warp_idx, tidx), plan)


@cute.jit
def conv_halo(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many,
    mY: cute.Tensor,
    sizes: cute.IntTuple,
    stream: cuda.CUstream,
    max_active_clusters: cutlass.Constexpr,
    plan: cutlass.Constexpr,
):
    """A and B as packed for `plan`, flat; y (n, k, z, p, q)."""
    tiles_m, tiles_n = count_halo_tiles(cfg, sizes[0], sizes[1], plan)
    conv_halo_kernel(cfg, mA, mB, operands, mY, sizes, make_halo_mma(cfg), plan).launch(
        grid=[cutlass.min(tiles_m * tiles_n, max_active_clusters), 1, 1],
        block=[cfg.threads, 1, 1],
        stream=stream,
    )
