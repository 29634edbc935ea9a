"""Reductions of long rows in parts: torch tensors -> checks, launches of the kernels of each pass, the result."""

import cutlass
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.broadcast import BroadcastOperand
from workbench.kernels.host import call, split_launches
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
from workbench.kernels.rows.two_pass_columns import launch_partial_columns
from workbench.kernels.static import Many, Static, bind, torch_dtype


def value_tensor(tensor):
    """A tensor with one value for each row, or part of one, as a kernel's argument."""
    return from_dlpack(tensor).mark_layout_dynamic()


def finish(step: Static, states: Many, done: Many, outputs: Many, results, parts, inner, count):
    """Launch what puts the parts of `results` results together."""
    call(
        bind(launch_finish, step),
        (*(output.dtype for output in outputs),),
        (
            tuple(value_tensor(state) for state in states),
            tuple(value_tensor(value) for value in done),
            tuple(value_tensor(output) for output in outputs),
            cutlass.Int32(results),
            cutlass.Int32(parts),
            cutlass.Int32(inner),
            cutlass.Float32(count),
        ),
    )


def two_pass_reduction(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce along the last axes, all, or all but one, each row in parts."""
    check_operands(cfg, names, inputs, repeated)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    shape = inputs[0].shape
    check_countable(cfg, names, inputs[0])
    if cutlass.const_expr(cfg.layout == "segments"):
        rows, columns, segment = segment_sizes(cfg, shape)
    else:
        rows, columns = row_sizes(cfg, shape)
        segment = columns
    y = empty_result(cfg, names, inputs[0])
    if y.numel() == 0:
        return y
    if cutlass.const_expr(cfg.result.is_whole):
        width = access_width(cfg, segment, (*inputs, y))
    else:
        width = access_width(cfg, segment, inputs)
    places = tuple(BroadcastOperand(b.detach(), shape, width, columns if cfg.layout == "rows" else 0) for b in repeated)
    extents = tuple(place.extent for place in places)
    ways = tuple(place.way for place in places)
    turns = cfg.unroll * cfg.vector // width
    parts = max(min(cfg.parts, columns // (width * turns * cfg.threads)), 1)  # CTAs that share a row
    length = cutlass.Int32(segment)
    done = tuple(x for x in inputs[:0])
    for step in cfg.steps:
        states = tuple(
            torch.empty(rows * parts, dtype=torch_dtype(slot.kind), device=y.device) for slot in step.level.state
        )
        call(
            bind(launch_partial, step),
            (
                *(inputs[n].dtype for n in step.level.inputs),
                *(repeated[n].dtype for n in step.level.repeated),
                width,
                turns,
                *ways,
            ),
            (
                tuple(vector_tensor(inputs[n], width) for n in step.level.inputs),
                tuple(places[n].tensor for n in step.level.repeated),
                tuple(value_tensor(value) for value in done),
                tuple(value_tensor(state) for state in states),
                cutlass.Int32(rows),
                cutlass.Int32(columns),
                cutlass.Int32(parts),
                (length,) if cfg.layout == "segments" else (),
                tuple(extents[n] for n in step.level.repeated),
            ),
            (width, turns, ways),
        )
        if cutlass.const_expr(step.is_last):
            finish(step, states, done, (y.view(-1),), rows, parts, 1, columns)
        else:
            values = tuple(
                torch.empty(rows, dtype=torch_dtype(slot.kind), device=y.device) for slot in step.level.values
            )
            finish(step, states, (), values, rows, parts, 1, columns)
            done = (*done, *values)
    if cutlass.const_expr(cfg.result.is_whole):
        parts = max(-(-(columns // width) // (cfg.threads * turns)), 1)  # chunks of a row
        call(
            bind(launch_apply, cfg),
            (
                *(inputs[n].dtype for n in cfg.result.inputs),
                *(repeated[n].dtype for n in cfg.result.repeated),
                width,
                turns,
                *ways,
            ),
            (
                tuple(vector_tensor(inputs[n], width) for n in cfg.result.inputs),
                tuple(places[n].tensor for n in cfg.result.repeated),
                tuple(value_tensor(value) for value in done),
                vector_tensor(y, width),
                cutlass.Int32(rows),
                cutlass.Int32(columns),
                cutlass.Int32(parts),
                (length,) if cfg.layout == "segments" else (),
                tuple(extents[n] for n in cfg.result.repeated),
            ),
            (width, turns, ways),
        )
    if cutlass.const_expr(cfg.returns_values):
        return (y, *done)
    return y


def two_pass_columns(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce along neighbouring axes that are not the last, each column in parts, pass by pass."""
    check_operands(cfg, names, inputs, repeated)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    shape = inputs[0].shape
    check_countable(cfg, names, inputs[0])
    batches, rows, columns = column_sizes(cfg, shape)
    y = empty_result(cfg, names, inputs[0])
    if y.numel() == 0:
        return y
    width = access_width(cfg, columns, inputs)
    places = tuple(BroadcastOperand(b.detach(), shape, width) for b in repeated)
    extents = tuple(place.extent for place in places)
    ways = tuple(place.way for place in places)
    parts = max(min(cfg.parts, rows // (cfg.split * cfg.unroll)), 1)  # parts of a column
    results = batches * columns
    done = tuple(x for x in inputs[:0])
    for step in cfg.steps:
        states = tuple(
            torch.empty(results * parts, dtype=torch_dtype(slot.kind), device=y.device) for slot in step.level.state
        )
        call(
            bind(launch_partial_columns, step),
            (
                *(inputs[n].dtype for n in step.level.inputs),
                *(repeated[n].dtype for n in step.level.repeated),
                width,
                cfg.unroll,
                *ways,
            ),
            (
                tuple(vector_tensor(inputs[n], width) for n in step.level.inputs),
                tuple(places[n].tensor for n in step.level.repeated),
                tuple(value_tensor(value) for value in done),
                tuple(value_tensor(state) for state in states),
                cutlass.Int32(rows),
                cutlass.Int32(columns),
                cutlass.Int32(parts),
                cutlass.Int32(batches),
                tuple(extents[n] for n in step.level.repeated),
            ),
            (width, cfg.unroll, ways),
        )
        if cutlass.const_expr(step.is_last):
            finish(step, states, done, (y.view(-1),), results, parts, columns, rows)
        else:
            values = tuple(
                torch.empty(results, dtype=torch_dtype(slot.kind), device=y.device) for slot in step.level.values
            )
            finish(step, states, (), values, results, parts, columns, rows)
            done = (*done, *values)
    return y


def one_value(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce everything to one value, in one pass: tensors of any size, in pieces, each in parts."""
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
            repeated = tensors[: len(repeated)]
            inputs = tensors[len(repeated) :]
            shape = inputs[0].shape
            columns = shape.numel()
            width = access_width(cfg, columns, inputs)
            places = tuple(BroadcastOperand(b, shape, width, columns) for b in repeated)
            extents = tuple(place.extent for place in places)
            ways = tuple(place.way for place in places)
            turns = cfg.unroll * cfg.vector // width
            begin = number * parts
            call(
                bind(launch_partial, step),
                (*(x.dtype for x in inputs), *(b.dtype for b in repeated), width, turns, *ways),
                (
                    tuple(vector_tensor(x, width) for x in inputs),
                    tuple(place.tensor for place in places),
                    (),
                    tuple(value_tensor(state[begin:][:parts]) for state in states),
                    cutlass.Int32(1),
                    cutlass.Int32(columns),
                    cutlass.Int32(parts),
                    (),
                    extents,
                ),
                (width, turns, ways),
            )
        finish(step, states, (), (y.view(-1),), 1, results, 1, count)
    return y
