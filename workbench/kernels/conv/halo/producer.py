"""Producer of the convolution with halos: one warp fills the stages by bulk copies, which need no tensor map."""

import cutlass
import cutlass.cute as cute
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.conv.halo.tiles import find_halo_tile
from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Static, dtype


@cute.jit
def copy_bulk(cfg: Static, source: cute.Tensor, first: cutlass.Int64, target: cute.Tensor, barrier):
    """Copy as many elements of `source` from `first` on as `target` has; both are aligned to 16 bytes."""
    bulk = cute.make_copy_atom(
        cpasync.CopyBulkG2SOp(), dtype(cfg.element), num_bits_per_copy=cute.size(target) * dtype(cfg.element).width
    )
    address = (source.iterator + first).toint()
    pointer = cute.make_ptr(dtype(cfg.element), address, cute.AddressSpace.gmem, assumed_align=16)
    cute.copy(bulk, cute.make_tensor(pointer, cute.make_layout(cute.size(target))), target, mbar_ptr=barrier)


@cute.jit
def load_halos(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    buffers: tuple,
    mainloop_pipeline: pipeline.PipelineTmaAsync,
    works: tuple,
    sizes: tuple,
    tidx: cutlass.Int32,
    plan: cutlass.Constexpr,
):
    """Run the producer loop: load the stages of every work tile of this CTA, as far ahead as stages are free.

    `buffers` is (a chunk of the input's tile, chunks, stages) and (filters of a stage, stages); a lane copies a chunk.
    """
    sA, sB = buffers
    first_work, num_works, work_stride = works
    tiles_n, blocks, positions = sizes
    (depths, depth_step), (lines, line_step) = plan.outer
    chunks = cfg.tile_k // cfg.chunk
    lane = tidx % 32
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, plan.stages)
    for work in cutlass.range(first_work, num_works, work_stride, unroll=1):
        tile_m, tile_n = find_halo_tile(cfg, work, num_works, tiles_n, plan)
        filters = cutlass.Int64(tile_n) * (depths * lines) * blocks
        for step in cutlass.range(depths * lines, unroll=1):
            depth, line = divide(step, lines)
            row = tile_m * cfg.tile_m + depth * depth_step + line * line_step
            for block in cutlass.range(blocks, unroll=1):
                mainloop_pipeline.producer_acquire(producer_state)
                barrier = mainloop_pipeline.producer_get_barrier(producer_state)
                if lane < chunks:
                    first = (cutlass.Int64(block * chunks + lane) * positions + row) * cfg.chunk
                    copy_bulk(cfg, mA, first, sA[None, lane, producer_state.index], barrier)
                if lane == chunks:
                    copy_bulk(cfg, mB, filters * cute.size(sB, mode=[0]), sB[None, producer_state.index], barrier)
                filters += 1
                mainloop_pipeline.producer_commit(producer_state)
                producer_state.advance()
    mainloop_pipeline.producer_tail(producer_state)
