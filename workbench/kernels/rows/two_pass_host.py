"""Host side of split reductions: operand checks and the launches of every pass."""

import cutlass
import torch

from workbench.kernels.broadcast import BroadcastOperand, broadcast_tensor
from workbench.kernels.host import DynamicTensor, call, split_launches
from workbench.kernels.rows.host import (
    access_width,
    check_countable,
    check_operands,
    column_sizes,
    empty_result,
    row_sizes,
    segment_sizes,
    vector_tensor,
)
from workbench.kernels.rows.two_pass import launch_apply, launch_finish, launch_partial
from workbench.kernels.static import Many, Static, bind, torch_dtype


def value_tensor(tensor):
    """Return the CuTe tensor of a tensor with one value per row or partial result."""
    return DynamicTensor(tensor)


def finish(step: Static, states: Many, done: Many, outputs: Many, results, parts, inner, count):
    """Launch the kernel that combines the partial results of `results` results."""
    call(
        bind(launch_finish, step),
        (*(output.dtype for output in outputs),),
        (
            tuple(value_tensor(state) for state in states),
            tuple(value_tensor(value) for value in done),
            tuple(value_tensor(output) for output in outputs),
            results,
            parts,
            inner,
            count,
        ),
    )


def result_numbers(cfg: Static, rows, columns, length):
    """Return (number of results, stride between partial results of one, elements of each)."""
    if cutlass.const_expr(cfg.layout == "columns"):
        return length * columns, columns, rows
    return rows, 1, columns


def find_runs(cfg: Static, rows, length):
    """Return (neighbouring elements of a row, rows if each has several such runs), as `BroadcastOperand` takes them."""
    if cutlass.const_expr(cfg.layout == "columns"):
        return 0, 0
    if cutlass.const_expr(cfg.layout == "segments"):
        return length, rows
    return length, 0


def run_passes(cfg: Static, inputs: Many, repeated: Many, y, rows, columns, length, parts, width, turns):
    """Launch all passes. length: extent of a segment, or for columns the number of batches.

    Returns one tensor per reduction with its results, if the configuration wants them.
    """
    run, several = find_runs(cfg, rows, length)
    places = tuple(BroadcastOperand(b.detach(), inputs[0].shape, width, run, several) for b in repeated)
    inners = tuple(place.inner for place in places)
    sizes = tuple(place.size for place in places)
    ways = tuple(place.way for place in places)
    key = (*(x.dtype for x in inputs), *(b.dtype for b in repeated), width, turns, *ways)
    number = length
    results, inner, count = result_numbers(cfg, rows, columns, length)
    done = inputs[:0]
    for step in cfg.steps:
        states = tuple(
            torch.empty(results * parts, dtype=torch_dtype(slot.kind), device=y.device) for slot in step.level.state
        )
        call(
            bind(launch_partial, step),
            key,
            (
                tuple(vector_tensor(inputs[n], width) for n in step.level.inputs),
                tuple(broadcast_tensor(places[n]) for n in step.level.repeated),
                tuple(value_tensor(value) for value in done),
                tuple(value_tensor(state) for state in states),
                rows,
                columns,
                parts,
                () if cfg.layout == "rows" else (number,),
                tuple(inners[n] for n in step.level.repeated),
                tuple(sizes[n] for n in step.level.repeated),
            ),
            (width, turns, ways),
        )
        if cutlass.const_expr(step.is_last):
            finish(step, states, done, (y.view(-1),), results, parts, inner, count)
        else:
            values = tuple(
                torch.empty(results, dtype=torch_dtype(slot.kind), device=y.device) for slot in step.level.values
            )
            finish(step, states, (), values, results, parts, inner, count)
            done = (*done, *values)
    if cutlass.const_expr(cfg.writes_elements):
        write_whole(cfg, inputs, places, inners, sizes, ways, done, y, key, rows, columns, length, parts, width, turns)
    if cutlass.const_expr(cfg.returns_values):
        return done
    return None


def write_whole(
    cfg: Static,
    inputs: Many,
    places: Many,
    inners: Many,
    sizes: Many,
    ways: Many,
    done: Many,
    y,
    key,
    rows,
    columns,
    length,
    parts,
    width,
    turns,
):
    """Launch the kernel that writes a result with one value per element."""
    if cutlass.const_expr(cfg.layout == "columns"):
        chunks = parts
    else:
        chunks = max(-(-(columns // width) // (cfg.threads * turns)), 1)  # of a row
    number = length
    call(
        bind(launch_apply, cfg),
        key,
        (
            tuple(vector_tensor(inputs[n], width) for n in cfg.result.inputs),
            tuple(broadcast_tensor(places[n]) for n in cfg.result.repeated),
            tuple(value_tensor(value) for value in done),
            vector_tensor(y, width),
            rows,
            columns,
            chunks,
            () if cfg.layout == "rows" else (number,),
            tuple(inners[n] for n in cfg.result.repeated),
            tuple(sizes[n] for n in cfg.result.repeated),
        ),
        (width, turns, ways),
    )


def two_pass_reduction(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce along the last axes, all axes, or all but one; several CTAs split each row."""
    check_operands(cfg, names, inputs, repeated)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    check_countable(cfg, names, inputs[0])
    if cutlass.const_expr(cfg.layout == "segments"):
        rows, columns, segment = segment_sizes(cfg, inputs[0].shape)
    else:
        rows, columns = row_sizes(cfg, inputs[0].shape)
        segment = columns
    if cutlass.const_expr(cfg.has_result):
        y = empty_result(cfg, names, inputs[0])
    else:
        y = inputs[0]
    if y.numel() == 0:
        return y
    if cutlass.const_expr(cfg.result.is_whole):
        width = access_width(cfg, segment, (*inputs, y))
    else:
        width = access_width(cfg, segment, inputs)
    turns = cfg.unroll * cfg.vector // width
    parts = max(min(cfg.parts, columns // (width * turns * cfg.threads)), 1)  # CTAs that share a row
    if cutlass.const_expr(cfg.returns_values):
        done = run_passes(cfg, inputs, repeated, y, rows, columns, segment, parts, width, turns)
        return (y, *done)
    run_passes(cfg, inputs, repeated, y, rows, columns, segment, parts, width, turns)
    return y


def two_pass_columns(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce along neighbouring axes that are not the last; several CTAs split each column."""
    check_operands(cfg, names, inputs, repeated)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    check_countable(cfg, names, inputs[0])
    batches, rows, columns = column_sizes(cfg, inputs[0].shape)
    if cutlass.const_expr(cfg.has_result):
        y = empty_result(cfg, names, inputs[0])
    else:
        y = inputs[0]
    if y.numel() == 0:
        return y
    if cutlass.const_expr(cfg.result.is_whole):
        width = access_width(cfg, columns, (*inputs, y))
    else:
        width = access_width(cfg, columns, inputs)
    parts = max(min(cfg.parts, rows // (cfg.split * cfg.unroll)), 1)  # parts of a column
    if cutlass.const_expr(cfg.returns_values):
        done = run_passes(cfg, inputs, repeated, y, rows, columns, batches, parts, width, cfg.unroll)
        return (y, *done)
    run_passes(cfg, inputs, repeated, y, rows, columns, batches, parts, width, cfg.unroll)
    return y


def one_value(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce all elements to one value in one pass; tensors of any size are reduced in pieces."""
    check_operands(cfg, names, inputs, repeated)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    repeated = tuple(b.detach() for b in repeated)
    count = inputs[0].shape.numel()
    y = empty_result(cfg, names, inputs[0])
    tensors = (*repeated, *inputs)
    pieces = split_launches(*tensors)
    share = cfg.unroll * cfg.vector * cfg.threads
    parts = max(min(cfg.parts, count // len(pieces) // share), 1)  # CTAs that share a piece
    results = len(pieces) * parts
    for step in cfg.steps:
        states = tuple(torch.empty(results, dtype=torch_dtype(slot.kind), device=y.device) for slot in step.level.state)
        for number, piece in enumerate(pieces):
            (*tensors,) = piece
            reduce_piece(
                step,
                tensors[len(repeated) :],
                tensors[: len(repeated)],
                tuple(state[number * parts :][:parts] for state in states),
                parts,
            )
        finish(step, states, (), (y.view(-1),), 1, results, 1, count)
    return y


def reduce_piece(step: Static, inputs: Many, repeated: Many, states: Many, parts):
    """Launch the reduction of one piece of all tensors, as if it were one row."""
    shape = inputs[0].shape
    columns = shape.numel()
    width = access_width(step.cfg, columns, inputs)
    turns = step.cfg.unroll * step.cfg.vector // width
    places = tuple(BroadcastOperand(b, shape, width, columns) for b in repeated)
    inners = tuple(place.inner for place in places)
    sizes = tuple(place.size for place in places)
    ways = tuple(place.way for place in places)
    call(
        bind(launch_partial, step),
        (*(x.dtype for x in inputs), *(b.dtype for b in repeated), width, turns, *ways),
        (
            tuple(vector_tensor(x, width) for x in inputs),
            tuple(broadcast_tensor(place) for place in places),
            (),
            tuple(value_tensor(state) for state in states),
            1,
            columns,
            parts,
            (),
            tuple(inner for inner in inners),
            tuple(size for size in sizes),
        ),
        (width, turns, ways),
    )
