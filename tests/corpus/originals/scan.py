"""scan(mul(x, mask), op=sum, axis=last) .arch(sm_80) .threads(256) .per_thread(16) .schedule(rows)"""

import math

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from torch import nn

WARPS = 8  # warps of a CTA
PER_THREAD = 16  # elements per thread
IDENTITY = 0.0  # identity of the operator
TILE = 4096  # elements of a tile
THREADS = 256  # threads of a CTA
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of operands; the kernels compute in float32
EXACT_DTYPES = (*FLOAT_DTYPES, torch.bool, torch.uint8, torch.int8, torch.int16)  # float32 represents these exactly
MAX_ELEMENTS = (1 << 31) - (1 << 20)  # elements of one launch: offsets, and a margin, fit into int32
compiled: dict = {}


def make_contiguous(tensor):
    """Return the tensor contiguous, and booleans as bytes."""
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def check_rank(name, tensor, least, most=None):
    """Check that an operand has `least` to `most` axes; `most` None means no limit."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        if most is None:
            wanted = f"{least} axes or more"
        else:
            wanted = f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")


def is_broadcastable(own, shape):
    """Return whether a tensor of shape `own` broadcasts to `shape`."""
    pairs = zip(reversed(own), reversed(shape), strict=False)
    return len(own) <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def check_operand(name, tensor, shape, dtypes=FLOAT_DTYPES, broadcast=False):
    """Check the shape and dtype of an operand.

    `dtypes`: accepted dtypes. `broadcast`: the operand may also have a shape that broadcasts to `shape`.
    """
    own = tensor.shape
    if own != shape and not (broadcast and is_broadcastable(own, shape)):
        wanted = f"{tuple(shape)}{', or a shape that broadcasts to it' if broadcast else ''}"
        raise ValueError(f"{name} has the shape {tuple(own)}; this kernel wants {wanted}")
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} is {tensor.dtype}; this kernel takes {', '.join(map(str, dtypes))}")


def check_inputs(x, mask):
    """Check that the inputs have one shape, enough axes and supported dtypes."""
    first = x
    check_rank("x", first, 1)
    check_operand("x", first, first.shape)
    check_operand("mask", mask, first.shape, EXACT_DTYPES)


def check_element_count(name, tensor):
    """Check that a tensor fits into one launch, for kernels whose tensors cannot be split."""
    if tensor.numel() > MAX_ELEMENTS:
        raise ValueError(f"{name} has {tensor.numel()} elements; this kernel supports at most {MAX_ELEMENTS}")


def access_width(columns, x, mask):
    """Return the elements per access, at most 16 bytes, that all rows and addresses allow."""
    x_size = 16 // x.element_size()
    mask_size = 16 // mask.element_size()
    x_start = x.data_ptr() // x.element_size()
    mask_start = mask.data_ptr() // mask.element_size()
    return math.gcd(columns, x_size, mask_size, x_start, mask_start)


def view_flat(tensor, width):
    """Return the 1-d CuTe tensor of a contiguous tensor, accessed `width` elements at a time."""
    return from_dlpack(tensor.view(-1), assumed_align=width * tensor.element_size()).mark_layout_dynamic()


@cute.jit
def load_fragment(x: cute.Tensor, vector, width: cutlass.Constexpr):
    """Load one vector of x to registers."""
    fragment = cute.make_rmem_tensor(cute.make_layout(width), x.element_type)
    cute.autovec_copy(cute.zipped_divide(x, (width,))[None, vector], fragment)
    return fragment


def scanned_value(x, mask):
    return x * mask


@cute.jit
def load_tile(
    x_view: cute.Tensor, mask_view: cute.Tensor, values: cute.Tensor, start, first, vectors, width: cutlass.Constexpr
):
    """Load this thread's elements of a tile to `values`; elements past the row's end are left unchanged."""
    for v in cutlass.range_constexpr(PER_THREAD // width):
        place = first + v * 32
        if first + v * 32 < vectors:
            x_fragment = load_fragment(x_view, start + place, width)
            mask_fragment = load_fragment(mask_view, start + place, width)
            for e in cutlass.range_constexpr(width):
                x_element = x_fragment[e].to(cutlass.Float32)
                mask_element = mask_fragment[e].to(cutlass.Float32)
                value = scanned_value(x_element, mask_element)
                values[e, v] = value


def combine(a, b):
    """Combine two values; `a` precedes `b`."""
    return a + b


@cute.jit
def scan_warp(values: cute.Tensor, prefixes: cute.Tensor, width: cutlass.Constexpr):
    """Scan each vector in place and the vectors of the warp, exclusively, into `prefixes`; return the warp's total.

    Vector v of lane l is number v * 32 + l of the warp's part of the tile.
    """
    lane = cute.arch.lane_idx()
    carry = cutlass.Float32(IDENTITY)
    for v in cutlass.range_constexpr(PER_THREAD // width):
        for e in cutlass.range_constexpr(1, width):
            values[e, v] = combine(values[e - 1, v], values[e, v])
        running = values[width - 1, v]
        for step in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(running, offset=1 << step)
            if lane >= 1 << step:
                running = combine(below, running)
        earlier = cute.arch.shuffle_sync_up(running, offset=1)
        if lane == 0:
            earlier = cutlass.Float32(IDENTITY)
        prefixes[v] = combine(carry, earlier)
        last = cute.arch.shuffle_sync(running, 31)
        carry = combine(carry, last)
    return carry


@cute.jit
def store_tile(
    y: cute.Tensor, values: cute.Tensor, prefixes: cute.Tensor, earlier, start, first, vectors, width: cutlass.Constexpr
):
    """Combine this thread's elements with their prefix and store them to y."""
    stored = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)
    for v in cutlass.range_constexpr(PER_THREAD // width):
        place = first + v * 32
        offset = combine(earlier, prefixes[v])
        if first + v * 32 < vectors:
            for e in cutlass.range_constexpr(width):
                result = combine(offset, values[e, v]).to(y.element_type)
                stored[e] = result
            cute.autovec_copy(stored, cute.zipped_divide(y, (width,))[None, start + place])


@cute.kernel
def scan_kernel(
    x_view: cute.Tensor, mask_view: cute.Tensor, y: cute.Tensor, columns: cutlass.Int32, width: cutlass.Constexpr
):
    """Scan one row; the next tile is loaded while this one is scanned."""
    tidx, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    warp, lane = tidx // 32, tidx % 32
    smem = cutlass.memory.SmemAllocator()
    # totals are double-buffered, so one barrier per tile is enough
    totals_layout = cute.make_layout((2, WARPS), stride=(WARPS, 1))
    totals = smem.allocate_tensor(cutlass.Float32, totals_layout, 16)
    vectors = columns // width  # of a row
    start = cutlass.Int64(row) * vectors
    first = warp * (32 * PER_THREAD // width) + lane
    layout = cute.make_layout((width, PER_THREAD // width))
    ahead = cute.make_rmem_tensor(layout, cutlass.Float32)
    values = cute.make_rmem_tensor(layout, cutlass.Float32)
    prefixes = cute.make_rmem_tensor(PER_THREAD // width, cutlass.Float32)
    ahead.fill(IDENTITY)
    load_tile(x_view, mask_view, ahead, start, first, vectors, width)
    carry = cutlass.Float32(IDENTITY)
    for tile in range((vectors + TILE // width - 1) // (TILE // width)):
        values.store(ahead.load())
        load_tile(x_view, mask_view, ahead, start, first + TILE // width, vectors, width)
        total = scan_warp(values, prefixes, width)
        if lane == 0:
            totals[tile % 2, warp] = total
        earlier = cutlass.Float32(IDENTITY)
        cute.arch.sync_threads()
        for w in cutlass.range_constexpr(WARPS):
            if w == warp:
                earlier = carry
            total = totals[tile % 2, w]
            carry = combine(carry, total)
        store_tile(y, values, prefixes, earlier, start, first, vectors, width)
        first += TILE // width


@cute.jit
def scan_rows(
    x_view: cute.Tensor,
    mask_view: cute.Tensor,
    y: cute.Tensor,
    columns: cutlass.Int32,
    rows: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
):
    """Inputs (rows * columns), y of the same size, or (rows * (columns + 1)) with totals.

    `width`: elements per access.
    """
    scan_kernel(x_view, mask_view, y, columns, width).launch(grid=[rows, 1, 1], block=[THREADS, 1, 1], stream=stream)


def call(function, key, arguments, constants=()):
    """Launch on torch's current stream; compile on the first call of each key (dtypes, layouts, vector width).

    Calling a jit function takes milliseconds each time, calling a compiled one takes microseconds.
    """
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, stream, *constants)
    compiled[function, key](*arguments, stream)


def launch_rows(x, mask, y):
    """Scan contiguous inputs along their last axis with one CTA per row."""
    columns = x.shape[-1]
    width = access_width(columns, x, mask)
    x_kind = x.dtype
    mask_kind = mask.dtype
    x_view = view_flat(x, width)
    mask_view = view_flat(mask, width)
    rows = x.numel() // columns
    call(
        scan_rows,
        (x_kind, mask_kind, width),
        (x_view, mask_view, view_flat(y, width), cutlass.Int32(columns), cutlass.Int32(rows)),
        (width,),
    )


def scan_last_axis(x, mask):
    """Return the scan along the last axis; with totals it has one more column."""
    x = make_contiguous(x)
    mask = make_contiguous(mask)
    check_inputs(x, mask)
    first = x
    y = torch.empty(first.shape, dtype=first.dtype, device=first.device)
    if first.numel() == 0:
        return y
    check_element_count("x", y)
    launch_rows(x, mask, y)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        return scan_last_axis(x, mask)
