"""Host side of reductions along an axis: operand checks, extents, launches.

`inputs` have one shape, of which the axis is reduced; `repeated` are broadcast to it. The first tensor is float32,
float16 or bfloat16, and so is the result, unless it is cast; the others may also have a type of which float32 holds all
values.
"""

import cutlass
import torch

from workbench.kernels.broadcast import BroadcastOperand, broadcast_tensor
from workbench.kernels.host import (
    EXACT_DTYPES,
    FLOAT_DTYPES,
    READ_DTYPES,
    DynamicTensor,
    VectorTensor,
    call,
    check_not_empty,
    check_operand,
    check_rank,
    split_by_rows,
)
from workbench.kernels.rows.column_reduce import launch_columns
from workbench.kernels.rows.row_reduce import launch_rows
from workbench.kernels.static import Many, Static, bind, torch_dtype


def check_operands(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Check the shapes and dtypes of the operands."""
    shape = inputs[0].shape
    if cutlass.const_expr(cfg.least_axes > 0):
        check_rank(names[0], inputs[0], cfg.least_axes)
    for n, (name, x) in enumerate(zip(names, (*inputs, *repeated), strict=True)):
        if cutlass.const_expr(cfg.reads_integers):
            check_operand(name, x, shape, READ_DTYPES if n + len(cfg.out) else FLOAT_DTYPES, broadcast=n >= len(inputs))
        else:
            check_operand(
                name, x, shape, EXACT_DTYPES if n + len(cfg.out) else FLOAT_DTYPES, broadcast=n >= len(inputs)
            )


def check_countable(cfg: Static, names: Static, x):
    """Check that element indices fit into 32 bits; an extent counts vectors and must be less than 2**31."""
    most = (1 << 31) - 1 if cutlass.const_expr(cfg.axis == "all" or cfg.vector == 1) else 1 << 31
    if x.numel() > most:
        raise ValueError(f"{names[0]} has too many elements for 32-bit places, 2**31 and more")


def result_shape(cfg: Static, shape):
    """Return the shape of a result with one value per row."""
    if cutlass.const_expr(cfg.axis == "all"):
        return (1,) * len(shape) if cutlass.const_expr(cfg.keepdim) else ()
    if cutlass.const_expr(cfg.axis == "last"):
        if cutlass.const_expr(cfg.keepdim):
            return (*shape[: -cfg.last_axis], *(1,) * cfg.last_axis)
        return shape[: -cfg.last_axis]
    if cutlass.const_expr(cfg.axis == "but"):
        left = shape[cfg.first_axis]
        if cutlass.const_expr(cfg.keepdim):
            return tuple(left if axis == cfg.first_axis else 1 for axis in range(len(shape)))
        return (left,)
    before, after = shape[: cfg.first_axis], shape[cfg.last_axis + 1 :]
    if cutlass.const_expr(cfg.keepdim):
        return (*before, *(1,) * (cfg.last_axis - cfg.first_axis + 1), *after)
    return (*before, *after)


def empty_result(cfg: Static, names: Static, x):
    """Allocate the result, or (values, *rows) for all values of the rows.

    Raises ValueError if x is empty and the reduction has no value for that.
    """
    if cutlass.const_expr(cfg.result.is_whole):
        return torch.empty(x.shape, dtype=torch_dtype(cfg.out) if cfg.out else x.dtype, device=x.device)
    if cutlass.const_expr(cfg.returns_values):
        shape = (cfg.value_count, *result_shape(cfg, x.shape))
        return torch.empty(shape, dtype=torch.float32, device=x.device)
    if cutlass.const_expr(cfg.is_place):
        kind = torch.int64
    else:
        kind = torch_dtype(cfg.out) if cfg.out else x.dtype
    y = torch.empty(result_shape(cfg, x.shape), dtype=kind, device=x.device)
    if cutlass.const_expr(cfg.undefined != ""):
        check_not_empty(names[0], x, x.numel() or not y.numel(), cfg.undefined)
    return y


def flat_tensor(tensor, width):
    """Return the CuTe tensor of a contiguous tensor of rank 1 that is accessed by vectors of `width`."""
    return DynamicTensor(tensor, align=16 if width > 1 else None)


def vector_tensor(tensor, width):
    """Return the CuTe tensor (vectors, width) of a contiguous tensor of up to 2**31 elements.

    An extent is less than 2**31, so a flat tensor has less.
    """
    align = 16 if width > 1 else None
    return VectorTensor(tensor.view(-1, width), align=align)


def result_tensor(cfg: Static, y, width):
    """Return the CuTe tensor of the result: as vectors if it has one value per element, else one value per row."""
    if cutlass.const_expr(cfg.result.is_whole):
        return vector_tensor(y, width)
    return DynamicTensor(y.view(-1))


def access_width(cfg: Static, run, tensors: Many):
    """Return the vector width: VECTOR if it divides `run` and the tensors are 16-byte aligned, else 1."""
    if cutlass.const_expr(cfg.vector == 1):
        return 1
    is_whole = run % cfg.vector == 0 and all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    return cfg.vector if is_whole else 1


def row_sizes(cfg: Static, shape):
    """Return (rows, columns) of x; columns are reduced."""
    if cutlass.const_expr(cfg.axis == "all"):
        return 1, shape.numel()
    if cutlass.const_expr(cfg.last_axis == 1):
        return shape[:-1].numel(), shape[-1]
    return shape[: -cfg.last_axis].numel(), shape[-cfg.last_axis :].numel()


def segment_sizes(cfg: Static, shape):
    """Return (rows, columns, segment); columns are reduced and lie in contiguous segments."""
    before, segment = shape[: cfg.first_axis].numel(), shape[cfg.first_axis + 1 :].numel()
    return shape[cfg.first_axis], before * segment, segment


def column_sizes(cfg: Static, shape):
    """Return (batches, rows, columns); rows are reduced."""
    before, own, after = shape[: cfg.first_axis], shape[cfg.first_axis : cfg.last_axis + 1], shape[cfg.last_axis + 1 :]
    return before.numel(), own.numel(), after.numel()


def turns_of(cfg: Static, columns, width):
    """Return how many vectors a thread loads before it uses the first one."""
    if cutlass.const_expr(cfg.is_kept):
        return max(-(-(columns // width) // cfg.step), 1)  # all that it has of a row
    return cfg.unroll * cfg.vector // width


def matrix_reduction(cfg: Static, names: Static, x, repeated: Many):
    """Reduce each row of x (..., columns) for any number of rows; `repeated` have one element per column."""
    x = x.detach().contiguous()
    repeated = tuple(b.detach().reshape(-1).contiguous() for b in repeated)
    check_rank(names[0], x, 1)
    if cutlass.const_expr(cfg.reads_integers):
        check_operand(names[0], x, x.shape, READ_DTYPES if len(cfg.out) else FLOAT_DTYPES)
    else:
        check_operand(names[0], x, x.shape, EXACT_DTYPES if len(cfg.out) else FLOAT_DTYPES)
    for name, b in zip(names[1:], repeated, strict=True):
        check_operand(name, b, x.shape[-1:], READ_DTYPES if cfg.reads_integers else EXACT_DTYPES)
    y = empty_result(cfg, names, x)
    if y.numel() == 0:
        return y
    rows, columns = row_sizes(cfg, x.shape)
    matrix = x.view(rows, columns)
    results = y.view(rows, columns) if cutlass.const_expr(cfg.result.is_whole) else y.view(-1)
    for x, result in split_by_rows(matrix, results):
        if cutlass.const_expr(cfg.result.is_whole):
            width = access_width(cfg, columns, (x, *repeated, result))
        else:
            width = access_width(cfg, columns, (x, *repeated))
        turns = turns_of(cfg, columns, width)
        call(
            bind(launch_rows, cfg),
            (x.dtype, *(b.dtype for b in repeated), width, turns),
            (
                (flat_tensor(x.view(-1), width),),
                tuple(flat_tensor(b, width) for b in repeated),
                flat_tensor(result.view(-1), width) if cfg.result.is_whole else flat_tensor(result, 1),
                x.shape[0],
                columns,
                (),
                (),
            ),
            (width, turns, ()),
        )
    return y


def row_reduction(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce along the last axes, or all."""
    check_operands(cfg, names, inputs, repeated)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    check_countable(cfg, names, inputs[0])
    y = empty_result(cfg, names, inputs[0])
    if y.numel():
        reduce_into(cfg, inputs, repeated, y)
    return y


def reduce_into(cfg: Static, inputs: Many, repeated: Many, y):
    """Reduce the rows of contiguous tensors and write y."""
    shape = inputs[0].shape
    rows, columns = row_sizes(cfg, shape)
    if cutlass.const_expr(cfg.result.is_whole):
        width = access_width(cfg, columns, (*inputs, y))
    else:
        width = access_width(cfg, columns, inputs)
    turns = turns_of(cfg, columns, width)
    places = tuple(BroadcastOperand(b.detach(), shape, width, columns) for b in repeated)
    inners = tuple(place.inner for place in places)
    sizes = tuple(place.size for place in places)
    ways = tuple(place.way for place in places)
    call(
        bind(launch_rows, cfg),
        (*(x.dtype for x in inputs), *(b.dtype for b in repeated), width, turns, *ways),
        (
            tuple(vector_tensor(x, width) for x in inputs),
            tuple(broadcast_tensor(place) for place in places),
            result_tensor(cfg, y, width),
            rows,
            columns,
            tuple(inner for inner in inners),
            tuple(size for size in sizes),
        ),
        (width, turns, ways),
    )


def column_reduction(cfg: Static, names: Static, inputs: Many, repeated: Many):
    """Reduce along neighbouring axes that are not the last."""
    check_operands(cfg, names, inputs, repeated)
    inputs = tuple(x.detach().contiguous() for x in inputs)
    shape = inputs[0].shape
    check_countable(cfg, names, inputs[0])
    batches, rows, columns = column_sizes(cfg, shape)
    y = empty_result(cfg, names, inputs[0])
    if y.numel() == 0:
        return y
    width = access_width(cfg, columns, (*inputs, y))
    if cutlass.const_expr(cfg.is_kept):
        turns = max(-(-rows // cfg.split), 1)  # vectors that each thread keeps
    else:
        turns = cfg.unroll * cfg.vector // width
    places = tuple(BroadcastOperand(b.detach(), shape, width) for b in repeated)
    inners = tuple(place.inner for place in places)
    sizes = tuple(place.size for place in places)
    ways = tuple(place.way for place in places)
    call(
        bind(launch_columns, cfg),
        (*(x.dtype for x in inputs), *(b.dtype for b in repeated), width, turns, *ways),
        (
            tuple(vector_tensor(x, width) for x in inputs),
            tuple(broadcast_tensor(place) for place in places),
            vector_tensor(y, width),
            rows,
            columns,
            batches,
            tuple(inner for inner in inners),
            tuple(size for size in sizes),
        ),
        (width, turns, ways),
    )
    return y
