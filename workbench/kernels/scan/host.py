"""Host side of scans: tensors of one shape -> prefix sums, products or maxima along one axis, of the first's dtype.

The first operand is floating point; the others may also be booleans, or integers that float32 represents exactly.
Raises ValueError for shapes and TypeError for dtypes. `names` holds the operands' names in messages.
"""

import math

import torch

from workbench.kernels.host import EXACT_DTYPES, DynamicTensor, call, check_element_count, check_operand, check_rank
from workbench.kernels.scan.columns import scan_columns
from workbench.kernels.scan.lookback import scan_lookback
from workbench.kernels.scan.rows import scan_rows
from workbench.kernels.static import Many, Static, bind


def make_contiguous(tensor):
    """Return the tensor contiguous, and booleans as bytes."""
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def check_inputs(names: Static, inputs: Many, least: Static):
    """Check that the inputs have one shape, enough axes and supported dtypes."""
    first = inputs[0]
    check_rank(names[0], first, least)
    check_operand(names[0], first, first.shape)
    for name, x in zip(names[1:], inputs[1:], strict=True):
        check_operand(name, x, first.shape, EXACT_DTYPES)


def access_width(columns, tensors: Many):
    """Return the elements per access, at most 16 bytes, that all rows and addresses allow."""
    sizes = tuple(16 // x.element_size() for x in tensors)
    starts = tuple(x.data_ptr() // x.element_size() for x in tensors)
    return math.gcd(columns, *sizes, *starts)


def view_flat(tensor, width):
    """Return the 1-d CuTe tensor of a contiguous tensor, accessed `width` elements at a time."""
    return DynamicTensor(tensor.view(-1), align=width * tensor.element_size())


def view_any(tensor):
    """Return the 1-d CuTe tensor of a contiguous tensor, accessed element by element."""
    return DynamicTensor(tensor.view(-1))


def launch_rows(cfg: Static, inputs: Many, y):
    """Scan contiguous inputs along their last axis with one CTA per row."""
    columns = inputs[0].shape[-1]
    width = access_width(columns, inputs)
    kinds = tuple(x.dtype for x in inputs)
    views = tuple(view_flat(x, width) for x in inputs)
    rows = inputs[0].numel() // columns
    call(
        bind(scan_rows, cfg),
        (*kinds, width),
        (views, view_any(y) if cfg.append_total else view_flat(y, width), columns, rows),
        (width,),
    )


def launch_lookback(cfg: Static, inputs: Many, y):
    """Scan contiguous inputs along their last axis with one CTA per tile, by decoupled look-back."""
    columns = inputs[0].shape[-1]
    width = access_width(columns, inputs)
    kinds = tuple(x.dtype for x in inputs)
    views = tuple(view_flat(x, width) for x in inputs)
    tiles = -(-columns // cfg.tile)
    ctas = inputs[0].numel() // columns * tiles
    scratch = torch.zeros(ctas + 1, dtype=torch.int64, device=y.device)  # one memset for status words and ticket
    status, ticket = view_any(scratch[1:]), view_any(scratch[:1].view(torch.int32))
    call(
        bind(scan_lookback, cfg),
        (*kinds, width),
        (
            views,
            view_any(y) if cfg.append_total else view_flat(y, width),
            status,
            ticket,
            columns,
            tiles,
            ctas,
        ),
        (width,),
    )


def scan_last_axis(cfg: Static, names: Static, inputs: Many):
    """Return the scan along the last axis; with totals it has one more column."""
    inputs = tuple(make_contiguous(x) for x in inputs)
    check_inputs(names, inputs, 1)
    first = inputs[0]
    if cfg.append_total:
        y = torch.empty(*first.shape[:-1], first.shape[-1] + 1, dtype=first.dtype, device=first.device)
        if first.numel() == 0:
            return y.fill_(cfg.identity)
    else:
        y = torch.empty(first.shape, dtype=first.dtype, device=first.device)
        if first.numel() == 0:
            return y
    check_element_count(names[0], y)
    if cfg.lookback:
        launch_lookback(cfg, inputs, y)
    else:
        launch_rows(cfg, inputs, y)
    return y


def view_columns(tensor, shape):
    """Return the CuTe tensor of a contiguous tensor, viewed as (batches, scan axis, columns)."""
    return DynamicTensor(tensor.view(shape), leading_dim=2)


def scan_other_axis(cfg: Static, names: Static, inputs: Many):
    """Return the scan along an axis that is not the last, of the inputs' shape."""
    inputs = tuple(make_contiguous(x) for x in inputs)
    check_inputs(names, inputs, cfg.axis + 1)
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
            batches,
            rows,
            columns,
        ),
    )
    return y
