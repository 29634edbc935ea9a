"""Host side of scans: tensors of one shape to prefix sums, products or maxima along one axis, of the first's dtype.

Operands are floats; all but the first may also be booleans, or integers of which float32 has every value. Errors are
ValueError for shapes and TypeError for dtypes. `names` says what messages call the operands.
"""

import math

import cutlass
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.host import EXACT, call, expect, expect_axes, expect_few
from workbench.kernels.scan.columns import scan_columns
from workbench.kernels.scan.lookback import scan_lookback
from workbench.kernels.scan.rows import scan_rows
from workbench.kernels.static import Many, Static, bind


def make_contiguous(tensor):
    """The tensor without gaps; truth values as bytes."""
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def expect_inputs(names: Static, inputs: Many, least: Static):
    """Refuse inputs with too few axes, of different shapes, or of dtypes that no kernel takes."""
    first = inputs[0]
    expect_axes(names[0], first, least)
    expect(names[0], first, first.shape)
    for name, x in zip(names[1:], inputs[1:], strict=True):
        expect(name, x, first.shape, EXACT)


def access_width(columns, tensors: Many):
    """Elements of an access: at most 16 bytes, and what all rows and all starts allow."""
    sizes = tuple(16 // x.element_size() for x in tensors)
    starts = tuple(x.data_ptr() // x.element_size() for x in tensors)
    return math.gcd(columns, *sizes, *starts)


def view_flat(tensor, width):
    """A contiguous tensor along one axis for CuTe, read or written `width` elements at a time."""
    return from_dlpack(tensor.view(-1), assumed_align=width * tensor.element_size()).mark_layout_dynamic()


def view_any(tensor):
    """A contiguous tensor along one axis for CuTe, read or written element by element."""
    return from_dlpack(tensor.view(-1)).mark_layout_dynamic()


def launch_rows(cfg: Static, inputs: Many, y):
    """Scan contiguous inputs along their last axis, a CTA for each row."""
    columns = inputs[0].shape[-1]
    width = access_width(columns, inputs)
    kinds = tuple(x.dtype for x in inputs)
    views = tuple(view_flat(x, width) for x in inputs)
    rows = inputs[0].numel() // columns
    call(
        bind(scan_rows, cfg),
        (*kinds, width),
        (views, view_any(y) if cfg.append_total else view_flat(y, width), cutlass.Int32(columns), cutlass.Int32(rows)),
        (width,),
    )


def launch_lookback(cfg: Static, inputs: Many, y):
    """Scan contiguous inputs along their last axis, a CTA for each tile of a row."""
    columns = inputs[0].shape[-1]
    width = access_width(columns, inputs)
    kinds = tuple(x.dtype for x in inputs)
    views = tuple(view_flat(x, width) for x in inputs)
    tiles = -(-columns // cfg.tile)
    ctas = inputs[0].numel() // columns * tiles
    scratch = torch.zeros(ctas + 1, dtype=torch.int64, device=y.device)  # one memset for statuses and ticket
    status, ticket = view_any(scratch[1:]), view_any(scratch[:1].view(torch.int32))
    call(
        bind(scan_lookback, cfg),
        (*kinds, width),
        (
            views,
            view_any(y) if cfg.append_total else view_flat(y, width),
            status,
            ticket,
            cutlass.Int32(columns),
            cutlass.Int32(tiles),
            cutlass.Int32(ctas),
        ),
        (width,),
    )


def scan_last_axis(cfg: Static, names: Static, inputs: Many):
    """Scan along the last axis: the result is like the inputs; with a total, it has one column more."""
    inputs = tuple(make_contiguous(x) for x in inputs)
    expect_inputs(names, inputs, 1)
    first = inputs[0]
    if cfg.append_total:
        y = torch.empty(*first.shape[:-1], first.shape[-1] + 1, dtype=first.dtype, device=first.device)
        if first.numel() == 0:
            return y.fill_(cfg.identity)
    else:
        y = torch.empty(first.shape, dtype=first.dtype, device=first.device)
        if first.numel() == 0:
            return y
    expect_few(names[0], y)
    if cfg.lookback:
        launch_lookback(cfg, inputs, y)
    else:
        launch_rows(cfg, inputs, y)
    return y


def view_columns(tensor, shape):
    """A contiguous tensor as (batches, the axis, columns) for CuTe."""
    return from_dlpack(tensor.view(shape)).mark_layout_dynamic(leading_dim=2)


def scan_other_axis(cfg: Static, names: Static, inputs: Many):
    """Scan along axis `cfg.axis`: the result is like the inputs."""
    inputs = tuple(make_contiguous(x) for x in inputs)
    expect_inputs(names, inputs, cfg.axis + 1)
    y = torch.empty_like(inputs[0])
    if y.numel() == 0:
        return y
    batches, rows, columns = math.prod(y.shape[: cfg.axis]), y.shape[cfg.axis], math.prod(y.shape[cfg.axis + 1 :])
    kinds = tuple(x.dtype for x in inputs)
    views = tuple(view_columns(x, (batches, rows, columns)) for x in inputs)
    call(
        bind(scan_columns, cfg),
        (*kinds,),
        (
            views,
            view_columns(y, (batches, rows, columns)),
            cutlass.Int32(batches),
            cutlass.Int32(rows),
            cutlass.Int32(columns),
        ),
    )
    return y
