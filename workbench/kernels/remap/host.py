"""Reads at another index of torch tensors: check, extents of the result, launch."""

import math

import cutlass
import torch

from workbench.kernels.elementwise.columns import flat_tensor
from workbench.kernels.elementwise.kernel import are_aligned
from workbench.kernels.host import (
    EXACT_DTYPES,
    FLOAT_DTYPES,
    INDEX_DTYPES,
    MAX_ELEMENTS,
    call,
    check_operand,
    check_rank,
)
from workbench.kernels.remap.kernel import launch_remap
from workbench.kernels.remap.linear import launch_linear
from workbench.kernels.static import Many, Static, bind, torch_dtype

WARP = 32
IDLE = 8  # of so many rows of a thread's share at most one may lie outside (inferred)


def remap(cfg: Static, names: Static, x, others: Many):
    """Return x, read at another index of some axes, with an expression of each element and of `others`.

    The others have the result's shape. A plain copy takes any type but complex numbers and float64.
    """
    check_rank(names["x"], x, cfg.rank)
    check_operand(names["x"], x, x.shape, (*EXACT_DTYPES, *INDEX_DTYPES) if cfg.is_plain else FLOAT_DTYPES)
    shape = list(x.shape)
    for number, axis in enumerate(cfg.axes):
        shape[axis] = find_extent(cfg, names["x"], x.shape[axis], number, axis)
    for name, other in zip(names["others"], others, strict=True):
        check_operand(name, other, torch.Size(shape), EXACT_DTYPES)
    out = torch.empty(shape, dtype=torch_dtype(cfg.out) if cfg.out else x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    if x.numel() == 0:
        if cutlass.const_expr(cfg.is_plain):
            return out.fill_(cfg.value)
        raise ValueError(f"{names['x']} has the shape {tuple(x.shape)}; this kernel wants elements")
    x = x.detach().contiguous()
    others = tuple(other.detach().contiguous() for other in others)
    if x.dtype == torch.bool:
        x = x.view(torch.uint8)
    result = out.view(torch.uint8) if out.dtype == torch.bool else out
    layer = max(x.numel() // x.shape[0], out.numel() // out.shape[0])
    is_one = max(x.numel(), out.numel()) <= MAX_ELEMENTS
    if not is_one and (x.dim() == cfg.rank or layer > MAX_ELEMENTS):
        raise ValueError(f"{names['x']} has the shape {tuple(x.shape)}; this kernel supports {MAX_ELEMENTS} elements")
    layers = out.shape[0] if is_one else MAX_ELEMENTS // layer
    for start in range(0, out.shape[0], layers):
        pieces = tuple(other[start : start + layers] for other in others)
        compute_remap(cfg, x if is_one else x[start : start + layers], pieces, result[start : start + layers])
    return out


def find_extent(cfg: Static, name, size, number: Static, axis: Static):
    """Return the extent of the result along a changed axis of x."""
    if cutlass.const_expr(cfg.mode == "flip" or (cfg.mode == "circular" and len(cfg.behind) == 0)):
        return size
    if cutlass.const_expr(cfg.mode in ("nearest", "nearest_exact", "linear")):
        extent = cfg.extents[number] if cfg.extents else math.floor(size * cfg.scales[number])
    else:
        extent = size + cfg.before[number] + cfg.behind[number]
    if cutlass.const_expr(cfg.mode in ("reflect", "circular")):
        most = size - 1 if cfg.mode == "reflect" else size
        if max(cfg.before[number], cfg.behind[number]) > most:
            raise ValueError(f"{name} has {size} elements on axis {axis}; {cfg.mode} padding takes at most {most}")
    if extent < 0 or (size == 0 and extent > 0 and cfg.mode != "constant"):
        raise ValueError(f"{name} has {size} elements on axis {axis}, which are too few for this {cfg.mode} read")
    return extent


def find_number(cfg: Static, size, extent, number: Static):
    """Return what the kernels take for a changed axis: elements in front, or the step along x of one place."""
    if cutlass.const_expr(cfg.mode in ("nearest", "nearest_exact", "linear")):
        if cutlass.const_expr(cfg.align_corners):
            return cutlass.Float32((size - 1) / (extent - 1) if extent > 1 else 0.0)
        return cutlass.Float32(1.0 / cfg.scales[number] if cfg.scales else size / extent)
    if cutlass.const_expr(cfg.mode == "circular" and len(cfg.behind) == 0):
        return cutlass.Int32(cfg.before[number] % size)
    return cutlass.Int32(cfg.before[number] if cfg.before else 0)


def compute_remap(cfg: Static, x, others: Many, out):
    """Launch the kernel for contiguous tensors of at most MAX_ELEMENTS elements."""
    if cutlass.const_expr(cfg.mode == "linear"):
        compute_linear(cfg, x, others, out)
        return
    begin, end = cfg.columns
    size, columns = math.prod(x.shape[begin:end]), math.prod(out.shape[begin:end])
    if cutlass.const_expr(cfg.moves_columns):
        width, number = 1, find_number(cfg, size, columns, len(cfg.axes) - 1)
    else:
        width = math.gcd(cfg.vector, columns) if are_aligned(x, *others, out) else 1
        number = 0
    ends = tuple(cutlass.Int32(math.prod(out.shape[first:last])) for _, first, last in cfg.groups)
    sizes = tuple(cutlass.Int32(math.prod(x.shape[first:last])) for _, first, last in cfg.groups)
    numbers = tuple(find_group_number(cfg, x, out, group, first) for group, first, _ in cfg.groups)
    _, first, last = cfg.groups[0]
    rows = math.prod(out.shape[first:last])
    turns = count_turns(cfg, rows, columns // width)
    call(
        bind(launch_remap, cfg),
        (x.dtype, *(b.dtype for b in others), out.dtype, width, turns),
        (
            flat_tensor(x, width),
            tuple(flat_tensor(b, width) for b in others),
            flat_tensor(out, width),
            columns // width,
            size // width,
            number,
            (rows + turns - 1) // turns,
            out.numel() // (rows * columns),
            ends,
            sizes,
            numbers,
        ),
        (width, turns),
    )


def count_turns(cfg: Static, rows, columns):
    """Return how many neighbouring rows a thread computes: few of rows shorter than a warp, and of few rows."""
    turns = cfg.unroll if columns >= WARP else 1
    while turns > 1 and (rows + turns - 1) // turns * turns * IDLE > rows * (IDLE + 1):
        turns //= 2
    return turns


def find_group_number(cfg: Static, x, out, number: Static, axis: Static):
    """Return `find_number` of a group of axes; of one that does not change, a number that nothing reads."""
    if cutlass.const_expr(number < 0):
        return cutlass.Int32(0)
    return find_number(cfg, x.shape[axis], out.shape[axis], number)


def compute_linear(cfg: Static, x, others: Many, out):
    """Launch the kernel of linear interpolation."""
    columns = out.shape[-1]
    lines = out.shape[-2] if cfg.rank > 1 else out.numel() // columns
    ends = tuple(cutlass.Int32(out.shape[axis]) for _, axis in cfg.lines)
    sizes = tuple(cutlass.Int32(x.shape[axis]) for _, axis in cfg.lines)
    scales = tuple(find_number(cfg, x.shape[axis], out.shape[axis], number) for number, axis in cfg.lines)
    turns = count_turns(cfg, lines, columns)
    call(
        bind(launch_linear, cfg),
        (x.dtype, *(b.dtype for b in others), out.dtype, turns),
        (
            flat_tensor(x, 1),
            tuple(flat_tensor(b, 1) for b in others),
            flat_tensor(out, 1),
            columns,
            lines,
            (lines + turns - 1) // turns,
            out.numel() // (lines * columns),
            ends,
            sizes,
            scales,
        ),
        (turns,),
    )
