"""wgmma setup of the Hopper GEMM: tiled MMA, TMA loads, mainloop pipeline, fragments of a warpgroup."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.tensor_utils import LayoutEnum

from workbench.kernels.static import Static, dtype


class MmaTF32Op(warpgroup.MmaF16BF16Op):
    """wgmma m64nNk8 on TF32. CuTe DSL 4.8 has no class for it, but its compiler supports it. Operands are K-major."""

    def _verify(self):
        pass


def make_tiled_mma(cfg: Static, a_layout, b_layout):
    """Return the tiled wgmma of one warpgroup: 64 x tile_n with float32 accumulators."""
    if cutlass.const_expr(cfg.is_tf32):
        source = warpgroup.OperandSource.RMEM if cfg.a_in_registers else warpgroup.OperandSource.SMEM
        shape = (64, cfg.tile_n, 8)
        operation = MmaTF32Op(
            dtype(cfg.element), cutlass.Float32, shape, source, OperandMajorMode.K, OperandMajorMode.K
        )
        return cute.make_tiled_mma(cute.make_mma_atom(operation), (1, 1, 1))
    return sm90.make_trivial_tiled_mma(
        dtype(cfg.element),
        dtype(cfg.element),
        a_layout.sm90_mma_major_mode(),
        b_layout.sm90_mma_major_mode(),
        cutlass.Float32,
        (1, 1, 1),
        tiler_mn=(64, cfg.tile_n),
    )


def batch_last(tensor):
    """Permute (batch, rows, columns) to (rows, columns, batch)."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[1, 2, 0]))


def make_loads(cfg: Static, a, b):
    """Return the tiled MMA, the staged shared memory layouts, and the TMA atoms and tensors of a and b.

    a is (batch, m, k), b (batch, n, k).
    """
    a, b = batch_last(a), batch_last(b)
    if cutlass.const_expr(cfg.along_k):
        a, b = cute.recast_tensor(a, dtype(cfg.element)), cute.recast_tensor(b, dtype(cfg.element))
    tile = (cfg.tile_m, cfg.tile_n, cfg.tile_k)
    a_layout, b_layout = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    tiled_mma = make_tiled_mma(cfg, a_layout, b_layout)
    a_smem_layout = sm90.make_smem_layout_a(a_layout, tile, dtype(cfg.element), cfg.stages)
    b_smem_layout = sm90.make_smem_layout_b(b_layout, tile, dtype(cfg.element), cfg.stages)
    tma_a, mA = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp() if cfg.cluster_n > 1 else cpasync.CopyBulkTensorTileG2SOp(),
        a,
        cute.slice_(a_smem_layout, (None, None, 0)),
        (cfg.tile_m, cfg.tile_k),
        num_multicast=cfg.cluster_n,
    )
    tma_b, mB = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp() if cfg.cluster_m > 1 else cpasync.CopyBulkTensorTileG2SOp(),
        b,
        cute.slice_(b_smem_layout, (None, None, 0)),
        (cfg.tile_n, cfg.tile_k),
        num_multicast=cfg.cluster_m,
    )
    return tiled_mma, a_smem_layout, b_smem_layout, tma_a, mA, tma_b, mB


def make_pipeline(cfg: Static, barriers):
    """Return the TMA mainloop pipeline over the mbarriers of all stages.

    A full barrier completes when all bytes of the stage have arrived, an empty barrier when all consumers released it.
    """
    arrivals = 4 if cfg.is_pingpong else 4 * cfg.mma_warpgroups
    return pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=cfg.stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # each MMA warp arrives at the empty barriers of all CTAs that multicast to it
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, arrivals * (cfg.cluster_m + cfg.cluster_n - 1)),
        tx_count=(cfg.tile_m + cfg.tile_n) * cfg.tile_k * dtype(cfg.element).width // 8,
        cta_layout_vmnk=cute.make_layout((1, cfg.cluster_m, cfg.cluster_n, cfg.split_k if cfg.in_cluster else 1)),
    )


def make_fragments(cfg: Static, tiled_mma, sA, sB, warp_group, lane):
    """Return (wgmma operand fragments, accumulators, coordinates of the accumulators in the warpgroup's tile)."""
    if cutlass.const_expr(not cfg.is_pingpong):
        # rows of this warpgroup
        sA = cute.local_tile(sA, (cfg.warpgroup_m, cfg.tile_k, cfg.stages), (warp_group, 0, 0))
    thr_mma = tiled_mma.get_slice(0)
    if cutlass.const_expr(cfg.a_in_registers):
        tCsA = tiled_mma.get_slice(lane).partition_A(sA)
        tCrA = tiled_mma.make_fragment_A(tCsA[None, None, None, 0].shape)
    else:
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
    accumulators = cute.make_rmem_tensor(tiled_mma.partition_shape_C((cfg.warpgroup_m, cfg.tile_n)), cutlass.Float32)
    tCcC = tiled_mma.get_slice(lane).partition_C(cute.make_identity_tensor((cfg.warpgroup_m, cfg.tile_n)))
    if cutlass.const_expr(cfg.a_in_registers):
        return (tCsA, tCrA, tCrB), accumulators, tCcC
    return (tCrA, tCrB), accumulators, tCcC
