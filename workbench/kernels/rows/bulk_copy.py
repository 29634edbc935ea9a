"""Reduction along a strided axis; bulk copies load the rows into shared memory and need no alignment.

A thread's own loads are of four bytes where the rows do not begin at multiples of 16 bytes, and of those it takes many
to keep the memory busy. A bulk copy takes any range that begins and ends at multiples of 16 bytes, so each brings the
columns wanted and a few more.
"""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync

from workbench.kernels.host import DynamicTensor, VectorTensor, call
from workbench.kernels.rows.column_reduce import finish_columns
from workbench.kernels.rows.host import check_countable, check_operands, column_sizes, empty_result
from workbench.kernels.rows.vectors import spread_columns
from workbench.kernels.static import Many, Static, bind


@cute.jit
def copy_rows(
    cfg: Static,
    inputs: Many[cute.Tensor],
    shared: Many,
    pipe,
    first_row,
    rows,
    columns,
    begin,
    units,
    tidx,
    length: cutlass.Constexpr,
    unit: cutlass.Constexpr,
    stages: cutlass.Constexpr,
):
    """Run the producer warp: copy this strip of all rows, `pieces` rows per stage."""
    kind = inputs[0].element_type
    bulk = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), kind, num_bits_per_copy=length * 128)
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, stages)
    for step in cutlass.range((rows + cfg.pieces - 1) // cfg.pieces, unroll=1):
        pipe.producer_acquire(producer_state)
        piece = tidx % 32
        if piece < cfg.pieces:
            start = (first_row + cutlass.min(step * cfg.pieces + piece, rows - 1)) * columns + begin
            start = cutlass.min(start // unit, units - length) * unit
            for x, x_shared in zip(inputs, shared, strict=True):
                source = cute.make_tensor(
                    cute.make_ptr(
                        x.element_type, (x.iterator + start).toint(), cute.AddressSpace.gmem, assumed_align=16
                    ),
                    cute.make_layout(length * unit),
                )
                cute.copy(
                    bulk,
                    source,
                    x_shared[None, piece, producer_state.index],
                    mbar_ptr=pipe.producer_get_barrier(producer_state),
                )
        pipe.producer_commit(producer_state)
        producer_state.advance()
    pipe.producer_tail(producer_state)


@cute.jit
def fetch_rows(
    cfg: Static,
    inputs: Many[cute.Tensor],
    shared: Many,
    stage,
    step,
    first_row,
    rows,
    columns,
    begin,
    units,
    tidx,
    strip: cutlass.Constexpr,
    width: cutlass.Constexpr,
    length: cutlass.Constexpr,
    unit: cutlass.Constexpr,
):
    """Load a thread's columns of all rows of a stage from shared memory."""
    fragments = tuple(cute.make_rmem_tensor(cute.make_layout((width, cfg.pieces)), x.element_type) for x in inputs)
    for turn in cutlass.range_constexpr(cfg.pieces):
        start = (first_row + cutlass.min(step * cfg.pieces + turn, rows - 1)) * columns + begin
        before = start - cutlass.min(start // unit, units - length) * unit
        for e in cutlass.range_constexpr(width):
            for fragment, x_shared in zip(fragments, shared, strict=True):
                fragment[e, turn] = x_shared[before + cutlass.min(e * cfg.threads + tidx, strip - 1), turn, stage]
    return fragments


@cute.jit
def absorb_rows(cfg: Static, state: Many, fragments: Many, step, rows, width: cutlass.Constexpr):
    """Accumulate the rows of a stage; each column has its own accumulators."""
    for turn in cutlass.range_constexpr(cfg.pieces):
        part = step * cfg.pieces + turn
        if part < rows:
            for e in cutlass.range_constexpr(width):
                elements = tuple(fragment[e, turn].to(cutlass.Float32) for fragment in fragments)
                before = tuple(accumulator[e] for accumulator in state)
                if cutlass.const_expr(cfg.level.is_numbered):
                    after = cfg.level.absorb(*before, *elements, part)
                else:
                    after = cfg.level.absorb(*before, *elements)
                for accumulator, value in zip(state, after, strict=True):
                    accumulator[e] = value


@cute.kernel
def bulk_kernel(
    cfg: Static,
    inputs: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    units: cutlass.Int32,
    strip: cutlass.Constexpr,
    stages: cutlass.Constexpr,
):
    """Reduce a strip of columns per CTA. One producer warp copies its rows into shared memory for the others.

    A copy begins and ends at multiples of 16 bytes, so it holds a few columns more than the strip. units: how many 16
    bytes a tensor has.
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    strips = (columns + strip - 1) // strip
    batch = bidx // strips
    unit = cutlass.const_expr(128 // inputs[0].element_type.width)  # elements in 16 bytes
    length = cutlass.const_expr((strip + unit - 1) // unit + 1)  # of a copy, in units
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, stages * 2)
    shared = tuple(
        smem.allocate_tensor(x.element_type, cute.make_layout((length * unit, cfg.pieces, stages)), 128) for x in inputs
    )
    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, cfg.threads // 32),
        tx_count=len(inputs) * length * 16 * cfg.pieces,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    begin = cutlass.min(bidx % strips * strip, columns - strip)  # the last strip may overlap the one before it
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == cfg.threads // 32:
        copy_rows(cfg, inputs, shared, pipe, batch * rows, rows, columns, begin, units, tidx, length, unit, stages)
    else:
        width = cutlass.const_expr((strip + cfg.threads - 1) // cfg.threads)  # columns of a thread, THREADS apart
        consumer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
        starts = cfg.level.start()
        state = spread_columns(cfg.level.state, starts, width)
        for step in cutlass.range((rows + cfg.pieces - 1) // cfg.pieces, unroll=1):
            pipe.consumer_wait(consumer_state)
            fragments = fetch_rows(
                cfg,
                inputs,
                shared,
                consumer_state.index,
                step,
                batch * rows,
                rows,
                columns,
                begin,
                units,
                tidx,
                strip,
                width,
                length,
                unit,
            )
            absorb_rows(cfg, state, fragments, step, rows, width)
            pipe.consumer_release(consumer_state)
            consumer_state.advance()
        values = finish_columns(cfg.level, state, rows, width)
        for e in cutlass.range_constexpr(width):
            if e * cfg.threads + tidx < strip:
                column = tuple(value[e] for value in values)
                value = cfg.rows.result.expression(*(column[n] for n in cfg.rows.result.reads))
                y[batch * columns + begin + e * cfg.threads + tidx] = value.to(y.element_type)


@cute.jit
def launch_bulk(
    cfg: Static,
    inputs: Many[cute.Tensor],
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    batches: cutlass.Int32,
    units: cutlass.Int32,
    stream: cuda.CUstream,
    strip: cutlass.Constexpr,
    stages: cutlass.Constexpr,
):
    bulk_kernel(cfg, inputs, y, rows, columns, units, strip, stages).launch(
        grid=[batches * ((columns + strip - 1) // strip), 1, 1], block=[cfg.cta_threads, 1, 1], stream=stream
    )


def in_units(tensor, least):
    """Return a tensor viewed as (units, elements in 16 bytes), with at least `least` units.

    It is copied where it does not begin or end at multiples of 16 bytes.
    """
    unit = 16 // tensor.element_size()
    more = max(least * unit - tensor.numel(), -tensor.numel() % unit)
    flat = tensor.view(-1)
    if more or tensor.data_ptr() % 16:
        flat = torch.empty(tensor.numel() + more, dtype=tensor.dtype, device=tensor.device)
        flat[: tensor.numel()] = tensor.view(-1)
    return flat.view(-1, unit)


def unit_tensor(tensor):
    """Return the CuTe tensor of what `in_units` returns."""
    return VectorTensor(tensor, align=16)


def bulk_reduction(cfg: Static, names: Static, inputs: Many):
    """Reduce along neighbouring axes that are not the last, in one pass. All tensors have the dtype of the first."""
    check_operands(cfg.rows, names, inputs, ())
    for name, x in zip(names, inputs, strict=True):
        if x.dtype != inputs[0].dtype:
            raise TypeError(f"{name} is {x.dtype}; this kernel takes {inputs[0].dtype}")
    inputs = tuple(x.detach().contiguous() for x in inputs)
    check_countable(cfg.rows, names, inputs[0])
    batches, rows, columns = column_sizes(cfg.rows, inputs[0].shape)
    y = empty_result(cfg.rows, names, inputs[0])
    if y.numel() == 0:
        return y
    strip = min(cfg.strip, columns)  # columns of a CTA
    length = (strip * inputs[0].element_size() + 15) // 16 + 1  # of a copy, in 16 bytes
    stages = max(min(cfg.room // (len(inputs) * length * 16 * cfg.pieces), -(-rows // cfg.pieces), 8), 2)
    inputs = tuple(in_units(x, length) for x in inputs)
    call(
        bind(launch_bulk, cfg),
        (*(x.dtype for x in inputs), strip, stages),
        (
            tuple(unit_tensor(x) for x in inputs),
            DynamicTensor(y.view(-1)),
            rows,
            columns,
            batches,
            inputs[0].shape[0],
        ),
        (strip, stages),
    )
    return y
